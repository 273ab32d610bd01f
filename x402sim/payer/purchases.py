"""The payments of a payer for each resource: signed, sent, settled, served, or to be sent again.

Each resource, and each session of a deposit, has a `ResourcePayments`.
"""

import json
from typing import Any

import httpx
import msgspec

from x402sim.payer.flow import FairLock, origin_of
from x402sim.protocol.crypto import checksum, to_hex
from x402sim.protocol.eip3009 import Authorization
from x402sim.protocol.mcp import TOOL
from x402sim.protocol.messages import Receipt
from x402sim.protocol.networks import TESTNET
from x402sim.protocol.permit2 import PERMIT2
from x402sim.protocol.ways import object_in
from x402sim.protocol.x402 import Version

CLOCK_SKEW_S = 60
BLOCK_S = 15
EXPIRY_MARGIN_S = CLOCK_SKEW_S + BLOCK_S
"""Seconds after validBefore until a payer assumes that an authorization cannot be used any more.

The token compares validBefore with the time of a block, not with the payer's clock, which may be a
minute fast; and a block is mined a little later than its time says. After the margin the
authorization may still turn out to have been used, and a chain that stood still may go on with an
old time. So the margin alone ends nothing: the server must then refuse the payment, too.
"""


class Payment(msgspec.Struct, kw_only=True):
    """A signed payment, in two steps or in one, and the server's answer.

    `shown` names the payment in errors by the beginning of the payment id or nonce: no error holds
    a proof. `note` is added to the error if the payment is refused.
    """

    auth: Authorization
    """What is signed; of a payment by Permit2 the same terms, with the maximum as the value."""
    proof: dict[str, str]
    """The headers that prove the payment; in one step, the same headers pay."""
    shown: str
    settlement: dict[str, Any] | None = None
    """The body of POST /api/pay, in two steps."""
    version: Version | None = None
    """The version of the standard, in one step."""
    amount: str = ""
    """The amount in words, "0.01 USDC"."""
    note: str = ""
    sent: int = 0
    """How often the payment was sent; the server may have got every copy."""
    sent_s: int = 0
    """When the payment was sent last, by the payer's clock, in Unix seconds."""
    receipt: Receipt | None = None
    hint: str = ""
    """The answer by which the server reported the payment as made, without a receipt."""
    was_refused: bool = False
    """Whether its proof was sent, and answered 402."""
    given_up: dict[str, int] = msgspec.field(default_factory=dict)
    """Payments before it, signed for the same purchase and given up: base units by nonce."""
    decimals: int = TESTNET.decimals
    """The decimals of the token that is paid."""
    by_permit2: bool = False
    """Whether it is a message of Permit2, for `exact` or `upto`."""

    @property
    def signed(self) -> dict[str, int]:
        """Base units by nonce: this payment, and those given up before for the same purchase."""
        return self.given_up | {self.auth.nonce.hex(): self.auth.value}

    @property
    def is_repeated(self) -> bool:
        """Whether the payment was sent before without a clear answer."""
        return self.sent > 1

    @property
    def left_s(self) -> int:
        """Seconds until the payment is unusable: `EXPIRY_MARGIN_S` longer than validBefore."""
        return self.auth.valid_before + EXPIRY_MARGIN_S - self.sent_s

    @property
    def is_expired(self) -> bool:
        """Whether the payment cannot be used any more; it may have been used before."""
        return self.left_s <= 0

    @property
    def clock_skew_note(self) -> str:
        """A sentence for a payment that the server wrongly calls expired; else ""."""
        is_open = self.sent_s + CLOCK_SKEW_S < self.auth.valid_before
        return (
            " It has not expired by this payer's clock: the two clocks differ." if is_open else ""
        )

    @property
    def state_query(self) -> str:
        """The call of the token, or of Permit2, that returns whether the nonce was used."""
        if self.by_permit2:
            return nonce_question(self.auth)
        return f"authorizationState({checksum(self.auth.from_)}, {to_hex(self.auth.nonce)})"

    @property
    def approval(self) -> str:
        """A sentence for a payment whose payer has approved Permit2 for too little."""
        return (
            f"Permit2 may take too little of the tokens of {checksum(self.auth.from_)}. At the "
            f"token, approve Permit2 ({checksum(PERMIT2)}) for {self.auth.value} base units, which "
            f"is {self.amount}"
        )

    @property
    def retry_advice(self) -> str:
        """Advice for a user while the outcome of the payment is unknown."""
        repeat = "Repeat the request: it sends the same authorization again and signs no other"
        if not self.is_expired:
            return f"{repeat}; it may be used for another {self.left_s} s.{self.note}"
        return (
            f"{repeat} until the server refuses that one. It cannot be used any more; whether it "
            f"was, the chain tells: {self.state_query}. If it was not, a new PaymentAuth may pay."
        )


