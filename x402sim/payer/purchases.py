"""What a payer has signed and bought, and how long each authorization may still be used.

One `Purchases` for each thing that is bought: a resource, or the session of one deposit.
"""

from typing import Any

import httpx
import msgspec

from x402sim.payer.core import proofs, settlement
from x402sim.payer.flow import Turn
from x402sim.payer.guard import origin_of
from x402sim.payer.reading import Sent
from x402sim.payer.standard import StandardOffer, proof, shortened
from x402sim.protocol.crypto import to_hex
from x402sim.protocol.eip3009 import Authorization
from x402sim.protocol.messages import PaymentRequired, Receipt
from x402sim.protocol.ways import object_in


class Payment(msgspec.Struct):
    """A signed payment; `receipt` is there once the server has given one."""

    offer: PaymentRequired | StandardOffer
    auth: Authorization
    header: str
    receipt: Receipt | None = None
    is_sent: bool = False
    """Whether it was sent to the server, which may have got it."""
    hint: str = ""
    """The answer that said, instead of a receipt, that it is made."""
    was_refused: bool = False
    """Whether it was shown, and answered 402."""

    @property
    def shown_id(self) -> str:
        """The beginning of the payment id, which is a proof of payment in full, or of the nonce."""
        if isinstance(self.offer, StandardOffer):
            return f"authorization {to_hex(self.auth.nonce)[:12]}…"
        return f"payment id {self.offer.payment_id[:12]}…"

    @property
    def proof(self) -> dict[str, str]:
        """The header that proves the payment; in one step, it also makes it."""
        if isinstance(self.offer, StandardOffer):
            return proof(self.offer, self.header)
        return proofs(self.offer.payment_id)

    def settlement(self) -> dict[str, Any]:
        """Return the body of POST /api/pay, for a payment in two steps."""
        assert isinstance(self.offer, PaymentRequired)
        requirements = msgspec.to_builtins(self.offer.payment_requirements)
        return settlement(self.offer.payment_id, self.header, requirements)

    def sent(self, now_s: int) -> Sent:
        """Return what is known of the authorization at a time, before it is sent (again)."""
        note = shortened(self.offer, self.auth) if isinstance(self.offer, StandardOffer) else ""
        return Sent(auth=self.auth, now_s=now_s, is_repeated=self.is_sent, note=note)


class Purchases(msgspec.Struct):
    """The payments for one thing. Only the flow that has the turn pays, or shows `unserved`."""

    turn: Turn = msgspec.field(default_factory=Turn)
    granted: str | None = None
    """A payment id that was served, to be used again."""
    unknown: Payment | None = None
    """The payment that was sent to the server, and may have been made or may still be."""
    unserved: list[Payment] = msgspec.field(default_factory=list)
    """Payments that were made, and bought nothing yet."""


def bought_by(request: httpx.Request) -> tuple[str, ...]:
    """Return what a request asks for: a path of a server and, of a session, its terms.

    Any request for a path is paid by its payment (section 5), but a deposit buys one session: with
    other terms, it would get a session that was not asked for.
    """
    resource = origin_of(request.url) + request.url.path
    body = object_in(request.content) if b"maxSpend" in request.content else None
    if body is None or "maxSpend" not in body:
        return (resource,)
    return resource, repr(body["maxSpend"]), repr(body.get("duration"))
