"""The benchmark: the sides it compares do the same, its numbers add up, and it leaves nothing running.

How fast anything is depends on the machine: nothing here asserts it.
"""

import socket
from statistics import median
from typing import Any

import pandas as pd
import pytest

from tests.bench import day, lifecycle, long, served, sweeping
from tests.bench.__main__ import MEANING, OURS, PAID, RAW, main
from tests.bench.rounds import ROUNDS, Pace, race
from x402sim.events import PaymentSettled, RequestSent, TransactionMined
from x402sim.world.story.payer import Payer

# --- the lifecycles ------------------------------------------------------------------


def test_so_many_requests_are_paid_for(monkeypatch: pytest.MonkeyPatch) -> None:
    assert sum(1 for _ in lifecycle.pay(3).journal.of(PaymentSettled)) == 3
    monkeypatch.setattr(Payer, "buy", None)
    with pytest.raises(AssertionError, match="a check of the lifecycles failed"):
        lifecycle.pay(1)


def test_the_journals_share_is_that_of_a_whole_lifecycle() -> None:
    events = lifecycle.Recorder().events
    assert {RequestSent, TransactionMined, PaymentSettled} <= {type(event) for event in events}


def test_the_table_explains_each_line_in_80_columns(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("coincurve", reason="the yardstick has no wheel for Python 3.14 yet")
    main(["--only", "lifecycles", "--seconds", "0.01"])
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    for name in (RAW, OURS, PAID):
        (place,) = [number for number, line in enumerate(lines) if line.startswith(name + " ")]
        assert lines[place + 1].strip() == MEANING[name]


# --- the rounds ----------------------------------------------------------------------


def test_every_contestant_runs_in_every_round() -> None:
    def worker(effort: int) -> Any:
        return lambda times: [sum(range(effort)) for _ in range(times)]

    paces = race({"a": worker(10), "b": worker(10_000)}, 0.05)
    assert [len(pace.rates) for pace in paces.values()] == [ROUNDS, ROUNDS]
    assert paces["b"].ratio(paces["a"]) < 0.5, "it does a thousand times the work"


def test_a_ratio_is_the_median_of_ratios_not_the_ratio_of_medians() -> None:
    ours, its = Pace((1.0, 2.0, 9.0)), Pace((2.0, 2.0, 90.0))
    assert ours.per_s == 2
    assert ours.ratio(its) == median((0.5, 1.0, 0.1)) == 0.5


# --- the day, the long run and the sweep -----------------------------------------------


def test_the_simulated_day_is_deterministic() -> None:
    lived, again = day.simulate(6, 4), day.simulate(6, 4)
    assert lived.journal_sha256 == again.journal_sha256
    assert lived.virtual_s == pytest.approx(4 * 3600, abs=10), "and no longer"
    assert lived.debits >= lived.sessions > 0
    assert lived.requests > 2 * (lived.payments - lived.sessions) > 0


def test_a_run_with_a_failed_check_has_no_result(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(day, "QUOTE", "/nowhere")
    with pytest.raises(AssertionError, match="a check of the simulated day failed"):
        day.simulate(1, 24)
    monkeypatch.setattr(long, "PAYERS", 0)
    with pytest.raises(AssertionError, match="a check of the long run failed"):
        long.simulate(10)


def test_a_long_run_counts_its_payments_and_tenths(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(long, "PAYERS", 3)
    ran = long.simulate(20)
    assert (ran.payments, len(ran.us_each)) == (20, 10)
    assert all(us > 0 for us in ran.us_each)
    assert ran.growth == ran.us_each[-1] / ran.us_each[2]


@pytest.mark.thorough
@pytest.mark.timeout(400)  # 20,000 payments take about two minutes
def test_the_cost_and_the_memory_of_a_payment_do_not_grow() -> None:
    """A cost that grew with the run would be a multiple; other tests count the work exactly."""
    ran = long.simulate(20_000)
    assert ran.growth < 2, ran.us_each
    assert ran.bytes_each is not None
    assert ran.bytes_each <= 4000


@pytest.mark.thorough
def test_a_sweep_is_measured_in_one_process_and_in_two() -> None:
    head, *_ = sweeping.measure(3).lines()
    assert head == "3 points of a sweep, in fresh processes"


def test_other_results_in_two_processes_are_no_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    frames = iter([pd.DataFrame({"value": [1]}), pd.DataFrame({"value": [2]})])
    monkeypatch.setattr(sweeping, "sweep", lambda *_, **__: next(frames))
    with pytest.raises(AssertionError, match="other results than one"):
        sweeping.measure(1)


# --- the servers ---------------------------------------------------------------------


def test_both_servers_answer_and_are_stopped_afterwards() -> None:
    with served.askers() as askers:
        ports = [asker.port for asker in askers.values()]
        for asker in askers.values():
            asker.work(1)
            asker.work(100)
        askers[served.OURS]._wanted = b"HTTP/1.1 200"
        with pytest.raises(ConnectionError, match="an answer does not start with"):
            askers[served.OURS].work(3)
    for port in ports:
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port), timeout=5)
