"""When the indexer looks for Alice's payment the explorer is down, answers an error page, null, its
rate limit as text with status 200, a transaction that is in no block, half an answer, or an invalid
block number; then it lags behind the chain. Each time the record's block stays null, and she is
still served. When the explorer recovers, the next run finds the block.
"""

from typing import Any

from x402sim import Fault, LiveWorld, scenario


def says(result: str, status: int = 200) -> dict[str, Any]:
    return {"does": "answer", "status": status, "body": result}


RATE_LIMIT = '"Max calls per sec rate limit reached (3/sec)"'
NOT_OK = '{"status": "0", "message": "NOTOK", "result": %s}'
ANSWER = '{"jsonrpc": "2.0", "id": 1, "result": %s}'
TROUBLES: dict[str, dict[str, Any]] = {
    "down": {"does": "refuse"},
    "error page": says("<h1>Bad Gateway</h1>", 502),
    "null": says(ANSWER % "null"),
    "rate limit": says(NOT_OK % RATE_LIMIT),
    "rate limit as result": says(ANSWER % RATE_LIMIT),
    "no block yet": says(ANSWER % '{"blockNumber": null}'),
    "half an answer": {"does": "shorten"},
    "nonsense": says(ANSWER % '{"blockNumber": "soon", "status": "0x1"}'),
}


@scenario(
    title="Explorer trouble: the indexer ignores every wrong answer and catches up afterwards",
    covers="1/indexer, 2.4/block-null, 5/stored-records",
    needs="funds, faults, observe chain",
)
async def explorer_trouble(world: LiveWorld) -> None:
    alice = await world.payer("alice", balance="1.00")
    quote = await alice.buy()
    for name, trouble in TROUBLES.items():
        await world.fault(Fault(victim="explorer", times=None, **trouble))
        await world.run_indexer()
        await world.heal()
        record = await alice.payment(quote.payment_id)
        said = f"{name}: {record['status']} in block {record['block_number']}"
        world.expect(said, f"{name}: settled in block None", "2.4/block-null")
        world.expect(await alice.ask(payment_id=quote.payment_id), 200, "5/stored-records")

    await world.explorer_lag(1000)
    await world.run_indexer()
    behind = await alice.payment(quote.payment_id)
    world.expect(behind["block_number"], None, "2.4/block-null")
    await world.explorer_lag(0)
    await world.run_indexer()
    indexed = await alice.payment(quote.payment_id)
    (paid,) = await world.transfers(alice)
    world.expect(indexed["block_number"], paid.block_number, "1/indexer")
