"""The benchmark: the sides it compares do the same, its numbers add up, and it leaves nothing running.

How fast anything is depends on the machine: nothing here asserts it.
"""

import json
import socket
import subprocess
import sys
from statistics import median
from typing import Any

import pandas as pd
import pytest
from click.testing import Result
from typer.testing import CliRunner

from tests.serve.driver import environment
from x402sim.bench import day, lifecycle, long, measure, served, signatures, sweeping
from x402sim.bench.lifecycle import TRANSPORTS, Totals
from x402sim.bench.recording import Recorder
from x402sim.bench.rounds import ROUNDS, Pace, race
from x402sim.cli import app
from x402sim.events import name_of


def bench(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["bench", *arguments])


# --- the transports ------------------------------------------------------------------


def test_every_transport_moves_the_same_money_in_the_same_transactions() -> None:
    outcomes = {name: lifecycle.totals(kind, 7) for name, kind in TRANSPORTS.items()}
    assert len(outcomes) == 3
    one = outcomes["direct"]
    assert one.earned_base == 7 * 10_000
    assert len(set(one.transfers)) == 7
    assert outcomes == dict.fromkeys(outcomes, one)


def test_http_transports_write_the_same_journal() -> None:
    hashes = set()
    for name in ("httpx", "plain ASGI"):
        world = TRANSPORTS[name]()
        world.work(3)
        hashes.add(world.parts.journal.sha256())
        world.close()
    assert len(hashes) == 1


def test_transports_with_different_totals_are_not_measured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def cheat(kind: Any, times: int) -> Totals:
        return Totals(("0x0",) * times, len(kind.__name__))

    monkeypatch.setattr(lifecycle, "totals", cheat)
    done = bench("--only", "lifecycles", "--seconds", "0.01")
    assert done.exit_code == 1
    assert "the transports differ" in done.stderr


def test_a_lifecycle_that_is_refused_is_not_counted() -> None:
    world = TRANSPORTS["plain ASGI"]()
    try:
        world.parts.chain.machine.state.balances.clear()
        with pytest.raises(AssertionError, match="Insufficient USDC balance"):
            world.work(1)
    finally:
        world.close()


def test_our_signatures_are_those_of_libsecp256k1() -> None:
    signatures.raw(2)
    signatures.ours(2)


# --- the rounds ----------------------------------------------------------------------


def test_every_contestant_runs_in_every_round() -> None:
    done = {"a": 0, "b": 0}

    def worker(name: str, effort: int) -> Any:
        def work(times: int) -> None:
            done[name] += times
            for _ in range(times):
                sum(range(effort))

        return work

    told: list[int] = []
    paces = race({"a": worker("a", 10), "b": worker("b", 10_000)}, 0.05, told.append)
    assert told == list(range(1, ROUNDS + 1))
    assert [len(pace.rates) for pace in paces.values()] == [ROUNDS, ROUNDS]
    assert paces["a"].ratio(paces["a"]) == 1
    assert paces["b"].ratio(paces["a"]) < 0.5, "it does a thousand times the work"
    assert min(done.values()) >= ROUNDS


def test_a_ratio_is_the_median_of_ratios_not_the_ratio_of_medians() -> None:
    ours, its = Pace("ours", (1.0, 2.0, 9.0)), Pace("its", (2.0, 2.0, 90.0))
    assert ours.per_s == 2
    assert ours.ratio(its) == median((0.5, 1.0, 0.1)) == 0.5


# --- the day -------------------------------------------------------------------------


def test_the_simulated_day_is_deterministic() -> None:
    hours: list[float] = []
    lived = day.simulate(30, 6, hours.append)
    again = day.simulate(30, 6)
    assert lived.journal_sha256 == again.journal_sha256
    assert hours[:6] == [0, 1, 2, 3, 4, 5]
    assert lived.virtual_s == pytest.approx(6 * 3600, abs=10), "and no longer"
    assert lived.speed_up == pytest.approx(lived.virtual_s / lived.real_s)
    assert lived.sessions > 0
    assert lived.debits >= lived.sessions > 0
    quotes = 2 * (lived.payments - lived.sessions)
    assert lived.requests > quotes > 30


