"""A world to play in: what it says when it is held wrongly, and what it never lets pass."""

import asyncio
import json
import math
import pickle
import re
from dataclasses import FrozenInstanceError, replace
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from tests.world.playing import play, played, quote
from x402sim import (
    MAINNET,
    Decisions,
    Fault,
    LiveWorld,
    LocalServer,
    Payer,
    Run,
    Settings,
    World,
    events,
)
from x402sim.chain.base import Call
from x402sim.chain.contract import MULTICALL
from x402sim.durations import duration_of
from x402sim.payer.core import PaymentFailed
from x402sim.protocol import abi
from x402sim.report.reading import checks_of
from x402sim.rng import Rng
from x402sim.service import payments
from x402sim.service.store.payment_records import Attempt, PaymentRecords
from x402sim.service.store.session_budgets import SessionBudgets
from x402sim.serving.listen import Listen
from x402sim.story import invariants, play as idle_timeout
from x402sim.story.payer import Answer
from x402sim.text.program import shown
from x402sim.world.scenario import Scenario


async def idle(_: World) -> None:
    """A story in which nothing happens."""


# --- held wrongly --------------------------------------------------------------------


def test_without_a_control_api_the_error_names_the_action() -> None:
    bare = LocalServer()
    bare._listen = Listen(host="0.0.0.0", port=0)

    async def story(world: LiveWorld) -> None:
        assert (await (await world.payer("alice", balance="1.00")).ask()).status == 402
        with pytest.raises(RuntimeError, match="has no control API, which 'transfers' needs"):
            await world.transfers()

    with bare:
        play(story, on=bare.url)


# --- what a run says -----------------------------------------------------------------


def test_a_check_says_what_was_seen_and_what_was_wanted() -> None:
    async def story(world: LiveWorld) -> None:
        alice = await world.payer("alice")
        first = await alice.ask()
        world.expect(first, 402, "1/unpaid-402")
        await alice.ask()
        world.expect(first, 200, "1/repeat-served")
        world.expect(first, "Payment Required", "2.2/body")
        world.expect(first.reason, "", "2.2/body", about=first)
        world.expect([1], [1, 2], "5/window")

    run = World(seed=1).play(story)
    assert (run.outcome, run.reason) == ("failed", "2 of 5 checks did not hold")
    assert [(c.clause, c.ok, c.expected, c.actual, c.exchange) for c in checks_of(run.journal)] == [
        ("1/unpaid-402", True, 402, 402, 1),
        ("1/repeat-served", False, 200, 402, 1),
        ("2.2/body", True, "Payment Required", "Payment Required", 1),
        ("2.2/body", True, "", "", 1),
        ("5/window", False, "[1, 2]", "[1]", 2),
    ]


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (Answer(None, {}, 1, broken="ReadTimeout"), "the request was not answered (ReadTimeout)"),
        (Answer(500, {"error": "Internal error"}, 1), "the answer was 500 (Internal error)"),
        (Answer(200, {}, 1), "the answer was 200"),
    ],
)
def test_an_answer_says_why_it_has_no_such_field(answer: Answer, why: str) -> None:
    with pytest.raises(PaymentFailed, match=re.escape(f"no payment id: {why}")):
        _ = answer.payment_id
    for read in (lambda: answer.requirements, lambda: answer.price_base):
        with pytest.raises(PaymentFailed, match=re.escape(f"no 402 to pay: {why}")):
            read()


def test_a_scenario_that_checks_nothing_has_failed() -> None:
    run = World().play(Scenario("lazy", "lazy", ("5/window",), "", (), idle))
    assert (run.outcome, run.reason) == ("failed", "it checked nothing")
    assert World().play(idle).outcome == "passed", "but a story need not check anything"


def test_a_world_is_frozen_and_shows_options_and_what_differs_but_no_phrase() -> None:
    world = World(seed=7, on="tcp", mnemonic="hush", latency={"rpc": 0.1}, file="world.db")
    with pytest.raises(FrozenInstanceError):
        world.seed = 8  # type: ignore[misc]
    shown = "World(seed=7, on='tcp', latency={'rpc': 0.1}, file='world.db')"
    assert repr(world) == shown
    assert repr(replace(world, seed=8)) == shown.replace("7", "8")
    assert {"seed", "service", "play"} <= set(dir(world))
    assert not {"backend", "latencies", "first_facilitator"} & set(dir(world))


