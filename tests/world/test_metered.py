"""Goods sold `upto` in a story: the payers' signatures, and the laws of a run."""

from typing import Any

import pytest

from tests.world.playing import play, played
from x402sim import Fault, LiveWorld, Payer, SpendingCapExceeded, World
from x402sim.backends import FacilitatorSettings
from x402sim.events import RequestSent
from x402sim.policies import AtMost, NewAuthorization, PayerPolicy, SameAuthorization
from x402sim.report.reading import checks_of

SELLS: dict[str, Any] = {"POST /answer upto 0.05": lambda _: ("hello", "0.01")}


async def served(world: LiveWorld, **policy: Any) -> Payer:
    """Return a payer of a metered service, with an approval."""
    shop = await world.another_service(sells=SELLS)
    bob = await world.payer("bob", balance="1.00", policy=PayerPolicy(**policy))
    await bob.approve("1.00")
    return bob.at(shop)


@pytest.mark.parametrize("steps", [1, 2])
@played()
async def test_the_maximum_counts_for_the_budget(world: LiveWorld, steps: Any) -> None:
    bob = await served(world, budget=AtMost("0.11"), steps=steps)
    answer = await bob.fetch("/answer")
    assert (answer.status, answer.text) == (200, "hello")
    assert answer.settlement.amount == "10000"
    assert (await bob.buy("/answer")).status == 200
    with pytest.raises(SpendingCapExceeded, match=r"0\.05, 0\.10 is signed for"):
        await bob.fetch("/answer")
    assert await bob.balance() == 980_000


@pytest.mark.parametrize(
    "lost",
    [
        Fault(victim="service 2", does="lose request", path="/answer", skip=1),
        Fault(victim="facilitator", does="lose request", path="/settle"),
    ],
)
@played()
async def test_a_payer_sends_the_same_message_after_a_lost_answer(
    world: LiveWorld, lost: Any
) -> None:
    bob = await served(world, steps=1, retry=SameAuthorization(wait_s=5))
    await world.fault(lost)
    assert (await bob.fetch("/answer")).status == 200
    assert await bob.balance() == 990_000


def test_the_journal_has_the_nonce_and_a_lie_of_the_facilitator_breaks_a_law() -> None:
    lie = '{"success": true, "transaction": "0x%s", "network": "eip155:338"}' % ("11" * 32)

    async def story(world: LiveWorld) -> None:
        bob = await served(world)
        required = await bob.ask("/answer")
        told = Fault(victim="facilitator", does="answer", path="/settle", status=200, body=lie)
        await world.fault(told)
        assert (await bob.ask("/answer", header=bob.sign(required, steps=1))).status == 200

    run = World(seed=1).play(story)
    (broken,) = (check for check in checks_of(run.journal) if not check.ok)
    assert broken.clause == "invariant/granted-only-if-transferred"
    sent = (each.event for each in run.journal if isinstance(each.event, RequestSent))
    (nonce,) = {each.authorization for each in sent if each.authorization}
    assert len(bytes.fromhex(nonce)) == 32


def test_another_service_uses_the_facilitator_of_its_settings() -> None:
    async def story(world: LiveWorld) -> None:
        other = await world.another_service(facilitator="dear")
        alice = await world.payer("alice", balance="1.00")
        assert (await alice.at(other).buy()).status == 200
        with pytest.raises(ValueError, match="Possible: cheap, dear"):
            await world.another_service(facilitator="free")

    facilitators = {name: FacilitatorSettings() for name in ("cheap", "dear")}
    run = play(story, facilitator=facilitators)
    asked = {each.event.to for each in run.journal if isinstance(each.event, RequestSent)}
    assert asked & facilitators.keys() == {"dear"}


@pytest.mark.parametrize("times", [1, 2])
def test_a_purchase_that_was_paid_anew_is_one_order_in_upto_as_in_exact(times: int) -> None:
    async def story(world: LiveWorld) -> None:
        bob = await served(world, steps=1, retry=NewAuthorization(times=times))
        lost = Fault(victim="service 2", does="lose answer", path="/answer", skip=1, times=times)
        await world.fault(lost)
        assert (await bob.fetch("/answer")).status == 200
        assert (await bob.fetch("/answer")).status == 200
        required = await bob.ask("/answer")
        assert (await bob.ask("/answer", header=bob.sign(required, steps=1))).status == 200
        again = bob.sign(required, steps=1)  # a purchase that got no 402
        assert (await bob.ask("/answer", header=again)).status == 200

    orders, sums = play(story).orders, [times + 1, 1, 1, 1]
    for column, base in {"payments": 1, "paid_base": 10_000, "left_base": 40_000}.items():
        assert list(orders[column]) == [each * base for each in sums], column
    assert orders["served"].all()


def test_the_frames_show_the_amount_used_whether_or_not_it_was_paid() -> None:
    async def story(world: LiveWorld) -> None:
        bob = await served(world, steps=1)
        assert (await bob.buy()).status == 200
        assert (await bob.fetch("/answer")).status == 200
        await world.fault(Fault(victim="facilitator", does="refuse", path="/settle", times=None))
        assert (await bob.fetch("/answer")).status == 409
        await world.advance(3600)
        assert (await bob.fetch("/answer")).status == 409

    run = play(story)
    orders = run.orders.iloc[1:]
    assert run.orders["used_base"].isna().tolist() == [True, False, False, False]
    assert list(orders["used_base"]) == [10_000] * 3
    assert list(orders["paid_base"]) == [10_000, 0, 0]
    assert list(orders["granted"]) == [True, False, False]
    payments = run.payments.iloc[-3:]
    assert list(payments["payment_id"]) == list(orders["payment_id"])
    assert list(payments["status"]) == ["settled", "failed", "pending"]
    assert list(payments["amount_base"].fillna(0)) == [10_000, 0, 0]
    assert set(payments["payer"]) == {"bob"}
    assert set(payments["resource"]) == {"/answer"}
    assert list(payments["tx"].dropna()) == list(orders["tx"].dropna())
