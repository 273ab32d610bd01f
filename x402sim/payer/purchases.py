"""What a payer has signed and bought, and how long each authorization may still be used.

One `Purchases` for each thing that is bought: a resource, or the session of one deposit.
"""

from typing import Any

import httpx
import msgspec

from x402sim.payer.flow import Turn, origin_of
from x402sim.protocol.crypto import checksum, to_hex
from x402sim.protocol.eip3009 import Authorization
from x402sim.protocol.messages import Receipt
from x402sim.protocol.ways import object_in
from x402sim.protocol.x402 import Version

CLOCK_SKEW_S = 60
BLOCK_S = 15
EXPIRY_MARGIN_S = CLOCK_SKEW_S + BLOCK_S
"""Seconds after validBefore until a payer takes it that an authorization cannot be used any more.

The token compares validBefore with the time of a block, not with the payer's clock, which may be a
minute fast; and a block is mined a little later than its time says. Even then the authorization may
have been used before, and a chain that stood still may go on with an old time: so the margin alone
ends nothing, a refusal of the server after it does.
"""


class Payment(msgspec.Struct, kw_only=True):
    """A signed payment, in two steps or in one; `receipt` is there once the server has given one.

    `shown` names it without its proof, by the beginning of its payment id or of its nonce; `note`
    is what else to say if it is refused.
    """

    auth: Authorization
    proof: dict[str, str]
    """The headers that prove the payment; in one step, they also make it."""
    shown: str
    settlement: dict[str, Any] | None = None
    """The body of POST /api/pay, in two steps."""
    version: Version | None = None
    """The version of the standard, in one step."""
    note: str = ""
    sent: int = 0
    """How often it was sent to the server, which may have got it."""
    sent_s: int = 0
    """When it was sent last, by the payer's clock."""
    receipt: Receipt | None = None
    hint: str = ""
    """The answer that reported, instead of a receipt, that it is made."""
    was_refused: bool = False
    """Whether it was shown, and answered 402."""

    @property
    def is_repeated(self) -> bool:
        """Whether it was sent before without a clear answer."""
        return self.sent > 1

    @property
    def left_s(self) -> int:
        """For how many seconds it may be used; none are left long after validBefore."""
        return self.auth.valid_before + EXPIRY_MARGIN_S - self.sent_s

    @property
    def is_expired(self) -> bool:
        """Whether it cannot be used any more; it may have been used before."""
        return self.left_s <= 0

    @property
    def clocks(self) -> str:
        """What to say if the server calls it expired; empty if it may be so."""
        differ = " By this payer's clock it has not expired: the two clocks differ, and until they "
        is_open = self.sent_s + CLOCK_SKEW_S < self.auth.valid_before
        return f"{differ}agree, whatever else it signs is refused, too." if is_open else ""

    @property
    def question(self) -> str:
        """The call of the token that tells whether the authorization was used."""
        return f"authorizationState({checksum(self.auth.from_)}, {to_hex(self.auth.nonce)})"

    @property
    def again(self) -> str:
        """What to do while it is not known whether the payment was made."""
        repeat = "Repeat the request: it sends the same authorization again and signs no other"
        if not self.is_expired:
            return f"{repeat}; it may be used for another {self.left_s} s.{self.note}"
        return (
            f"{repeat} until the server refuses that one. It cannot be used any more; whether it "
            f"was, the token tells: {self.question}. If it was not, a new PaymentAuth may pay."
        )


class Purchases(msgspec.Struct):
    """The payments for one thing. Only the flow that has the turn pays, or shows `unserved`."""

    turn: Turn = msgspec.field(default_factory=Turn)
    granted: str | None = None
    """A payment id that was served, to be used again."""
    unknown: Payment | None = None
    """The payment that was sent to the server, and may have been made or may still be."""
    unserved: list[Payment] = msgspec.field(default_factory=list)
    """Payments that were made, and bought nothing yet."""
    cut: list[Payment] = msgspec.field(default_factory=list)
    """Payments that were answered with what was bought, but not to the end of its body.

    Bodies end outside of any turn; whoever has it next takes these up.
    """

    def take_up(self) -> None:
        """Count what was cut as not served: it is shown, or in one step sent, again."""
        for payment in list(self.cut):
            if payment.version is None:
                self.unserved.append(payment)
            elif self.unknown is None:
                self.unknown = payment
            else:
                continue
            self.cut.remove(payment)

    def unfinished(self) -> "Unfinished":
        """Return the payments that may still be made, and those that bought nothing yet."""
        sent = [] if self.unknown is None else [self.unknown]
        sent += [each for each in self.cut if each.version is not None]
        shown = [each for each in self.cut if each.version is None]
        return Unfinished(sent=sent, unserved=self.unserved + shown)

    def resume(self, unfinished: "Unfinished") -> None:
        """Go on with what another object has not finished."""
        if unfinished.sent:
            self.unknown, *self.cut = unfinished.sent
        self.unserved = list(unfinished.unserved)


class Unfinished(msgspec.Struct, kw_only=True):
    """Payments for one thing that are not finished, to be written down and resumed."""

    sent: list[Payment] = msgspec.field(default_factory=list)
    """They may have been made, or may still be: nothing else is signed before they are over."""
    unserved: list[Payment] = msgspec.field(default_factory=list)
    """They were made, and bought nothing yet."""

    @property
    def payments(self) -> list[Payment]:
        """All of them."""
        return [*self.sent, *self.unserved]


def bought_by(request: httpx.Request) -> tuple[str, ...]:
    """Return what a request asks for: a path of a server and, of a session, its terms.

    Any request for a path is paid by its payment (section 5), but a deposit buys one session: with
    other terms, it would get a session that was not requested.
    """
    resource = origin_of(request.url) + request.url.path
    body = object_in(request.content) if b"maxSpend" in request.content else None
    if body is None or "maxSpend" not in body:
        return (resource,)
    return resource, repr(body["maxSpend"]), repr(body.get("duration"))
