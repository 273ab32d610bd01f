"""The log of `watch`: a line for each payment, with what was said of it and what is wrong in it."""

from collections.abc import Mapping
from typing import Any

from x402sim.protocol.crypto import checksum
from x402sim.protocol.money import to_decimal
from x402sim.protocol.networks import Network
from x402sim.protocol.ways import network_called
from x402sim.text.printable import printable
from x402sim.watch.recorder import HIDDEN, Seen
from x402sim.world.server.log import Form, LogLine, short


def line_of(seen: Seen, form: Form, known: Mapping[str, Network]) -> LogLine | None:
    """Return the line of an exchange: if it is about a payment, failed, or if all are wanted."""
    exchange, found = seen.exchange, seen.messages
    if not (found.is_payment or exchange.broke or form.is_verbose):
        return None
    return LogLine(
        time=form.time_of(exchange.ended),
        who=short(seen.payer) if seen.payer and not seen.is_hidden else exchange.client,
        method=found.method,
        path=f"/facilitator{found.target}" if found.to == "facilitator" else found.target,
        status=None if exchange.broke else found.status,
        ms=(exchange.ended - exchange.began) * 1000,
        error=exchange.broke or None,
        notes=[HIDDEN] if seen.is_hidden else _notes(seen, known),
    )


def _notes(seen: Seen, known: Mapping[str, Network]) -> list[str]:
    """Return what was offered, paid and refused, and what is wrong."""
    found, notes = seen.messages, list[str]()
    if not found.is_paying:
        offers = (
            f"offers {_money(way.amount, way.fields.get('network'), known)} "
            f"to {short(str(way.fields.get('payTo')))}"
            for way in found.ways
        )
        notes += list(dict.fromkeys(offers))[:5]
    if found.signed is not None:
        auth = found.signed.authorization
        amount = _money(str(auth.value), found.signed.network, known)
        notes.append(f"signed {amount} to {short(checksum(auth.to))}")
    if found.settled:
        notes.append(f"settled, transaction {short(str(found.tx_hash))}")
    elif found.signed is not None and found.refusal:
        notes.append(f"refused: {found.refusal}")
    elif found.to == "facilitator" and found.is_valid:
        notes.append("valid")
    struck = seen.exchange.struck
    if struck is not None and not seen.exchange.broke:
        notes.append(f'fault: "{struck.does}"')
    return notes + [
        f"{each.mark}: {each.about}: {each.seen}; wanted: {each.wanted}. {each.do}"
        for each in seen.findings
    ]


def _money(base: Any, name: Any, known: Mapping[str, Network]) -> str:
    network = network_called(name, known)
    text = printable(str(base))[:40]
    if network is None or not text.isdecimal():
        return f"{text} base units on {printable(str(name))[:40]}"
    return f"{to_decimal(int(text), network.decimals)} {network.token_symbol} on {network.name}"
