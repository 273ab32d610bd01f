"""Chooses which offer of a 402 `PaymentAuth` pays, with the reason for each that it rejects.

Offers are tried in the payer's order: two steps, then version 2, then version 1; within each, those
that are settled before the server works come last. Nothing is signed.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import httpx

from x402sim.payer.core import PaymentFailed
from x402sim.payer.standard import Rejected, choose, read_required
from x402sim.protocol.findings import Finding, of_way
from x402sim.protocol.messages import PaymentRequired
from x402sim.protocol.money import parse_base
from x402sim.protocol.networks import Network
from x402sim.protocol.ways import Dialect, Way
from x402sim.protocol.x402 import PAYMENT_FLOW

_ORDER = (Dialect.TWO_STEPS, Dialect.V2, Dialect.V1)
OverCap = Callable[[int, Network], str]
"""Returns why an amount in base units of a network's token is not paid; "" if it is."""


@dataclass(frozen=True, slots=True)
class Picked:
    """The offer that is taken, if any, and those before it that were rejected."""

    number: int | None
    way: Way | None
    network: Network | None
    rejected: tuple[Rejected, ...]


def pick(
    request: httpx.Request,
    response: httpx.Response,
    ways: Sequence[tuple[int, Way]],
    known: Mapping[str, Network],
    over_cap: OverCap = lambda *_: "",
) -> Picked:
    """Return the first of some numbered offers that can be paid, in the payer's order."""
    rejected: list[Rejected] = []
    for number, way in sorted(ways, key=_preference):
        network = way.network(known)
        why = _why_not(request, response, way, network, known)
        if not why and network is not None:
            try:
                over = over_cap(parse_base(str(way.amount)), network)
            except ValueError as wrong:
                over = str(wrong)
            if not over:
                return Picked(number, way, network, tuple(rejected))
            rejected.append(Rejected(f"offer {number}", over, is_too_much=True))
        else:
            rejected.append(Rejected(f"offer {number}", why))
    return Picked(None, None, None, tuple(rejected))


def _preference(numbered: tuple[int, Way]) -> tuple[int, bool, int]:
    number, way = numbered
    return _ORDER.index(way.dialect), way.extra.get(PAYMENT_FLOW) == "upfront", number


def _why_not(
    request: httpx.Request,
    response: httpx.Response,
    way: Way,
    network: Network | None,
    known: Mapping[str, Network],
) -> str:
    """Return why an offer cannot be paid, whatever it costs; "" if it can."""
    if way.is_paywall:
        return "two steps as the public Cronos paywall offers them; Cronos' clients pay it"
    if found := list(blocking(of_way(way, known, str(request.url)))):
        return ", ".join(as_reason(each) for each in found)
    if network is None:
        return f"network {str(way.fields.get('network'))[:80]!r} is not known; --network-file"
    try:
        required = read_required(request, response, network, way.dialect.version)
        if not isinstance(required, PaymentRequired):
            choose(required, network)
    except PaymentFailed as failed:
        return str(failed)
    return ""


def blocking(findings: Iterator[Finding]) -> Iterator[Finding]:
    """Yield the findings for which `PaymentAuth` does not pay, unexamined fields included."""
    yield from (each for each in findings if each.stops or each.skipped)


def as_reason(finding: Finding) -> str:
    """Return a finding as a reason: "asset '0x…' is not looked at"."""
    if finding.skipped:
        return f"{finding.about} {finding.seen[:60]} is not looked at"
    return f"{finding.about} is {finding.seen[:60]}"