def test_what_is_played_on_a_file_is_continued(tmp_path: Path) -> None:
    paid: list[int] = []

    async def story(world: LiveWorld) -> None:
        alice = await world.payer("alice", balance="1.00")
        paid.append(await world.balance(world.merchant))
        world.expect(await alice.buy(), 200, "4.1/receipt")

    world = World(seed=1, file=tmp_path / "world.db")
    for _ in range(2):
        world.play(story).raise_for_failure()
    assert paid == [0, 10_000]


def test_a_run_can_be_kept_and_read_again(tmp_path: Path) -> None:
    run = World(seed=7).play(quote)
    file = tmp_path / "journal.ndjson"
    file.write_bytes(run.journal.ndjson())
    for again in Run.load(file), pickle.loads(pickle.dumps(run)):
        assert again.sha256 == run.sha256 == run.journal.sha256()
        assert (again.name, again.seed, again.outcome) == ("quote", 7, "passed")
        assert checks_of(again.journal) == checks_of(run.journal)
        assert again.payments.equals(run.payments)
    assert run.command == f"{shown()} run playing.py:quote --on in-process --seed 7"


def test_a_run_of_a_renamed_file_has_the_same_journal(tmp_path: Path) -> None:
    """What made a journal stands beside it, also while it grows, in a saved run and a bundle."""
    told = "async def story(world):\n    await (await world.payer('alice', balance='1.00')).buy()\n"
    runs = []
    for name in ("one", "other"):
        (tmp_path / f"{name}.py").write_text(told)
        journal = tmp_path / f"{name}.ndjson"
        run = World(seed=7, journal=journal).play(f"{tmp_path / name}.py:story")
        for each in run, Run.load(journal), pickle.loads(pickle.dumps(run)):
            assert f" run {name}.py:story " in each.command
        runs.append(run)
    assert runs[0].sha256 == runs[1].sha256
    assert (tmp_path / "one.ndjson").read_bytes() == (tmp_path / "other.ndjson").read_bytes()


def test_a_world_with_options_prints_the_program_that_repeats_it() -> None:
    run = World(
        seed=2,
        network=MAINNET,
        latency={"service": (0.05, 0.4)},
        service=Settings(decisions=Decisions(short_session_status=403)),
        without=(("freshness", "2.1/validity"),),
    ).play("expired_window")
    assert "network=MAINNET" in run.command
    assert "decisions=Decisions(short_session_status=403)" in run.command
    names = {"World": World, "Settings": Settings, "Decisions": Decisions, "MAINNET": MAINNET}
    assert eval(run.command, names).sha256 == run.sha256


def test_a_journal_without_an_end_is_no_run(tmp_path: Path) -> None:
    file = tmp_path / "journal.ndjson"
    file.write_bytes(b"".join(World().play(idle).journal.ndjson().splitlines(keepends=True)[:-1]))
    with pytest.raises(ValueError, match="this journal has 0 'end' events"):
        Run.load(file)


# --- the same, and not the same ------------------------------------------------------


def first_crossings_s(facilitator: float, seed: int = 1) -> list[float]:
    """Return how long the first request of each of five payers takes."""

    async def story(world: LiveWorld) -> None:
        payers = [await world.payer(f"payer {n}", balance="1.00") for n in range(5)]
        await asyncio.gather(*(each.buy() for each in payers))

    latency = {"service": (0.05, 0.5), "facilitator": facilitator}
    return play(story, seed=seed, latency=latency).steps["latency_s"].to_list()[:5]


def test_every_payer_and_every_hop_has_its_own_random_stream() -> None:
    """More latency to the facilitator, and the payers' own links draw the same."""
    took_s = first_crossings_s(0.1)
    assert len(set(took_s)) == 5
    assert took_s == first_crossings_s(3.0)
    assert set(took_s).isdisjoint(first_crossings_s(0.1, seed=2))


