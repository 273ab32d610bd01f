"""Payments in one step under virtual time, while answers are lost and the service crashes.

No payer is charged twice for what it asked for once, and only what is paid is served: the
invariants of every run see to that, too.
"""

import asyncio
from collections import Counter
from contextlib import suppress
from typing import Any

import httpx
import pytest
from msgspec.structs import replace

from tests.world.playing import play
from x402sim import (
    TESTNET,
    Decisions,
    Fault,
    LiveWorld,
    PaymentAuth,
    PaymentFailed,
    Settings,
    World,
)
from x402sim.payer.signing import choose, sign
from x402sim.payer.standard import read_standard
from x402sim.policies import PayerPolicy
from x402sim.protocol.x402 import PAYMENT_HEADERS, PaymentFlow

LATENCY = {"service": (0.1, 0.5), "facilitator": (0.05, 0.5), "explorer": 0.05, "rpc": [0.01, 0.02]}
MARKET = "/api/perp/market"
TROUBLES = (
    Fault(victim="service", does="lose answer", path=MARKET),
    Fault(victim="service", does="lose answer", path=MARKET, skip=1),
    Fault(victim="service", does="lose request", path=MARKET, skip=1),
    Fault(victim="service", does="duplicate", path=MARKET, skip=1),
    Fault(victim="service", does="crash after", path=MARKET, skip=1),
    Fault(victim="service", does="crash before", path=MARKET, skip=1),
    Fault(victim="service", does="answer", path=MARKET, skip=1, status=500, work_done=True),
    Fault(victim="facilitator", does="lose answer", path="/settle"),
    Fault(victim="facilitator", does="lose request", path="/settle"),
    Fault(victim="facilitator", does="crash before", path="/settle"),
    Fault(victim="facilitator", does="answer", path="/settle", status=502, work_done=True),
    Fault(victim="facilitator", does="lose answer", path="/verify"),
    Fault(victim="rpc", does="lose answer", times=3),
)
PAYERS, ASKS, TRIES = 3, 8, 40


async def shop(world: LiveWorld) -> None:
    """Some payers ask again and again, each time until they are served."""
    counts: Counter[str] = Counter()

    async def buy(number: int) -> None:
        luck = world.rng(f"payer {number}")
        someone = await world.payer(f"payer {number}", balance="10.00")
        version: Any = 1 + number % 2
        auth = PaymentAuth(someone.wallet, clock=world.clock, version=version)
        someone.http.auth = auth
        for _ in range(ASKS):
            await world.clock.sleep(luck.expovariate(1 / 20))
            await world.fault(luck.choice(TROUBLES))
            await served(someone.http, auth)
        transfers = await world.transfers(someone)
        world.expect(len(transfers), ASKS, "5/nonce-once")
        counts["signed"] += auth.signed_base // 10_000
        counts["served"] += ASKS

    async def served(http: httpx.AsyncClient, auth: PaymentAuth) -> None:
        for _ in range(TRIES):
            try:
                if (await http.get(MARKET)).status_code == 200:
                    return
            except (PaymentFailed, httpx.TransportError) as failed:
                world.note("not served", text=str(failed))
            await world.clock.sleep(10)
        world.expect("never served", "served", "1/repeat-served")

    await asyncio.gather(*(buy(number) for number in range(PAYERS)))
    world.expect(counts["signed"], counts["served"], "5/nonce-once")


@pytest.mark.parametrize(
    ("seed", "flow"), [(0, None), (1, None), (2, "authorization"), (3, "upfront")]
)
def test_everything_is_charged_once_and_served(seed: int, flow: PaymentFlow | None) -> None:
    play(shop, seed=seed, latency=LATENCY, service=Settings(payment_flow=flow))


@pytest.mark.parametrize(("is_named", "state"), [(True, "held"), (False, "broken")])
def test_a_kept_answer_is_no_second_order_and_any_other_is(is_named: bool, state: str) -> None:
    async def story(world: LiveWorld) -> None:
        alice = await world.payer("alice", balance="1.00")
        required = read_standard(await alice.http.get(MARKET), 2)
        offer = choose(required, TESTNET)
        if not is_named:
            offer = replace(offer, takes_payment_ids=False)
        _, text = sign(offer, alice.wallet, TESTNET, world.clock.now_s())
        for _ in range(2):
            answer = await alice.http.get(MARKET, headers={PAYMENT_HEADERS[2]: text})
            assert answer.status_code == 200

    careless = Settings(decisions=Decisions(authorization_once=is_named))
    summary = World(service=careless).play(story).summary.set_index("law")
    assert summary.loc["invariant/one-order-per-authorization", "state"] == state


def test_one_header_that_many_send_at_once_pays_once() -> None:
    counts: Counter[int | None] = Counter()

    async def story(world: LiveWorld) -> None:
        alice = await world.payer("alice", balance="1.00")
        required = await alice.ask()
        for defect in {"value": 9_999}, {"by": (await world.payer("bob")).wallet}:
            refused = await alice.ask(header=alice.sign(required, steps=1, **defect))
            assert refused.status == 402
        header = alice.sign(required, steps=1)
        answers = await asyncio.gather(*(alice.ask(header=header) for _ in range(20)))
        counts.update(answer.status for answer in answers)
        assert set(counts) == {200, 409}
        with pytest.raises(ValueError, match="receive are for steps=2"):
            alice.sign(required, steps=1, receive=True)
        with pytest.raises(PaymentFailed, match="no payment in one step is offered: None"):
            alice.sign(next(each for each in answers if each.status == 200), steps=1)

    (order,) = World(seed=1, latency=LATENCY).play(story).orders.itertuples()
    assert (order.attempts, order.payments, order.paid) == (22, 1, 0.01)
    assert order.served_times == counts[200], "its answer is kept, and given again"


@pytest.mark.parametrize(
    ("policy", "requests"),
    [
        (PayerPolicy(timeout_s=5, steps=1), 2),
        (PayerPolicy(timeout_s=5), 3),
    ],
    ids=("one step", "two steps"),
)
def test_each_request_waits_as_long_as_the_policy_says(policy: PayerPolicy, requests: int) -> None:
    async def story(world: LiveWorld) -> None:
        slow = Fault(victim="service", does="delay answer", seconds=60, times=None, skip=1)
        await world.fault(slow)
        there = (await world.payer("alice", balance="1.00", policy=policy)).at("service")
        with suppress(PaymentFailed):
            await there.fetch()
        assert there.clock.now() == world.clock.now()

    steps = World().play(story).raise_for_failure().steps
    late = steps[steps["outcome"] == "lost"]
    assert len(steps) == requests
    assert list(late["ended_s"] - late["t_s"]) == [5.0] * (requests - 1)


@pytest.mark.parametrize(("shared", "cases"), [(True, 0), (False, 2)])
def test_services_without_a_common_database_break_the_law_of_one_order(
    *, shared: bool, cases: int
) -> None:
    async def story(world: LiveWorld) -> None:
        alice = await world.payer("alice", balance="1.00")
        for _ in range(2):
            await world.another_service(shares_database=shared)
        header = alice.sign(await alice.ask(), steps=1)
        shops = [alice.at(name) for name in world.services * 2]
        await asyncio.gather(*(shop.ask(header=header) for shop in shops))

    summary = World(seed=1, latency=LATENCY).play(story).summary.set_index("law")
    row = summary.loc["invariant/one-order-per-authorization"]
    assert (row["state"], row["cases"]) == ("broken" if cases else "held", cases)
    assert row["money"] == pytest.approx(cases * 0.01)
