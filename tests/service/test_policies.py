"""What each policy of a service does, and what a policy of the user's own can do."""

import asyncio
from dataclasses import dataclass, replace
from typing import Any

import pytest

from tests.own_parts import SettleAgain
from tests.world import playing
from tests.world.playing import Story, played, standard_payment
from x402sim import Fault, LiveWorld, Payer, Run, Settings, World, events
from x402sim.events import Note
from x402sim.policies import (
    ClaimAfterSettle,
    FailToServe,
    Forget,
    NoClaim,
    ServeBeforeSettle,
    ServicePolicy,
)
from x402sim.protocol.refusals import RequestError
from x402sim.report.reading import checks_of, raised_in
from x402sim.story.invariants import ORDER_ONCE, SERVED_IF_PAID
from x402sim.story.payer import ORDER

LOST = Fault(victim="facilitator", does="lose answer", path="/settle")


def with_policy(**policy: Any) -> Settings:
    return Settings(policy=ServicePolicy(**policy), phase=0)


def play(story: Story, **policy: Any) -> Run:
    """Play a story whose asserts must hold at a service with this policy."""
    return playing.play(story, service=with_policy(**policy))


def settlement_of(run: Run) -> list[str]:
    """Return what the service asked the facilitator, in order."""
    sent = run.journal.events(events.RequestSent)
    return [each.path.rpartition("/")[2] for each in sent if each.to == "facilitator"]


# --- lost answers ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("policy", "first", "later"),
    [
        (None, (200, None), 200),
        (SettleAgain(), (200, None), 200),
        (Forget(), (502, True), 402),
    ],
    ids=repr,
)
def test_a_lost_answer(policy: Any, first: tuple[int, bool | None], later: int) -> None:
    async def story(world: LiveWorld) -> None:
        alice = await world.payer("alice", balance="1.00")
        await world.fault(LOST)
        required = await alice.ask()
        paid = await alice.pay(required)
        assert (paid.status, paid.body.get("final")) == first
        await world.advance(60)
        assert (await alice.ask(payment_id=required.payment_id)).status == later
        assert await alice.balance() == 990_000

    play(story, **({"lost_answer": policy} if policy else {}))


def test_what_the_facilitator_refuses_is_no_lost_answer() -> None:
    async def story(world: LiveWorld) -> None:
        alice = await world.payer("alice", balance="1.00")
        await world.fault(Fault(victim="facilitator", does="lose request", path="/verify"))
        required = await alice.ask()
        refused = await alice.pay(required)
        assert refused.body["final"] is False, "nothing was sent, and nothing is forgotten"
        assert (await alice.ask(payment_id=required.payment_id)).status == 402
        assert await alice.balance() == 1_000_000

    play(story, lost_answer=Forget())


def test_a_lost_request_is_settled_again() -> None:
    async def story(world: LiveWorld) -> None:
        alice = await world.payer("alice", balance="1.00")
        await world.fault(Fault(victim="facilitator", does="lose request", path="/settle", times=2))
        began_s = world.clock.now()
        assert (await alice.buy()).status == 200
        assert world.clock.now() - began_s == pytest.approx(2 * 1.5)

    run = play(story, lost_answer=SettleAgain(wait_s=1.5))
    assert settlement_of(run) == ["verify", "settle", "settle", "settle"]


@played(service=with_policy(lost_answer=Forget()))
async def test_a_payment_that_a_crash_left_pending_is_forgotten(
    world: LiveWorld, alice: Payer
) -> None:
    await world.fault(Fault(victim="facilitator", does="crash after", path="/settle"))
    required = await alice.ask()
    assert (await alice.pay(required)).status is None
    await world.advance(60)
    unknown = RequestError.UNKNOWN_PAYMENT
    assert await alice.payment(required.payment_id) == {
        "error": unknown.text,
        "reason": unknown.meaning,
    }
    assert await alice.balance() == 990_000


# --- verification and the claim ----------------------------------------------------------


class SkipVerify:
    def verifies(self, amount_base: int) -> bool:
        return False


@dataclass(frozen=True)
class ClaimAfterVerify:
    def claims_before(self, step: str) -> bool:
        return step == "settle"


def test_a_payment_is_settled_without_a_verification() -> None:
    async def story(world: LiveWorld) -> None:
        alice = await world.payer("alice", balance="1.00")
        assert (await alice.buy()).status == 200

    assert settlement_of(play(story, verify=SkipVerify())) == ["settle"]


@pytest.mark.parametrize(
    ("policy", "at_verify", "at_settle"),
    [
        (None, "pending", "pending"),
        (ClaimAfterVerify(), None, "pending"),
        (ClaimAfterSettle(), None, None),
    ],
    ids=repr,
)
def test_when_the_claim_is_written(
    policy: Any, at_verify: str | None, at_settle: str | None
) -> None:
    seen: list[str | None] = []

    async def story(world: LiveWorld) -> None:
        parts = world.stage.parts
        assert parts is not None
        alice = await world.payer("alice", balance="1.00")
        required = await alice.ask()

        def look(request: Any) -> None:
            if request.victim == "facilitator":
                stored = parts.service.store.payments.get(required.payment_id)
                seen.append(stored.status if stored else None)

        await world.fault(look)
        assert (await alice.pay(required)).status == 200
        assert (await alice.ask(payment_id=required.payment_id)).status == 200

    play(story, **({"claim": policy} if policy else {}))
    assert seen == [at_verify, at_settle]