def test_a_url_gives_its_own_view_too(server: LocalServer) -> None:
    """The journal behind a URL is merged in: only what happened since, each at its time."""
    play(quote, on=server.url)
    run = play(quote, on=server.url)
    assert len(list(run.journal.events(events.PaymentSettled))) == 1
    assert len(list(run.journal.events(events.Transfer))) == 2, "one is the mint"
    assert [entry.seq for entry in run.journal] == list(range(len(run.journal)))
    *happened, end = run.journal
    assert isinstance(happened[0].event, events.Begin)
    assert isinstance(end.event, events.End)
    assert happened == sorted(happened, key=lambda entry: entry.at_ms)
    assert run.on == server.url


# --- latency -------------------------------------------------------------------------


def test_an_impossible_latency_is_refused_when_it_is_drawn() -> None:
    for drawn in (-0.1, math.nan, math.inf, "soon", None):
        with pytest.raises(ValueError, match="a duration is a finite number of seconds from 0"):
            duration_of(lambda stream, drawn=drawn: drawn)(Rng(1).stream("wire"))


class Triangular:
    """A distribution as scipy.stats freezes one: its name, its arguments, and its quantiles."""

    dist = SimpleNamespace(name="triang")
    args = (0.5,)
    kwds = {"loc": 0.1, "scale": 0.2}

    def ppf(self, q: float) -> float:
        return 0.1 + 0.2 * (math.sqrt(q / 2) if q < 0.5 else 1 - math.sqrt((1 - q) / 2))


class Seeded:
    def rvs(self, *, random_state: int) -> float:
        return Random(random_state).uniform(1, 2)


def test_the_journal_names_a_distribution_without_its_address() -> None:
    latency = {"service": Triangular(), "facilitator": lambda stream: 0.1, "rpc": Seeded()}
    runs = [play(quote, latency=latency) for _ in range(2)]
    assert runs[0].sha256 == runs[1].sha256
    (begin,) = runs[0].journal.events(events.Begin)
    assert begin.options["latency"] == (
        "{'service': triang(0.5, loc=0.1, scale=0.2), "
        "'facilitator': test_the_journal_names_a_distribution_without_its_address.<lambda>, "
        "'rpc': Seeded(...)}"
    )


def test_each_hop_takes_its_time_both_ways() -> None:
    latency = {"service": 1.0, "facilitator": 0.25, "rpc": 3.0, "explorer": 0.125}
    took = play(quote, latency=latency).latency
    assert dict(zip(took["path"], took["latency_s"], strict=True)) == {
        "/api/perp/quote": 2,
        "/api/pay": 2 + 6 + 2 * 0.5,
        "eth_call": 6,
        "/v2/x402/verify": 0.5,
        "/v2/x402/settle": 0.5,
    }


def test_latencies_are_drawn_as_they_were_given() -> None:
    luck = Rng(1).stream("luck")
    assert {duration_of(0.5)(luck) for _ in range(9)} == {0.5}
    assert {duration_of([0.1, 0.2])(luck) for _ in range(99)} == {0.1, 0.2}
    drawn = sorted(duration_of((0.1, 0.5))(luck) for _ in range(4001))
    assert drawn[2000] == pytest.approx(0.1, rel=0.05), "the median"
    assert drawn[int(4001 * 0.8413)] == pytest.approx(0.1 * math.exp(0.5), rel=0.08), "one sigma"


def test_a_caller_that_times_out_gets_an_error_and_the_work_goes_on() -> None:
    async def story(world: LiveWorld, alice: Payer) -> None:
        required = await alice.ask()
        alice.http.timeout = 1.5
        timed_out = await alice.pay(required)
        assert (timed_out.status, timed_out.error) == (None, "ReadTimeout")
        await world.clock.sleep(5)
        alice.http.timeout = 60
        assert (await alice.ask(payment_id=required.payment_id)).status == 200

    run = play(story, latency={"facilitator": 0.5})
    (gave_up,) = run.journal.events(events.NoAnswer)
    assert (gave_up.actor, gave_up.reason) == ("alice", "timeout")


