"""What becomes of a payment on the chain: records are updated from it; access is given or ended.

The token's state shows only that a nonce is used up. Its events show whether the nonce was used or
cancelled, and the Transfer event shows whether this merchant was paid this amount. A record follows
the chain: whatever the chain reports is written to it, until the block of the transfer is deep
enough. To grant a payment is to store its record as settled, to open the session of a deposit, and
to cache an entitlement.
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
"""How many pending payments of each kind one run asks about: those that may have been submitted to
a facilitator, and the others."""


class ChainAnswer(msgspec.Struct, frozen=True):
    """What the chain reports of a payment, at a height; `use` is the use of its nonce, if any."""

    finding: ChainFinding
    use: NonceUse | None = None
    height: int = 0


async def ask_chain(service: Service, attempt: Attempt) -> ChainAnswer:
    """Ask the chain's node whether a payment is paid, by the state of its nonce.

    The payment can never be paid if the nonce is unused in a block whose time is past validBefore,
    if the nonce was cancelled, or if it paid for something else, such as another header that has
    the same nonce.
    """
    payer, nonce, until_s = attempt.payer, attempt.nonce, attempt.valid_before_s
    if payer is None or nonce is None or until_s is None:  # its header cannot be read
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
    is_ours = attempt.status == "settled" or (
        attempt.is_authorized and attempt.nonce_confirmed_unused
    )
    is_paid = is_ours and not state.use.canceled and _transfer(attempt) in state.use.transfers
    return ChainAnswer(
        ChainFinding.PAID if is_paid else ChainFinding.NEVER, state.use, state.height
    )


async def follow_chain(service: Service, attempt: Attempt) -> ChainFinding:
    """Ask the chain about a payment, and move its record accordingly (`follow`)."""
    answer = await ask_chain(service, attempt)
    now = service.store.payments.reload(attempt)
    if now is not None and now.state is not attempt.state:
        # another service has changed the record, so the same nonce may mean something else
        answer = await ask_chain(service, now)
    follow(service, attempt, answer)
    return answer.finding


def follow(service: Service, listed: Attempt, answer: ChainAnswer) -> None:
    """Move a payment's record to the state that the chain's answer demands.

    The caller holds the lock of its payment id. Even so, another service on this store may have
    moved the record during the query, or an older database may have been restored. A settled
    payment whose transfer was undone becomes pending while the chain may still make the transfer,
    and failed when it cannot. A settled payment without a block stays settled until it can never be
    paid, because the transaction may still come.
    """
    attempt = service.store.payments.reload(listed)
    if attempt is None:
        return
    status = attempt.status
    match answer.finding:
        case ChainFinding.PAID:
            if answer.use is not None:
                _paid_by(service, attempt, answer.use, answer.height)
        case ChainFinding.NEVER:
            if status != "failed":
                revoke(service, attempt, answer.height)
        case ChainFinding.NOT_YET:
            if status == "settled" and attempt.block_number is not None:
                suspend(service, attempt)
            elif status == "pending" and not attempt.nonce_confirmed_unused:
                service.store.payments.confirm_unused(attempt.number)
        case ChainFinding.UNKNOWN:
            pass
        case _:
            assert_never(answer.finding)


async def reconcile(service: Service) -> int:
    """Resolve the pending payments that can be resolved (3/pending-resolved); return how many.

    The policy `lost_answer` resolves them. A payment that it cannot resolve yet is looked at less
    and less often. One run takes at most `AT_MOST` payments that may have been submitted, and as
    many of the others, those that have waited longest first. So headers that were never submitted,
    however many, do not delay a payment whose money may have moved.
    """
    settings, payments, resolved = service.env.settings, service.store.payments, 0
    waits: dict[int, Backoff] = {}
    try:
        for due in payments.pending(service.clock.now(), AT_MOST):
            async with service.locks.hold(due.payment_id):
                attempt = payments.reload(due)
                if attempt is None or attempt.status != "pending":
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
    """A pending payment in the hands of the policy; the caller holds the lock of its payment id."""

    def __init__(self, service: Service, attempt: Attempt) -> None:
        self._service, self._listed = service, attempt
        self.finding = ChainFinding.UNKNOWN
        """What is known of it by now."""
        self.is_forgotten = False

    async def ask_chain(self) -> ChainFinding:
        """Ask the chain's node; the record follows what it says."""
        attempt = self._service.store.payments.reload(self._listed)
        self.finding = (
            await follow_chain(self._service, attempt) if attempt else ChainFinding.UNKNOWN
        )
        return self.finding

    async def settle_again(self) -> ChainFinding:
        """Send it to the facilitator once more; PAID, NOT_YET (refused), or UNKNOWN (lost).

        A payment that no facilitator has got is not sent, and NOT_YET: its endpoint has failed.
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
    """Tell whether a transaction used this payment's authorization and made its transfer."""
    is_used = (attempt.payer, attempt.nonce) in mined.used
    return mined.succeeded and is_used and _transfer(attempt) in mined.transfers


