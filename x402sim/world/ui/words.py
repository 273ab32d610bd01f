"""What the page knows beforehand: the world that it shows, and the tables that explain it."""

from typing import Any

from x402sim.payer.mistakes import MISTAKES
from x402sim.report import page
from x402sim.version import VERSION
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
    return page.tables() | {
        "live": True,
        "version": VERSION,
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
