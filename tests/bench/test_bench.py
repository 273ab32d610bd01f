"""The benchmark: its sides do the same, its numbers add up, and it leaves nothing running.

How fast anything is depends on the machine: only the thorough tests assert it, with wide margins.
"""

import re
import socket
from dataclasses import replace
from pathlib import Path

import pytest

from tests.bench import __main__ as command, lifecycle, pairs, served, size
from tests.bench.rounds import Measured, NotMeasured
from tests.bench.rows import GUARDED_SINCE, QUICK, ROWS, Bench
from x402sim.events import PaymentSettled, SessionDebited
from x402sim.story.payer import Payer

# --- the sides -------------------------------------------------------------------------


def test_a_payment_of_each_kind_moves_the_same_money() -> None:
    place = lifecycle.Place()
    service = place.parts.service
    for number, work in enumerate([place.direct(), place.asgi(), place.httpx()], 1):
        assert work(1) > 0
        assert service.store.counts()["payments"] == number
        balances = place.parts.chain.machine.state.balances
        assert balances[service.env.pay_to] == number * service.env.quote_price_base


def test_payments_that_fail_are_no_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    assert lifecycle.buy(3, payers=2) > 0
    assert sum(1 for _ in size.play(2, 3).journal.of(PaymentSettled)) == 3
    assert sum(1 for _ in lifecycle.simulate(6, 4).journal.of(SessionDebited)) > 0
    monkeypatch.setattr(Payer, "buy", None)
    with pytest.raises(AssertionError, match="a check of the payments failed"):
        lifecycle.buy(1)
    monkeypatch.setattr(lifecycle, "QUOTE", "/nowhere")
    with pytest.raises(AssertionError, match="a check of the simulated day failed"):
        lifecycle.simulate(1, 24)


@pytest.mark.thorough
def test_the_servers_answer_and_are_stopped_afterwards() -> None:
    with served.Servers() as servers:
        for work in (servers.bare, servers.unpaid, servers.quotes, servers.payments):
            assert work(served.CONNECTIONS + 1) > 0
            assert work(1) > 0, "a row that was too slow is measured a second time"
        with pytest.raises(ConnectionError, match="wanted 200, a server answered 402"):
            served.exchange(servers.port, [served.request(served.QUOTE, served.BODY)], 200)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", servers.port), timeout=5)


@pytest.mark.thorough
def test_every_other_purchase_is_logged_and_its_log_is_counted() -> None:
    with served.Purchases(2) as buy:
        lines = []
        for _ in range(2):
            logged_s, unlogged_s = buy.round()
            assert min(logged_s, unlogged_s) > 0
            lines.append(buy.server.errors().count("POST /api/"))
        assert buy.wrote_s > 0
    assert lines == [12, 18]


# --- the rows --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "values", "worse"),
    [("402", (0.56, 0.41, 0.39), 0.69), ("help", (1.9, 2.9, 3.1), 1 / 0.69)],
)
def test_a_value_is_held_against_aim_and_floor_and_kept_unless_it_is_30_percent_worse(
    name: str, values: tuple[float, ...], worse: float
) -> None:
    row = ROWS[name]
    assert [row.status(value) for value in values] == ["above aim", "above floor", "below floor"]
    fair, bad = (Measured((row.guarded * factor,)) for factor in (1, worse))
    assert row.is_kept(fair)
    assert not row.is_kept(bad)
    assert replace(row, guarded=None).is_kept(bad)


@pytest.mark.parametrize(
    ("name", "here", "is_kept", "shown"),
    [
        ("402", [0.30, 0.34], True, "0.3 / 0.4 = 0.75, 0.34 / 0.4 = 0.85"),
        ("402", [0.30, 0.31, 0.32, 0.4], False, "0.32 / 0.4 = 0.80: too much worse"),
        ("help", [0.40, 0.60], True, "help      0.4 / 0.4 = 1.00"),
        ("help", [0.50, 0.48, 0.60], False, "0.6 / 0.4 = 1.50: too much worse"),
        ("help", [None], True, "not compared: 0.4 there, None here"),
    ],
)
def test_a_row_fails_if_three_pairs_with_a_commit_are_15_percent_worse(
    monkeypatch: pytest.MonkeyPatch, name: str, here: list[float | None], is_kept: bool, shown: str
) -> None:
    values = iter(here)
    there = Path("of a commit")
    monkeypatch.setattr(pairs, "value", lambda _, tree: 0.4 if tree is there else next(values))
    line, found = pairs.compared(name, ROWS[name], there)
    assert (found, shown in line) == (is_kept, True), line


@pytest.mark.thorough
def test_the_quick_form_fails_for_a_slow_row_and_names_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    values = iter([0.01, 0.02])  # the second try is as bad

    def slow(_: Bench) -> Measured:
        value = next(values)
        return Measured((value,), 0.003, 0.00006)

    def absent(_: Bench) -> Measured:
        raise NotMeasured("no coincurve")

    monkeypatch.setitem(ROWS, "402", replace(ROWS["402"], measure=slow))
    monkeypatch.setitem(ROWS, "world", replace(ROWS["world"], measure=absent))
    page = tmp_path / "speed.md"
    only = ["--only", "402", "--only", "world"]
    assert command.main(["--quick", *only, "--write", str(page)]) == 1
    out, err = capsys.readouterr()
    assert err.startswith(
        f"402: measured 0.02 at the second try, guarded is {ROWS['402'].guarded}: "
    )
    assert err.count("\n") == 1
    assert re.search(r"^402 +0\.02 ", out, re.MULTILINE)
    assert "  not measured: no coincurve\n" in out
    assert "a 402, CPU of the server: 3,000 µs; a bare uvicorn: 60.0 µs" in page.read_text("utf-8")


def test_a_full_run_keeps_the_rows_that_only_a_request_measures() -> None:
    old = command.renewed("", {"402": ["402 1"], "million": ["million 2"]}, where="2026-01-01")
    page = command.renewed(old, {"world": ["world 3"]}, where="2026-01-02")
    assert page == f"2026-01-02\n\n```text\n{command.COLUMNS}\nworld 3\nmillion 2\n```\n"


def test_the_page_has_every_row_and_a_date() -> None:
    """Its numbers were measured; that its rows are the benchmark's can be checked."""
    page = command.PAGE.read_text("utf-8")
    assert f"measured on {GUARDED_SINCE}" in page, "its words are written by hand"
    shown = re.findall(r"^(\w+) +[\d.,]+x? .*  (?:above aim|(?:above|below) floor)$", page, re.M)
    assert shown == [*ROWS], "python -m tests.renew --only speed"
    assert re.search(r"^20\d\d-\d\d-\d\d, Python 3", page, re.M)


# --- what takes long --------------------------------------------------------------------


@pytest.mark.campaign
@pytest.mark.timeout(400)  # 10,000 payments take most of a minute
def test_the_cost_and_the_memory_of_a_payment_do_not_grow() -> None:
    """A cost that grew with the run would be a multiple; CI measures the rows `growth` and `joined`."""
    found = size.in_processes(100, 10_000)
    assert found["flat"] < 2
    assert found["bytes"] <= 4000


@pytest.mark.campaign
def test_the_rows_of_the_full_form_can_be_measured() -> None:
    """CI measures the others."""
    with Bench(replace(QUICK, payers=20)) as bench:
        assert 0 < ROWS["payers"].measure(bench).value < 60
        assert 10 < ROWS["memory"].measure(bench).value < 250
        assert {*bench.facilitators} == {"ours", "anvil", "npm", "pypi"}
        assert 0 < ROWS["anvil"].measure(bench).value < 1