def is_deep(service: Service, block_number: int, height: int) -> bool:
    """Tell whether a block is so deep that no reorganisation is expected (8/final-depth)."""
    return height - block_number >= service.env.settings.final_depth


def _paid_by(service: Service, attempt: Attempt, use: NonceUse, height: int) -> None:
    """Store which transaction made a payment, and grant the payment if it is not settled yet."""
    payment_id, payments = attempt.payment_id, service.store.payments
    deep = is_deep(service, use.block_number, height)
    if attempt.status != "settled":
        if grant(service, attempt, use.tx_hash):
            return
        if payments.fail(attempt.number, height, PaymentEvent.PAID_AGAIN):
            service.record(events.PaidAgain(payment_id=payment_id, tx_hash=use.tx_hash))
        elif attempt.status == "failed" and deep:
            # else the indexer looks at it in every run, and 100 of these would fill its batch
            payments.set_deep(attempt.number)
        return
    if use.tx_hash != attempt.tx_hash:
        service.record(events.TransactionReplaced(payment_id=payment_id, tx_hash=use.tx_hash))
    set_block(service, attempt, use.tx_hash, use.block_number, is_deep=deep)


def set_block(
    service: Service, attempt: Attempt, tx_hash: str, block_number: int, *, is_deep: bool
) -> None:
    """Complete a settled record with its block (8/indexer-query)."""
    service.store.payments.set_block(attempt.number, tx_hash, block_number, is_deep=is_deep)
    if block_number != attempt.block_number:
        service.record(events.PaymentIndexed(payment_id=attempt.payment_id, block=block_number))


def _transfer(attempt: Attempt) -> tuple[Address | None, Address, int]:
    """Return the transfer that a payment demands: from, to, base units."""
    return attempt.payer, parse_address(attempt.to_address), int(attempt.amount)


def grant(service: Service, attempt: Attempt, tx_hash: str) -> Attempt | None:
    """Mark a payment settled, grant the entitlement, and return the payment (steps 5 and 6).

    A deposit also opens a session, in the same database transaction (3/deposit-makes-session).
    Returns None if another service on this store has settled the payment, if another attempt gets
    the payment (`PaymentRecords.mark_settled`), or if the control API has restored an older
    database without the payment.
    """
    payment_id, payer, resource = attempt.payment_id, attempt.from_address, attempt.resource_url
    session, opened = _session_of(service, attempt) if resource == SESSIONS else (None, None)
    if not service.store.payments.mark_settled(attempt.number, tx_hash, session):
        return None
    now_ms, amount_base = service.clock.now_ms(), int(attempt.amount)
    # Interned, each text is in memory once: a payer may have thousands of entitlements, and in a
    # simulation it holds the payment ids, too.
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
    return msgspec.structs.replace(
        attempt, state=PaymentState.SETTLED, status="settled", tx_hash=tx_hash
    )


def _session_of(
    service: Service, deposit: Attempt
) -> tuple[NewSession, events.SessionOpened | None]:
    """Return the session that a deposit opens, and the event; None if it was open before."""
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
    """End access for as long as the chain, which has undone the transfer, may still make it."""
    if service.store.payments.mark_reorged(attempt.number):
        service.record(events.PaymentUndone(payment_id=attempt.payment_id))


def revoke(service: Service, attempt: Attempt, height: int) -> None:
    """Record that an attempt can never be paid any more, and end the access that it gave.

    `height` is the height of the chain that reports so.
    """
    payments = service.store.payments
    if payments.fail(attempt.number, height) and not payments.is_paid_otherwise(attempt):
        service.record(events.PaymentFailed(payment_id=attempt.payment_id))


def session_id(service: Service, payment_id: str) -> str:
    """Return the id of the session that a deposit opens (2.6/id-prefix).

    Only this server can compute it, and it is the same every time.
    """
    message = b"session " + payment_id.encode()
    return "session_" + hmac.digest(service.env.id_secret, message, "sha256").hex()[:40]
