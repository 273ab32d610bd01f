"""Defects of settlement: what the facilitator is asked, and what the service makes of it.

And of the facilitator that the service relies on: a deployment that has its payments verified and
settled by such a one does not keep section 5, though its own code may be right.
"""

import hashlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import msgspec
from msgspec import structs

from tests.mutants.changes import (
    Change,
    Wrapper,
    altered,
    into,
    leave_out,
    on_facilitator,
    on_setup,
    overriding,
)
from tests.mutants.middleware import answers, statuses
from tests.mutants.mutant import Kind
from x402sim.chain.base import Call, ChainClient
from x402sim.facilitator.engine import Facilitator
from x402sim.protocol.crypto import Address
from x402sim.protocol.header import PresentedPayment
from x402sim.protocol.messages import BadMessage
from x402sim.protocol.refusals import Refusal, SettlementRefused
from x402sim.protocol.routes import PAY
from x402sim.protocol.states import PaymentState
from x402sim.service.upstream.calls import Unavailable
from x402sim.service.upstream.facilitator import Moved, NotMoved, Verdict
from x402sim.world.chains import FacilitatorNode

settlement = Kind("settlement")
RECORD = "/api/payments/"
YES = Verdict(is_valid=True)


def made_up(payment: PresentedPayment) -> Moved:
    """Return what a facilitator answers for a payment that it has settled."""
    return Moved("0x" + hashlib.sha256(payment.text.encode()).hexdigest())


# --- the defects ---

settlement("nothing-settles", "1/sign-settle-repeat",
    "The facilitator is asked at a path it does not have, so no payment settles.",
    on_setup(lambda it: replace(it, facilitator_url="http://facilitator.local/v9")))  # fmt: skip


@settlement.defect("verify-is-left-out", "4.1/verify-signature", into("facilitator.verify"))
async def never_verifies(it: Any, *_: Any) -> Verdict:
    """The facilitator is asked to settle without being asked to verify."""
    return YES


@settlement.defect("verdict-is-ignored", "4.1/verify-signature", into("facilitator.verify"))
async def ignores_the_verdict(it: Any, *asked: Any) -> Verdict:
    """The facilitator is asked to verify, and its verdict is not looked at."""
    await it.inner.verify(*asked)
    return YES


@settlement.defect("any-text-is-true", "4.1/verify-signature", into("facilitator.verify"))
async def any_text_is_true(it: Any, *asked: Any) -> Any:
    """The verdict "false", in quotation marks, counts as true."""
    try:
        return await it.inner.verify(*asked)
    except Unavailable as error:
        if isinstance(error.__cause__, BadMessage):
            return YES
        raise


@settlement.defect("outage-is-a-yes", "4.1/verify-signature", into("facilitator.verify"))
async def outage_is_a_yes(it: Any, *asked: Any) -> Any:
    """When verification is out of order, everything counts as valid."""
    try:
        return await it.inner.verify(*asked)
    except Unavailable:
        return YES


@settlement.defect("signed-a-while-ago", "2.3/window", into("facilitator.verify"))
async def signed_a_while_ago(it: Any, payment: PresentedPayment, *of: Any) -> Any:
    """An authorization is refused half a minute after it was signed."""
    auth = payment.authorization
    if auth is not None and it.service.clock.now_s() - auth.valid_after > 90:
        raise SettlementRefused(Refusal.EXPIRED)
    return await it.inner.verify(payment, *of)


@settlement.defect(
    "every-200-is-settled",
    "4.1/settle-on-chain",
    into("facilitator.settle"),
    broad="whatever the chain refuses is settled",
)
async def every_answer_is_settled(it: Any, payment: PresentedPayment, requirements: Any) -> Any:
    """The facilitator's answer 200 is taken for success, although it reports a failure."""
    outcome = await it.inner.settle(payment, requirements)
    return made_up(payment) if isinstance(outcome, NotMoved) else outcome


@settlement.defect("always-the-price-of-a-quote", "4.4/deposit-flow", into("facilitator"))
class PriceOfAQuote(Wrapper):
    """The facilitator is always asked for the price of a quote, so no deposit settles."""

    async def verify(self, payment: PresentedPayment, requirements: Any) -> Any:
        return await self.inner.verify(payment, self._cheap(requirements))

    async def settle(self, payment: PresentedPayment, requirements: Any) -> Any:
        return await self.inner.settle(payment, self._cheap(requirements))

    def _cheap(self, requirements: Any) -> Any:
        return msgspec.structs.replace(requirements, max_amount_required="10000")


@settlement.defect(
    "kept-in-memory-only",
    "4.1/store-settled",
    into("payments"),
    broad="no record is ever complete, so nothing that rests on records works",
)
class InMemoryOnly(Wrapper):
    """The stored record does not become "settled": only the cache knows of the payment."""

    def get(self, payment_id: str) -> Any:
        stored = self.inner.get(payment_id)
        if stored is not None and stored.state is PaymentState.SETTLED:
            return altered(stored, state=PaymentState.FAILED)
        return stored

    def grants(self, *_: Any) -> bool:
        return False

    def unindexed(self, _: int) -> list[Any]:
        return []


