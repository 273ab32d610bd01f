"""The chain's reports on payments: records are updated, and access is given or ended.

The token's state shows only a used nonce. The token's events show use or cancellation, and the
Transfer event shows the payee and the amount. A record follows the chain: every report is written,
until the block of the transfer is deep enough. To grant a payment is to store the record as
settled, to open the session of a deposit, and to cache an entitlement.
Clauses: 2.6/id-prefix, 3/deposit-makes-session, 3/indexed-status, 3/pending-resolved, 4.1/cache,
4.1/store-settled, 5/nonce-once.
"""

import hmac
from sys import intern
from typing import assert_never

import msgspec

from x402sim import events
from x402sim.protocol.crypto import Address, parse_address
from x402sim.protocol.header import present
from x402sim.protocol.refusals import ChainFinding
from x402sim.protocol.routes import SESSIONS
from x402sim.protocol.states import PaymentEvent, PaymentState
from x402sim.service.state import Entitlement, Service
from x402sim.service.store.database import Backoff, after_failure
from x402sim.service.store.payment_records import Attempt
from x402sim.service.store.session_budgets import NewSession
from x402sim.service.upstream.calls import OutcomeUnknown, Unavailable
from x402sim.service.upstream.chain import NonceUse, OnChain
from x402sim.service.upstream.facilitator import Moved

AT_MOST = 100
"""The most pending payments of each kind in one run: perhaps submitted to a facilitator, or not."""


class ChainAnswer(msgspec.Struct, frozen=True):
    """The chain's report on a payment, at a height; `use` is the use of the nonce, if any."""

    finding: ChainFinding
    use: NonceUse | None = None
    height: int = 0


async def ask_chain(service: Service, attempt: Attempt) -> ChainAnswer:
    """Ask the chain's node whether a payment is paid, by the state of the nonce.

    The payment can never be paid if the nonce is unused in a block with a time past validBefore, if
    the nonce was cancelled, or if the nonce made another transfer, as for a second header with the
    same nonce.
    """
    payer, nonce, until_s = attempt.payer, attempt.nonce, attempt.valid_before_s
    if payer is None or nonce is None or until_s is None:  # an unreadable header
        lasts_ms = 1000 * service.env.settings.longest_window_s
        is_over = service.clock.now_ms() - attempt.timestamp > lasts_ms
        return ChainAnswer(ChainFinding.NEVER if is_over else ChainFinding.UNKNOWN)
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
    # Until a payment is settled, a used nonce counts as ours only if the header can pay and the
    # chain once reported the nonce unused; otherwise the use may be older than the payment.
    is_ours = attempt.state is PaymentState.SETTLED or (
        attempt.is_authorized and attempt.nonce_confirmed_unused
    )
    is_paid = is_ours and state.use.transfer == _transfer(attempt)
    return ChainAnswer(
        ChainFinding.PAID if is_paid else ChainFinding.NEVER, state.use, state.height
    )


async def follow_chain(service: Service, attempt: Attempt) -> ChainFinding:
    """Ask the chain about a payment, and move the record accordingly (`follow`)."""
    answer = await ask_chain(service, attempt)
    now = service.store.payments.reload(attempt)
    if now is not None and now.state is not attempt.state:
        # another service has changed the record, so the same nonce may mean something else
        answer = await ask_chain(service, now)
    follow(service, attempt, answer)
    return answer.finding


def follow(service: Service, listed: Attempt, answer: ChainAnswer) -> None:
    """Move a payment's record to the state of the chain's answer.

    The caller holds the lock of the payment id. Even so, another service on this store may have
    moved the record during the query, or an older database may have been restored. A settled
    payment with an undone transfer becomes pending while the chain may still make the transfer, and
    failed afterwards. A settled payment without a block stays settled until the chain excludes the
    transfer, because the transaction may still come.
    """
    attempt = service.store.payments.reload(listed)
    if attempt is None:
        return
    match answer.finding:
        case ChainFinding.PAID:
            if answer.use is not None:
                _paid_by(service, attempt, answer.use, answer.height)
        case ChainFinding.NEVER:
            if attempt.state is not PaymentState.FAILED:
                revoke(service, attempt, answer.height)
        case ChainFinding.NOT_YET:
            if attempt.state is PaymentState.SETTLED and attempt.block_number is not None:
                suspend(service, attempt)
            elif attempt.is_pending and not attempt.nonce_confirmed_unused:
                service.store.payments.confirm_unused(attempt.number)
        case ChainFinding.UNKNOWN:
            pass
        case _:
            assert_never(answer.finding)


