"""Defects after a lost answer: the money has moved, or it has not, and who finds out."""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.mutants.changes import (
    Change,
    Wrapper,
    all_of,
    altered,
    collaborator,
    into,
    overriding,
)
from tests.mutants.mutant import Kind
from tests.mutants.settlement import made_up
from x402sim import World
from x402sim.protocol.header import PresentedPayment
from x402sim.service.upstream.calls import JsonRpcError, OutcomeUnknown, Unavailable
from x402sim.service.upstream.chain import NonceState

reconciliation = Kind("reconciliation")
FAR_S = 2**62
"""A time that no authorization is valid at."""


class ForgetsRefusals(Wrapper):
    """A store that drops a claim whose money does not move now."""

    def mark_not_submitted(self, attempt: int) -> None:
        self.inner.forget(attempt)


def lost_is_failed(when: Callable[[OutcomeUnknown, PresentedPayment], bool]) -> Change:
    """Take some lost answers to settlements for failures; do not ask the chain, and forget them."""
    lost_nonces: set[bytes] = set()

    async def settle(it: Any, payment: PresentedPayment, requirements: Any) -> Any:
        try:
            return await it.inner.settle(payment, requirements)
        except OutcomeUnknown as lost:
            auth = payment.authorization
            if auth is None or auth.from_ == it.service.env.wallet or not when(lost, payment):
                raise
            lost_nonces.add(auth.nonce)
            raise Unavailable(str(lost)) from lost

    async def nonce_state(it: Any, authorizer: Any, nonce: bytes) -> Any:
        """Do not ask, once, about a nonce whose answer was lost."""
        if nonce in lost_nonces:
            lost_nonces.remove(nonce)
            raise Unavailable("nobody asks the chain")
        return await it.inner.nonce_state(authorizer, nonce)

    return all_of(
        overriding("facilitator", settle=settle),
        overriding("rpc", nonce_state=nonce_state),
        collaborator(payments=ForgetsRefusals),
    )


@dataclass(eq=False)
class Compared:
    """A transfer, or None of a cancelled nonce, that is compared in another way."""

    moved: Any
    is_paid: Callable[[Any, Any], bool]

    def __eq__(self, wanted: object) -> bool:
        return self.is_paid(wanted, self.moved)


def counts_as_paid(is_paid: Callable[[Any, Any], bool]) -> Change:
    """Let uses of nonces count as payments in other cases."""

    async def nonce_state(it: Any, authorizer: Any, nonce: bytes) -> Any:
        state = await it.inner.nonce_state(authorizer, nonce)
        if state.use is None or authorizer == it.service.env.wallet:
            return state
        return altered(
            state, use=altered(state.use, transfer=Compared(state.use.transfer, is_paid))
        )

    return overriding("rpc", nonce_state=nonce_state)


# --- the defects ---

reconciliation("lost-answer-is-a-failure", "kit/3/pending-resolved",
    "A settlement whose answer is lost is forgotten: paid again, it is charged twice.",
    lost_is_failed(lambda lost, payment: True))  # fmt: skip


@reconciliation.defect(
    "lost-answer-is-a-success", "4.1/settle-on-chain", into("facilitator.settle")
)
async def lost_is_settled(it: Any, payment: PresentedPayment, requirements: Any) -> Any:
    """A settlement whose answer is lost is granted, although no money may have moved."""
    try:
        return await it.inner.settle(payment, requirements)
    except OutcomeUnknown:
        return made_up(payment)


@reconciliation.defect("pending-is-settled", "4.1/settle-on-chain", into("facilitator.settle"))
async def pending_is_settled(it: Any, payment: PresentedPayment, requirements: Any) -> Any:
    """A settlement that the facilitator calls pending is granted, as there is a hash."""
    try:
        return await it.inner.settle(payment, requirements)
    except OutcomeUnknown as lost:
        if re.match("the facilitator answered .*pending", str(lost)):
            return made_up(payment)
        raise


