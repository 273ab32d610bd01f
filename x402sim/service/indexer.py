"""The payment indexer: completes settled payments with their blocks.

Every 300 s the indexer takes at most 100 settled records without a block, newest first, and asks
the chain explorer for each transaction. The indexer looks again at payments and refunds in blocks
not deep enough yet, because of reorganisations, and then updates the reputations.
Clauses: 1/indexer, 3/indexed-status, 6/reputation, 8/indexer-batch, 8/indexer-query.
"""

import logging
from typing import Literal

from x402sim import events
from x402sim.protocol.refusals import ChainFinding
from x402sim.protocol.states import PaymentState
from x402sim.service.reconcile import ask_chain, follow, follow_chain, is_deep, pays_for, set_block
from x402sim.service.sessions import look_again_at_refund
from x402sim.service.state import Service
from x402sim.service.store.payment_records import Attempt
from x402sim.service.upstream.calls import Unavailable

log = logging.getLogger("x402sim")

Result = Literal["matched", "reverted", "unknown", "unanswered"]


async def run(service: Service) -> events.IndexerRan:
    """Complete one batch of records with their blocks (1/indexer), then the reputations.

    Between the two the node is asked about payments and refunds with a block of an earlier run,
    until the block is deep enough: one batch of each at most. A payment with an undone transfer
    becomes pending or failed; any other stays settled (3/indexed-status).
    """
    settings, payments = service.env.settings, service.store.payments
    most = settings.indexer_batch
    shallow = payments.shallow(most) + payments.shallow_failures(most)
    refunds, batch = service.store.sessions.shallow_refunds(most), payments.unindexed(most)
    results = [await _index(service, attempt) for attempt in batch]
    has_changed = False
    if shallow or refunds:
        try:
            height = await service.rpc.height()
        except Unavailable as error:
            log.warning("the node did not answer: %s", error)
        else:
            has_changed = any([await _look_again(service, attempt, height) for attempt in shallow])
            for refund in refunds:
                await look_again_at_refund(service, *refund, height)
    if has_changed or "matched" in results or "reverted" in results:
        payments.update_reputation(settings.reputation)
    ran = events.IndexerRan(
        asked=len(batch),
        matched=results.count("matched"),
        reverted=results.count("reverted"),
        unknown=results.count("unknown"),
        unanswered=results.count("unanswered"),
        backlog=payments.backlog(),
    )
    service.record(ran)
    return ran


async def _index(service: Service, listed: Attempt) -> Result:
    """Ask the explorer for one payment (8/indexer-query), and store the answer.

    If the explorer does not show the payment in the transaction, the node is asked: the explorer
    may be behind, and a transaction may still come into a block.
    """
    async with service.locks.hold(listed.payment_id):
        attempt = service.store.payments.reload(listed)
        if attempt is None or attempt.state is not PaymentState.SETTLED:
            return "unknown"
        tx_hash = str(attempt.tx_hash)
        try:
            found = await service.explorer.transaction(tx_hash)
        except Unavailable as error:
            log.warning("the explorer did not answer for %s: %s", tx_hash, error)
            return "unanswered"
        if found is not None:
            set_block(service, attempt, tx_hash, found.block_number, is_deep=False)
            if pays_for(found, attempt):
                return "matched"
        answer = await ask_chain(service, attempt)
        is_as_recorded = answer.use is not None and answer.use.tx_hash == tx_hash
        if found is None and is_as_recorded and answer.finding is ChainFinding.PAID:
            return "unknown"  # the explorer is behind, and is asked for the block again
        follow(service, attempt, answer)
        if answer.finding is ChainFinding.PAID:
            return "matched"
        if answer.finding is ChainFinding.UNKNOWN:
            return "unknown" if found is None else "unanswered"
        now = service.store.payments.reload(attempt)
        is_settled = now is not None and now.state is PaymentState.SETTLED
        return "unknown" if is_settled else "reverted"


async def _look_again(service: Service, listed: Attempt, height: int) -> bool:
    """Look again at a payment with a block, or a failed one; tell whether the state changes."""
    state, payments = listed.state, service.store.payments
    async with service.locks.hold(listed.payment_id):
        attempt = payments.reload(listed)
        if attempt is None or attempt.state is not state:
            return False
        if state is PaymentState.SETTLED and not await _is_undone(service, attempt, height):
            return False
        finding = await follow_chain(service, attempt)
        if state is PaymentState.SETTLED:
            return finding in (ChainFinding.NEVER, ChainFinding.NOT_YET)
        if finding is ChainFinding.NEVER and is_deep(service, listed.failed_at or 0, height):
            payments.set_deep(attempt.number)
        now = payments.reload(attempt)
        return now is not None and now.state is not state


async def _is_undone(service: Service, attempt: Attempt, height: int) -> bool:
    """Tell whether the node does not show a payment's transaction; store the depth."""
    tx_hash = str(attempt.tx_hash)
    try:
        found = await service.rpc.transaction(tx_hash)
    except Unavailable as error:
        log.warning("the node did not answer for %s: %s", tx_hash, error)
        return False
    if found is None or not pays_for(found, attempt):
        return True
    deep = is_deep(service, found.block_number, height)
    if deep or found.block_number != attempt.block_number:
        set_block(service, attempt, tx_hash, found.block_number, is_deep=deep)
    return False