def test_a_timeout_of_the_service_is_in_the_journal() -> None:
    async def story(world: LiveWorld, alice: Payer) -> None:
        assert (await alice.buy()).error == "Facilitator unreachable"

    run = play(story, latency={"facilitator": 20})
    assert next(run.journal.events(events.NoAnswer)).reason == "given up"
    lost = run.latency.query("outcome == 'lost'").iloc[0]
    assert lost.ended_s - lost.sent_s == 30, "as long as it waits for a verification"


# --- what must hold, and what happens when it does not -------------------------------


def broken(run: Run) -> list[str]:
    assert run.outcome == "failed", "an invariant that does not hold fails the run"
    return [check.clause for check in checks_of(run.journal) if not check.ok]


@played()
async def test_many_mints_in_a_block_and_a_reorganisation_are_no_new_money(
    world: LiveWorld,
) -> None:
    await world.mining(automine=False)
    alice = await world.payer("alice", balance="1.00")
    await world.payer("bob", balance="2.00")
    await world.mine()
    await world.mining(automine=True)
    assert (await alice.buy()).status == 200
    await world.reorg(2)
    mint, *_ = world.stage.journal.of(events.Transfer)
    await world.reorg(2, drop=[mint.event.tx_hash])
    await world.payer("carol", balance="3.00")


@pytest.mark.parametrize("at_block_time", [True, False])
def test_a_call_has_the_time_of_the_newest_block_or_of_now(at_block_time: bool) -> None:
    asked = Call(MULTICALL, MULTICALL, abi.selector("getCurrentBlockTimestamp()"))

    async def story(world: LiveWorld) -> None:
        await world.clock.sleep(30)
        chain = world.stage.parts.chain
        head = await chain.block(await chain.height())
        late_s = int.from_bytes(await chain.call(asked)) - head.timestamp_s
        assert late_s == (0 if at_block_time else 30)

    run = World(calls_at_block_time=at_block_time).play(story)
    assert run.outcome == "passed"
    (begin,) = (each.event for each in run.journal.of(events.Begin))
    assert begin.options == ({"calls_at_block_time": "True"} if at_block_time else {})


@pytest.mark.parametrize(("held_base", "too_much"), [(5_000_000, 4_000_000), (20_000, -980_000)])
def test_money_from_nowhere_or_gone_is_seen(held_base: int, too_much: int) -> None:
    async def story(world: LiveWorld) -> None:
        alice = await world.payer("alice", balance="1.00")
        state = world.stage.parts.chain.machine.state
        state.put(state.balances, alice.wallet.address_bytes, held_base)
        await alice.buy()
        await alice.buy()

    run = World(seed=1).play(story)
    assert broken(run) == [invariants.CONSERVED], "and told once"
    (check,) = checks_of(run.journal)
    assert int(check.actual.split()[0]) - int(check.expected.split()[0]) == too_much


def test_a_debit_that_does_not_look_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def debit(sessions: SessionBudgets, session_id: str, amount: int, *_: Any) -> int:
        sessions._db.execute("PRAGMA ignore_check_constraints = ON")
        sessions._db.execute("UPDATE sessions SET released = released + ?", amount)
        return sessions.get(session_id).released

    async def story(world: LiveWorld) -> None:
        alice = await world.payer("alice", balance="1.00")
        session = await alice.open_session("0.01", 600)
        asked = (alice.ask(session_id=session.body["sessionId"]) for _ in range(2))
        await asyncio.gather(*asked)

    monkeypatch.setattr(SessionBudgets, "debit", debit)
    monkeypatch.setattr(SessionBudgets, "has_budget", lambda *_: True)
    assert broken(World(seed=1).play(story)) == [invariants.WITHIN_DEPOSIT]