reconciliation("internal-error-is-a-failure", "kit/3/pending-resolved",
    "A facilitator that answers 500 after it has settled is taken for one that has not.",
    lost_is_failed(lambda lost, payment: bool(re.search(r"\b5\d\d\b", str(lost)))))  # fmt: skip


@reconciliation.defect("pending-for-ever", "kit/3/pending-resolved", into("rpc.nonce_state"))
async def nobody_asks(it: Any, authorizer: Any, nonce: bytes) -> Any:
    """Nobody asks the chain: a payment whose answer was lost stays pending."""
    for pending in it.service.store.payments.pending(math.inf, 10**6):
        if pending.nonce_confirmed_unused and pending.nonce == nonce:
            raise Unavailable("nobody asks the chain")
    return await it.inner.nonce_state(authorizer, nonce)


@reconciliation.defect("false-signature-takes-the-claim", "kit/3/pending-resolved")
def false_takes_the_claim(world: World) -> World:
    """A lost answer is resolved by the header that came first for a nonce, though it was false."""
    first: dict[bytes, str] = {}

    def insert_pending(it: Any, claim: Any) -> Any:
        """Note which header a nonce came with first."""
        first.setdefault(claim.nonce, claim.header)
        return it.inner.insert_pending(claim)

    def is_second(_: OutcomeUnknown, payment: PresentedPayment) -> bool:
        auth = payment.authorization
        return auth is not None and first.get(auth.nonce) != payment.text

    claims = overriding("payments", insert_pending=insert_pending)
    return lost_is_failed(is_second)(claims(world))


@reconciliation.defect("busy-node-is-a-no", "kit/3/pending-resolved", into("rpc.nonce_state", set))
async def busy_is_a_no(given_up: set[bytes], it: Any, authorizer: Any, nonce: bytes) -> Any:
    """A payment is given up once a node has answered with an error instead of its nonce's state."""
    try:
        state = await it.inner.nonce_state(authorizer, nonce)
    except JsonRpcError:  # taken for ever for an unused nonce whose time is over
        state = NonceState(height=0, head_s=FAR_S, is_used=False, use=None)
        given_up.add(nonce)
    return altered(state, is_used=False, head_s=FAR_S) if nonce in given_up else state


@reconciliation.defect("lost-deposit-makes-no-session", "kit/3/pending-resolved")
def found_makes_no_session(world: World) -> World:
    """A deposit whose answer was lost is found on the chain, and no session comes of it."""
    found: set[str] = set()

    async def nonce_state(it: Any, *of: Any) -> Any:
        """Note the transactions that the chain is asked for."""
        state = await it.inner.nonce_state(*of)
        if state.use is not None:
            found.add(state.use.tx_hash)
        return state

    def mark_settled(it: Any, attempt: int, tx_hash: str, session: Any) -> bool:
        return bool(it.inner.mark_settled(attempt, tx_hash, None if tx_hash in found else session))

    opens = overriding("payments", mark_settled=mark_settled)
    return overriding("rpc", nonce_state=nonce_state)(opens(world))


reconciliation("used-is-paid", "5/nonce-once", "A nonce that was cancelled counts as paid.",
    counts_as_paid(lambda wanted, moved: True))  # fmt: skip
reconciliation("any-transfer-counts", "kit/3/pending-resolved",
    "A nonce that was used to pay another account counts as paid.",
    counts_as_paid(lambda wanted, moved: moved is not None))  # fmt: skip
reconciliation("any-amount-counts", "kit/3/pending-resolved",
    "A nonce that was used to pay the merchant less counts as paid.",
    counts_as_paid(lambda wanted, moved: moved is not None and moved[:2] == wanted[:2]))  # fmt: skip


@reconciliation.defect("unused-is-never-paid", "kit/3/pending-resolved", into("rpc.nonce_state"))
async def unused_is_over(it: Any, authorizer: Any, nonce: bytes) -> Any:
    """A nonce that is still unused counts as never to be paid, while its transaction waits."""
    state = await it.inner.nonce_state(authorizer, nonce)
    if state.is_used or authorizer == it.service.env.wallet:
        return state
    return altered(state, head_s=FAR_S)
