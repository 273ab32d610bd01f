"""Who has claimed an authorization: nothing is charged for nothing, and nothing opens two things.

In each of these stories money was lost, or one payment bought two things, before.
"""

import asyncio
import base64
import json

import pytest

from tests.own_parts import SettleAgain
from tests.service.standard import in_form, low_v
from tests.world.playing import played
from x402sim import Fault, LiveWorld, Payer, Settings, World, events
from x402sim.policies import ServicePolicy
from x402sim.report.reading import checks_of
from x402sim.service.store import Store

LOST = Fault(victim="facilitator", does="lose answer", path="/settle")
BUSY = json.dumps({"jsonrpc": "2.0", "id": 1, "error": {"code": -32005, "message": "rate limit"}})
SLOW_VERIFY = Fault(victim="facilitator", does="delay request", path="/verify", seconds=5)


def with_a_bad_signature(header: str) -> str:
    return in_form(header, lambda it: bytes([*it[:10], it[10] ^ 1, *it[11:]]))


async def is_paid_once(world: LiveWorld, payer: Payer, *payment_ids: str) -> bool:
    """Whether one transfer was made, and it opens one of these."""
    opened = [(await payer.ask(payment_id=each)).status for each in payment_ids]
    return len(await world.transfers(payer)) == 1 and opened.count(200) == 1


@played()
async def test_a_busy_node_does_not_make_a_good_signature_of_a_smart_wallet_a_bad_one(
    world: LiveWorld,
) -> None:
    smart = await world.payer("smart", balance="1.00", wallet="smart")
    required, other = await smart.ask(), await smart.ask()
    header = smart.sign(required)
    await world.fault(
        Fault(victim="rpc", does="answer", contains="1626ba7e", status=200, body=BUSY)
    )
    refused = await smart.pay(required, header)
    assert (refused.status, refused.body["final"]) == (502, False)
    await world.fault(LOST)
    assert (await smart.pay(required, header)).status == 200
    assert (await smart.pay(other, header)).status == 409
    assert await is_paid_once(world, smart, required.payment_id, other.payment_id)


@played()
async def test_a_good_header_claims_what_the_same_with_a_bad_signature_has_not(
    world: LiveWorld, alice: Payer
) -> None:
    required, other = await alice.ask(), await alice.ask()
    good = alice.sign(required)
    await world.fault(SLOW_VERIFY)
    bad = asyncio.ensure_future(alice.pay(required, with_a_bad_signature(good)))
    await world.clock.sleep(1)
    await world.crash()
    await bad
    await world.fault(LOST)
    assert (await alice.pay(required, good)).status == 200
    assert (await alice.pay(other, good)).status == 409
    assert await is_paid_once(world, alice, required.payment_id, other.payment_id)
    await world.advance(600)
    assert (await alice.payment(required.payment_id))["status"] == "settled"


@played()
async def test_a_refused_signature_deletes_nothing_that_another_process_settles(
    world: LiveWorld, alice: Payer
) -> None:
    two, bob = await world.another_service(shares_database=True), await world.payer("bob")
    required, of_bob = await alice.ask(), await bob.ask()
    good = alice.sign(required)
    await world.fault(SLOW_VERIFY)
    await world.fault(Fault(victim="facilitator", does="delay answer", path="/settle", seconds=8))
    bad = asyncio.ensure_future(alice.pay(required, with_a_bad_signature(good)))
    await world.clock.sleep(1)
    paid = asyncio.ensure_future(alice.at(two).pay(required, good))
    await bad
    assert (await bob.pay(of_bob, bob.sign(of_bob))).status == 402  # he has no money
    assert (await paid).status == 200
    assert (await bob.ask(payment_id=of_bob.payment_id)).status == 402
    assert await is_paid_once(world, alice, required.payment_id)


def test_the_number_of_a_deleted_attempt_is_not_used_again() -> None:
    """A request may still hold it: what is settled under it would be somebody else's."""
    store = Store(None)
    try:
        insert = (
            "INSERT INTO payments(payment_id, from_address, to_address, amount, resource_url, state,"
            " timestamp, header, duration, is_authorized, nonce_confirmed_unused)"
            " VALUES ('pay', '', '', '1', '/', 'maybe submitted', 0, '', 0, 0, 0)"
        )
        first = store.execute(insert).lastrowid
        store.payments.drop_claim(first)  # it may be paid: it stays
        assert store.payments.attempt(first) is not None
        store.payments.forget(first)
        assert store.payments.attempt(first) is None
        assert store.execute(insert).lastrowid != first
    finally:
        store.close()


