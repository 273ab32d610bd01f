"""Sections 6 and 8: the payment indexer and the other periodic work."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from tests.rig import ServiceRig, answer, broken, only, scene
from tests.service.standard import set_up, settled
from x402sim.service import indexer
from x402sim.service.background import run_background


def asked(rig: ServiceRig) -> list[str]:
    """The hashes the explorer was asked for, in order."""
    questions = [r.url.params for r in rig.wires["explorer"].seen]
    return [q["txhash"] for q in questions if q["action"] == "eth_getTransactionReceipt"]


@pytest.mark.clause(
    "1/indexer", "8/indexer-query", "3/indexed-status", "6/reputation", "4.3/list", "2.7/agent"
)
@scene
async def test_it_completes_records_and_then_reputations(rig: ServiceRig) -> None:
    ids = [await rig.buy() for _ in range(3)]
    assert [(await rig.record(i))["block_number"] for i in ids] == [None] * 3
    run = await indexer.run(rig.service)
    assert (run.asked, run.matched) == (3, 3)
    records = [await rig.record(i) for i in ids]
    assert [r["block_number"] for r in records] == [1, 2, 3]
    assert {r["status"] for r in records} == {"settled"}
    (agent,) = (await rig.http.get("/api/agents")).json()["agents"]
    assert agent == {
        "id": "perp-quotes",
        "name": "Perpetual quotes",
        "description": agent["description"],
        "resource": "/api/perp/quote",
        "price": "10000",
        "payTo": records[0]["to_address"],
        "reputation": 3,
    }
    rig.restart()
    assert (await rig.ask(x_payment_id=ids[0])).status_code == 200, "indexed still grants"
    assert (await indexer.run(rig.service)).asked == 0


@pytest.mark.clause("8/indexer-batch")
@scene
async def test_it_takes_a_batch_at_a_time_newest_first(rig: ServiceRig) -> None:
    assert rig.service.env.settings.indexer_batch == 100
    set_up(rig, indexer_batch=10)
    hashes = []
    for n in range(13):
        rig.now[0] += 1 if n % 2 else 0  # pairs share a timestamp: the later one is newer
        hashes.append((await rig.record(await rig.buy()))["tx_hash"])
    run = await indexer.run(rig.service)
    assert (run.asked, run.matched) == (10, 10)
    assert asked(rig) == hashes[:2:-1]
    assert (await indexer.run(rig.service)).matched == 3
    assert asked(rig)[10:] == hashes[2::-1]


@pytest.mark.clause("8/indexer-query", "3/indexed-status")
@pytest.mark.parametrize(
    ("changed", "finding", "block"),
    [
        ({"status": None}, "unanswered", None),
        ({"blockNumber": 1}, "unanswered", None),
        ({"blockNumber": "pending"}, "unanswered", None),
        ({"blockNumber": "0x" + "f" * 60}, "unanswered", None),
        ({"blockNumber": None}, "unknown", None),
        ({"status": "0x0"}, "matched", 1),  # the chain says otherwise
    ],
    ids=str,
)
@scene
async def test_an_odd_answer_of_the_explorer_undoes_no_payment(
    rig: ServiceRig, changed: dict[str, Any], finding: str, block: int | None
) -> None:
    payment_id = await rig.buy()

    async def odd(_: httpx.Request, deliver: Any) -> httpx.Response:
        body = json.loads((await deliver()).content)
        body["result"].update(changed)
        return httpx.Response(200, json=body)

    with broken(rig, "explorer", odd):
        assert getattr(await indexer.run(rig.service), finding) == 1
    record = await rig.record(payment_id)
    assert (record["status"], record["block_number"]) == ("settled", block)


NOTHING = answer(200, {"jsonrpc": "2.0", "id": 1, "result": None})


@pytest.mark.clause("3/indexed-status")
@scene
async def test_a_payment_in_no_block_is_served_until_the_chain_can_make_it_no_more(
    rig: ServiceRig,
) -> None:
    """The facilitator says that it settled; the node knows no such transaction, yet or ever."""
    required = await rig.ask()
    lie = answer(200, settled(rig, required, "0x" + "77" * 32))
    with broken(rig, "facilitator", only("/settle", lie)):
        assert (await rig.pay(required)).status_code == 200
    payment_id = required.json()["paymentId"]
    for until_s, counted, served in ((0, "unknown", 200), (301, "reverted", 402)):
        rig.clock.advance(until_s)
        await rig.parts.chain.mine(1)
        assert getattr(await indexer.run(rig.service), counted) == 1
        assert (await rig.ask(x_payment_id=payment_id)).status_code == served
    assert (await rig.record(payment_id))["status"] == "failed"


@pytest.mark.clause("3/indexed-status")
@scene
async def test_a_transaction_that_paid_otherwise_is_seen_though_the_explorer_is_behind(
    rig: ServiceRig,
) -> None:
    payment_id = await rig.buy()
    rig.service.store.execute("UPDATE payments SET amount = '10001'")
    with broken(rig, "explorer", NOTHING):
        assert (await indexer.run(rig.service)).reverted == 1
    assert (await rig.record(payment_id))["status"] == "failed"
    assert (await rig.ask(x_payment_id=payment_id)).status_code == 402


@asynccontextmanager
async def at_work(rig: ServiceRig) -> AsyncIterator[Callable[[float], Awaitable[None]]]:
    """Run the periodic work; what it gives lets so many seconds pass."""
    background = asyncio.create_task(run_background(rig.service))

    async def later(seconds: float) -> None:
        rig.clock.advance(seconds)
        for _ in range(200):
            await asyncio.sleep(0)

    await later(0)
    yield later
    background.cancel()
    await asyncio.gather(background, return_exceptions=True)


@pytest.mark.clause("8/indexer-interval", "8/cache-sweep", "3/expiry-refund", "3/pending-resolved")
@scene
async def test_the_periodic_work_runs_on_schedule(rig: ServiceRig) -> None:
    payment_id = await rig.buy()
    session = await rig.open_session("0.05", duration=60)
    async with at_work(rig) as later:
        await later(70)
        shown = (await rig.http.get(f"/api/sessions/{session['sessionId']}")).json()
        assert shown["status"] == "refunded"
        await later(229.5)
        assert (await rig.record(payment_id))["block_number"] is None
        await later(0.5)
        assert (await rig.record(payment_id))["block_number"] == 1
        for seconds, cached in ((0, 2), (86400 - 301, 2), (3600, 0)):
            await later(seconds)
            assert len(rig.service.entitlements) == cached


@pytest.mark.clause("8/indexer-interval")
@scene
async def test_a_failure_does_not_end_the_periodic_work(
    rig: ServiceRig, caplog: pytest.LogCaptureFixture
) -> None:
    async def explode(*_: Any) -> httpx.Response:
        raise RuntimeError("a bug")

    payment_id = await rig.buy()
    async with at_work(rig) as later:
        with broken(rig, "explorer", explode):
            await later(300)
        await later(300)
    assert "a bug" in caplog.text
    assert (await rig.record(payment_id))["block_number"] == 1
