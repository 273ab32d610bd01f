"""The payments of a database as it was when its server started: the journal has only later ones."""

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from x402sim.protocol.crypto import checksum
from x402sim.world.assembly.running_world import RunningWorld

MOST = 2000


@dataclass(frozen=True, slots=True)
class Stored:
    """Payments as JSON, oldest first; so many `older` ones are left out."""

    lines: Sequence[bytes] = ()
    older: int = 0


NOTHING = Stored()


def stored(world: RunningWorld) -> Stored:
    """Return the newest payments of a world's file; nothing if it has none.

    Of each the record that says what became of its id, its session, and whether it was served, if
    the database knows: it does of those that are paid in one step, and if the reputation counts it.
    """
    if world.options.file is None:
        return NOTHING
    store, lines = world.service.store, []
    newest, count = store.payments.newest(MOST), store.payments.count()
    for each in newest:
        budget = store.sessions.paid_by(each.payment_id)
        session = budget and {
            "session_id": budget.session_id,
            "payer": budget.payer,
            "deposited_base": str(budget.deposited),
            "released": str(budget.released),
            "refunded": str(budget.remaining if budget.state == "refunded" else 0),
            "status": "open" if budget.state == "active" else budget.state,
            "expires_ms": budget.expires_ms,
        }
        line = {
            "at_ms": each.timestamp,
            "payment_id": each.payment_id,
            "authorization": each.nonce.hex() if each.nonce else None,
            "payer": checksum(each.payer) if each.payer else each.from_address,
            "tx_hash": each.tx_hash,
            "amount_base": each.amount,
            "resource": each.resource_url,
            "status": each.status,
            "block": each.block_number,
            "served": store.served.is_marked(each.payment_id),
            "session": session,
        }
        lines.append(msgspec.json.encode(line))
    return Stored(lines, count - len(lines))
