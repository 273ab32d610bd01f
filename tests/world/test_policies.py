"""A payer of a story follows its policy: what it sends, what it signs for, and what it is charged."""

from typing import Any

import pytest

from tests.world.playing import play, played
from x402sim import (
    Fault,
    LiveWorld,
    Payer,
    PaymentFailed,
    Run,
    Settings,
    SpendingCapExceeded,
    events,
)
from x402sim.policies import (
    AtMost,
    Forget,
    GiveUp,
    NewAuthorization,
    PayEach,
    PayerPolicy,
    SameAuthorization,
    SameThenNew,
    ServicePolicy,
    StartOver,
)
from x402sim.population import Every

LOST = Fault(victim="service", does="lose answer", path="/api/pay")
NO = '{"error": "Invalid signature", "final": true}'
FINAL = Fault(victim="service", does="answer", path="/api/pay", status=402, body=NO)


def paths(run: Run) -> list[str]:
    """Return what the payer asked the service for, in order."""
    sent = run.journal.events(events.RequestSent)
    return [each.path.rpartition("/")[2] for each in sent if each.to == "service"]


@pytest.mark.parametrize(
    ("retry", "faults", "asked", "signed", "waited_s", "charged"),
    [
        (GiveUp(), [LOST], "quote pay quote", 1, 0, 10_000),
        (SameAuthorization(), [], "quote pay quote", 1, 0, 10_000),
        (SameAuthorization(), [LOST] * 2, "quote pay pay pay quote", 1, 10, 10_000),
        (SameAuthorization(times=1, wait_s=2), [LOST] * 2, "quote pay pay quote", 1, 2, 10_000),
        (SameAuthorization(), [FINAL], "quote pay", 1, 0, 0),
        (SameThenNew(), [LOST, FINAL], "quote pay pay pay quote", 2, 10, 10_000),
        (SameThenNew(times=1), [FINAL] * 2, "quote pay pay", 2, 5, 0),
        (NewAuthorization(), [LOST], "quote pay pay quote", 2, 5, 10_000),
        (NewAuthorization(times=0), [LOST], "quote pay quote", 1, 0, 10_000),
        (StartOver(), [LOST, FINAL], "quote pay quote pay quote pay quote", 3, 10, 20_000),
    ],
)
def test_how_an_order_is_paid(
    retry: Any, faults: list[Fault], asked: str, signed: int, waited_s: int, charged: int
) -> None:
    async def story(world: LiveWorld) -> None:
        alice = await world.payer("alice", balance="1.00", policy=PayerPolicy(retry=retry))
        for fault in faults:
            await world.fault(fault)
        before_s = world.clock.now()
        assert (await alice.fetch()).status == (200 if asked.endswith("quote") else 402)
        assert world.clock.now() - before_s == waited_s
        assert await alice.balance() == 1_000_000 - charged

    run = play(story)
    assert paths(run) == asked.split()
    sent = {
        each.authorization
        for each in run.journal.events(events.RequestSent)
        if each.actor == "alice"
    }
    assert len(sent - {None}) == signed
    told = {"payer": "alice", "policy": repr(PayerPolicy(retry=retry))}
    assert next(run.journal.events(events.Note)).data == told


def test_by_default_each_of_three_requests_is_paid_for() -> None:
    async def story(world: LiveWorld) -> None:
        alice = await world.payer("alice", balance="1.00", policy=PayerPolicy(sessions=PayEach()))
        assert [(await alice.fetch()).status for _ in range(3)] == [200] * 3

    assert paths(play(story)) == ["quote", "pay", "quote"] * 3


def test_after_a_final_refusal_the_payment_is_not_shown() -> None:
    async def story(world: LiveWorld, alice: Payer) -> None:
        await world.fault(Fault(victim="facilitator", does="lose answer", path="/settle"))
        answer = await alice.fetch()
        assert (answer.error, answer.body["final"]) == ("Facilitator unreachable", True)

    forgetful = Settings(policy=ServicePolicy(lost_answer=Forget()))
    assert paths(play(story, service=forgetful)) == ["quote", "pay"]


@played()
async def test_no_402_is_an_answer_of_fetch_and_an_error_of_buy(
    world: LiveWorld, alice: Payer
) -> None:
    await world.fault(Fault(victim="service", does="lose answer", path="/quote", times=2))
    assert (await alice.fetch()).status is None
    with pytest.raises(PaymentFailed, match="no 402 to pay"):
        await alice.buy()


@pytest.mark.parametrize(
    ("budget", "served"),
    [(AtMost("0.03"), 3), (AtMost(each="0.009999"), 0), (AtMost("0.02", seconds=60), 4)],
    ids=repr,
)
@played()
async def test_a_budget(world: LiveWorld, budget: Any, served: int) -> None:
    alice = await world.payer("alice", balance="1.00", policy=PayerPolicy(budget=budget))
    there = alice.at(await world.another_service())
    count, said = 0, []
    for turn in range(6):
        try:
            count += (await (alice, there)[turn % 2].fetch()).status == 200
        except SpendingCapExceeded as over:
            said.append(str(over))
        await world.advance(20)
    assert count == served
    assert len(said) == 6 - served
    assert all(f"{budget!r}; nothing was signed" in text for text in said)
    assert await alice.balance() == 1_000_000 - served * 10_000


@played()
async def test_a_deposit_counts_against_the_budget(world: LiveWorld) -> None:
    policy = PayerPolicy(budget=AtMost("0.05"))
    alice = await world.payer("alice", balance="1.00", policy=policy)
    await alice.open_session("0.05", 60)
    with pytest.raises(SpendingCapExceeded, match=r"asks for 0\.01, 0\.05 is signed for"):
        await alice.buy()


def test_a_population_has_a_policy() -> None:
    async def story(world: LiveWorld) -> None:
        does: Any = {"does": "lose answer", "times": None, "probability": 0.5}
        await world.fault(Fault(victim="service", path="/pay", **does))
        policy = PayerPolicy(retry=SameAuthorization(times=20))
        await world.population(
            8, arrivals=Every(1), behaviour=lambda payer, _: payer.fetch(), policy=policy
        )

    orders = play(story).orders
    assert orders["served"].all()
    assert orders["attempts"].max() > 1
    assert (orders["paid_base"] == 10_000).all()


class OneRequest:
    """A policy of the user's own: ask, and never pay."""

    async def fetch(self, shopper: Any) -> None:
        await shopper.show_payment()


@played()
async def test_a_policy_that_sends_no_request_says_so(world: LiveWorld) -> None:
    alice = await world.payer("alice", policy=PayerPolicy(sessions=OneRequest()))
    with pytest.raises(RuntimeError, match=r"OneRequest\(...\) has sent no request"):
        await alice.fetch()
