"""Sessions expire while the facilitator is down, loses the answer to the refund, receives the
request twice or answers an error after the work; while the chain does not answer; and while the
service dies just before or just after it pays. The sweeps retry each open refund. In the end every
payer has got back exactly what was not spent, in one transfer.
"""

from typing import Any

from x402sim import Fault, LiveWorld, scenario

AT_SETTLEMENT = {"victim": "facilitator", "path": "/settle"}
TROUBLES: dict[str, dict[str, Any]] = {
    "explorer down": {"victim": "explorer", "does": "refuse"},
    "down": AT_SETTLEMENT | {"does": "refuse", "times": 2},
    "lost answer": AT_SETTLEMENT | {"does": "lose answer"},
    "asked twice": AT_SETTLEMENT | {"does": "duplicate"},
    "error after the work": AT_SETTLEMENT | {"does": "answer", "status": 502, "work_done": True},
    "no sight of the chain": {"victim": "rpc", "does": "refuse", "times": 5},
    "death before": AT_SETTLEMENT | {"does": "crash before"},
    "death after": AT_SETTLEMENT | {"does": "crash after"},
}


@scenario(
    title="Refund once: an unspent balance is refunded once and in full, whatever fails",
    covers="2.6/remaining, 3/expiry-refund, 3/refund-once",
    needs="funds, clock, faults, observe chain",
)
async def refund_once(world: LiveWorld) -> None:
    spent = 0
    for name, trouble in TROUBLES.items():
        payer = await world.payer(name, balance="1.00")
        session = (await payer.open_session("0.05", 60)).body["sessionId"]
        world.expect(await payer.ask(session_id=session), 200, "1/session-no-402")
        spent += 10_000

        await world.fault(Fault(**trouble))
        for _ in range(4):
            await world.advance(31)
        await world.heal()
        await world.advance(31)
        refunds = [each for each in await world.transfers() if each.to == payer.address]
        amounts = [each.amount_base for each in refunds]
        world.expect(f"{name}: {amounts}", f"{name}: ['40000']", "3/refund-once")
        view = await payer.session(session)
        world.expect(view["status"], "refunded", "3/expiry-refund")
        world.expect(view["refundTxHash"], refunds[0].tx_hash, "3/expiry-refund")
        world.expect(await payer.balance(), 990_000, "3/refund-once")
    world.expect(await world.earned(), spent, "2.6/remaining")
