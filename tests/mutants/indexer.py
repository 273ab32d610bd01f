"""Defects of the indexer: when it runs, what it asks, what it writes down."""

from typing import Any

from tests.mutants.changes import Wrapper, altered, into, overriding, setting
from tests.mutants.middleware import answers
from tests.mutants.mutant import Kind
from tests.mutants.settlement import RECORD
from x402sim.protocol.crypto import parse_address
from x402sim.service.policies import Reputation
from x402sim.service.state import Service
from x402sim.service.upstream.calls import Unavailable
from x402sim.service.upstream.chain import OnChain

indexer = Kind("indexer")
EVERY = 10**6
"""More records than there are."""


async def as_recorded(service: Service, tx_hash: str, block_number: int) -> OnChain | None:
    """Return the transaction that a record needs to be complete, in any block."""
    payment_id = service.store.payments.paid_by(tx_hash)
    stored = service.store.payments.get(payment_id) if payment_id else None
    if stored is None or stored.payer is None or stored.nonce is None:
        return None
    moved = (stored.payer, parse_address(stored.to_address), int(stored.amount))
    used = (stored.payer, stored.nonce)
    return OnChain(block_number=block_number, succeeded=True, used={used: moved})


async def unknown_is_in(it: Any, tx_hash: str) -> OnChain | None:
    """Find a payment that the explorer does not know yet in block 0."""
    found: OnChain | None = await it.inner.transaction(tx_hash)
    return found or await as_recorded(it.service, tx_hash, 0)


looks_once = overriding("payments", shallow=lambda it, _: [])
"""A store in which every block is deep, so that nothing is looked at again."""


# --- the defects ---

indexer("never-runs", "1/indexer", "The indexer does not run within years.",
    setting(indexer_interval_s=10**9))  # fmt: skip
indexer("runs-every-hour", "8/indexer-interval", "The indexer runs every hour.",
    setting(indexer_interval_s=3600))  # fmt: skip
indexer("runs-all-the-time", "8/indexer-interval", "The indexer runs every ten seconds.",
    setting(indexer_interval_s=10))  # fmt: skip
indexer("oldest-first", "8/indexer-batch",
    "The oldest records are completed first.",
    overriding("payments",
        unindexed=lambda it, limit: it.inner.unindexed(EVERY)[: -limit - 1 : -1]))  # fmt: skip
indexer("batch-of-a-thousand", "8/indexer-batch", "A run takes a thousand records.",
    setting(indexer_batch=1000))  # fmt: skip


@indexer.defect("asks-for-all-again", "8/indexer-query", into("payments"))
class AsksForAllAgain(Wrapper):
    """Every run takes the newest records, although they have a block."""

    settled: tuple[int, ...] = ()

    def mark_settled(self, attempt: int, *of: Any) -> bool:
        is_settled: bool = self.inner.mark_settled(attempt, *of)
        self.settled = (attempt, *self.settled) if is_settled else self.settled
        return is_settled

    def unindexed(self, limit: int) -> list[Any]:
        return [self.inner.attempt(attempt) for attempt in self.settled[:limit]]


indexer("never-asks", "8/indexer-query", "The explorer is not asked: every record is in block 1.",
    overriding("explorer", transaction=lambda it, tx_hash: as_recorded(it.service, tx_hash, 1)),
    looks_once)  # fmt: skip


@indexer.defect("next-block", "2.4/block-null", into("payments"))
class NextBlock(Wrapper):
    """The block that is stored is the one after the transaction's."""

    def set_block(self, attempt: int, tx_hash: str, block_number: int, **of: Any) -> None:
        self.inner.set_block(attempt, tx_hash, block_number + 1, **of)


indexer("unknown-is-block-zero", "8/indexer-query",
    "A transaction that the explorer does not know yet is stored in block 0.",
    overriding("explorer", transaction=unknown_is_in), looks_once)  # fmt: skip


@indexer.defect("one-failure-ends-the-run", "8/indexer-query", into("explorer.transaction"))
async def failure_ends_the_run(it: Any, tx_hash: str) -> OnChain | None:
    """After one transaction that the explorer fails on, the older ones are not asked for."""
    try:
        found: OnChain | None = await it.inner.transaction(tx_hash)
    except Unavailable as error:
        raise RuntimeError("the explorer") from error
    return found


indexer("reputation-stays", "6/reputation",
    "Reputations are not updated after payments were matched.",
    overriding("payments", update_reputation=lambda it, reputation: None))  # fmt: skip


@indexer.defect("status-is-indexed", "3/record-outlives-cache", into("payments"))
class StatusIsIndexed(Wrapper):
    """The indexer writes the status "indexed", which grants nothing once the cache is empty."""

    def get(self, payment_id: str) -> Any:
        stored = self.inner.get(payment_id)
        if stored is None or stored.block_number is None:
            return stored
        return altered(stored, state="indexed")

    def grants(self, payment_id: str, resource: str) -> bool:
        stored = self.get(payment_id)
        is_indexed = stored is not None and stored.state == "indexed"
        return not is_indexed and bool(self.inner.grants(payment_id, resource))

    def update_reputation(self, reputation: Reputation) -> None:
        return


indexer("block-as-text", "2.4/block-null", "The block number of a record is a string of hex digits.",
    answers(200, RECORD, lambda it: it.update(
        block_number=it["block_number"] and hex(it["block_number"]))))  # fmt: skip