def test_a_day_with_a_failed_check_has_no_result(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(day, "QUOTE", "/nowhere")
    with pytest.raises(RuntimeError, match="a check of the simulated day failed"):
        day.simulate(1, 24)


# --- the servers ---------------------------------------------------------------------


def test_both_servers_answer_and_are_stopped_afterwards() -> None:
    with served.askers() as askers:
        ports = [asker.port for asker in askers.values()]
        for asker in askers.values():
            asker.work(1)
            asker.work(100)
    assert len(set(ports)) == 2
    for port in ports:
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port), timeout=5)


def test_an_unexpected_answer_is_an_error() -> None:
    with served.askers() as askers:
        asker = askers[served.OURS]
        asker._wanted = b"HTTP/1.1 200"
        with pytest.raises(ConnectionError, match="an answer does not start with"):
            asker.work(3)


# --- the command ---------------------------------------------------------------------


QUICK = measure.PARTS[:-1]
"""A sweep starts three processes: one test does, which is enough."""
SMALL = ("--seconds", "0.05", "--payers", "3", "--hours", "2", "--payments", "20",
         *(f"--only={part}" for part in QUICK))  # fmt: skip


def test_json_has_all_the_numbers() -> None:
    done = bench("--json", *SMALL)
    assert done.exit_code == 0, done.output
    assert done.stderr == ""
    found = json.loads(done.stdout)
    assert list(found) == ["machine", *QUICK]
    assert set(found["machine"]) == {"python", "implementation", "system", "cpus", "keccak"}
    lifecycles, servers = found["lifecycles"], found["served"]
    assert [pace["name"] for pace in lifecycles["paces"]] == [
        measure.RAW, measure.OURS, *TRANSPORTS,
    ]  # fmt: skip
    assert [pace["name"] for pace in servers["paces"]] == [served.BARE, served.OURS]
    for pace in (*lifecycles["paces"], *servers["paces"]):
        assert set(pace) == {"name", "per_s", "us", "ratio", "rounds_per_s"}
        assert len(pace["rounds_per_s"]) == ROUNDS
        assert pace["per_s"] == median(pace["rounds_per_s"])
        assert pace["us"] == pytest.approx(1e6 / pace["per_s"])
    assert lifecycles["paces"][0]["ratio"] == servers["paces"][0]["ratio"] == 1
    assert all(pace["ratio"] < 1 for pace in lifecycles["paces"][2:]), "nothing passes the limit"
    transfers = lifecycles["outcome"]["transfers"]
    assert lifecycles["outcome"]["earned_base"] == 10_000 * len(set(transfers)) > 0
    journal = lifecycles["journal"]
    assert journal["events"] == len(Recorder().events)
    assert set(journal["share"]) == set(TRANSPORTS)
    assert all(0 < share < 0.5 for share in journal["share"].values())
    assert found["day"]["payers"] == 3
    assert found["day"]["virtual_s"] == pytest.approx(7200, abs=10)
    assert (found["long"]["payments"], len(found["long"]["us_each"])) == (20, 10)
    assert found["long"]["growth"] > 0


def test_the_table_explains_each_line_in_80_columns() -> None:
    done = bench(*SMALL)
    assert done.exit_code == 0, done.output
    lines = done.stdout.splitlines()
    assert max(map(len, lines)) <= 80
    for name in (measure.RAW, measure.OURS, *TRANSPORTS, served.BARE, served.OURS):
        (place,) = [number for number, line in enumerate(lines) if line.startswith(name + " ")]
        assert lines[place + 1].startswith("  "), f"{name} is not explained"
    assert "3 payers, 2 h simulated, one process" in lines
    (place,) = [n for n, line in enumerate(lines) if line.startswith("20 payments in one run, ")]
    told = [line[2:20].rstrip() for line in lines[place + 1 : place + 4]]
    assert told == ["CPU us a payment", "growth", "memory a payment"]
    (place,) = [number for number, line in enumerate(lines) if line.startswith("The journal")]
    assert lines[place + 1].count("%") == len(TRANSPORTS)