async def reconcile(service: Service) -> int:
    """Resolve pending payments by the policy `lost_answer` (3/pending-resolved); return the number.

    An unresolved payment is looked at less and less often. One run takes at most `AT_MOST` payments
    with a possible submission, and as many others, the longest waits first. So any number of
    headers never submitted does not delay a payment with money perhaps moved.
    """
    settings, payments, resolved = service.env.settings, service.store.payments, 0
    waits: dict[int, Backoff] = {}
    try:
        for due in payments.pending(service.clock.now(), AT_MOST):
            async with service.locks.hold(due.payment_id):
                attempt = payments.reload(due)
                if attempt is None or not attempt.is_pending:
                    continue
                payment = PendingPaymentHandle(service, attempt)
                await settings.policy.lost_answer.resolve(payment)
            if payment.is_forgotten or payment.finding in (ChainFinding.PAID, ChainFinding.NEVER):
                resolved += 1
            else:
                now_s = service.clock.now()
                waits[due.number] = after_failure(due.wait_s, settings.pending_wait_s, now_s)
    finally:
        service.store.put_off("payments", waits)
    return resolved


class PendingPaymentHandle:
    """A pending payment for the policy; the caller holds the lock of the payment id."""

    def __init__(self, service: Service, attempt: Attempt) -> None:
        self._service, self._listed = service, attempt
        self.finding = ChainFinding.UNKNOWN
        """The newest finding."""
        self.is_forgotten = False

    async def ask_chain(self) -> ChainFinding:
        """Ask the chain's node; the record follows the answer."""
        attempt = self._service.store.payments.reload(self._listed)
        self.finding = (
            await follow_chain(self._service, attempt) if attempt else ChainFinding.UNKNOWN
        )
        return self.finding

    async def settle_again(self) -> ChainFinding:
        """Send the payment to the facilitator again; PAID, NOT_YET (refused), or UNKNOWN (lost).

        A payment without a facilitator is not sent, and NOT_YET: the endpoint has failed.
        """
        service, payments = self._service, self._service.store.payments
        attempt = payments.reload(self._listed)
        terms = service.issuer.read(attempt.payment_id) if attempt else None
        if attempt is None or terms is None:
            return self.finding
        if attempt.state is PaymentState.NOT_SUBMITTED:
            return ChainFinding.NOT_YET
        payments.mark_maybe_submitted(attempt.number)
        payment = present(attempt.header)
        requirements = service.issuer.requirements(terms.resource, terms.amount_base)
        try:
            outcome = await service.facilitator.settle(payment, requirements)
        except (Unavailable, OutcomeUnknown):
            return ChainFinding.UNKNOWN
        tx_hash = outcome.tx_hash if isinstance(outcome, Moved) else None
        if tx_hash and payments.paid_by(tx_hash) is None and grant(service, attempt, tx_hash):
            self.finding = ChainFinding.PAID
            return self.finding
        return ChainFinding.NOT_YET

    async def wait(self, seconds: float) -> None:
        """Let time pass."""
        await self._service.clock.sleep(seconds)

    def forget(self) -> None:
        """Delete the record."""
        self._service.store.payments.forget(self._listed.number)
        self.is_forgotten = True


def pays_for(mined: OnChain, attempt: Attempt) -> bool:
    """Tell whether a transaction used a payment's authorization and made the transfer."""
    if attempt.payer is None or attempt.nonce is None:
        return False
    moved = mined.used.get((attempt.payer, attempt.nonce))
    return mined.succeeded and moved == _transfer(attempt)


def is_deep(service: Service, block_number: int, height: int) -> bool:
    """Tell whether a block is beyond expected reorganisations (8/final-depth)."""
    return height - block_number >= service.env.settings.final_depth