@pytest.mark.parametrize("answered", ["refuse", "lose answer"])
@played(service=Settings(payment_flow="authorization"))
async def test_an_authorization_is_claimed_before_the_facilitator_sees_it_in_each_flow(
    world: LiveWorld, alice: Payer, answered: str
) -> None:
    mallory = await world.payer("mallory")
    required = await alice.ask()
    header = alice.sign(required, steps=1)
    await world.fault(Fault(victim="facilitator", does=answered, path="/verify"))
    assert (await alice.ask(header=header)).status != 200
    await mallory.submit(header)
    assert (await alice.ask(header=header)).status == 200
    assert len(await world.transfers(alice)) == 1


@played(service=Settings(payment_flow="authorization"))
async def test_nothing_is_sent_to_the_facilitator_while_the_node_is_silent_in_each_flow(
    world: LiveWorld, alice: Payer
) -> None:
    seen = []
    world.observe(lambda request: seen.append(request.path), at="facilitator")
    header = alice.sign(await alice.ask(), steps=1)
    await world.fault(Fault(victim="rpc", does="refuse", times=40))
    assert (await alice.ask(header=header)).status == 502
    assert seen == []


@played(service=Settings(longest_window_s=3600))
async def test_a_header_that_cannot_be_read_is_not_pending_for_ever(
    world: LiveWorld, alice: Payer
) -> None:
    required = await alice.ask()
    await world.fault(SLOW_VERIFY)
    sent = asyncio.ensure_future(alice.pay(required, "0xdeadbeef"))
    await world.clock.sleep(1)
    await world.crash()
    await sent
    assert (await alice.payment(required.payment_id))["status"] == "pending"
    await world.advance(2 * 3600)
    assert (await alice.payment(required.payment_id))["status"] == "failed"


def test_a_payment_made_twice_is_looked_at_until_it_is_deep() -> None:
    """Two headers for one payment id: one that was refused for want of money is submitted later."""
    seen = []

    async def story(world: LiveWorld) -> None:
        alice, mallory = await world.payer("alice"), await world.payer("mallory")
        required = await alice.ask()
        first, second = alice.sign(required), alice.sign(required)
        assert (await alice.pay(required, first)).status == 402
        await world.fund(alice.address, "1.00")
        assert (await alice.pay(required, second)).status == 200
        await mallory.submit(first)
        for _ in range(2):
            await world.advance(700)
            await world.mine(80)
        await world.advance(700)
        world.observe(lambda request: seen.append(request.path), at="rpc")
        await world.run_indexer()

    run = World(seed=1).play(story)
    assert [each.ok for each in checks_of(run.journal)] == [False], run.reason  # paid twice
    assert len(list(run.journal.events(events.PaidAgain))) == 1
    assert seen == []


@played()
async def test_a_header_that_was_not_sent_stays_so_while_the_node_is_silent(
    world: LiveWorld,
) -> None:
    alice = await world.payer("alice")
    required = await alice.ask()
    first = alice.sign(required)
    assert (await alice.pay(required, first)).status == 402
    await world.fault(Fault(victim="rpc", does="refuse", contains="eth_getCode", times=1))
    assert (await alice.pay(required, in_form(first, low_v))).status == 502
    await world.fund(alice.address, "1.00")
    assert (await alice.pay(required, alice.sign(required))).status == 200


@played(service=Settings(policy=ServicePolicy(lost_answer=SettleAgain())))
async def test_what_another_process_has_sent_again_is_not_taken_for_unsent(
    world: LiveWorld, alice: Payer
) -> None:
    await world.another_service(shares_database=True)
    required = await alice.ask()
    first, second = alice.sign(required), alice.sign(required)
    slow = Fault(victim="facilitator", does="delay request", path="/verify", seconds=31, times=1)
    await world.fault(slow)  # longer than the service waits for it
    await world.fault(Fault(victim="facilitator", does="delay request", path="/settle", seconds=40))
    await alice.pay(required, first)
    await alice.pay(required, second)
    await world.advance(60)
    assert len(await world.transfers(alice)) == 1


