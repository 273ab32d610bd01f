"""`bench`: speed on this machine, compared with theoretical limits."""

import json
from typing import Annotated, Any

import typer

from x402sim.commands.common import NOT_ALL_HELD, AsJson, give_up, quiet
from x402sim.text.suggest import unknown as unknown_name

_MEANING = {
    "raw signatures": "1 signature and 2 recoveries by libsecp256k1, nothing else",
    "protocol.crypto": "the same by x402sim, with digests, addresses and checks",
    "httpx": "402, sign, verify, settle, served: every request through httpx",
    "plain ASGI": "the same, every request a direct ASGI call",
    "direct": "the same, no HTTP: function calls",
    "bare uvicorn": "answers 200 with 5 bytes; same parser, same event loop",
    "x402sim serve": "answers 402 with new requirements",
}


def bench(
    as_json: AsJson = False,
    seconds: Annotated[
        float, typer.Option(help="Seconds for each comparison.", min=0.01, max=3600)
    ] = 10.0,
    payers: Annotated[int, typer.Option(help="Payers of the simulated day.", min=1)] = 1000,
    hours: Annotated[float, typer.Option(help="Simulated hours of the day.", min=0.01)] = 24.0,
    payments: Annotated[int, typer.Option(help="Payments of the long run.", min=10)] = 100_000,
    points: Annotated[int, typer.Option(help="Points of the sweep.", min=1)] = 4000,
    only: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PART",
            help="Part to measure: lifecycles, served, day, long or sweep; repeatable. "
            "[default: the first three]",
        ),
    ] = None,
) -> None:
    """Measure speed on this machine, against a minimal server.

    - lifecycles: payments per second (402, signature, settlement through the facilitator
      on the ledger, repeated request served) over three transports, compared with the
      signatures alone. All three must make the same transactions. The journal's share is
      the time that recording the events of a lifecycle takes, compared with each transport.
    - served: 402s per second over loopback TCP, compared with a bare uvicorn.
    - day: a thousand payers for a simulated day, in one process.
    - long (only if asked for, as it takes about ten minutes): 100,000 payments in one
      run with its journal on disk, and the CPU time and memory of a payment in each tenth.
    - sweep (only if asked for, as it takes a minute or two): `x402sim.sweep` of 4,000 points
      in one fresh process, and in two. A busy machine makes the ratio smaller.

    All rounds alternate in one run, and the output has their medians: the ratios hold on
    other machines, the absolute numbers do not.
    """
    from x402sim.bench.measure import DEFAULT, PARTS, Size, measure
    from x402sim.commands.progress import Progress

    unknown = [name for name in only or [] if name not in PARTS]
    if unknown:
        raise give_up(f"--only: {unknown_name('part', unknown[0], PARTS)}")
    size = Size(seconds=seconds, payers=payers, hours=hours, payments=payments, points=points)
    try:
        with quiet(), Progress(1.0, shown=not as_json) as progress:
            measured = measure(size, only or DEFAULT, progress.update)
    except ModuleNotFoundError as error:
        raise give_up(f"--only sweep: {error}") from error
    except (AssertionError, RuntimeError, OSError) as error:
        typer.echo(f"x402sim: the benchmark failed: {error}", err=True)
        raise typer.Exit(NOT_ALL_HELD) from error
    typer.echo(json.dumps(measured, indent=2) if as_json else "\n".join(_lines(measured)))


def _lines(measured: dict[str, Any]) -> list[str]:
    """Return the numbers as lines of at most 80 columns."""
    machine = measured["machine"]
    lines = [
        f"Python {machine['python']}, {machine['system']}, {machine['cpus']} CPUs, "
        f"keccak of {machine['keccak']}"
    ]
    if "lifecycles" in measured:
        found = measured["lifecycles"]
        lines += ["", *_table("lifecycles", "of the raw limit", found["paces"])]
        count = len(found["outcome"]["transfers"])
        lines.append(f"All three transports made the same {count} transactions.")
        lines += _journal_share(found["journal"])
    if "served" in measured:
        lines += ["", *_table("402s over loopback", "of bare uvicorn", measured["served"]["paces"])]
    if "day" in measured:
        lines += ["", *_day(measured["day"])]
    if "long" in measured:
        lines += ["", *_long(measured["long"])]
    if "sweep" in measured:
        lines += ["", *_sweep(measured["sweep"])]
    return lines


def _table(title: str, ratio: str, paces: list[dict[str, Any]]) -> list[str]:
    lines = [f"{title:<24}{'per second':>12}{'us each':>12}{ratio:>20}"]
    for pace in paces:
        numbers = f"{pace['per_s']:>12,.0f}{pace['us']:>12,.1f}{pace['ratio']:>20.3f}"
        lines += [f"{pace['name']:<24}{numbers}", f"  {_MEANING[pace['name']]}"]
    return lines


def _journal_share(journal: dict[str, Any]) -> list[str]:
    shares = ", ".join(f"{share:.2%} of {name}" for name, share in journal["share"].items())
    return [
        f"The journal records the {journal['events']} events of a lifecycle in "
        f"{journal['us']:.1f} us:",
        f"  {shares}",
    ]


def _day(day: dict[str, Any]) -> list[str]:
    return [
        f"{day['payers']:,} payers, {day['virtual_s'] / 3600:.3g} h simulated, one process",
        f"  real time         {day['real_s']:.1f} s: {day['speed_up']:,.0f} times real time",
        f"  requests          {day['requests']:,} by payers, {day['payments']:,} payments",
        f"  sessions          {day['sessions']:,}, debited {day['debits']:,} times",
        f"  journal           {day['events']:,} events",
        f"journal sha256 {day['journal_sha256']}",
    ]


def _long(long: dict[str, Any]) -> list[str]:
    costs = [f"{us:,.0f}" for us in long["us_each"]]
    held = long["bytes_each"]
    return [
        f"{long['payments']:,} payments in one run, {long['events']:,} events on disk",
        f"  CPU us a payment  {costs[0]} in the first tenth, {costs[-1]} in the last",
        f"  growth            {long['growth']:.2f} times, from the third tenth to the last",
        f"  memory a payment  {'unknown' if held is None else f'{held / 1000:.1f} kB'}",
        f"journal sha256 {long['journal_sha256']}",
    ]


def _sweep(swept: dict[str, Any]) -> list[str]:
    points = swept["points"]
    return [
        f"{points:,} points of a sweep, in fresh processes",
        f"  one process       {swept['one_s']:.1f} s, {1000 * swept['one_s'] / points:.1f} ms each",
        f"  two processes     {swept['two_s']:.1f} s, {swept['ratio']:.2f} times as fast",
    ]
