"""What the payers know: every header they signed, where it was presented, what was answered.

The audit starts from here: these are the claims that the chain and the services must bear out.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

import msgspec

from tests.explore.case import Service, Way
from x402sim.protocol.crypto import to_hex
from x402sim.protocol.eip3009 import Authorization
from x402sim.protocol.header import authorization_of, encode_header
from x402sim.protocol.messages import PaymentRequirements, decode
from x402sim.protocol.networks import Network
from x402sim.protocol.refusals import Refusal
from x402sim.protocol.routes import QUOTE
from x402sim.protocol.x402 import (
    PAYMENT_HEADERS,
    encode_payment,
    named,
    requirements_v1,
    requirements_v2,
)
from x402sim.world.payer import ORDER, Answer, Payer

Key = tuple[Service, str]
"""A service and a payment id of it."""


@dataclass(frozen=True, slots=True)
class Signed:
    """An authorization, its signature, and who signed it."""

    authorization: Authorization
    signature: bytes
    payer: Payer

    @property
    def nonce(self) -> str:
        """The nonce in hex, as in the journal."""
        return self.authorization.nonce.hex()

    @property
    def header(self) -> str:
        """The header for POST /api/pay."""
        return encode_header(self.authorization, self.signature, self.payer.network)


@dataclass(frozen=True)
class Order:
    """A 402 of a service for purchase `number`, and how it is to be paid.

    `is_issued` is false where the payment id of another service is shown, which is refused.
    """

    service: Service
    required: Answer
    number: int
    is_deposit: bool
    way: Way
    is_issued: bool = True
    said_name: int | None = None
    """What its payer calls a payment in version 2."""

    @property
    def key(self) -> Key:
        """The service and the payment id."""
        return self.service, self.required.payment_id

    @property
    def name(self) -> int | None:
        """What a payment in this way is called."""
        return self.said_name if self.way == "PAYMENT-SIGNATURE" else None

    @property
    def is_named(self) -> bool:
        """Whether its payer can ask for what it paid for by the 402's payment id."""
        return self.way != "X-PAYMENT"

    @cached_property
    def asked(self) -> tuple[str, int]:
        """The transfer that is asked for: to whom, in lower case, and base units."""
        wanted = self.required.requirements
        return wanted["payTo"].lower(), int(wanted["maxAmountRequired"])

    async def pay(self, payer: Payer, signed: Signed) -> Answer:
        """Present a header for this order, in its way."""
        if self.way == "two steps":
            return await payer.pay(self.required, signed.header)
        proof = self.proof(signed, payer.network)
        return await payer.send("POST", QUOTE, json=ORDER, headers=proof)

    def proof(self, signed: Signed, network: Network) -> dict[str, str]:
        """Return the headers that hold a payment, and the payment id if the payer names it."""
        payment_id = self.required.payment_id
        wanted: PaymentRequirements = decode(
            msgspec.json.encode(self.required.requirements), PaymentRequirements
        )
        paid = signed.authorization, signed.signature
        if self.way == "PAYMENT-SIGNATURE":
            accepted = requirements_v2(wanted, network)
            extra = {**(accepted.extra or {}), "paymentId": payment_id}
            accepted = msgspec.structs.replace(accepted, extra=extra)
            said = None if self.name is None else named(f"explored-payment-{self.name}")
            return {PAYMENT_HEADERS[2]: encode_payment(*paid, accepted, extensions=said)}
        proof = {
            PAYMENT_HEADERS[1]: encode_payment(*paid, requirements_v1(wanted, network, url=""))
        }
        return {**proof, "X-Payment-Id": payment_id} if self.is_named else proof


@dataclass(frozen=True, slots=True)
class Presented:
    """A header that was presented for an order, and the answers; `late` are those at the end."""

    order: Order
    signed: Signed
    answers: list[Answer] = field(default_factory=list)
    late: list[Answer] = field(default_factory=list)

    @property
    def key(self) -> Key:
        """The service and the payment id."""
        return self.order.key

    @property
    def in_two_steps(self) -> bool:
        """Whether it was presented at /api/pay."""
        return self.order.way == "two steps"

    @property
    def transfer(self) -> tuple[str, str, int]:
        """The transfer that pays: from, to, base units."""
        return to_hex(self.signed.authorization.from_), *self.order.asked

    @property
    def fits(self) -> bool:
        """Whether the authorization pays what this service asked: this recipient, this amount."""
        auth = self.signed.authorization
        return self.order.is_issued and self.order.asked == (to_hex(auth.to), auth.value)

    @property
    def has_receipt(self) -> bool:
        """Whether its payer was told, and could read, that it is paid."""
        return any(each.status == 200 and each.body for each in self.answers)

    def is_final(self, answer: Answer) -> bool:
        """Tell whether an answer says that this payment is over, and was not charged."""
        if Refusal.ALREADY_SETTLED.text in f"{answer.error} {answer.reason}":
            return False  # by another header: this one was not looked at
        return answer.body.get("final") is True or (not self.in_two_steps and answer.status == 402)


@dataclass(frozen=True, slots=True)
class Book:
    """Everything that the payers and third parties of one world know."""

    shown: dict[tuple[Key, str, Way], Presented] = field(default_factory=dict)
    """Each header at each order, by the order's key, the nonce and the way."""
    orders: dict[int, Order] = field(default_factory=dict)
    """The order of each purchase, by its number."""
    signed: dict[int, list[Signed]] = field(default_factory=dict)
    """The headers of each purchase, oldest first."""
    asked: list[tuple[Key, Answer]] = field(default_factory=list)
    """The answers to payment ids that were shown."""
    sessions: dict[Key, Key] = field(default_factory=dict)
    """The payment id of each session that was spent, by its service and its own id."""
    submitted: set[str] = field(default_factory=set)
    """The authorizations that third parties submitted, by nonce."""

    @property
    def presented(self) -> list[Presented]:
        """Every header at every order, in the order of their first times."""
        return list(self.shown.values())

    def at(self, key: Key) -> list[Presented]:
        """Return what was presented for one payment id."""
        return [each for each in self.shown.values() if each.key == key]

    def sign(self, number: int, payer: Payer, order: Order) -> Signed:
        """Sign a 402 for a purchase, and keep what was signed."""
        signed = Signed(*authorization_of(payer.sign(order.required)), payer)
        self.signed.setdefault(number, []).append(signed)
        return signed

    async def present(self, payer: Payer, order: Order, signed: Signed) -> Presented:
        """Present a header for an order, by a payer who may not be the signer."""
        place = order.key, signed.nonce, order.way
        shown = self.shown.setdefault(place, Presented(order, signed))
        shown.answers.append(await order.pay(payer, signed))
        return shown

    def authorizations(self) -> dict[str, list[Presented]]:
        """Return where each authorization was presented, by nonce."""
        found: dict[str, list[Presented]] = {}
        for each in self.shown.values():
            found.setdefault(each.signed.nonce, []).append(each)
        return found

    def ends_s(self) -> Iterator[float]:
        """Yield the times after which each header can no longer pay, in Unix seconds."""
        for headers in self.signed.values():
            yield from (float(each.authorization.valid_before) for each in headers)
