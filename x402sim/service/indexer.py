"""The payment indexer: completes stored payments with the block they are in.

Every 300 s it takes at most 100 settled records without a block, newest first, asks
the chain explorer for each transaction, and afterwards updates the reputations.
Clauses: 1/indexer, 3/indexed-status, 6/reputation, 8/indexer-batch, 8/indexer-query.
"""

import logging

import msgspec

from x402sim import events
from x402sim.service.state import Service
from x402sim.service.upstream.calls import Unavailable

log = logging.getLogger("x402sim")


class IndexerRun(msgspec.Struct, frozen=True):
    """The counts of one run: asked for, found in a block, reverted, unknown, unanswered.

    `backlog` counts the records that still have no block.
    """

    asked: int = 0
    matched: int = 0
    reverted: int = 0
    unknown: int = 0
    unanswered: int = 0
    backlog: int = 0


async def run(service: Service) -> IndexerRun:
    """Complete one batch of records with their blocks (1/indexer), then the reputations.

    A reverted transaction makes its payment failed, any other stays settled
    (3/indexed-status).
    """
    batch = service.store.payments.unindexed(service.settings.indexer_batch)
    findings = [await _index(service, payment_id, tx_hash) for payment_id, tx_hash in batch]
    if "matched" in findings:
        service.store.payments.update_reputation()
    counts = {name: findings.count(name) for name in ("matched", "reverted", "unknown")}
    done = IndexerRun(
        asked=len(batch),
        unanswered=findings.count("unanswered"),
        backlog=service.store.payments.backlog(),
        **counts,
    )
    service.record(events.IndexerRan(**msgspec.structs.asdict(done)))
    return done


async def _index(service: Service, payment_id: str, tx_hash: str) -> str:
    """Ask for one payment (8/indexer-query) and store the answer."""
    try:
        found = await service.explorer.transaction(tx_hash)
    except Unavailable as error:
        log.warning("the explorer did not answer for %s: %s", tx_hash, error)
        return "unanswered"
    if found is None:
        return "unknown"
    service.store.payments.set_block(payment_id, found.block_number)
    service.record(events.PaymentIndexed(payment_id=payment_id, block=found.block_number))
    if not found.succeeded:
        service.store.payments.fail(payment_id)
        service.entitlements.remove(payment_id)
        service.record(events.PaymentFailed(payment_id=payment_id))
        return "reverted"
    return "matched"
