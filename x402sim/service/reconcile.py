"""Reconciliation: asks the chain about a payment, and moves its record accordingly.

The token's state shows only that a nonce is used up; its events show whether it was used or
cancelled, and the Transfer event shows whether this merchant was paid this amount. The records
follow what the chain says, until the block of a transfer is deep enough. Clauses: 5/nonce-once,
3/pending-resolved, 3/indexed-status.
"""

from typing import assert_never

import msgspec

from x402sim import events
from x402sim.protocol.crypto import Address, parse_address
from x402sim.protocol.header import present
from x402sim.protocol.refusals import ChainFinding
from x402sim.service.grant import grant, revoke, suspend
from x402sim.service.state import Service
from x402sim.service.store.database import Wait, after_failure
from x402sim.service.store.payment_records import Stored
from x402sim.service.upstream.calls import OutcomeUnknown, Unavailable
from x402sim.service.upstream.facilitator import Moved, NotMoved
from x402sim.service.upstream.rpc import NonceUse, OnChain

AT_MOST = 100
"""The pending payments of each kind that one run asks the chain about."""


class ChainAnswer(msgspec.Struct, frozen=True):
    """What a chain of this height says of a payment; `use` is the use of its nonce, if any."""

    finding: ChainFinding
    use: NonceUse | None = None
    height: int = 0


async def ask_chain(service: Service, stored: Stored) -> ChainAnswer:
    """Ask the chain's node whether a payment is paid, by the state of its nonce.

    It can never be paid if the nonce is unused in a block whose time is past validBefore, was
    cancelled, or paid for something else: also if another header with the same nonce has paid.
    """
    payer, nonce, until_s = stored.payer, stored.nonce, stored.valid_before_s
    if payer is None or nonce is None or until_s is None:
        return ChainAnswer(ChainFinding.UNKNOWN)
    try:
        state = await service.rpc.nonce_state(payer, nonce)
    except Unavailable:
        return ChainAnswer(ChainFinding.UNKNOWN)
    if not state.is_used:
        is_too_late = state.head_s >= until_s
        finding = ChainFinding.NEVER if is_too_late else ChainFinding.NOT_YET
        return ChainAnswer(finding, height=state.height)
    if state.use is None:
        return ChainAnswer(ChainFinding.UNKNOWN)
    is_paid = _pays_for(state.use, stored)
    return ChainAnswer(
        ChainFinding.PAID if is_paid else ChainFinding.NEVER, state.use, state.height
    )


async def follow_chain(service: Service, stored: Stored) -> ChainFinding:
    """Ask the chain about a payment, and move its record accordingly (`follow`)."""
    answer = await ask_chain(service, stored)
    follow(service, stored, answer)
    return answer.finding


def follow(service: Service, listed: Stored, answer: ChainAnswer) -> None:
    """Move a payment's record to the state that the chain's answer demands.

    The caller holds the lock of its payment id; while the chain was asked, another process on this
    database may have moved it, and an older database may have been restored. A settled payment
    whose transfer was undone is pending while the chain may still make it, and failed when it
    cannot.
    """
    stored = service.store.payments.now(listed)
    if stored is None:
        return
    status = stored.status
    match answer.finding:
        case ChainFinding.PAID:
            if answer.use is not None:
                _paid_by(service, stored, answer.use, answer.height)
        case ChainFinding.NEVER:
            if status != "failed":
                revoke(service, stored, answer.height)
        case ChainFinding.NOT_YET:
            if status == "settled":
                suspend(service, stored)
            elif status == "pending" and not stored.seen_unused:
                service.store.payments.see_unused(stored.attempt)
        case ChainFinding.UNKNOWN:
            pass
        case _:
            assert_never(answer.finding)


async def reconcile(service: Service) -> int:
    """Resolve the pending payments that can be resolved (3/pending-resolved); return how many.

    The policy `lost_answer` does it. One that cannot be resolved yet is looked at less and less
    often. One run reads and asks about a limited number: those whose money may have moved, and as
    many of the others; those that have waited longest first. So many hopeless headers delay no
    other.
    """
    settings, payments, resolved = service.settings, service.store.payments, 0
    waits: dict[int | str, Wait] = {}
    try:
        for due in payments.pending(service.clock.now(), AT_MOST):
            async with service.locks.hold(due.payment_id):
                stored = payments.now(due)
                if stored is None or stored.status != "pending":
                    continue
                payment = Unresolved(service, stored, in_background=True)
                await settings.policy.lost_answer.resolve(payment)
            if payment.is_forgotten or payment.finding in (ChainFinding.PAID, ChainFinding.NEVER):
                resolved += 1
            else:
                now_s = service.clock.now()
                waits[due.attempt] = after_failure(due.wait_s, settings.pending_wait_s, now_s)
    finally:
        service.store.put_off("payments", waits)
    return resolved


