"""A run that is not whole, or that broke a law, says so; so does a sweep whose points all failed."""

import asyncio
import os
import signal
import threading
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.experiments.studies import recorded
from x402sim import Fault, LiveWorld, PaymentAuth, Run, Settings, World, summarize
from x402sim.policies import ServeBeforeSettle, ServicePolicy


async def breaks_off(world: LiveWorld) -> None:
    alice = await world.payer("alice", balance="1.00")
    await alice.fetch()
    {}["typo"]


def test_the_frames_of_a_story_that_broke_off_are_for_those_who_ask_for_a_part() -> None:
    run = World().play(breaks_off)
    line = breaks_off.__code__.co_firstlineno + 3
    told = rf"'breaks_off' broke off: KeyError: 'typo', at test_whole.py:{line}\. .*partial"
    with pytest.raises(ValueError, match=told):
        _ = run.orders
    assert len(run.partial.orders) == 1
    assert len(run.partial.orders) == 1
    assert "broke off by KeyError: 'typo', at test_whole.py:" in repr(run)


def state_of(run: Run) -> dict[str, Any]:
    return {row["law"]: row for row in run.summary.to_dict("records")}


SERVED, UNDONE = "invariant/served-only-if-transferred", "undone after serving"


async def drops(world: LiveWorld) -> None:
    """Alice and Bob have paid when a reorganisation drops their transfers; both are served."""
    for name in "alice", "bob":
        payer = await world.payer(name, balance="1.00")
        paid = await payer.buy()
        opened = (await payer.open_session("0.05", 3600)).body["sessionId"]
        assert (await payer.ask(payment_id=paid.payment_id)).status == 200
        mined = [each.tx_hash for each in await world.transfers(payer)]
        await world.reorg(2, drop=mined)
        await world.advance(20)
        assert (await payer.ask(payment_id=paid.payment_id)).status == 200
        await payer.ask(session_id=opened)
        assert (await payer.fetch()).status == 200


def test_who_serves_a_payment_whose_transfer_was_dropped_has_broken_a_law() -> None:
    run = World(seed=1).play(drops)
    assert run.outcome == "failed"
    row = state_of(run)[SERVED]
    assert (row["state"], row["cases"]) == ("broken", 4)
    assert row["money"] == pytest.approx(2 * (0.01 + 0.01)), "two quotes and two requests"
    others = {row["state"] for law, row in state_of(run).items() if law not in (SERVED, UNDONE)}
    assert others == {"held"}


def test_what_the_chain_undid_after_it_was_served_is_told_and_is_no_broken_law() -> None:
    async def story(world: LiveWorld) -> None:
        alice, bob = [await world.payer(name, balance="1.00") for name in ("alice", "bob")]
        await alice.fetch()
        auth = PaymentAuth(bob.wallet, clock=world.clock, version=2)
        await bob.http.get("/api/perp/market", auth=auth)
        await alice.buy()
        lost = [each.tx_hash for each in await world.transfers()]
        await world.reorg(3, drop=lost[1:])

    run = World(seed=1).play(story)
    assert run.outcome == "passed"
    assert {row["state"] for law, row in state_of(run).items() if law != UNDONE} == {"held"}
    row = state_of(run)[UNDONE]
    assert (row["state"], row["cases"], row["money"]) == ("seen", 1, 0.01)
    assert row["meaning"].endswith("of the orders 2")
    orders = run.orders
    assert list(orders["lost"]) == [0, 0.01, 0], "the third was never served"
    assert list(orders["paid"]) == [0.01, 0, 0]
    assert list(orders["served"]) == [True, True, False]


async def never_paid(world: LiveWorld) -> None:
    alice = await world.payer("alice", balance="1.00")
    await world.fault(Fault(victim="facilitator", does="refuse", path="/settle"))
    await alice.pay(required := await alice.ask())
    assert (await alice.ask(payment_id=required.payment_id)).status == 200


def test_a_summary_says_what_broke_in_money_and_what_was_switched_off() -> None:
    naive = Settings(policy=ServicePolicy(serve=ServeBeforeSettle()), quote_price="0.25")
    row = state_of(World(service=naive).play(never_paid))[SERVED]
    assert (row["state"], row["cases"], row["money"]) == ("broken", 1, 0.25)
    off = World(service=naive, invariants=False).play(never_paid)
    assert {row["state"] for row in off.summary.to_dict("records")} == {"off"}
    assert "invariants=False" in off.command
    assert off.outcome == "passed"


def test_a_sweep_whose_points_all_failed_says_why() -> None:
    def experiment(rate: float, seed: int) -> dict[str, int]:
        orders = World(seed=seed).play(breaks_off).orders
        return {"n": len(orders)}

    grid = {"rate": [1, 2]}
    frame = recorded(experiment, grid, seeds=2, workers=0)
    assert frame["error"].str.contains("the story 'breaks_off' failed: KeyError: 'typo'").all()
    for values in (None, "n"):
        with pytest.raises(ValueError, match=r"all 4 points failed.*KeyError: 'typo'.*test_whole"):
            summarize(frame, by="rate", values=values)


@pytest.mark.parametrize("place", ["a script", "a notebook", "a notebook, whose thread starts"])
def test_ctrl_c_leaves_a_journal_that_says_where_it_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    start = threading.Thread.start

    def started_late(thread: threading.Thread) -> None:
        start(thread)
        if thread.name == "x402sim":
            time.sleep(30)  # meanwhile the story is played, until Ctrl-C

    if place.endswith("starts"):
        monkeypatch.setattr(threading.Thread, "start", started_late)

    async def long_one(world: LiveWorld) -> None:
        alice = await world.payer("alice", balance="1.00")
        await alice.fetch()
        os.kill(os.getpid(), signal.SIGINT)
        for _ in range(100_000):
            await world.advance(60)

    async def cell() -> None:
        World(journal=file).play(long_one)

    def play() -> None:
        if place == "a script":
            World(journal=file).play(long_one)
            return
        with closing(asyncio.new_event_loop()) as loop:  # as a notebook's, it leaves Ctrl-C alone
            loop.run_until_complete(cell())

    file = tmp_path / "run.ndjson"
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a server's may be left
    try:
        with pytest.raises(KeyboardInterrupt) as interrupt:
            play()
    finally:
        signal.signal(signal.SIGINT, before)
    assert interrupt.value.__notes__ == [f"Run.load({str(file)!r}) has what happened until then"]
    run = Run.load(file)
    assert (run.outcome, run.reason) == ("failed", "interrupted")
    assert run.place == f"test_whole.py:{long_one.__code__.co_firstlineno + 5}"
    assert len(run.partial.orders) == 1
