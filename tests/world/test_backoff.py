"""How payers try again: backoff with jitter, deadlines; each against a computation."""

import asyncio
import statistics
import time
from typing import Any

import pytest

from tests.own_parts import ServeConfirmed
from tests.world.playing import play, played
from x402sim import Fault, LiveWorld, Run, Settings, SpendingCapExceeded, World
from x402sim.http.exchange import retry_after_s
from x402sim.policies import (
    AtMost,
    Backoff,
    PayAndWait,
    PayerPolicy,
    SameAuthorization,
    ServicePolicy,
)
from x402sim.population import Buy, Every
from x402sim.rng import Rng

BROKEN = {"victim": "service", "does": "answer", "status": 503, "path": "/api/pay", "times": None}


def run_of(
    policy: PayerPolicy, payers: int = 1, orders: int = 1, seed: int = 1, **fault: Any
) -> Run:
    async def story(world: LiveWorld) -> None:
        await world.fault(Fault(**BROKEN | fault))
        buy = Buy(times=orders)
        await world.population(payers, arrivals=Every(1000), behaviour=buy, policy=policy)

    return play(story, seed=seed)


def pauses(run: Run, payer: str = "payer 1") -> list[float]:
    """Return the seconds between a payer's attempts to pay."""
    steps = run.steps[(run.steps["payer"] == payer) & (run.steps["path"] == "/api/pay")]
    return [float(each) for each in steps["t_s"].diff().dropna()]


# --- backoff ------------------------------------------------------------------------------


def test_without_jitter_the_waits_double_up_to_the_most() -> None:
    wait = Backoff(first_s=1, factor=2, jitter=0, most_s=10)
    drawn = [wait.seconds(n, Rng(1).stream("x"), None) for n in range(6)]
    assert drawn == [1, 2, 4, 8, 10, 10]
    run = run_of(PayerPolicy(retry=SameAuthorization(times=5, wait_s=wait)))
    assert pauses(run) == [1, 2, 4, 8, 10]
    assert Backoff(first_s=3, factor=1).seconds(10**6, Rng(1).stream("x"), None) <= 3
    assert Backoff(jitter=0).seconds(10**6, Rng(1).stream("x"), None) == 60
    assert Backoff(first_s=99, jitter=0).seconds(0, Rng(1).stream("x"), None) == 60


@pytest.mark.parametrize("jitter", [1.0, 0.5])
def test_jitter_is_uniform_below_the_exponential(jitter: float) -> None:
    rng, wait = Rng(1).stream("x"), Backoff(first_s=1, factor=2, jitter=jitter, most_s=60)
    for number, most_s in (0, 1), (3, 8), (9, 60):
        drawn = [wait.seconds(number, rng, None) for _ in range(4000)]
        assert min(drawn) >= most_s * (1 - jitter)
        assert max(drawn) <= most_s
        error = jitter * most_s / 12**0.5 / 4000**0.5
        assert abs(statistics.mean(drawn) - most_s * (1 - jitter / 2)) < 4 * error


def test_waits_are_drawn_from_the_seed_and_payers_differ() -> None:
    policy = PayerPolicy(retry=SameAuthorization(times=4, wait_s=Backoff()))
    first, second, other = (run_of(policy, payers=2, seed=seed) for seed in (1, 1, 2))
    assert first.sha256 == second.sha256
    assert pauses(first) == pauses(second) != pauses(other)
    assert pauses(first) != pauses(first, "payer 2")
    alone = run_of(policy, payers=1)
    assert pauses(alone) == pauses(first), "another payer does not change the draws of the first"
    assert all(0 <= pause <= 2**n for n, pause in enumerate(pauses(first)))


def test_who_waits_for_confirmations_backs_off_too() -> None:
    policy = PayerPolicy(sessions=PayAndWait(times=3, wait_s=Backoff(first_s=2, jitter=0)))
    quote = {"path": "/api/perp/quote", "contains": "x-payment-id"}
    steps = run_of(policy, does="answer", **quote).steps
    shown = steps[steps["payment_id"].notna() & (steps["path"] == "/api/perp/quote")]["t_s"]
    assert [*shown.diff().dropna()][-3:] == [2, 4, 8]


# --- Retry-After --------------------------------------------------------------------------


def test_a_backoff_waits_at_least_as_long_as_the_answer_asks() -> None:
    def paused(asked: str, **more: Any) -> list[float]:
        wait = Backoff(first_s=1, jitter=0, **more)
        policy = PayerPolicy(retry=SameAuthorization(times=3, wait_s=wait))
        return pauses(run_of(policy, headers={"Retry-After": asked}))

    assert paused("3") == [3, 3, 4]
    assert paused("120", most_s=60) == [120, 120, 120]
    assert paused("3", retry_after=False) == [1, 2, 4]
    assert paused("soon") == [1, 2, 4]
    assert paused("Fri, 15 Jan 2027 08:00:30 GMT") == [30, 2, 4], "the world begins at 08:00:00"
    given = PayerPolicy(retry=SameAuthorization(times=2, wait_s=1))
    assert pauses(run_of(given, headers={"Retry-After": "3"})) == [1, 1], "a number is kept"