async def settles_with(world: LiveWorld, **told: str) -> None:
    """Have the facilitator answer Alice's settlement without doing it."""
    alice = await world.payer("alice", balance="1.00")
    bob = await world.payer("bob")
    sent = await alice.transfer(bob.address, "0.01")
    required = await alice.ask()
    wanted = required.requirements
    receipt = {
        "x402Version": 1, "event": "payment.settled", "txHash": sent.tx_hash,
        "from": alice.address, "to": wanted["payTo"], "value": wanted["maxAmountRequired"],
        "blockNumber": 1, "network": wanted["network"], "timestamp": "now", **told,
    }  # fmt: skip
    fault = Fault(
        victim="facilitator", path="/settle", does="answer", status=200, body=json.dumps(receipt)
    )
    await world.fault(fault)
    assert (await alice.pay(required)).status == 200


@pytest.mark.parametrize("told", [{}, {"txHash": "0x" + "12" * 32}], ids=["to bob", "nowhere"])
def test_a_grant_without_a_transfer_is_seen(told: dict[str, str]) -> None:
    run = World(seed=1).play(lambda world: settles_with(world, **told))
    assert broken(run) == [invariants.GRANTED_IF_PAID]
    assert checks_of(play(settles_with, invariants=False).journal) == [], "switched off"


def test_two_transfers_for_one_payment_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    async def forgetful(*_: object) -> None:
        """Find no earlier attempt."""

    async def unused(*_: object) -> bool:
        """Report that the nonce is not used."""
        return True

    def insert_pending(stored: PaymentRecords, wanted: Attempt) -> Attempt | None:
        """Forget earlier attempts, as a service without a record would."""
        stored._db.execute("DELETE FROM payments WHERE payment_id = ?", wanted.payment_id)
        return honest(stored, wanted)

    async def story(world: LiveWorld) -> None:
        alice = await world.payer("alice", balance="1.00")
        required = await alice.ask()
        for _ in range(2):
            assert (await alice.pay(required)).status == 200

    honest = PaymentRecords.insert_pending
    monkeypatch.setattr(PaymentRecords, "insert_pending", insert_pending)
    monkeypatch.setattr(payments, "resume_earlier", forgetful)
    monkeypatch.setattr(payments, "is_unused", unused)
    assert broken(World(seed=1).play(story)) == [invariants.PAID_ONCE]


# --- a story that waits in vain ---------------------------------------------------------------


@pytest.fixture
def short_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(idle_timeout, "IDLE_TIMEOUT_S", 7200)


@pytest.mark.usefixtures("short_timeout")
def test_a_story_that_waits_forever_times_out() -> None:
    """Something of its own keeps it alive, but it makes no request any more."""

    async def forlorn(world: LiveWorld) -> None:
        alice = await world.payer("alice", balance="1.00")
        await alice.ask()
        while True:
            await asyncio.sleep(600)

    run = World().play(forlorn)
    said = "the scenario made no request for 2 hours of simulated time"
    assert (run.outcome, run.reason) == ("failed", f"TimeoutError: {said}")
    (error,) = run.journal.events(events.StoryRaised)
    assert any(line.endswith("forlorn: await asyncio.sleep(600)") for line in error.trace)


@pytest.mark.usefixtures("short_timeout")
def test_time_that_a_story_lets_go_by_is_not_waiting_nor_is_its_own_timeout() -> None:
    async def hasty(world: LiveWorld) -> None:
        await world.advance(7_400)
        await asyncio.sleep(7_000)
        async with asyncio.timeout(5):
            await asyncio.Event().wait()

    assert World().play(hasty).reason == "TimeoutError: "


def test_the_id_that_the_service_reads_is_the_id_in_the_journal() -> None:
    async def story(world: LiveWorld, alice: Payer) -> None:
        asked = await alice.ask()
        await alice.send("POST", "/api/pay", json={"paymentId": asked.payment_id},
                         headers={"X-Payment-Id": "pay_other"})  # fmt: skip
        await alice.pay(asked, payment_id="pay_" + "x" * 300)

    run = play(story)
    asked = run.journal.events(events.RequestSent)
    sent = [each.payment_id for each in asked if "pay" in each.path]
    assert sent[0] != "pay_other"
    (refused,) = run.journal.events(events.PaymentRefused)
    assert refused.payment_id == sent[1]
