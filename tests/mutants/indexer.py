"""Defects of the indexer: when it runs, what it asks, what it writes down."""

from tests.mutants.change import answers, edit, schema, setting
from tests.mutants.mutant import Kind
from tests.mutants.settlement import RECORD
from x402sim.service import background
from x402sim.service import indexer as indexing
from x402sim.service.store import Store

indexer = Kind("indexer")

ROWS = (
    indexer(
        "never-runs",
        "1/indexer",
        "The indexer is not started.",
        edit(
            background.run_background,
            "every(settings.indexer_interval_s, lambda: indexer.run(service))",
            "",
        ),
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
        edit(Store.unindexed, "timestamp DESC, rowid DESC", "timestamp, rowid"),
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
        edit(
            Store.unindexed,
            "WHERE block_number IS NULL ",
            "WHERE (block_number IS NULL OR rowid = (SELECT max(rowid) FROM payments)) ",
        ),
        needs="clock world",
    ),
    indexer(
        "never-asks",
        "8/indexer-query",
        "The explorer is not asked: every record is in block 1.",
        edit(
            indexing._index,
            "    try:\n",
            "    service.store.set_block(payment_id, 1)\n    return 'matched'\n    try:\n",
        ),
        needs="clock world",
    ),
    indexer(
        "next-block",
        "2.4/block-null",
        "The block that is stored is the one after the transaction's.",
        edit(
            indexing._index,
            "set_block(payment_id, found.block_number)",
            "set_block(payment_id, found.block_number + 1)",
        ),
        needs="clock record",
    ),
    indexer(
        "unknown-is-block-zero",
        "8/indexer-query",
        "A transaction that the explorer does not know yet is stored in block 0.",
        edit(
            indexing._index,
            'return "unknown"',
            "return service.store.set_block(payment_id, 0) or 'unknown'",
        ),
        needs="clock world record",
    ),
    indexer(
        "unknown-is-failed",
        "8/indexer-query",
        "A payment that the explorer does not know yet has failed: who has paid is kept out.",
        edit(
            indexing._index,
            'return "unknown"',
            "service.store.fail(payment_id)\n"
            "        service.entitlements.remove(payment_id)\n"
            "        return 'unknown'",
        ),
        needs="clock world",
    ),
    indexer(
        "one-failure-ends-the-run",
        "8/indexer-query",
        "After one transaction that the explorer fails on, the older ones are not asked for.",
        edit(indexing._index, 'return "unanswered"', "raise"),
        needs="clock world",
    ),
    indexer(
        "reputation-stays",
        "6/reputation",
        "Reputations are not updated after payments were matched.",
        edit(indexing.run, "service.store.update_reputation()", "pass"),
        needs="clock world agents",
    ),
    indexer(
        "status-is-indexed",
        "3/record-outlives-cache",
        'The indexer writes the status "indexed", which grants nothing once the cache is empty.',
        edit(Store.set_block, "SET block_number = ?", "SET status = 'indexed', block_number = ?"),
        schema("('pending', 'settled', 'failed')", "('pending', 'settled', 'failed', 'indexed')"),
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