def _paid_by(service: Service, attempt: Attempt, use: NonceUse, height: int) -> None:
    """Store a payment's transaction, and grant an unsettled payment."""
    payment_id, payments = attempt.payment_id, service.store.payments
    deep = is_deep(service, use.block_number, height)
    if attempt.state is not PaymentState.SETTLED:
        if grant(service, attempt, use.tx_hash):
            return
        if payments.fail(attempt.number, height, PaymentEvent.PAID_AGAIN):
            service.record(events.PaidAgain(payment_id=payment_id, tx_hash=use.tx_hash))
        elif attempt.state is PaymentState.FAILED and deep:
            # else every run of the indexer looks at this attempt, and 100 would fill the batch
            payments.set_deep(attempt.number)
        return
    if use.tx_hash != attempt.tx_hash:
        service.record(events.TransactionReplaced(payment_id=payment_id, tx_hash=use.tx_hash))
    set_block(service, attempt, use.tx_hash, use.block_number, is_deep=deep)


def set_block(
    service: Service, attempt: Attempt, tx_hash: str, block_number: int, *, is_deep: bool
) -> None:
    """Complete a settled record with the block (8/indexer-query)."""
    service.store.payments.set_block(attempt.number, tx_hash, block_number, is_deep=is_deep)
    if block_number != attempt.block_number:
        service.record(events.PaymentIndexed(payment_id=attempt.payment_id, block=block_number))


def _transfer(attempt: Attempt) -> tuple[Address | None, Address, int]:
    """Return a payment's transfer: from, to, base units."""
    return attempt.payer, parse_address(attempt.to_address), int(attempt.amount)


def grant(service: Service, attempt: Attempt, tx_hash: str) -> Attempt | None:
    """Mark a payment settled, grant the entitlement, and return the payment (steps 5 and 6).

    A deposit also opens a session, in the same database transaction (3/deposit-makes-session).
    None if another service on this store has settled the payment, if the payment belongs to another
    attempt (`PaymentRecords.mark_settled`), or if the control API has restored an older database.
    """
    payment_id, payer, resource = attempt.payment_id, attempt.from_address, attempt.resource_url
    session, opened = _session_of(service, attempt) if resource == SESSIONS else (None, None)
    if not service.store.payments.mark_settled(attempt.number, tx_hash, session):
        return None
    now_ms, amount_base = service.clock.now_ms(), int(attempt.amount)
    # Interned, a text is in memory once: a payer may have thousands of entitlements, and a
    # simulated payer holds the payment ids, too.
    entitlement = Entitlement(intern(payment_id), intern(resource), intern(payer), now_ms)
    service.entitlements.add(entitlement)
    settled = events.PaymentSettled(
        payment_id=payment_id,
        tx_hash=tx_hash,
        payer=payer,
        amount_base=amount_base,
        resource=resource,
    )
    service.record(settled)
    if opened is not None:
        service.record(opened)
    return msgspec.structs.replace(attempt, state=PaymentState.SETTLED, tx_hash=tx_hash)


def _session_of(
    service: Service, deposit: Attempt
) -> tuple[NewSession, events.SessionOpened | None]:
    """Return a deposit's session, and the event; no event for a session opened before."""
    payment_id, now_ms = deposit.payment_id, service.clock.now_ms()
    unit_ms = service.env.settings.decisions.duration_unit_s * 1000
    expires_ms = now_ms + deposit.duration * unit_ms
    session = NewSession(session_id(service, payment_id), now_ms, expires_ms)
    if service.store.sessions.paid_by(payment_id) is not None:
        return session, None
    return session, events.SessionOpened(
        session_id=session.session_id,
        payment_id=payment_id,
        payer=deposit.from_address,
        deposited_base=int(deposit.amount),
        expires_ms=expires_ms,
    )


def suspend(service: Service, attempt: Attempt) -> None:
    """End access while the chain, after undoing the transfer, may still make the transfer."""
    if service.store.payments.mark_reorged(attempt.number):
        service.record(events.PaymentUndone(payment_id=attempt.payment_id))


def revoke(service: Service, attempt: Attempt, height: int) -> None:
    """Record that an attempt can never be paid, reported at a height, and end the access."""
    payments = service.store.payments
    if payments.fail(attempt.number, height) and not payments.is_paid_otherwise(attempt):
        service.record(events.PaymentFailed(payment_id=attempt.payment_id))


def session_id(service: Service, payment_id: str) -> str:
    """Return the id of a deposit's session (2.6/id-prefix), always the same.

    Only this server can compute the id.
    """
    message = b"session " + payment_id.encode()
    return "session_" + hmac.digest(service.env.id_secret, message, "sha256").hex()[:40]