def test_only_what_is_asked_for_is_measured() -> None:
    found = json.loads(bench("--json", "--only", "day", "--payers", "1", "--hours", "1").stdout)
    assert list(found) == ["machine", "day"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--only", "moon"), "unknown part 'moon'. Possible: lifecycles, served, day, long, sweep"),
        (("--payers", "0"), "--payers"),
        (("--hours", "0"), "--hours"),
        (("--seconds", "0"), "--seconds"),
        (("--payments", "9"), "--payments"),
        (("--points", "0"), "--points"),
    ],
)
def test_misuse(arguments: tuple[str, ...], says: str) -> None:
    done = bench(*arguments)
    assert done.exit_code == 2
    assert done.stdout == ""
    assert says in done.stderr


def test_in_a_pipe_there_is_only_the_table() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "x402sim", "bench", "--only", "day", "--payers", "1", "--hours", "1"],
        capture_output=True, text=True, check=True, env=environment(),
    )  # fmt: skip
    assert done.stderr == ""
    assert "\x1b" not in done.stdout


# --- the long run ----------------------------------------------------------------------


@pytest.mark.thorough
def test_a_long_run_counts_its_payments_tenths_and_memory() -> None:
    shares: list[float] = []
    ran = long.simulate(40, shares.append)
    assert (ran.payments, len(ran.us_each)) == (40, 10)
    assert shares == pytest.approx([n / 10 for n in range(11)])
    assert all(us > 0 for us in ran.us_each)
    assert ran.growth == ran.us_each[-1] / ran.us_each[2]
    assert ran.journal_sha256 == long.simulate(40).journal_sha256


def test_a_long_run_with_a_failed_check_has_no_result(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(long, "PAYERS", 0)
    with pytest.raises(RuntimeError, match="a check of the long run failed"):
        long.simulate(10)


@pytest.mark.thorough
def test_the_cost_and_the_memory_of_a_payment_do_not_grow() -> None:
    """A cost that grew with the run would be a multiple; other tests count the work exactly."""
    ran = long.simulate(20_000)
    assert ran.growth < 2, ran.us_each
    assert ran.bytes_each is not None
    assert ran.bytes_each <= 4000


# --- the sweep -------------------------------------------------------------------------


def test_a_sweep_is_measured_in_one_process_and_in_two() -> None:
    done = bench("--only", "sweep", "--points", "3")
    assert done.exit_code == 0, done.output
    head, one, two = done.stdout.splitlines()[2:]
    assert head == "3 points of a sweep, in fresh processes"
    one_s, two_s = (float(line[20:].split(" s, ")[0]) for line in (one, two))
    assert one.startswith("  one process       ")
    assert one.endswith(" ms each")
    assert float(two.split()[-4]) == pytest.approx(one_s / two_s, rel=0.2)


def test_other_results_in_two_processes_are_no_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    frames = iter([pd.DataFrame({"value": [1]}), pd.DataFrame({"value": [2]})])
    monkeypatch.setattr(sweeping, "sweep", lambda *_, **__: next(frames))
    with pytest.raises(RuntimeError, match="other results than one"):
        sweeping.measure(1)


# --- the journal -----------------------------------------------------------------------


def test_the_journals_share_is_that_of_a_whole_lifecycle() -> None:
    recorder = Recorder()
    kinds = [name_of(event) for event in recorder.events]
    assert kinds.count("answer sent") == 7, (
        "402, the node twice, verify, settle, receipt, the quote"
    )
    assert {"payment settled", "transaction mined", "transfer"} <= set(kinds)
    recorder.work(3)
