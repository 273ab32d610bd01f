"""The payments of a payer for each resource, and the state of each payment.

Each resource, and each session of a deposit, has a `ResourcePayments`. From its signature on, a
payment is in one `State`:

    state       the money            the next request           becomes, when
    ----------  -------------------  -------------------------  ------------------------------------
    UNRESOLVED  may have moved, or   if it gets a 402, sends    UNSERVED: the server reports it as
                may yet; with a      the same payment again,    made; or refuses it after its end,
                `hint` (one step),   and signs no other         but it has a `hint`, or its proof is
                has moved                                       not refused (two steps)
                                                                READING: one step, and served
                                                                OVER: refused after its end, in two
                                                                steps its proof, too
    OVER        has not moved,       takes it as UNRESOLVED;    UNRESOLVED: the next request
                unless the server    only this request may      gone: another is sent instead, and
                lies                 sign another               the amount is in `given_up`
    UNSERVED    has moved            shows its proof; signs     READING: its proof is served
                                     another only if all are
                                     refused, and fewer than
                                     `max_unserved`
    READING     has moved            pays for itself, or        READ: the body is read to its end
                                     shows the `granted` id     UNSERVED, UNRESOLVED (one step): it
                                                                breaks off, which is the `hint`
    READ        has moved, and       as for READING             gone: it has bought the goods
                bought the goods

`granted` is set by READING, in two steps with `reuse`; a 402, or a body that breaks off, ends it. A
new payment that cannot be stored is not sent, and is gone, unless the folder may have it.
`PaymentAuth._settle` and `_resend` cause the changes of UNRESOLVED and OVER, `_show` those of
UNSERVED, `_await_body_end` those of READING.
"""

import json
from enum import Enum
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


class State(Enum):
    """The state of a payment, as in the table at the top of this file."""

    UNRESOLVED = "unresolved"
    OVER = "over"
    UNSERVED = "unserved"
    READING = "reading"
    READ = "read"


class Payment(msgspec.Struct, kw_only=True):
    """A signed payment, in two steps or in one, and the server's answer.

    `shown` names the payment in errors by the beginning of the payment id or nonce: no error holds
    a proof. `note` is added to the error if the payment is refused.
    """

    auth: Authorization
    """What is signed; of a payment by Permit2 the same terms, with the maximum as the value."""
    proof: dict[str, str]
    """The headers that prove the payment; in one step, the same headers pay."""
    state: State = State.UNRESOLVED
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
    """The answer that shows the payment as made, without a receipt: an error, or cut goods."""
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
    def was_paid(self) -> str:
        """The payment in words, for an error that begins with the resource."""
        paid = f"{self.amount} with {self.shown}"
        if self.receipt is not None:
            return f"was paid {paid} (transaction {self.receipt.tx_hash[:80]})"
        return (
            f"seems to have been paid {paid} (the server answered {self.hint}; the chain "
            f"tells for certain: {self.state_query})"
        )

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
    """The payments for one resource or session, in the order of their signatures.

    Only a flow that holds the lock pays or retries. Bodies end in any thread, without the lock: so
    `open` is never rebuilt, and is read as a copy, which misses no payment.
    """

    lock: FairLock = msgspec.field(default_factory=FairLock)
    granted: str | None = None
    """A payment id that was served: further requests send the same id."""
    open: list[Payment] = msgspec.field(default_factory=list)
    """The payments that are not READ."""
    given_up: dict[str, int] = msgspec.field(default_factory=dict)
    """Payments signed since the server last served, and given up: base units by nonce.

    The server may have been paid with them.
    """

    def all(self, *states: State) -> list[Payment]:
        """Return the payments in some states."""
        return [each for each in self.open.copy() if each.state in states] if self.open else []

    @property
    def unserved(self) -> list[Payment]:
        """The payments that were settled, and have bought nothing yet."""
        return self.all(State.UNSERVED)

    @property
    def unshown(self) -> list[Payment]:
        """The unserved payments whose proofs were not refused."""
        return [each for each in self.all(State.UNSERVED) if not each.was_refused]

    def reopen(self) -> None:
        """Count payments that are over as unresolved: each may be settled after all."""
        for each in self.all(State.OVER):
            each.state = State.UNRESOLVED

    def give_up(self) -> None:
        """Forget payments that are over, except for the amounts: another is sent instead."""
        for each in self.all(State.OVER):
            self.given_up |= each.signed
            self.open.remove(each)

    def begin_reading(self, payment: Payment) -> None:
        """Count a payment as served, and its body as being read.

        The next purchase counts its own given-up payments.
        """
        payment.given_up = payment.given_up | self.given_up
        self.given_up = {}
        payment.state = State.READING

    def end_reading(self, payment: Payment, granted: str | None, *, is_whole: bool) -> None:
        """Count a body as read; or, if not to its end, the payment as not served, nor `granted`."""
        if is_whole:
            payment.state = State.READ
            self.open.remove(payment)
            return
        if granted is not None and self.granted == granted:
            self.granted = None
        payment.state = State.UNSERVED if payment.version is None else State.UNRESOLVED

    def unfinished(self) -> "Unfinished":
        """Return payments that may still be made, and payments that bought nothing yet."""
        found = Unfinished(given_up=dict(self.given_up))
        for each in self.all(State.UNRESOLVED, State.OVER, State.UNSERVED, State.READING):
            is_shown = each.state is State.READING and each.version is None
            is_settled = is_shown or each.state is State.UNSERVED
            (found.unserved if is_settled else found.sent).append(each)
        return found

    def resume(self, left: "Unfinished", *, is_all: bool = False) -> int:
        """Take over another object's unfinished payments; return base units unknown here before.

        The payments are added to those here; with `is_all` they replace those here.
        """
        known = self.unfinished().signed
        if is_all:
            for each in self.all(State.UNRESOLVED, State.OVER, State.UNSERVED):
                self.open.remove(each)
            self.given_up = {}
        here = {each.auth.nonce for each in self.open.copy()}
        for state, some in ((State.UNRESOLVED, left.sent), (State.UNSERVED, left.unserved)):
            new = [each for each in some if each.auth.nonce not in here]
            self.open += [msgspec.structs.replace(each, state=state) for each in new]
        self.given_up = self.given_up | left.given_up
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
