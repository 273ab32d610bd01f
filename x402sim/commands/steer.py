"""`fault`, `advance`, `mine`, `accounts` and `payments`: steer a running `serve` by a word.

All call the control API, `/_sim`, with the token in X402SIM_CONTROL_TOKEN, if set.
"""

import asyncio
import json
import os
import re
from typing import Annotated, Any, Literal

import httpx
import msgspec
import typer

from x402sim.commands.common import NOT_ALL_HELD, AsJson, Misuse, within
from x402sim.commands.serve import TOKEN_VARIABLE
from x402sim.serving.control.client import ControlClient, ControlError
from x402sim.text.words import as_given, printable
from x402sim.world.faults import DOES

World = Annotated[
    str,
    typer.Option(
        help=f"URL of the running `serve`; {TOKEN_VARIABLE} has its --control-token, if any.",
        metavar="URL",
    ),
]
SERVE = "http://127.0.0.1:4020"
TIMEOUT_S = 30.0
_VICTIM = "Who gets the requests: service, facilitator, explorer, rpc."
_DOES = f"The effect: {', '.join(DOES)}."
_FIELD = "Which requests: path=/settle, times=2 (null: all), probability=0.1; seconds=3 of a delay."
_LENGTH = re.compile(r"(\d+(?:\.\d+)?)(s|min|m|h|d)?")


def _ask(world: str, method: str, path: str, body: Any = None) -> Any:
    """Return the answer of the control API; raises `Misuse`."""

    async def main() -> Any:
        base = world.rstrip("/").removesuffix("/_sim") + "/_sim"
        token = os.environ.get(TOKEN_VARIABLE)
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        async with httpx.AsyncClient(base_url=base, headers=headers, timeout=TIMEOUT_S) as http:
            return await ControlClient(http).request(method, path, body)

    try:
        return asyncio.run(main())
    except (ControlError, httpx.InvalidURL) as wrong:
        is_lost = isinstance(wrong, ControlError) and wrong.answer is None
        todo = f"; is `x402sim serve` running at {world}?" if is_lost else ""
        raise Misuse(f"{wrong}{todo}") from wrong


def seconds(text: str) -> float:
    """Parse "90", "90s", "5min", "1h" or "2d" as seconds."""
    found = _LENGTH.fullmatch(text)
    if found is None:
        raise typer.BadParameter(f"a time such as 90s, 5min, 1h or 2d is wanted, not {text!r}")
    return float(found[1]) * {"s": 1, "min": 60, "m": 60, "h": 3600, "d": 86400}[found[2] or "s"]


def _field(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals:
        raise Misuse(f"fault add: FIELD=VALUE is wanted, such as times=2, not {as_given(text)}")
    try:
        return name, msgspec.json.decode(value)
    except msgspec.DecodeError:
        return name, value


def fault(
    action: Annotated[
        Literal["add", "list", "clear"],
        typer.Argument(metavar="add|list|clear", help="What to do with the faults."),
    ],
    victim: Annotated[str | None, typer.Argument(metavar="VICTIM", help=_VICTIM)] = None,
    does: Annotated[str | None, typer.Argument(metavar="DOES", help=_DOES)] = None,
    given: Annotated[list[str] | None, typer.Argument(metavar="FIELD=VALUE", help=_FIELD)] = None,
    world: World = SERVE,
) -> None:
    """Add a fault to a running `serve`, list the faults, or clear them."""
    if action == "add":
        if victim is None or does is None:
            raise Misuse('fault add: name a victim and an effect: add service "lose answer"')
        body = {"victim": victim, "does": does, **dict(map(_field, given or []))}
        _ask(world, "POST", "faults", body)
    elif victim is not None:
        raise Misuse(f"fault {action} takes no more words, got {as_given(victim)}")
    elif action == "clear":
        _ask(world, "POST", "faults/clear")
    found = _ask(world, "GET", "faults")
    for each in found:
        typer.echo(printable(json.dumps(each)))
    if not found:
        typer.echo("no faults", err=True)


def advance(
    time: Annotated[str, typer.Argument(metavar="TIME", help="Such as 90s, 5min, 1h or 2d.")],
    world: World = SERVE,
) -> None:
    """Move the clock of a running `serve` forward, and run what is due."""
    length = seconds(time)
    _ask(world, "POST", "clock/advance", {"seconds": length})
    state = _ask(world, "GET", "state")
    typer.echo(f"{state['clockAdvancedSeconds']:g} s ahead of real time")


def mine(
    blocks: Annotated[
        int, typer.Argument(metavar="N", parser=within(1, 1000), help="How many blocks.")
    ] = 1,
    world: World = SERVE,
) -> None:
    """Mine blocks on the chain of a running `serve`."""
    height = _ask(world, "POST", "mine", {"blocks": blocks})["height"]
    typer.echo(f"block {height}")


def accounts(
    failing: Annotated[
        bool, typer.Option("--failing", help="Make, and list, accounts that fail in fixed ways.")
    ] = False,
    world: World = SERVE,
    as_json: AsJson = False,
) -> None:
    """List the accounts of a running `serve`, with their private keys."""
    method, path = ("POST", "accounts/failing") if failing else ("GET", "accounts")
    found = _ask(world, method, path)
    if as_json:
        typer.echo(json.dumps(found))
        return
    for number, each in enumerate(found):
        name = each.get("fails") or f"account {number}"
        typer.echo(printable(f"{name}: {each['address']} has {each['balanceDecimal']}"))
        typer.echo(printable(f"  key {each['privateKey']}"))
        if failing:
            nonce = f", nonce {each['nonce']}" if each.get("nonce") else ""
            typer.echo(printable(f"  {each['why']}{nonce}"))


def payments(
    path: Annotated[str, typer.Argument(metavar="[PATH]", help="Only for this path.")] = "",
    times: Annotated[
        int | None, typer.Option(parser=within(0), help="Fail unless so many.", metavar="N")
    ] = None,
    world: World = SERVE,
    as_json: AsJson = False,
) -> None:
    """List the settled payments of a running `serve`, and demand a number of them."""
    query = httpx.QueryParams({"path": path})
    found = _ask(world, "GET", f"payments?{query}")
    if as_json:
        typer.echo(json.dumps(found))
    else:
        for each in found:
            told = f"{each['path']}: {each['amountBase']} by {each['payer']}, {each['txHash']}"
            typer.echo(printable(told))
    if not found and not path:
        typer.echo("no payments", err=True)
    if path and not found:
        paid = dict.fromkeys(each["path"] for each in _ask(world, "GET", "payments"))
        said = f"x402sim: no payment is for {path}; those of the world: {', '.join(paid) or 'none'}"
        typer.echo(printable(said), err=True)
    if times is not None and len(found) != times:
        where = f" for {path}" if path else ""
        said = f"x402sim: payments{where}: wanted {times}, and there are {len(found)}"
        typer.echo(printable(said), err=True)
        raise typer.Exit(NOT_ALL_HELD)
