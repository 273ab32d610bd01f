"""The outcomes of orders: what was asked, paid, served and refunded, reconciled to the truth."""

import asyncio
from contextlib import suppress
from functools import cache

import pandas as pd
import pytest

from tests.report.stories import Truth, play_story, run
from x402sim import Fault, LiveWorld, PaymentAuth, PaymentFailed, Run, Settings, World
from x402sim.events import Note, RefundUndone, RequestSent
from x402sim.journal import Entry, Journal
from x402sim.policies import Forget, NewAuthorization, PayerPolicy, ServicePolicy
from x402sim.population import Buy, Every, Poisson, Session
from x402sim.protocol.routes import MARKET, ORDER, QUOTE
from x402sim.report import orders
from x402sim.service.sessions import undo_debit
from x402sim.service.state import Service


@cache
def day() -> tuple[Run, Truth]:
    async def story(world: LiveWorld) -> None:
        for victim in ("service", "facilitator"):
            for does in ("lose answer", "lose request"):
                fault = Fault(victim=victim, does=does, probability=0.04, times=None)
                await world.fault(fault)
        late = Fault(  # a service that has written its answer does not see that nobody waits
            victim="service", does="delay answer", seconds=99, probability=0.03, times=None
        )
        await world.fault(late)
        visits = await asyncio.gather(
            world.population(
                9, arrivals=Poisson(per_s=0.05), behaviour=Buy(times=3, wait=9), until_s=1200
            ),
            world.population(
                9,
                arrivals=Every(120),
                behaviour=Session(deposit="0.05", requests=4, wait=(9, 0.5), duration=900),
                until_s=1200,
                name="member",
            ),
        )
        assert all(group.visits > 5 for group in visits)
        await world.heal()
        newest = [entry for entry in await world.transfers() if entry.sender != world.merchant][-1]
        depth = await world.stage.parts.chain.height() - newest.block_number + 1
        await world.reorg(depth, [newest.tx_hash])
        await world.advance(1800)

    return play_story(story, seed=3, latency={"service": (0.1, 0.5), "facilitator": (0.2, 0.5)})


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    return day()[0].orders


def test_the_day_has_everything_that_can_become_of_an_order(table):
    assert day()[0].outcome == "passed", day()[0].reason
    assert set(table["way"]) == {"payment", "deposit", "session"}
    unserved = table[table["charged"] & ~table["served"]]
    assert {"payment", "session"} <= set(unserved["way"])
    assert table.loc[table["way"] == "deposit", "refunded"].sum() > 3
    assert (table["attempts"] == 0).any()
    assert table["payment_id"].isna().any()


def test_money_and_counts_are_those_of_the_ledger_and_the_database(table):
    truth = day()[1]
    assert table["paid_base"].sum() - table["returned_base"].sum() == truth.merchant > 0
    assert set(table["tx"].dropna()) == truth.paid
    assert set(table["refund_tx"].dropna()) == truth.returned
    assert table["gas"].sum() == truth.gas
    own = table[table["way"] != "session"]
    assert own["charged"].sum() == own["tx"].notna().sum() == len(truth.paid)
    assert table["refunded"].sum() == len(truth.returned)
    debited = table[table["way"] == "session"]
    assert (debited["charged"].sum(), debited["debited_base"].sum()) == truth.debits
    opened = table[(table["way"] == "deposit") & table["session_id"].notna()]
    assert len(opened) == len(truth.sessions)


def test_an_order_is_charged_at_most_once_and_each_request_belongs_to_one(table):
    own = table[table["way"] == "payment"]
    assert set(own.loc[own["charged"], "paid_base"]) == {10_000}
    assert own["payment_id"].dropna().is_unique
    undone = table["served"] & ~table["charged"]
    assert undone.sum() <= 1, "for money that the reorganisation took back"
    assert (table.loc[table["served"], "waiting_s"] > 0).all()
    assert table.loc[~table["served"], "waiting_s"].isna().all()
    steps = day()[0].steps
    posts = steps[steps["method"] == "POST"]
    assert table["requests"].sum() == len(posts)
    assert table["attempts"].sum() == (posts["path"] == "/api/pay").sum()


ASKED = RequestSent("payer-1", 1, "service", "POST", "/quote")


def test_orders_are_followed_again_if_the_journal_grew_meanwhile_or_was_merged(monkeypatch):
    journal = Journal()
    with monkeypatch.context() as patch:  # as another thread records
        patch.setattr(orders, "_first_settled", lambda _: journal.record(1, ASKED) or {})
        assert not orders.orders_of(journal)
    assert len(orders.orders_of(journal)) == 1
    journal = Journal(limit=1)
    for at_ms in (0, 1):
        journal.record(at_ms, Note(name="ours"))
    assert not orders.orders_of(journal)
    journal.merge([Entry(0, 2, ASKED)])
    assert journal.length == 2, "as many as before"
    assert len(orders.orders_of(journal)) == 1


