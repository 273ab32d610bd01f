"""`python -m tests.bench`: measures speed on this machine, against a minimal server.

- lifecycles: paid requests per second in a world (402, signature, settlement through the facilitator
  on the ledger, repeated request served), compared with the signatures alone, and the share of it
  that recording its events takes.
- served: 402s per second over loopback TCP, compared with a bare uvicorn.
- day: a thousand payers for a simulated day, in one process.
- long (only if asked for, as it takes about ten minutes): 100,000 payments in one run with its
  journal on disk, and the CPU time and memory of a payment in each tenth.
- sweep (only if asked for, as it takes a minute or two): `x402sim.sweep` of 4,000 points in one
  fresh process, and in two. A busy machine makes the ratio smaller.

Rounds alternate, and medians are printed: the ratios hold on other machines, the numbers do not.
"""

import argparse
import os
import platform
import sys
from collections.abc import Callable, Iterator

from tests.bench import day, lifecycle, long, served, sweeping
from tests.bench.rounds import Pace, Work, race

RAW, OURS, PAID, JOURNAL = "raw signatures", "protocol.crypto", "paid requests", "journal"
MEANING = {
    RAW: "1 signature and 2 recoveries by libsecp256k1, nothing else",
    OURS: "the same by x402sim, with digests, addresses and checks",
    PAID: "402, sign, verify, settle, served: over the links of a world",
    served.BARE: "answers 200 with 5 bytes; same parser, same event loop",
    served.OURS: "answers 402 with new requirements",
}


def lifecycles(given: argparse.Namespace) -> Iterator[str]:
    """Compare paid requests with their signatures alone."""
    recorder = lifecycle.Recorder()
    works: dict[str, Work] = {RAW: lifecycle.sign_raw, OURS: lifecycle.sign_ours}
    works |= {PAID: lifecycle.pay, JOURNAL: recorder.work}
    paces = race(works, given.seconds)
    journal = paces.pop(JOURNAL)
    yield from table("lifecycles", "of the raw limit", paces)
    us, share = 1e6 / journal.per_s, paces[PAID].ratio(journal)
    yield f"The journal records its {len(recorder.events)} events in {us:.1f} us: {share:.2%} of it."


def servers(given: argparse.Namespace) -> Iterator[str]:
    """Compare the server with a bare one."""
    with served.askers() as askers:
        works = {name: asker.work for name, asker in askers.items()}
        yield from table("402s over loopback", "of bare uvicorn", race(works, given.seconds))


def table(title: str, ratio: str, paces: dict[str, Pace]) -> Iterator[str]:
    """Yield the paces; the first one is the limit."""
    limit = next(iter(paces.values()))
    yield f"{title:<24}{'per second':>12}{'us each':>12}{ratio:>20}"
    for name, pace in paces.items():
        numbers = f"{pace.per_s:>12,.0f}{1e6 / pace.per_s:>12,.1f}{pace.ratio(limit):>20.3f}"
        yield f"{name:<24}{numbers}"
        yield f"  {MEANING[name]}"


PARTS: dict[str, Callable[[argparse.Namespace], Iterator[str]]] = {
    "lifecycles": lifecycles,
    "served": servers,
    "day": lambda given: day.simulate(given.payers, given.hours).lines(),
    "long": lambda given: long.simulate(given.payments).lines(),
    "sweep": lambda given: sweeping.measure(given.points).lines(),
}
QUICK = ["lifecycles", "served", "day"]
"""The parts that take less than a minute together."""


def main(arguments: list[str] | None = None) -> None:
    """Measure, and print each part as soon as it is done."""
    given = _parser().parse_args(arguments)
    system = f"{platform.system()} {platform.machine()}, {os.cpu_count()} CPUs"
    print(f"Python {platform.python_version()}, {system}")
    for name in given.only or QUICK:
        print("", *PARTS[name](given), sep="\n", flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--only", choices=PARTS, action="append", help="a part; repeatable")
    parser.add_argument("--seconds", type=float, default=10.0, help="for each comparison")
    parser.add_argument("--payers", type=int, default=1000, help="of the day")
    parser.add_argument("--hours", type=float, default=24.0, help="of the day")
    parser.add_argument("--payments", type=int, default=100_000, help="of the long run")
    parser.add_argument("--points", type=int, default=4000, help="of the sweep")
    return parser


if __name__ == "__main__":
    sys.exit(main())
