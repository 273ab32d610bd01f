"""Defects of settlement: what the facilitator is asked, and what the service makes of it."""

import hashlib
from dataclasses import replace
from typing import Any

import msgspec

from tests.mutants.change import on_setup
from tests.mutants.middleware import answers
from tests.mutants.mutant import Kind, into
from tests.mutants.wrapper import Wrapper, altered
from x402sim.protocol.crypto import checksum
from x402sim.protocol.header import PresentedPayment
from x402sim.protocol.messages import BadMessage
from x402sim.protocol.refusals import Refusal, SettlementRefused
from x402sim.service.upstream.calls import Unavailable
from x402sim.service.upstream.facilitator import Moved, NotMoved, Verdict

settlement = Kind("settlement")
RECORD = "/api/payments/"
YES = Verdict(is_valid=True)


def made_up(payment: PresentedPayment, requirements: Any) -> Moved:
    """Return what a facilitator answers for a payment that it has settled."""
    auth = payment.authorization
    return Moved(
        tx_hash="0x" + hashlib.sha256(payment.text.encode()).hexdigest(),
        payer=checksum(auth.from_) if auth else "",
        to=requirements.pay_to,
        amount=requirements.max_amount_required,
        network=requirements.network,
    )


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
    return made_up(payment, requirements) if isinstance(outcome, NotMoved) else outcome


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
        if stored is not None and stored.status == "settled":
            return altered(stored, status="failed")
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