@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
def test_a_date_in_retry_after_is_utc_in_every_form_and_on_every_machine(
    zone: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """RFC 9110, 5.6.7: three forms, of which asctime's names no zone."""
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        for date in (
            "Sun, 06 Nov 1994 08:49:37 GMT",
            "Sunday, 06-Nov-94 08:49:37 GMT",
            "Sun Nov  6 08:49:37 1994",
        ):
            assert retry_after_s(date, 784_111_767) == 10, date
    finally:
        monkeypatch.undo()
        time.tzset()


# --- deadlines ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wait", "within_s", "moments"),
    [
        (10, 35, [0, 10, 20, 30]),
        (10, 30, [0, 10, 20]),
        (Backoff(first_s=5, jitter=0), 60, [0, 5, 15, 35]),
        (10, 5, [0]),
    ],
)
def test_no_attempt_begins_after_the_deadline(
    wait: Any, within_s: float, moments: list[float]
) -> None:
    policy = PayerPolicy(retry=SameAuthorization(times=99, wait_s=wait), within_s=within_s)
    run = run_of(policy, orders=2)
    tried = run.steps[run.steps["path"] == "/api/pay"]["t_s"].tolist()
    assert tried[: len(moments)] == moments
    again = [each - tried[len(moments)] for each in tried[len(moments) :]]
    assert again == moments, "each order has its own deadline"


def test_the_deadline_ends_waiting_for_confirmations_and_endless_policies() -> None:
    policy = PayerPolicy(sessions=PayAndWait(times=99, wait_s=10), within_s=45)
    quote = {"path": "/api/perp/quote", "contains": "x-payment-id"}
    run = run_of(policy, does="answer", **quote)
    assert run.steps["t_s"].max() == 40

    class Stubborn:
        async def pay(self, order: Any) -> None:
            while True:
                await order.pay()
                await order.wait(1)

    run = run_of(PayerPolicy(retry=Stubborn(), within_s=9.5))
    assert run.orders["attempts"].tolist() == [10]


def test_a_deposit_has_a_deadline_too() -> None:
    async def story(world: LiveWorld) -> None:
        policy = PayerPolicy(retry=SameAuthorization(times=9, wait_s=4), within_s=10)
        alice = await world.payer("alice", balance="1.00", policy=policy)
        await world.fault(Fault(**BROKEN))
        await asyncio.gather(alice.open_session("0.10", 60), alice.buy())

    run = World(seed=1).play(story).raise_for_failure()
    assert run.steps[run.steps["path"] == "/api/pay"]["t_s"].tolist() == [0, 0, 4, 4, 8, 8]


# --- budgets --------------------------------------------------------------------------------


@pytest.mark.parametrize("counts", ["paid", "exposed"])
@played()
async def test_a_payment_that_is_reported_after_it_has_expired_counts_as_paid(
    world: LiveWorld, counts: str
) -> None:
    retry, budget = SameAuthorization(times=1, wait_s=400), AtMost("0.02", counts=counts)
    policy = PayerPolicy(retry=retry, budget=budget)
    alice = await world.payer("alice", balance="1.00", policy=policy)
    await world.fault(Fault(victim="service", does="lose answer", path="/api/pay"))
    first = asyncio.create_task(alice.buy())
    await world.clock.sleep(350)
    assert (await alice.buy()).status == 200
    assert (await first).error == "Payment already settled"
    with pytest.raises(SpendingCapExceeded, match=r"0\.02 of it paid"):
        await alice.buy()


# --- one payer, several orders at a time ------------------------------------------------


def slowly_confirmed(blocks: int) -> dict[str, Any]:
    confirmed = Settings(policy=ServicePolicy(serve=ServeConfirmed(blocks)))
    return {"service": confirmed, "block_time_s": 5, "seed": 1}


def test_orders_that_overlap_are_served_for_their_own_payments() -> None:
    async def story(world: LiveWorld) -> None:
        policy = PayerPolicy(sessions=PayAndWait(times=9, wait_s=5))
        alice = await world.payer("alice", balance="1.00", policy=policy)
        first = asyncio.create_task(alice.fetch())
        await world.clock.sleep(7)
        answers = [await alice.fetch(), await first]
        assert [each.status for each in answers] == [200, 200]

    run = World(**slowly_confirmed(3)).play(story).raise_for_failure()
    assert run.orders["served"].to_list() == [True, True]


def test_the_deadline_of_an_order_is_its_own() -> None:
    ended = []

    async def story(world: LiveWorld) -> None:
        policy = PayerPolicy(sessions=PayAndWait(times=99, wait_s=1), within_s=20)
        alice = await world.payer("alice", balance="1.00", policy=policy)
        began_s = world.clock.now()

        async def fetch(after_s: float) -> None:
            await world.clock.sleep(after_s)
            assert (await alice.fetch()).status == 402
            ended.append(round(world.clock.now() - began_s))

        await asyncio.gather(fetch(0), fetch(10))

    World(**slowly_confirmed(50)).play(story).raise_for_failure()
    assert ended == [20, 30]