def nonce_question(auth: Authorization) -> str:
    """Return the call of Permit2 whose answer has the bit of a nonce, and which bit."""
    nonce = int.from_bytes(auth.nonce)
    owner, at = checksum(auth.from_), checksum(PERMIT2)
    return f"nonceBitmap({owner}, {nonce >> 8}) of Permit2 at {at}, bit {nonce & 255}"


class ResourcePayments(msgspec.Struct):
    """The payments for one resource or session. Only a flow that holds the lock pays or retries.

    | a payment is in | while | until |
    | --- | --- | --- |
    | `unresolved` | its outcome is unknown | refused, `settled`, read, or another takes its place |
    | `unserved` | it is settled, and has bought nothing yet | `begin_reading` |
    | `reading` | somebody reads the body of its goods | `end_reading` |
    | `interrupted` | nobody has read the body to the end | `requeue_interrupted` |
    """

    lock: FairLock = msgspec.field(default_factory=FairLock)
    granted: str | None = None
    """A payment id that was served: further requests send the same id."""
    unresolved: Payment | None = None
    """The payment with an unknown outcome: the payment was settled, or may still be.

    An expired payment stays here until another is signed instead.
    """
    given_up: dict[str, int] = msgspec.field(default_factory=dict)
    """Payments signed since the server last served, and given up: base units by nonce.

    The server may have been paid with them.
    """
    unserved: list[Payment] = msgspec.field(default_factory=list)
    interrupted: list[Payment] = msgspec.field(default_factory=list)
    """Bodies end while nobody holds the lock; the next flow with the lock requeues the payments."""
    reading: list[Payment] = msgspec.field(default_factory=list)

    def settled(self, payment: Payment) -> None:
        """Count a payment as settled, and as having bought nothing yet."""
        self.unserved.append(payment)
        self.unresolved = None

    def note_given_up(self) -> None:
        """Note what was signed for the unresolved payment, if any, in `given_up`.

        The payment itself stays unresolved until another takes its place.
        """
        if self.unresolved is not None:
            self.given_up |= self.unresolved.signed

    def requeue_interrupted(self) -> None:
        """Count interrupted payments as not served: the next flow sends them again."""
        for payment in list(self.interrupted):
            if payment.version is None:
                self.unserved.append(payment)
            elif self.unresolved is None:
                self.unresolved = payment
            else:
                continue
            self.interrupted.remove(payment)

    def replace_unresolved(self) -> bool:
        """Let an interrupted payment take the place of the unresolved one, which is over.

        Returns False if none was interrupted. An interrupted payment may be usable for longer than
        a later one: until each is over, nothing else is signed.
        """
        if not self.interrupted:
            return False
        self.note_given_up()
        self.unresolved = None
        self.requeue_interrupted()
        return True

    def unfinished(self) -> "Unfinished":
        """Return payments that may still be made, and payments that bought nothing yet."""
        sent = [] if self.unresolved is None else [self.unresolved]
        open_ = [*self.interrupted, *self.reading]
        sent += [each for each in open_ if each.version is not None]
        shown = [each for each in open_ if each.version is None]
        return Unfinished(sent=sent, unserved=self.unserved + shown, given_up=dict(self.given_up))

    def begin_reading(self, payment: Payment) -> None:
        """Count a payment as served, and its body as being read.

        The payment is added to `reading` before `unresolved` is cleared: an interrupt between the
        two lines loses no payment. The next purchase counts its own given-up payments.
        """
        self.reading.append(payment)
        if self.unresolved is payment:
            self.unresolved = None
        self.unserved = [each for each in self.unserved if each is not payment]
        payment.given_up |= self.given_up
        self.given_up = {}

    def end_reading(self, payment: Payment, granted: str | None, *, is_whole: bool) -> None:
        """Count a body as read; not to its end, and the payment is interrupted, not `granted`."""
        if not is_whole:
            if granted is not None and self.granted == granted:
                self.granted = None
            self.interrupted.append(payment)
        self.reading.remove(payment)

    def resume(self, left: "Unfinished", *, is_all: bool = False) -> int:
        """Take over another object's unfinished payments; return base units unknown here before.

        The payments are added to those here; with `is_all` they replace those here.
        """
        known = self.unfinished().signed
        if is_all:
            self.unresolved, self.interrupted, self.unserved, self.given_up = None, [], [], {}
        here = {each.auth.nonce for each in self.unfinished().payments}
        sent, unserved = (
            [each for each in some if each.auth.nonce not in here]
            for some in (left.sent, left.unserved)
        )
        if self.unresolved is None and sent:
            self.unresolved = sent.pop(0)
        self.interrupted += sent
        self.unserved += unserved
        self.given_up |= left.given_up
        return sum(value for nonce, value in left.signed.items() if nonce not in known)


