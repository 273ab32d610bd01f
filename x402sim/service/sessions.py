"""Sessions: one deposit pays for many requests; at expiry the rest is refunded.

A refund is an EIP-3009 transfer signed by the server wallet. The nonce is derived from the session
id, so the token accepts a refund only once, even after a crash. The amount is stored before the
first sending, and never changes afterwards; the paid amount is read from the chain. If a debit is
undone later, another transfer refunds the debit.
Clauses: 4.4/*, 2.6/remaining, 3/expiry-refund, 3/refund-once.
"""

import asyncio
import logging
import sqlite3

from msgspec.structs import replace

from x402sim import events
from x402sim.http.web import bad_body
from x402sim.protocol.crypto import Address, keccak256, parse_address, sign
from x402sim.protocol.eip3009 import Authorization, transfer_digest
from x402sim.protocol.header import encode_header, present
from x402sim.protocol.messages import PaymentRequired, SessionRequest, SessionView
from x402sim.protocol.money import MAX_STORED, to_base
from x402sim.protocol.refusals import ChainFinding
from x402sim.protocol.routes import SESSIONS
from x402sim.protocol.states import PaymentState
from x402sim.service.reconcile import follow_chain, is_deep
from x402sim.service.state import Service
from x402sim.service.store.database import Backoff, after_failure
from x402sim.service.store.session_budgets import Refund, SessionBudget
from x402sim.service.upstream.calls import OutcomeUnknown, Unavailable
from x402sim.service.upstream.chain import NonceUse
from x402sim.service.upstream.facilitator import Moved

log = logging.getLogger("x402sim")

AT_MOST = 500
"""The most expired sessions ended by a transaction."""
REFUNDS_AT_ONCE = 20
"""The most refunds in flight at the same time."""
REFUND_WAIT_S = (10.0, 300.0)
"""Seconds until another try of a failed refund: the first wait and the longest."""


def offer(service: Service, request: SessionRequest) -> PaymentRequired:
    """Return the 402 for a session's deposit (4.4/deposit-402).

    The price is maxSpend, exactly (4.4/max-spend); the payment id binds amount and duration.
    Raises `Refused` 400.
    """
    decimals, now_s = service.env.network.decimals, service.clock.now_s()
    try:
        deposit_base = to_base(request.max_spend, decimals, fraction_digits=2)
    except ValueError as error:
        raise bad_body(f"{error} - at `$.maxSpend`") from error
    if not 0 < deposit_base <= MAX_STORED:
        limits = f"expected more than 0.00 and at most {MAX_STORED} base units"
        raise bad_body(f"{limits} - at `$.maxSpend`")
    return service.issuer.issue(SESSIONS, deposit_base, now_s, request.duration)


def view(session: SessionBudget) -> SessionView:
    """Return a session for the holder: remaining = deposited - released (2.6/remaining)."""
    return SessionView(
        session_id=session.session_id,
        deposited=str(session.deposited),
        released=str(session.released),
        remaining=str(session.remaining),
        expires_at=session.expires_ms,
        status="expired" if session.state == "refunding" else session.state,
        refund_tx_hash=session.refund_tx_hash,
    )


def undo_debit(service: Service, session_id: str, amount_base: int, resource: str) -> None:
    """Undo a debit without a written answer; with a full disk, `undo_debits` does so later."""
    try:
        released = service.store.sessions.undo_debit(session_id, amount_base, resource)
    except sqlite3.OperationalError as failure:
        service.debits_to_undo.append((session_id, amount_base, resource))
        log.warning(
            "%s: a debit without an answer is not undone; the next sweep and an orderly end try "
            "again, a crash loses it: %s",
            resource,
            failure,
        )
        return
    if released is not None:
        undone = events.DebitUndone(
            session_id=session_id, amount_base=amount_base, released_base=released
        )
        service.record(undone)


def undo_debits(service: Service) -> None:
    """Undo the debits left by a full disk, at each sweep and at the orderly end."""
    for _ in range(len(service.debits_to_undo)):
        undo_debit(service, *service.debits_to_undo.pop(0))


async def expire(service: Service) -> int:
    """End the expired sessions, and pay the refunds due (3/expiry-refund).

    Returns the number of settled refunds; the others stay due. Debits left by a full disk are
    undone first.
    """
    undo_debits(service)
    sessions, now_ms = service.store.sessions, service.clock.now_ms()
    ended = some = sessions.expire(now_ms, AT_MOST)
    while some == AT_MOST:  # not all in one transaction: requests are answered in between
        await service.clock.sleep(0)
        some = sessions.expire(now_ms, AT_MOST)
        ended += some
    if ended:
        service.record(events.SessionsExpired(count=ended))
    settled, now_s = 0, service.clock.now()
    last: Refund | None = None
    while owed := sessions.refunds_due(now_s, REFUNDS_AT_ONCE, last):
        waits: dict[int, Backoff] = {}
        try:
            paid = await asyncio.gather(
                *(_pay_back_once(service, refund, waits) for refund in owed)
            )
        finally:
            service.store.put_off("refunds", waits)
        settled, last = settled + sum(paid), owed[-1]
    return settled


