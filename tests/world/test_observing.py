"""Adversaries who observe requests and the mempool, in process and over TCP."""

import asyncio
import math
from typing import Any

import pytest

from tests.world.playing import played
from x402sim import Fault, LiveWorld, LocalServer, Settings, World
from x402sim.backends import Observed, WaitingTransaction
from x402sim.chain.ledger.ledger import LedgerChain
from x402sim.policies import ClaimAfterSettle, PayerPolicy, ServicePolicy
from x402sim.population import Buy, Every, Poisson

LATE = Settings(policy=ServicePolicy(claim=ClaimAfterSettle()))


# --- what is seen -------------------------------------------------------------------------


def seen_at(
    at: str, path: str = "", on: str = "in-process", steps: int = 2, **world: Any
) -> list[Observed]:
    seen: list[Observed] = []

    async def story(live: LiveWorld) -> None:
        live.observe(seen.append, at=at, path=path)
        policy = PayerPolicy(steps=steps)
        alice = await live.payer("alice", balance="1.00", policy=policy)
        await alice.fetch()

    World(seed=1, on=on, **world).play(story).raise_for_failure()
    return seen


@pytest.mark.parametrize("on", ["in-process", "tcp"])
def test_each_request_to_a_part_is_seen_when_it_is_sent(on: str) -> None:
    asked = seen_at("service", on=on)
    assert [each.path for each in asked] == ["/api/perp/quote", "/api/pay", "/api/perp/quote"]
    assert [each.payment_header is None for each in asked] == [True, False, True]
    assert asked[1].json["paymentHeader"] == asked[1].payment_header
    assert asked[1].at_s == 1_800_000_000
    settled = seen_at("facilitator", "/settle", on)
    assert [each.payment_header for each in settled] == [asked[1].payment_header]
    (only,) = seen_at("service", on=on, steps=1)[1:]
    assert only.payment_header


@pytest.mark.parametrize("on", ["in-process", "tcp"])
@pytest.mark.parametrize("steps", [1, 2])
@pytest.mark.parametrize("path", ["/verify", "/settle"])
def test_whoever_sees_a_payment_can_submit_it_first(on: str, steps: int, path: str) -> None:
    async def story(world: LiveWorld) -> None:
        mallory = await world.payer("mallory")
        world.observe(lambda seen: mallory.submit(seen.payment_header), at="facilitator", path=path)
        policy = PayerPolicy(steps=steps)
        await world.population(3, arrivals=Every(60), behaviour=Buy(), policy=policy)

    world = World(seed=1, on=on, service=LATE, latency={"facilitator": 0.1}, invariants=False)
    run = world.play(story).raise_for_failure()
    assert run.orders["served"].tolist() == [False] * 3
    mined = run.transactions
    used = mined[mined["call"] == "transferWithAuthorization"]
    stolen = used[used["sender"].astype(str) == used["sender"].astype(str).iloc[0]]
    assert run.transfers["kind"].eq("payment").sum() == 3
    assert len(stolen) == 3


@pytest.mark.parametrize("version", [1, 2])
@played(network="base-sepolia")
async def test_the_payments_of_the_standard_are_seen_too(world: LiveWorld, version: int) -> None:
    mallory, alice = await world.payer("mallory"), await world.payer("alice", balance="1.00")
    world.observe(lambda seen: mallory.submit(seen.payment_header), at="facilitator")
    required = await alice.ask()
    header = alice.sign(required)
    await world.ask_facilitator("verify", alice, required, header, version=version)
    await world.advance(5)
    assert len(await world.transfers(alice)) == 1


# --- the mempool --------------------------------------------------------------------------


def test_each_transaction_that_waits_is_seen_once_with_what_it_submits() -> None:
    seen: list[Observed] = []

    async def story(world: LiveWorld) -> None:
        alice = await world.payer("alice", balance="1.00")
        await world.mining(False)
        world.observe(seen.append, at="mempool")
        required = await alice.ask()
        header = alice.sign(required)
        paying = asyncio.create_task(alice.pay(required, header))
        await world.advance(1)
        (waiting,) = seen
        assert isinstance(waiting.transaction, WaitingTransaction)
        assert waiting.transaction.call == "transferWithAuthorization"
        assert waiting.transaction.authorization is not None
        assert waiting.transaction.authorization["from"] == alice.address
        assert waiting.transaction.authorization["value"] == str(required.price_base)
        assert waiting.transaction.sender not in (alice.address, waiting.transaction.to)
        assert waiting.path == ""
        assert waiting.json is None
        mallory = await world.payer("mallory")
        await mallory.submit(str(waiting.payment_header))
        await world.mine()
        assert (await paying).status == 200
        await world.advance(400)  # a node forgets after five minutes who has asked
        await mallory.transfer(alice.address, "0.00")
        await world.mining(True)
        await mallory.transfer(alice.address, "0.00")  # it never waits

    World(seed=1, invariants=False).play(story).raise_for_failure()
    calls = [each.transaction.call for each in seen if each.transaction]
    assert calls == ["transferWithAuthorization"] * 2 + ["transfer"]
    assert len({each.transaction.hash for each in seen if each.transaction}) == 3


