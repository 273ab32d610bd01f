"""What the page knows beforehand: the world that it shows, and the tables that explain it."""

from typing import Any

from x402sim import events
from x402sim.journal import Journal
from x402sim.payer.mistakes import MISTAKES
from x402sim.protocol.cronos import invalid_reason
from x402sim.protocol.messages import PaymentRequirements
from x402sim.protocol.refusals import Refusal
from x402sim.protocol.rules import SETTLEMENT, VERIFICATION, Presented
from x402sim.spec.clauses import CLAUSES
from x402sim.world.assembly.parts import Parts
from x402sim.world.assembly.site import ACTORS
from x402sim.world.control.context import merchant
from x402sim.world.transport.faults import FaultKind

DOES: dict[FaultKind, str] = {
    "lose answer": "does the work, then the connection breaks",
    "lose request": "the connection breaks before the work",
    "refuse": "the connection is refused",
    "delay request": "waits before the work",
    "delay answer": "waits after the work",
    "answer": "answers this status instead of doing the work",
    "truncate": "does the work, and half of the answer arrives",
    "duplicate": "gets the request twice",
    "crash before": "the service dies before the work",
    "crash after": "the service dies after the work",
}
"""What a victim does, or what happens to it, by the kind of fault."""


def of_world(parts: Parts) -> dict[str, Any]:
    """Return the words for a world that runs."""
    network = parts.service.setup.network
    accounts = {each.address.lower(): f"account {n}" for n, each in enumerate(parts.accounts)}
    return _tables() | {
        "live": True,
        "title": network.name,
        "service": parts.recipe.has_service,
        "symbol": network.token_symbol,
        "decimals": network.decimals,
        "names": {"0x" + merchant(parts).hex(): "merchant", **accounts},
        "victims": parts.faults.paths,
        "actors": ACTORS,
        "faults": DOES,
        "mistakes": {each.name: each.does for each in MISTAKES.values()},
    }


def of_journal(journal: Journal, title: str) -> dict[str, Any]:
    """Return the words for a run that was saved."""
    begin = next((e.event for e in journal if isinstance(e.event, events.Begin)), None)
    return _tables() | {
        "live": False,
        "title": title,
        "service": True,
        "symbol": begin.symbol if begin else "tokens",
        "decimals": begin.decimals if begin else 6,
        "names": _names(journal, begin),
    }


def _names(journal: Journal, begin: events.Begin | None) -> dict[str, str]:
    names = {begin.merchant.lower(): "merchant"} if begin and begin.merchant else {}
    for entry in journal.of(events.PayerJoined):
        if isinstance(entry.event, events.PayerJoined):
            names[entry.event.address.lower()] = entry.event.name
    return names


def _tables() -> dict[str, Any]:
    clauses = {each.id: each.text for each in CLAUSES}
    refusals = {}
    for each in Refusal:
        clause = "7/" + each.text.lower().replace(" usdc", "").replace(" ", "-")
        known = clause if clause in clauses else ""
        refusals[each.text] = {"cause": each.row.cause, "do": each.row.remedy, "clause": known}
    return {"clauses": clauses, "refusals": refusals, "reasons": _reasons()}


def _reasons() -> dict[str, str]:
    """Return the clause of the rule that refused, by the beginning of the reason it gives."""
    same = PaymentRequirements(
        scheme="",
        network="",
        pay_to="",
        asset="",
        max_amount_required="",
        max_timeout_seconds=0,
        resource="",
    )
    case = Presented(requirements=same, issued=same, expires_s=0, now_s=0)
    found = {rule.reason(case).partition(" issued")[0]: rule.clause for rule in SETTLEMENT}
    verified = {invalid_reason(rule.refusal): rule.clause for rule in VERIFICATION}
    return found | verified