@played()
async def test_an_answer_of_the_chain_that_is_older_than_the_record_fails_nothing(
    world: LiveWorld, alice: Payer
) -> None:
    """One process is told of a used nonce after another has settled the payment with it."""
    two = await world.another_service(shares_database=True)
    required = await alice.ask_session("0.05", 600)
    header = alice.sign(required)
    await world.fault(Fault(victim="rpc", does="refuse", contains="eth_call", times=1))
    slow = Fault(victim="rpc", does="delay request", contains="eth_getBlockByNumber", seconds=5)
    await world.fault(slow)
    first = asyncio.ensure_future(alice.pay(required, header))
    await world.clock.sleep(1)
    assert (await alice.at(two).pay(required, header)).status == 200
    assert (await first).body.get("final") is not True
    assert (await alice.payment(required.payment_id))["status"] == "settled"
    opened = await alice.ask_session("0.05", 600, payment_id=required.payment_id)
    assert (await alice.session(opened.body["sessionId"]))["status"] == "active"


@played()
async def test_what_one_process_has_seen_undone_no_other_serves(
    world: LiveWorld, alice: Payer
) -> None:
    """Each process remembers what it has granted; the chain undoes it, and one of them sees that."""
    two = await world.another_service(shares_database=True)
    bought, kept = await alice.ask(), await alice.ask()
    for each in (bought, kept):
        assert (await alice.pay(each)).status == 200
    assert (await alice.at(two).ask(payment_id=bought.payment_id)).status == 200
    await world.run_indexer(two)
    transfers = await world.transfers(alice)
    await world.reorg(2, drop=[transfers[0].tx_hash])
    await world.run_indexer(two)
    for payer in (alice, alice.at(two)):
        assert (await payer.ask(payment_id=bought.payment_id)).status == 402
        assert (await payer.ask(payment_id=kept.payment_id)).status == 200


def without_its_402(header: str) -> str:
    """The same payment of version 2, without the payment id that its payer was offered."""
    payment = json.loads(base64.b64decode(header))
    del payment["accepted"]["extra"]["paymentId"]
    payment.pop("extensions", None)
    return base64.b64encode(json.dumps(payment).encode()).decode()


@played()
async def test_a_payment_answers_no_402_that_is_named_only_when_it_is_sent_again(
    world: LiveWorld, alice: Payer
) -> None:
    """A facilitator that refused it, or whose answer was lost, has seen it, and may show it."""
    mallory = await world.payer("mallory")
    for fault in (
        Fault(victim="facilitator", does="lose answer", path="/verify"),
        Fault(victim="facilitator", does="answer", status=500, path="/settle"),
    ):
        required, other = await alice.ask(), await mallory.ask()
        header = without_its_402(alice.sign(required, steps=1))
        await world.fault(fault)
        assert (await alice.ask(header=header)).status in (409, 502)
        await mallory.ask(header=header, payment_id=other.payment_id)
        assert (await mallory.ask(payment_id=other.payment_id)).status == 402
    assert len(await world.transfers(alice)) == 2


@played()
async def test_whoever_reads_a_payment_on_the_chain_names_no_402_for_it(
    world: LiveWorld, alice: Payer
) -> None:
    """Neither for one that was sent to the facilitator, nor instead of what its payer has named."""
    mallory = await world.payer("mallory")
    required, other = await alice.ask(), await mallory.ask()
    unnamed = without_its_402(alice.sign(required, steps=1))
    await world.fault(LOST)
    await world.fault(Fault(victim="rpc", does="refuse", contains="eth_getBlockByNumber", times=2))
    assert (await alice.ask(header=unnamed)).status in (409, 502)
    named = without_its_402(alice.sign(second := await alice.ask(), steps=1))
    await world.fault(Fault(victim="facilitator", does="refuse", path="/verify"))
    assert (await alice.ask(header=named, payment_id=second.payment_id)).status == 502
    for header in (unnamed, named):
        await mallory.ask(header=header, payment_id=other.payment_id)
        assert (await mallory.ask(payment_id=other.payment_id)).status == 402
    assert (await alice.ask(payment_id=second.payment_id)).status == 200


@played()
async def test_a_402_that_was_paid_in_two_steps_is_not_paid_in_one_by_who_names_it_no_more(
    world: LiveWorld, alice: Payer
) -> None:
    required = await alice.ask()
    header = without_its_402(alice.sign(required, steps=1))
    await world.fault(Fault(victim="facilitator", does="refuse", path="/verify"))
    assert (await alice.ask(header=header, payment_id=required.payment_id)).status == 502
    assert (await alice.pay(required)).status == 200
    refused = await alice.ask(header=header)
    assert refused.status == 402
    assert "its 402 was paid already" in json.dumps(refused.body)
    assert len(await world.transfers(alice)) == 1