settlement("record-is-completed", "4.1/store-settled",
    'The status of a settled payment is "completed".',
    answers(200, RECORD, lambda it: it.update(status="completed")))  # fmt: skip
settlement("record-in-tokens", "2.4/record", "The amount of a record is in tokens.",
    answers(200, RECORD, lambda it: it.update(amount=str(int(it["amount"]) / 10**6))))  # fmt: skip
settlement("record-the-wrong-way-round", "2.4/record",
    "The addresses of payer and payee are exchanged in the record.",
    answers(200, RECORD, lambda it:
        it.update(from_address=it["to_address"], to_address=it["from_address"])))  # fmt: skip
settlement("record-in-block-zero", "2.4/block-null", "A new record is in block 0.",
    answers(200, RECORD, lambda it: it.update(block_number=it["block_number"] or 0)))  # fmt: skip


# --- the facilitator -------------------------------------------------------------------------


facilitator = Kind("facilitator")
WORD = 32


class SentByThePayer:
    """A chain on which the payer of an authorization sends the facilitator's transactions."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def send(self, call: Call) -> Any:
        payer = Address(call.data[4 : 4 + WORD][-20:])  # the first argument, after the selector
        await self._inner.controls.set_native_balance(payer, 10**24)
        return await self._inner.send(structs.replace(call, sender=payer))


async def canceled_is_unused(it: Any, *of: Any) -> Any:
    """Say of a nonce that was cancelled that it is unused."""
    state = await it.inner.nonce_state(*of)
    is_canceled = state.use is not None and state.use.canceled
    return altered(state, is_used=False, use=None) if is_canceled else state


# --- the defects ---


@facilitator.defect("payer-sends-it-himself", "1/payer-pays-no-gas", on_facilitator)
def sent_by_the_payer(honest: Facilitator) -> Facilitator:
    """The transaction is sent from the payer's account, which pays the gas."""
    node = cast(FacilitatorNode, honest.chain)
    return replace(honest, chain=cast(ChainClient, SentByThePayer(node.direct)))


facilitator("amount-is-not-compared", "5/exact-amount",
    "An authorization of another amount than was required is settled.",
    leave_out("verification", "5/exact-amount"))  # fmt: skip
facilitator("recipient-is-not-compared", "5/exact-recipient",
    "An authorization that pays another account is settled.",
    leave_out("verification", "5/exact-recipient"))  # fmt: skip
facilitator("signature-is-not-recovered",
    "5/signature-proves 4.1/verify-signature 7/invalid-signature",
    "Whoever signed, the authorization is settled.",
    leave_out("verification", "5/signature-proves"),
    leave_out("transfer", "5/signature-proves"))  # fmt: skip
facilitator("window-has-no-beginning", "5/window", "An authorization is settled before validAfter.",
    leave_out("transfer", "5/window-opens"))  # fmt: skip
facilitator("window-has-no-end", "5/window 7/authorization-expired",
    "An authorization is settled after validBefore.",
    leave_out("transfer", "5/window-closes"))  # fmt: skip
facilitator("nonce-is-good-for-ever", "5/nonce-once 7/nonce-already-used",
    "A nonce that was cancelled is used all the same.", leave_out("transfer", "5/nonce-once"),
    overriding("rpc", nonce_state=canceled_is_unused))  # fmt: skip


# --- the receipt -----------------------------------------------------------------------------


receipt = Kind("receipt")


def body(change: Callable[[Any], Any]) -> Change:
    """Change the body of every receipt."""
    return answers(200, PAY, lambda it: change(it) if "txHash" in it else None)


def row(name: str, does: str, change: Change) -> None:
    receipt(name, "4.1/receipt", does, change)


# --- the defects ---

row("time-in-seconds", "The timestamp is in seconds.",
    body(lambda it: it.update(timestamp=it["timestamp"] // 1000)))  # fmt: skip
row("time-as-text", "The timestamp is a string of ISO 8601.",
    body(lambda it: it.update(timestamp="2027-01-15T08:00:00Z")))  # fmt: skip
row("hash-without-0x", "The transaction hash is written without 0x.",
    body(lambda it: it.update(txHash=it["txHash"][2:])))  # fmt: skip
row("hash-of-nothing", "The transaction hash is of no transaction on the chain.",
    body(lambda it: it.update(txHash="0x" + it["txHash"][:1:-1])))  # fmt: skip
row("hash-is-missing", "The transaction hash is null.", body(lambda it: it.update(txHash=None)))
row("success-as-text", 'success is the string "true".', body(lambda it: it.update(success="true")))
row("id-is-missing", "There is no payment id in the receipt.",
    body(lambda it: it.pop("paymentId") and None))  # fmt: skip
row("settled-is-201", "A settlement is answered 201.", statuses(PAY, 200, 201))
