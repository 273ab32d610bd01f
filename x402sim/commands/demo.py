"""`demo`: one paid request through every component, step by step.

Real HTTP goes to a local server, and `pay` pays; each step reads numbers from the component behind
the step.
"""

from collections.abc import Iterator
from typing import Any

import httpx
import typer

from x402sim.clock import Clock
from x402sim.commands import common
from x402sim.commands.common import Step, print_step
from x402sim.commands.purchase import Local, Purchase
from x402sim.events import AnswerSent, PaymentSettled, TransactionMined, name_of
from x402sim.payer.signing import Allowed
from x402sim.protocol import routes
from x402sim.protocol.networks import Network
from x402sim.protocol.values import Amount, change, data_of, meant
from x402sim.serving.local import LocalServer


def demo(as_json: common.AsJson = False) -> None:
    """Pay for a quote through every component, and print each step."""
    steps = []
    for step in _play():
        steps.append(step)
        if not as_json:
            print_step(len(steps), step)
    all_ok = all(step.ok for step in steps)
    if as_json:
        facts = [{"title": step.title, "ok": step.ok, **data_of(step.facts)} for step in steps]
        common.print_json({"ok": all_ok, "steps": facts})
    elif all_ok:
        typer.echo("Paid, served and indexed.")
    if not all_ok:
        raise typer.Exit(common.NOT_ALL_HELD)


def _play() -> Iterator[Step]:
    with (
        LocalServer(seed=0) as server,
        httpx.Client(base_url=server.url) as http,
    ):
        payer, before, network = server.wallets[0], _balances(server), server.network
        facts = {"service": server.url, "payer": payer.address}
        yield Step("The world is up", True, {**facts, "balance": _amount(before[0], network)})
        mark, steps = server.journal.length, list[Step]()
        request = http.build_request("POST", routes.QUOTE, json=routes.ORDER)
        here = Local(Allowed({network.name: network}, [], Clock(), frozenset({network.name})))
        served = Purchase(http, payer, here, request, steps.append, "0.05").buy()
        steps[-1].facts["quote"] = served.json().get("quote")
        yield from steps
        yield from _behind(server, mark, before)
        if steps[-1].ok:
            http.post("/_sim/indexer/run")
            record = http.get(f"{routes.PAYMENTS}{served.request.headers['X-Payment-Id']}").json()
            facts = {name: record[name] for name in ("status", "block_number")}
            title = "The indexer queried the explorer, and completed the stored record"
            yield Step(title, record["block_number"] == server.transfers()[-1].block_number, facts)


def _behind(server: LocalServer, mark: int, before: list[int]) -> Iterator[Step]:
    """Yield the work of the components since the event `mark`, and the moved money."""
    happened = [entry.event for entry in server.journal.since(mark)]
    price_base = sum(each.amount_base for each in happened if isinstance(each, PaymentSettled))
    behind = [
        f"{each.actor} {each.path} {each.status}" if isinstance(each, AnswerSent) else name_of(each)
        for each in happened
    ]
    title = "The service asked the facilitator to verify and settle"
    yield Step(title, price_base > 0, {"behind": behind})
    after, network = _balances(server), server.network
    balances = [
        change(_amount(old, network), _amount(new, network))
        for old, new in zip(before, after, strict=True)
    ]
    mined: dict[str, Any] = {"payer": balances[0], "merchant": balances[1]}
    for each in happened:
        if isinstance(each, TransactionMined):
            mined |= {"block": each.block, "gas": meant(each.gas, f"paid by {each.sender}", " ")}
    has_moved = after == [before[0] - price_base, before[1] + price_base]
    title = "The token moved the money, and the facilitator paid the gas"
    yield Step(title, has_moved and "gas" in mined, mined)


def _amount(amount_base: int, network: Network) -> Amount:
    return Amount(amount_base, network.decimals, network.token_symbol)


def _balances(server: LocalServer) -> list[int]:
    return [server.balance(each) for each in (server.wallets[0].address, server.info.pay_to)]