async def _pay_back_once(service: Service, refund: Refund, waits: dict[int, Backoff]) -> bool:
    """Pay a due refund, and tell whether the refund was paid; after a failure the refund waits."""
    session_id = refund.session_id
    async with service.locks.hold(session_id):
        if not service.store.sessions.is_due(refund):
            return False
        try:
            if refund.sent is not None:  # the chain may have the transfer: the same is sent again
                refund = replace(refund, amount=refund.sent)
            return await pay_back(service, refund)
        except (Unavailable, OutcomeUnknown) as error:
            wait = after_failure(refund.wait_s, REFUND_WAIT_S, service.clock.now())
            waits[refund.number] = wait
            reason, retry_s = str(error), int(wait.wait_s)
            service.record(
                events.RefundDelayed(session_id=session_id, reason=reason, retry_s=retry_s)
            )
            # with the whole id in the log, a reader could spend
            log.warning("the refund of %s... waits %d s: %s", session_id[:16], retry_s, reason)
            return False


async def pay_back(service: Service, refund: Refund) -> bool:
    """Refund one session's unspent balance on chain, exactly once (3/refund-once).

    False if a reorganisation has undone the deposit, if another service on this store has paid the
    refund, or if a debit was undone after the listing: the next sweep reads the new amount. Raises
    `Unavailable` or `OutcomeUnknown`; then the refund is still due.
    """
    wallet, nonce = service.env.wallet, refund_nonce(refund.session_id, refund.part)
    async with service.locks.hold(refund.payment_id):
        attempt = service.store.payments.get(refund.payment_id)
        if attempt is None or attempt.state is not PaymentState.SETTLED:
            return False
        finding = await follow_chain(service, attempt)
        attempt = service.store.payments.get(refund.payment_id)
    if attempt is None or attempt.state is not PaymentState.SETTLED:
        return False
    if finding is not ChainFinding.PAID:
        raise Unavailable("the chain does not say whether the deposit was paid")
    if not service.store.sessions.begin_refund(refund):
        return False
    state = await service.rpc.nonce_state(wallet, nonce)
    if state.is_used and state.use is None:
        raise Unavailable("it is paid, but its transaction was not found")
    if state.use is None:
        tx_hash, paid = await _transfer(service, refund, nonce), refund.amount
    else:
        tx_hash, paid = state.use.tx_hash, _paid(state.use, wallet, refund)
    _refunded(service, refund.session_id, refund.part, tx_hash, paid)
    return True


def _refunded(service: Service, session_id: str, part: int, tx_hash: str, paid: int) -> None:
    """Record the transaction of a refund, in place of a transaction undone by the chain."""
    replaced = service.store.sessions.refunded(session_id, part, tx_hash, paid)
    if replaced is not None:
        gone, paid_by_it = replaced
        service.record(
            events.RefundUndone(session_id=session_id, amount_base=paid_by_it, tx_hash=gone)
        )
    service.record(events.SessionRefunded(session_id=session_id, amount_base=paid, tx_hash=tx_hash))


def _paid(use: NonceUse, wallet: Address, refund: Refund) -> int:
    """Return the amount paid by the chain for a refund, in base units; 0 for a canceled nonce.

    Raises `Unavailable` without a transfer to the payer.
    """
    if use.canceled:
        return 0
    sender, to, paid = use.transfer or (None, None, 0)
    if (sender, to) != (wallet, parse_address(refund.to_address)):
        raise Unavailable(f"the node shows no transfer to the payer in {use.tx_hash}")
    return paid


async def look_again_at_refund(
    service: Service, session_id: str, part: int, tx_hash: str, height: int
) -> None:
    """Look again at a refund in a block not deep enough; an undone refund is due again.

    The nonce never changes, so the token accepts the refund only once, after any number of tries.
    """
    wallet, nonce = service.env.wallet, refund_nonce(session_id, part)
    async with service.locks.hold(session_id):
        try:
            mined = await service.rpc.transaction(tx_hash)
            if mined is not None and (wallet, nonce) in mined.used:
                if is_deep(service, mined.block_number, height):
                    service.store.sessions.refunded(session_id, part, tx_hash, is_deep=True)
                return
            state = await service.rpc.nonce_state(wallet, nonce)
        except Unavailable as error:
            log.warning("the node did not answer for %s: %s", tx_hash, error)
            return
        if state.is_used and state.use is None:
            return
        if state.use is not None and state.use.tx_hash == tx_hash:
            service.store.sessions.refunded(session_id, part, tx_hash)
            return
        paid = service.store.sessions.undo_refund(session_id, part)
        if paid is None:
            return
        undone = events.RefundUndone(session_id=session_id, amount_base=paid, tx_hash=tx_hash)
        service.record(undone)
        if (use := state.use) is not None:
            _refunded(service, session_id, part, use.tx_hash, 0 if use.canceled else paid)


def refund_nonce(session_id: str, part: int) -> bytes:
    """Return the nonce of a session's refund, always the same."""
    more = f", part {part}" if part else ""
    return keccak256(f"x402sim refund of {session_id}{more}".encode())


async def _transfer(service: Service, refund: Refund, nonce: bytes) -> str:
    """Sign the refund and have the facilitator settle it; return the transaction hash.

    Raises `Unavailable` or `OutcomeUnknown`.
    """
    env, now_s = service.env, service.clock.now_s()
    auth = Authorization(
        from_=env.wallet,
        to=parse_address(refund.to_address),
        value=refund.amount,
        valid_after=now_s - 60,
        valid_before=now_s + env.settings.max_timeout_s,
        nonce=nonce,
    )
    signature = sign(transfer_digest(auth, env.network.domain), env.key)
    requirements = replace(
        service.issuer.requirements(SESSIONS, refund.amount),
        pay_to=refund.to_address,
        description="Refund of a session's unspent balance",
    )
    payment = present(encode_header(auth, signature, env.network))
    outcome = await service.facilitator.settle(payment, requirements)
    if isinstance(outcome, Moved):
        return outcome.tx_hash
    raise Unavailable(f"the facilitator refused it: {outcome.reason}")