class Unfinished(msgspec.Struct, kw_only=True):
    """Unfinished payments for one resource or session, to be stored and resumed."""

    sent: list[Payment] = msgspec.field(default_factory=list)
    """Payments that were settled, or may still be: until they are over, nothing else is signed."""
    unserved: list[Payment] = msgspec.field(default_factory=list)
    """Payments that were settled, and bought nothing yet."""
    given_up: dict[str, int] = msgspec.field(default_factory=dict)
    """Payments signed before and given up: base units by nonce.

    The server may have been paid with them.
    """

    @property
    def payments(self) -> list[Payment]:
        """All unfinished payments."""
        return [*self.sent, *self.unserved]

    @property
    def signed(self) -> dict[str, int]:
        """What was signed for the purchase so far: base units by nonce."""
        signed = dict(self.given_up)
        for payment in self.payments:
            signed |= payment.signed
        return signed

    @property
    def signed_base(self) -> int:
        """The amount signed for the purchase so far, in base units."""
        return sum(self.signed.values())


def purchase_key(request: httpx.Request) -> tuple[str, ...]:
    """Return the key of a purchase: its server and path, and the terms of a session.

    A payment pays for every request to the path (section 5). A deposit buys one session: sent with
    other terms, the deposit would buy a session that nobody requested. All MCP tools share one
    path, so a call's key has the tool's name and arguments. {"a": 1, "b": 3} and {"b": 3.0, "a": 1}
    are equal arguments.
    """
    resource = origin_of(request.url) + request.url.path
    if (tool := request.headers.get(TOOL)) is not None:
        return f"{resource} ({tool})", body_key(request)
    body = object_in(request.content) if b"maxSpend" in request.content else None
    if body is None or "maxSpend" not in body:
        return (resource,)
    return resource, repr(body["maxSpend"]), repr(body.get("duration"))


def body_key(request: httpx.Request) -> str:
    """Return the body as text; for a call of a tool, equal arguments have equal text."""
    text = request.content.decode("utf-8", "backslashreplace")
    if TOOL not in request.headers:
        return text
    try:
        call = json.loads(text, parse_float=_number)
        if isinstance(call, dict) and isinstance(params := call.get("params"), dict):
            call = params  # of JSON-RPC, whose id is another in each call
        if isinstance(call, dict):
            call = [call.get("name"), call.get("arguments")]
        return json.dumps(call, sort_keys=True)
    except (ValueError, RecursionError):
        return text


def _number(text: str) -> int | float:
    number = float(text)
    return int(number) if number.is_integer() else number
