"""Alice pays once and looks until the indexer, which runs on a schedule of its own, has completed
her payment. From then on the explorer lags by 200 s. A few payments come early; 250 s later comes a
full batch. The next run of the indexer finds nothing: the run asks for the newest hundred, which
the explorer does not show yet, and not for the early payments, which the explorer shows. The second
run completes the hundred, and only the third run completes the early payments.
"""

from x402sim import LiveWorld, scenario

BATCH, INTERVAL_S = 100, 300  # section 8
EARLY, LULL_S, LAG_S = 5, 250, 200
LOOK_S = 5


@scenario(
    title="Indexer backfill: a hundred records every five minutes, newest first",
    covers=(
        "1/indexer, 2.4/block-null, 3/indexed-status, 6/reputation, 8/indexer-batch, "
        "8/indexer-interval, 8/indexer-query"
    ),
    needs="funds, faults, observe chain, virtual time",
)
async def indexer_backfill(world: LiveWorld) -> None:
    alice = await world.payer("alice", balance="2.00")
    first = (await alice.buy()).payment_id
    while (await alice.payment(first))["block_number"] is None:
        await world.advance(LOOK_S)
    ran = world.clock.now()  # at most LOOK_S ago
    await world.explorer_lag(LAG_S)

    early = [(await alice.buy()).payment_id for _ in range(EARLY)]
    await world.advance(LULL_S)
    late = [(await alice.buy()).payment_id for _ in range(BATCH)]
    edges = {
        "first early": early[0],
        "last early": early[-1],
        "first late": late[0],
        "last late": late[-1],
    }

    async def waiting() -> list[str]:
        records = {name: await alice.payment(edges[name]) for name in edges}
        return [name for name in edges if records[name]["block_number"] is None]

    async def found() -> int:
        (agent,) = (await alice.send("GET", "/api/agents")).body["agents"]
        return int(agent["reputation"])

    world.expect(await waiting(), list(edges), "2.4/block-null")
    before = 1
    for turn, still_waiting, found_by_then in (
        (1, ["first early", "last early", "first late", "last late"], 1),
        (2, ["first early", "last early"], 1 + BATCH),
        (3, [], 1 + BATCH + EARLY),
    ):
        await world.advance(until_s=ran + turn * INTERVAL_S - LOOK_S - 1)
        world.expect(await found(), before, "8/indexer-interval")
        await world.advance(until_s=ran + turn * INTERVAL_S + 1)
        world.expect(await waiting(), still_waiting, "8/indexer-batch")
        before = await found()
        world.expect(before, found_by_then, "6/reputation")

    blocks = {each.tx_hash: each.block_number for each in await world.transfers(alice)}
    world.expect(await found(), len(blocks), "1/indexer")
    for payment_id in edges.values():
        record = await alice.payment(payment_id)
        world.expect(record["status"], "settled", "3/indexed-status")
        world.expect(record["block_number"], blocks[record["tx_hash"]], "8/indexer-query")