@pytest.mark.parametrize("version", [None, 1, 2])
def test_however_and_for_whatever_an_order_is_paid_its_row_is_the_chains(version):
    async def story(world: LiveWorld) -> None:
        alice = await world.payer("alice", balance="1.00")
        pays = PaymentAuth(alice.wallet, clock=world.clock, version=version, reuse=False)

        async def ask(method, path, json=None):
            return (await alice.http.request(method, path, json=json, auth=pays)).status_code

        for _ in range(2):
            await ask("GET", "/api/agents")
            assert await ask("GET", MARKET) == 200
            assert await ask("POST", QUOTE, json=ORDER) == 200
        await alice.open_session("0.05", 600)  # a deposit takes two steps
        await world.fault(Fault(victim="facilitator", does="refuse", times=None))
        with suppress(PaymentFailed):
            assert await ask("GET", MARKET) >= 500
        await world.heal()
        await world.advance(3600)

    run = World().play(story)
    table, paid = run.orders, run.transfers[run.transfers["kind"] == "payment"]
    assert list(table["resource"]) == [MARKET, QUOTE] * 2 + ["/api/sessions/create", MARKET]
    for column in "charged", "granted", "served":
        assert list(table[column]) == [True] * 5 + [False], column
    assert list(table["tx"][:5]) == list(paid["tx"])
    assert list(table["paid"][:5]) == list(paid["amount"])
    assert list(table["payments"]) == [1] * 5 + [0]
    assert list(table["attempts"]) == [1] * 6
    assert list(table["refunded"]) == [False] * 4 + [True, False]
    steps = run.steps
    assert table["requests"].sum() == (steps["path"] != "/api/agents").sum()


def test_who_sends_a_strangers_header_is_served_and_its_payer_is_charged():
    async def story(world: LiveWorld) -> None:
        alice, mallory = [await world.payer(name, balance="1.00") for name in ("alice", "mallory")]
        header = alice.sign(await alice.ask(), steps=1)
        assert (await mallory.ask(header=header)).status == 200
        assert (await alice.ask(payment_id=(await mallory.ask()).payment_id)).status == 402

    table = World().play(story).orders
    assert list(table["payer"]) == ["alice", "mallory", "mallory", "alice"]
    assert list(table["served"]) == [False, True, False, False]
    assert table["charged"].sum() == table["payments"].sum() == 1
    assert table["paid"].sum() == 0.01


def test_an_order_that_was_paid_twice_says_so():
    async def story(world: LiveWorld) -> None:
        policy = PayerPolicy(retry=NewAuthorization(times=1))
        alice = await world.payer("alice", balance="1.00", policy=policy)
        await world.fault(Fault(victim="facilitator", does="lose answer", path="/settle"))
        await alice.fetch()

    forgets = Settings(policy=ServicePolicy(lost_answer=Forget()))
    (order,) = World(service=forgets, invariants=False).play(story).orders.itertuples()
    assert (order.payments, order.paid, order.served, order.attempts) == (2, 0.02, True, 2)


def test_a_request_of_a_session_waits_for_as_long_as_its_answer_takes():
    orders, steps = run("sessions").orders, run("sessions").steps
    served = orders[(orders["way"] == "session") & orders["served"]]
    answers = steps[steps["session_id"].notna() & (steps["status"] == 200)]
    assert served["waiting_s"].tolist() == pytest.approx(answers["latency_s"].tolist())


def service_of(world: LiveWorld) -> Service:
    assert world.stage.parts is not None
    return world.stage.parts.service


def test_a_refund_of_two_parts_of_which_the_chain_undoes_one_is_counted_whole():
    async def story(world: LiveWorld) -> None:
        alice = await world.payer("alice", balance="5.00")
        session_id = (await alice.open_session("1.00", 60)).body["sessionId"]
        await alice.ask(session_id=session_id)
        await world.advance(100)
        undo_debit(service_of(world), session_id, 10_000, QUOTE)
        await world.advance(30)
        _, second = await world.transfers(to=alice)
        await world.reorg(2, drop=[second.tx_hash])
        await world.mine(1)
        await world.advance(400)
        assert await alice.balance() == 5_000_000

    found = World(seed=3).play(story)
    assert found.outcome == "passed", found.reason
    (undone,) = (each.event for each in found.journal if isinstance(each.event, RefundUndone))
    (first, _, again) = found.sessions.query("event == 'refunded'").itertuples()
    assert (undone.amount_base, first.refunded_base) == (10_000, 990_000)
    assert again.refunded_base == 1_000_000
    deposit = found.orders.iloc[0]
    assert (deposit["returned_base"], deposit["refund_tx"]) == (1_000_000, again.tx)


def test_a_debit_that_is_undone_late_is_that_of_the_order_that_hung_up():
    async def story(world: LiveWorld) -> None:
        alice = await world.payer("alice", balance="3.00")
        session_id = (await alice.open_session("1.00", 600)).body["sessionId"]
        store = service_of(world).store
        store.execute(
            "CREATE TEMP TRIGGER full BEFORE DELETE ON main.debits BEGIN SELECT no_space(); END"
        )
        await world.fault(Fault(victim="service", does="lose answer", path=QUOTE, times=1))
        await alice.ask(session_id=session_id)
        await alice.ask(session_id=session_id)
        store.execute("DROP TRIGGER full")
        await world.advance(30)

    found = World(seed=1).play(story)
    assert found.outcome == "passed", found.reason
    table = found.orders.query("way == 'session'")
    assert table["served"].tolist() == table["charged"].tolist() == [False, True]