def test_what_an_observer_sends_is_not_observed() -> None:
    count = []

    async def story(world: LiveWorld) -> None:
        mallory = await world.payer("mallory", balance="1.00")

        async def echo(seen: Observed) -> None:
            count.append(seen.at)
            await mallory.ask()
            await mallory.transfer(mallory.address, "0.01")

        world.observe(echo, at="service")
        world.observe(echo, at="mempool")
        alice = await world.payer("alice", balance="1.00")
        await alice.fetch()
        await world.advance(10)

    for on in "in-process", "tcp":
        count.clear()
        World(seed=1, on=on, block_time_s=2).play(story).raise_for_failure()
        assert sorted(count) == ["mempool"] * 2 + ["service"] * 3, "alice's tokens, and her payment"


# --- chance, errors, the end --------------------------------------------------------------


def test_each_is_seen_with_a_probability_of_a_stream_of_its_own() -> None:
    def run(probability: float, seed: int = 1, more: bool = False) -> int:
        seen: list[Observed] = []

        async def story(world: LiveWorld) -> None:
            world.observe(seen.append, at="facilitator", path="/settle", probability=probability)
            if more:
                world.observe(lambda _: None, at="service", probability=0.5)
                lost = Fault(victim="explorer", does="refuse", times=None, probability=0.5)
                await world.fault(lost)
            await world.population(20, arrivals=Poisson(per_s=1), behaviour=Buy())

        World(seed=seed).play(story).raise_for_failure()
        return len(seen)

    none, some, with_more = run(0), run(0.3), run(0.3, more=True)
    assert none == 0
    assert abs(some - 6) < 4 * math.sqrt(20 * 0.3 * 0.7)
    assert some == with_more
    assert run(1) == 20


@pytest.mark.parametrize("at", ["facilitator", "mempool"])
def test_an_exception_of_an_act_fails_the_scenario_and_says_whose_it_is(at: str) -> None:
    async def clumsy(seen: Observed) -> None:
        await asyncio.sleep(1)
        raise KeyError("a typing error")

    async def story(world: LiveWorld) -> None:
        world.observe(clumsy, at=at)
        await (await world.payer("alice", balance="1.00")).fetch()
        await world.advance(60)

    run = World(seed=1, block_time_s=5).play(story)
    assert run.outcome == "failed"
    with pytest.raises(Exception, match="a typing error") as failed:
        run.raise_for_failure()
    assert "clumsy" in str(failed.value)
    assert f"which observes {at}" in str(failed.value)


def test_tasks_end_with_the_scenario() -> None:
    ended = []

    async def story(world: LiveWorld) -> None:
        async def wait(seen: Observed) -> None:
            try:
                await world.clock.sleep(10**6)
            except asyncio.CancelledError:
                ended.append(world.clock.now())
                raise

        world.observe(wait, at="facilitator", path="/settle")
        await (await world.payer("alice", balance="1.00")).fetch()

    run = World(seed=1).play(story).raise_for_failure()
    assert ended == [1_800_000_000]
    assert run.journal.since(0)[-1].at_ms == 1_800_000_000_000


def test_a_deployment_and_an_existing_node_are_refused(
    server: LocalServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def on_a_node(world: LiveWorld) -> None:
        await world.mining(False)
        with monkeypatch.context() as patched:
            patched.setattr(LedgerChain, "controls", None)
            with pytest.raises(ValueError, match="an existing node may not show its mempool"):
                world.observe(print, at="mempool")

    async def on_a_server(world: LiveWorld) -> None:
        with pytest.raises(ValueError, match="cannot be sent to a deployment"):
            world.observe(print, at="facilitator")

    World(seed=1).play(on_a_node).raise_for_failure()
    World(on=server.url).play(on_a_server).raise_for_failure()


@played("virtual")
async def test_what_cannot_be_observed_is_refused_with_the_reason(world: LiveWorld) -> None:
    for given, says in (
        ({"at": "facilitatr"}, "unknown victim 'facilitatr'.*facilitator"),
        ({"at": "facilitator", "path": "/settel"}, "path of facilitator.*/settle"),
        ({"at": "mempool"}, r"mines each transaction at once.*World\(block_time_s=2\)"),
    ):
        with pytest.raises(ValueError, match=says):
            world.observe(print, **given)
    await world.mining(False)
    with pytest.raises(ValueError, match="transactions of the mempool have none"):
        world.observe(print, at="mempool", path="/settle")