class Unresolved:
    """A pending payment in the hands of the policy; the caller holds the lock of its payment id."""

    def __init__(self, service: Service, stored: Stored, *, in_background: bool) -> None:
        self._service, self._listed = service, stored
        self.in_background = in_background
        """Whether no payer waits for it."""
        self.finding = ChainFinding.UNKNOWN
        """What is known of it by now."""
        self.is_forgotten = False

    async def ask_chain(self) -> ChainFinding:
        """Ask the chain's node; the record follows what it says."""
        stored = self._service.store.payments.now(self._listed)
        self.finding = await follow_chain(self._service, stored) if stored else ChainFinding.UNKNOWN
        return self.finding

    async def settle_again(self) -> ChainFinding:
        """Send it to the facilitator once more; PAID, NOT_YET (refused), or UNKNOWN (lost).

        One whose money cannot move is not sent for the first time here: its endpoint has failed.
        """
        service = self._service
        stored = service.store.payments.now(self._listed)
        terms = service.issuer.read(stored.payment_id) if stored else None
        if stored is None or terms is None:
            return self.finding
        if not stored.may_move:
            return ChainFinding.NOT_YET
        payment = present(stored.header)
        requirements = service.issuer.requirements(terms.resource, terms.amount_base)
        try:
            outcome = await service.facilitator.settle(payment, requirements)
        except (Unavailable, OutcomeUnknown):
            return ChainFinding.UNKNOWN
        match outcome:
            case Moved(tx_hash=tx_hash) if service.store.payments.paid_by(tx_hash) is None:
                grant(service, stored, tx_hash)
                self.finding = ChainFinding.PAID
                return self.finding
            case Moved() | NotMoved():
                return ChainFinding.NOT_YET
            case _:
                assert_never(outcome)

    async def wait(self, seconds: float) -> None:
        """Let time pass."""
        await self._service.clock.sleep(seconds)

    def forget(self) -> None:
        """Delete the record."""
        self._service.store.payments.drop_claim(self._listed.attempt)
        self.is_forgotten = True


def pays_for(mined: OnChain, stored: Stored) -> bool:
    """Tell whether a transaction used this payment's authorization and made its transfer."""
    is_used = (stored.payer, stored.nonce) in mined.used
    return mined.succeeded and is_used and _transfer(stored) in mined.transfers


def is_deep(service: Service, block_number: int, height: int) -> bool:
    """Tell whether a block is so deep that no reorganisation is expected (8/final-depth)."""
    return height - block_number >= service.settings.final_depth


def _paid_by(service: Service, stored: Stored, use: NonceUse, height: int) -> None:
    """Store which transaction made a payment, and grant it if that is news."""
    payment_id, payments = stored.payment_id, service.store.payments
    if stored.status == "failed" and payments.is_claimed_otherwise(stored):
        return  # it was presented again meanwhile: that attempt gets the payment
    if stored.status != "settled":
        if not payments.is_paid_otherwise(stored):
            grant(service, stored, use.tx_hash)
        elif stored.status == "pending":
            payments.fail(stored.attempt, height)
            service.record(events.PaidAgain(payment_id=payment_id, tx_hash=use.tx_hash))
        return
    if use.tx_hash != stored.tx_hash:
        service.record(events.TransactionReplaced(payment_id=payment_id, tx_hash=use.tx_hash))
    deep = is_deep(service, use.block_number, height)
    set_block(service, stored, use.tx_hash, use.block_number, is_deep=deep)


def set_block(
    service: Service, stored: Stored, tx_hash: str, block_number: int, *, is_deep: bool
) -> None:
    """Complete a settled record with its block (8/indexer-query)."""
    service.store.payments.set_block(stored.attempt, tx_hash, block_number, is_deep=is_deep)
    if block_number != stored.block_number:
        service.record(events.PaymentIndexed(payment_id=stored.payment_id, block=block_number))


def _pays_for(use: NonceUse, stored: Stored) -> bool:
    """Tell whether a nonce's use paid for this payment, and not for something before it.

    Before the facilitator has settled it, that takes a header that can pay, and a chain that has
    said that the nonce was unused: without either, nothing of it was settled.
    """
    is_ours = stored.status == "settled" or (stored.can_pay and stored.seen_unused)
    return is_ours and not use.canceled and _transfer(stored) in use.transfers


def _transfer(stored: Stored) -> tuple[Address | None, Address, int]:
    """Return the transfer that a payment demands: from, to, base units."""
    return stored.payer, parse_address(stored.to_address), int(stored.amount)
