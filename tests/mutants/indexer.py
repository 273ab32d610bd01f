"""Defects of the indexer: when it runs, what it asks, what it writes down."""

from typing import Any

import msgspec

from tests.mutants.change import setting
from tests.mutants.middleware import answers
from tests.mutants.mutant import Kind
from tests.mutants.settlement import RECORD
from tests.mutants.wrapper import Wrapper, altered, collaborator
from x402sim.service.upstream.calls import Unavailable
from x402sim.service.upstream.explorer import OnChain

indexer = Kind("indexer")
EVERY = 10**6
"""More records than there are."""


class OldestFirst(Wrapper):
    """A store that gives the oldest records first."""

    def unindexed(self, limit: int) -> list[Any]:
        return list(reversed(self.inner.unindexed(EVERY)))[:limit]


class AsksAgain(Wrapper):
    """A store that gives the newest record in any case."""

    newest: Any = None

    def mark_settled(self, payment_id: str, tx_hash: str, *of: Any) -> bool:
        is_settled: bool = self.inner.mark_settled(payment_id, tx_hash, *of)
        if is_settled:
            self.newest = (payment_id, tx_hash)
        return is_settled

    def unindexed(self, limit: int) -> list[Any]:
        batch = list(self.inner.unindexed(limit))
        again = [] if self.newest is None or self.newest in batch else [self.newest]
        return [*again, *batch][:limit]


class NextBlock(Wrapper):
    """A store that writes the number of the next block."""

    def set_block(self, payment_id: str, block_number: int) -> None:
        self.inner.set_block(payment_id, block_number + 1)


class NeverAsks(Wrapper):
    """Finds every transaction in block 1, without asking."""

    async def transaction(self, _: str) -> OnChain:
        return OnChain(block_number=1, succeeded=True)


class UnknownIsIn(Wrapper):
    """Finds a transaction that the explorer does not know yet in block 0."""

    succeeded = True

    async def transaction(self, tx_hash: str) -> OnChain:
        found = await self.inner.transaction(tx_hash)
        return found or OnChain(block_number=0, succeeded=self.succeeded)


class UnknownHasFailed(UnknownIsIn):
    """The same, and there it has failed."""

    succeeded = False


class FailureEndsTheRun(Wrapper):
    """Fails in a way that the indexer does not expect."""

    async def transaction(self, tx_hash: str) -> OnChain | None:
        try:
            found: OnChain | None = await self.inner.transaction(tx_hash)
        except Unavailable as error:
            raise RuntimeError("the explorer") from error
        return found


class ReputationStays(Wrapper):
    """A store that does not count."""

    def update_reputation(self) -> None:
        return


class StatusIsIndexed(Wrapper):
    """A store in which the status of a record with a block is "indexed"."""

    def get(self, payment_id: str) -> Any:
        stored = self.inner.get(payment_id)
        if stored is None or stored.record.block_number is None:
            return stored
        return altered(stored, record=msgspec.structs.replace(stored.record, status="indexed"))

    def grants(self, payment_id: str, resource: str) -> bool:
        stored = self.get(payment_id)
        is_indexed = stored is not None and stored.record.status == "indexed"
        return not is_indexed and bool(self.inner.grants(payment_id, resource))

    def update_reputation(self) -> None:
        return


ROWS = (
    indexer(
        "never-runs",
        "1/indexer",
        "The indexer does not run within years.",
        setting(indexer_interval_s=10**9),
        needs="clock record",
    ),
    indexer(
        "runs-every-hour",
        "8/indexer-interval",
        "The indexer runs every hour.",
        setting(indexer_interval_s=3600),
        needs="clock world",
    ),
    indexer(
        "runs-all-the-time",
        "8/indexer-interval",
        "The indexer runs every ten seconds.",
        setting(indexer_interval_s=10),
        needs="clock world",
    ),
    indexer(
        "oldest-first",
        "8/indexer-batch",
        "The oldest records are completed first.",
        collaborator(payments=OldestFirst),
        needs="clock world",
    ),
    indexer(
        "batch-of-a-thousand",
        "8/indexer-batch",
        "A run takes a thousand records.",
        setting(indexer_batch=1000),
        needs="clock world",
    ),
    indexer(
        "asks-again",
        "8/indexer-query",
        "The newest record is asked for again, though it has a block.",
        collaborator(payments=AsksAgain),
        needs="clock world",
    ),
    indexer(
        "never-asks",
        "8/indexer-query",
        "The explorer is not asked: every record is in block 1.",
        collaborator(explorer=NeverAsks),
        needs="clock world",
    ),
    indexer(
        "next-block",
        "2.4/block-null",
        "The block that is stored is the one after the transaction's.",
        collaborator(payments=NextBlock),
        needs="clock record",
    ),
    indexer(
        "unknown-is-block-zero",
        "8/indexer-query",
        "A transaction that the explorer does not know yet is stored in block 0.",
        collaborator(explorer=UnknownIsIn),
        needs="clock world record",
    ),
    indexer(
        "unknown-is-failed",
        "8/indexer-query",
        "A payment that the explorer does not know yet has failed: who has paid is kept out.",
        collaborator(explorer=UnknownHasFailed),
        needs="clock world",
    ),
    indexer(
        "one-failure-ends-the-run",
        "8/indexer-query",
        "After one transaction that the explorer fails on, the older ones are not asked for.",
        collaborator(explorer=FailureEndsTheRun),
        needs="clock world",
    ),
    indexer(
        "reputation-stays",
        "6/reputation",
        "Reputations are not updated after payments were matched.",
        collaborator(payments=ReputationStays),
        needs="clock world agents",
    ),
    indexer(
        "status-is-indexed",
        "3/record-outlives-cache",
        'The indexer writes the status "indexed", which grants nothing once the cache is empty.',
        collaborator(payments=StatusIsIndexed),
        needs="clock",
    ),
    indexer(
        "block-as-text",
        "2.4/block-null",
        "The block number of a record is a string of hex digits.",
        answers(
            200,
            RECORD,
            lambda it: it.update(block_number=it["block_number"] and hex(it["block_number"])),
        ),
        needs="clock record",
    ),
)