# --- what is served ----------------------------------------------------------------------


def test_it_serves_before_the_settlement_and_may_never_be_paid() -> None:
    async def story(world: LiveWorld) -> None:
        alice = await world.payer("alice", balance="1.00")
        bad = alice.sign(required := await alice.ask(), by=(await world.payer("bob")).wallet)
        assert (await alice.pay(required, bad)).error == "Invalid signature"
        assert (await alice.ask(payment_id=required.payment_id)).status == 402
        await world.fault(Fault(victim="facilitator", does="refuse", path="/settle"))
        assert (await alice.pay(required)).status == 502
        assert (await alice.ask(payment_id=required.payment_id)).status == 200
        await world.advance(600)
        assert (await alice.ask(payment_id=required.payment_id)).status == 402
        assert await alice.balance() == 1_000_000

    world = World(seed=1, service=with_policy(serve=ServeBeforeSettle()))
    checks = checks_of(world.play(story).journal)
    assert [check.clause for check in checks if not check.ok] == [SERVED_IF_PAID]
    assert replace(world, invariants=False).play(story).outcome == "passed"


@played(service=with_policy(serve=FailToServe(0.3)))
async def test_a_failing_seller_fails_the_same_payments_again(
    world: LiveWorld, alice: Payer
) -> None:
    seen = set()
    for _ in range(30):
        paid = await alice.buy()
        first, again = [(await alice.ask(payment_id=paid.payment_id)).status for _ in "12"]
        assert first == again
        seen.add(first)
    assert seen == {200, 402}
    assert await alice.balance() == 1_000_000 - 30 * 10_000


# --- a policy of the user's own ----------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: ServicePolicy(lost_answer=Forget), "lost_answer: expected .*, got the class Forget"),
        (lambda: Settings(policy=Forget()), "policy: expected ServicePolicy, got Forget\\(\\)"),
        (lambda: FailToServe(1.1), "probability: expected a number from 0 to 1, got 1.1"),
    ],
)  # fmt: skip
def test_an_impossible_policy_is_refused(make: Any, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        make()


# --- one payment, many grants --------------------------------------------------------------


MANY = 20


async def thief(world: LiveWorld) -> None:
    """One header is sent many times at the same time."""
    alice = await world.payer("alice", balance="1.00")
    required = await alice.ask()
    headers = {"X-PAYMENT": standard_payment(required, alice.sign(required))}
    sent = [alice.send("POST", "/api/perp/quote", json=ORDER, headers=headers) for _ in range(MANY)]
    world.note("grants", n=sum(each.status == 200 for each in await asyncio.gather(*sent)))
    await world.advance(60)
    assert len(await world.transfers(alice)) == 1


async def repeated_in_flight(world: LiveWorld) -> None:
    """A payment is shown while the facilitator settles it, and again afterwards."""
    alice = await world.payer("alice", balance="1.00")
    required = await alice.ask()
    paying = asyncio.create_task(alice.pay(required))
    await world.advance(0.3)
    in_flight = await alice.ask(payment_id=required.payment_id)
    await paying
    settled = await alice.ask(payment_id=required.payment_id)
    world.note("statuses", seen=[in_flight.status, settled.status])


@pytest.mark.parametrize(
    ("policy", "grants", "breaks", "in_flight"),
    [
        ({}, 1, set(), 402),
        ({"claim": NoClaim()}, MANY, {ORDER_ONCE}, 402),
        ({"serve": ServeBeforeSettle()}, 1, {SERVED_IF_PAID}, 200),
        (
            {"claim": NoClaim(), "serve": ServeBeforeSettle()},
            MANY,
            {SERVED_IF_PAID, ORDER_ONCE},
            200,
        ),
    ],
    ids=["correct", "no claim", "served before", "both"],
)
def test_one_authorization_buys_one_order_unless_nothing_reserves_it(
    policy: dict[str, Any], grants: int, breaks: set[str], in_flight: int
) -> None:
    """And a payment in flight opens what the policy serves before the settlement."""
    world = World(service=with_policy(**policy), latency={"facilitator": 0.1})
    run = world.play(thief)
    (note,) = (entry.event for entry in run.journal.of(Note))
    seen = {check.clause for check in checks_of(run.journal) if not check.ok}
    assert (note.data["n"], seen, raised_in(run.journal)) == (grants, breaks, [])
    run = world.play(repeated_in_flight)
    (note,) = (entry.event for entry in run.journal.of(Note))
    assert note.data["seen"] == [in_flight, 200]
