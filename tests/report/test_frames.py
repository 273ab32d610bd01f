"""The frames: every number counted again, from the raw journal, the ledger and the database."""

import inspect
import json
import pydoc
import re
from itertools import cycle, takewhile
from typing import Any

import pandas as pd
import pytest

from tests.report.stories import NAMES, journal_of, played, run
from x402sim import Run, events
from x402sim.journal import Journal
from x402sim.report import frames
from x402sim.report.frame import Column
from x402sim.report.frames import TABLES

_DTYPES = r"((?:Int64|float64|UTC|category|string|bool|, )+) \|"


def documented(table: str) -> dict[str, str]:
    """Return the dtype of each column as the docstring has it; without any, all are Int64."""
    columns: dict[str, str] = {}
    text = frames.TABLES[table].__doc__ or ""
    for names, dtypes in re.findall(rf"^ *\| ([a-z_, ]+) \|(?: {_DTYPES})?", text, re.MULTILINE):
        default = "float64, UTC" if names == "t_s, at" else "Int64"
        columns.update(zip(names.split(", "), cycle((dtypes or default).split(", ")), strict=False))
    del columns["column"]
    return {
        name: "datetime64[ms, UTC]" if dtype == "UTC" else dtype for name, dtype in columns.items()
    }


def raw(name: str) -> list[dict[str, Any]]:
    """Read a journal with nothing but json."""
    _, *lines = run(name).journal.ndjson().splitlines()
    return [json.loads(line) for line in lines]


def events_of(name: str) -> list[events.Event]:
    """Return the events of a story."""
    return [entry.event for entry in run(name).journal]


def transfer(sender: str, to: str, amount_base: int) -> events.Transfer:
    return events.Transfer(
        tx_hash="0x1", block=1, sender=sender, to=to, amount_base=str(amount_base)
    )


@pytest.mark.parametrize("table", frames.TABLES)
@pytest.mark.parametrize("name", [*NAMES, None])
def test_columns_and_dtypes_are_as_documented_whatever_happened(
    table: str, name: str | None
) -> None:
    frame, columns = (
        frames.TABLES[table](run(name).journal if name else Journal()),
        documented(table),
    )
    if table == "costs":
        del columns["fee"]  # these worlds have no price of a coin
    assert list(frame.columns) == list(columns)
    assert {str(column): str(dtype) for column, dtype in frame.dtypes.items()} == columns


def test_every_unit_is_in_the_attrs_of_its_frame() -> None:
    assert "fee" not in run("sessions").costs.attrs["units"], "which it does not have"
    of_ending = {"s": "s", "base": "base units", "wei": "wei", "coins": "coins", "gas": "gas"}
    for table in frames.TABLES.values():
        frame = table(Journal())
        for name in frame.columns:
            is_in_tokens = f"{name}_base" in frame
            unit = "tokens" if is_in_tokens else of_ending.get(name.rpartition("_")[2])
            assert frame.attrs["units"].get(name) == unit, name


@pytest.mark.parametrize("name", NAMES)
def test_every_exchange_is_told_and_the_steps_are_those_of_payers(name: str) -> None:
    begin, *_ = happened = raw(name)
    sent = [each for each in happened if each["event"] == "request sent"]
    ends = {e["exchange"]: e for e in happened if e["event"] in ("answer received", "no answer")}
    every, steps = run(name).latency, run(name).steps
    links = zip(every["exchange"], every["caller"], every["to"], strict=True)
    assert list(links) == [(each["exchange"], each["actor"], each["to"]) for each in sent]
    asked = every.query("caller != 'service'").reset_index(drop=True)
    assert steps["latency_s"].equals(asked["latency_s"])
    sent = [each for each in sent if each["actor"] != "service"]
    for row, request in zip(steps.itertuples(), sent, strict=True):
        end = ends[row.exchange]
        assert (row.exchange, row.payer) == (request["exchange"], request["actor"])
        assert row.t_s == pytest.approx((request["at_ms"] - begin["at_ms"]) / 1000, abs=1e-9)
        assert row.at == pd.Timestamp(request["at_ms"], unit="ms", tz="UTC")
        assert row.ended_s == pytest.approx((end["at_ms"] - begin["at_ms"]) / 1000, abs=1e-9)
        if end["event"] == "answer received":
            assert row.status == end["status"]
            assert row.latency_s == pytest.approx(row.ended_s - row.t_s, abs=1e-9)
        else:
            assert (pd.isna(row.status), pd.isna(row.latency_s)) == (True, True)
            assert row.outcome == "lost"


def test_outcomes_are_what_the_payer_saw() -> None:
    assert list(run("replayed").steps["outcome"]) == [
        "payment required", "paid", "payment required", "refused",
        "payment required", "refused", "payment required",
    ]  # fmt: skip
    assert list(run("lost").steps["outcome"]) == ["payment required", "error", "lost", "refused"]
    assert list(run("pending").steps["outcome"])[-1] == "refused", "402, but not Payment Required"
    settled = run("failing").latency.query("caller == 'service' and path == '/v2/x402/settle'")
    assert list(settled["outcome"]).count("refused") == 1, "a 200 with an error is no success"


@pytest.mark.parametrize("name", NAMES)
def test_transfers_and_balances_are_the_ledgers(name: str) -> None:
    found, truth = played(name)
    standing = found.transfers.query("not undone")
    assert list(zip(standing["tx"], standing["amount_base"], strict=True)) == truth.logs
    minted = standing.loc[standing["kind"] == "mint", "amount_base"].sum()
    moved = [each for each in raw(name) if each["event"] == "transfer"]
    assert minted == sum(int(e["amount_base"]) for e in moved if int(e["sender"], 16) == 0)
    parties = found.balances.groupby("party", observed=True)
    last = parties["balance_base"].last()
    assert last.get("merchant", 0) == truth.merchant
    assert last.sum() == minted, "what all hold together is what was minted"
    for _, each in parties:
        assert list(each["change_base"].cumsum()) == list(each["balance_base"])


def test_undone_transfers_are_marked_and_counted_once() -> None:
    frame = run("reorganised").transfers.query("kind != 'mint'")
    assert list(zip(frame["kind"], frame["undone"], strict=True)) == [
        ("payment", True), ("other", True), ("other", False),
    ]  # fmt: skip
    (payment,) = run("reorganised").payments.itertuples()
    assert payment.status == "settled", "the service has not noticed"
    assert pd.isna(payment.block), "but the chain has it no more"


def test_a_second_reorganisation_undoes_once_more() -> None:
    moved = transfer("0x1", "0x2", 5)
    undone = events.TransactionUndone(tx_hash="0x1")
    journal = journal_of(moved, undone, moved, undone)
    assert list(frames.transfers(journal)["undone"]) == [True, True]
    assert list(frames.balances(journal).query("party == '0x2'")["balance_base"]) == [5, 0, 5, 0]


@pytest.mark.parametrize("name", NAMES)
def test_payments_have_the_status_of_the_database(name: str) -> None:
    found, truth = played(name)
    frame = found.payments
    assert frame["payment_id"].is_unique
    for row in frame.itertuples():
        stored = truth.payments.get(row.payment_id)
        assert row.status == stored if stored else row.status in ("refused", "unpaid")
    assert set(truth.payments) <= set(frame["payment_id"])
    indexed = frame.dropna(subset="indexed_s")
    assert dict(zip(indexed["payment_id"], indexed["tx"], strict=True)) == truth.blocks


def test_every_status_is_distinguished() -> None:
    replayed = run("replayed").payments
    assert list(replayed["status"]) == ["settled", "refused", "refused", "unpaid"]
    assert list(replayed["payer"]) == ["alice", "alice", "mallory", "alice"]
    assert list(run("pending").payments["status"]) == ["pending", "pending"]
    paid = replayed.iloc[0]
    assert (paid["amount_base"], paid["amount"]) == (10_000, 0.01)
    assert paid["asked_s"] < paid["settled_s"]
    assert paid["gas"] == run("replayed").transactions.set_index("tx")["gas"][paid["tx"]]


def test_a_payment_that_can_never_be_mined_has_failed() -> None:
    payment_id = run("pending").payments["payment_id"][0]
    journal = journal_of(*events_of("pending"), events.PaymentFailed(payment_id=payment_id))
    assert list(frames.payments(journal)["status"]) == ["failed", "pending"]


def test_what_was_settled_and_is_undone_has_no_amount() -> None:
    """The sum of the amounts is what the service has been paid."""
    payment_id = run("replayed").payments["payment_id"][0]
    undone = events.PaymentUndone(payment_id=payment_id)
    for more, status in (
        ([undone], "pending"),
        ([undone, events.PaymentFailed(payment_id=payment_id)], "failed"),
    ):
        first = frames.payments(journal_of(*events_of("replayed"), *more)).iloc[0]
        assert (first["status"], pd.isna(first["amount"])) == (status, True)


def test_without_the_services_events_the_payers_are_believed() -> None:
    payers = ("world", "alice", "mallory")
    journal = journal_of(*(each for each in events_of("replayed") if each.actor in payers))
    seen, known = frames.payments(journal), run("replayed").payments
    assert list(seen["status"]) == list(known["status"])
    assert list(seen["tx"].dropna()) == list(known["tx"].dropna())


def test_sessions_add_up_and_are_the_databases() -> None:
    found, truth = played("sessions")
    frame = found.sessions
    last = frame.groupby("session_id", observed=True).last()
    for session_id, deposited, released in truth.sessions:
        there = last.loc[session_id]
        assert (there["deposited_base"], there["released_base"]) == (deposited, released)
    left = frame["deposited_base"] - frame["released_base"] - frame["refunded_base"]
    assert frame["remaining_base"].equals(left)
    alice = frame[frame["payer"] == "alice"]
    assert list(alice["event"]) == ["opened", *["debited"] * 3, "expired", "refunded"]
    assert list(alice["remaining_base"]) == [100_000, 90_000, 80_000, 70_000, 70_000, 0]
    bob = frame[frame["payer"] == "bob"]
    assert list(bob["event"]) == ["opened", "debited", "debited", "expired"], "one was refused"


def test_a_session_ends_with_its_deposit() -> None:
    before = takewhile(
        lambda each: not isinstance(each, events.SessionDebited), events_of("sessions")
    )
    failed = events.PaymentFailed(payment_id=run("sessions").payments["payment_id"][0])
    journal = journal_of(*before, failed, events.SessionsExpired(count=1), took_ms=1000)
    frame = frames.sessions(journal).iloc[2:]
    assert list(zip(frame["payer"], frame["event"], frame["remaining_base"], strict=True)) == [
        ("alice", "failed", 0),
        ("bob", "expired", 20_000),
    ], "hers was due first, but had ended already"


def test_a_failed_deposit_ends_an_active_session_until_it_settles_after_all() -> None:
    opened = [
        *takewhile(lambda it: not isinstance(it, events.SessionDebited), events_of("sessions"))
    ]
    alice, bob = (each.session_id for each in opened if isinstance(each, events.SessionOpened))
    settled = [each for each in opened if isinstance(each, events.PaymentSettled)]
    failed = [events.PaymentFailed(payment_id=each.payment_id) for each in settled]
    told = (
        events.SessionDebited(session_id=alice, amount_base=1, released_base=1),
        events.DebitUndone(session_id=alice, amount_base=1, released_base=0),
        failed[0], settled[0], events.SessionsExpired(count=2), failed[1], settled[1],
        events.DebitUndone(session_id=alice, amount_base=1, released_base=0), failed[0],
    )  # fmt: skip
    frame = frames.sessions(journal_of(*opened, *told, took_ms=1000)).iloc[2:]
    assert list(zip(frame["payer"], frame["event"], strict=True)) == [
        ("alice", "debited"), ("alice", "debit undone"), ("alice", "failed"), ("alice", "opened"),
        ("alice", "expired"), ("bob", "expired"), ("alice", "debit undone"),
    ]  # fmt: skip
    assert frame["tx"].tolist()[3] == settled[0].tx_hash
    assert bob in set(frame["session_id"])


def test_a_service_expires_what_another_on_its_database_has_opened_and_is_due() -> None:
    alice, bob = (
        events.SessionOpened(
            actor=actor, session_id=actor, payment_id=actor, payer="0x1", deposited_base=5,
            expires_ms=expires_ms,
        )
        for actor, expires_ms in (("service", 1500), ("service 2", 10**6))
    )  # fmt: skip
    expired = events.SessionsExpired(actor="service 2", count=1)
    frame = frames.sessions(journal_of(alice, bob, expired, expired, took_ms=1000))
    assert list(frame["event"]) == ["opened", "opened", "expired", "expired"]
    assert list(frame["session_id"])[2:] == ["service", "service 2"]


def test_what_a_session_is_refunded_later_is_added_and_counted_once() -> None:
    """A debit was undone after the refund, and two services have recorded the same transfer."""
    opened = events.SessionOpened(
        session_id="s", payment_id="p", payer="0x1", deposited_base=5, expires_ms=1
    )
    debited = events.SessionDebited(session_id="s", amount_base=1, released_base=1)
    expired, undone = events.SessionsExpired(count=1), events.RefundUndone(session_id="s")
    named = events.RefundUndone(session_id="s", amount_base=1, tx_hash="0x1")
    credited = events.DebitUndone(session_id="s", amount_base=1, released_base=0)
    first, second = (
        events.SessionRefunded(session_id="s", amount_base=amount_base, tx_hash=tx_hash)
        for amount_base, tx_hash in ((4, "0x4"), (1, "0x1"))
    )
    frame = frames.sessions(
        journal_of(
            opened, debited, expired, first, first, credited, second, undone, first, second,
            named, second, took_ms=1000,
        )
    )  # fmt: skip
    assert list(frame["remaining_base"]) == [5, 4, 4, 0, 0, 1, 0, 5, 1, 0, 1, 0]


def test_a_category_that_is_not_declared_is_no_missing_value() -> None:
    event = Column("event", "category", "what happened", among=("opened", "expired"))
    assert event.of(["opened", None, "expired"]).isna().tolist() == [False, True, False]
    with pytest.raises(
        ValueError, match=r"^event: \['debited'\] are not among \('opened', 'expired'\)"
    ):
        event.of(["opened", None, "debited"])


def test_amounts_beyond_64_bits_are_exact() -> None:
    huge = 2**255
    zero, alice, bob = (f"0x{n:040x}" for n in range(3))
    joined = events.PayerJoined(name="alice", address=alice)
    journal = journal_of(joined, transfer(zero, alice, huge), transfer(alice, bob, huge - 1))
    frame = frames.transfers(journal)
    assert list(frame["amount_base"]) == [huge, huge - 1]
    assert frame["amount_base"].sum() == 2 * huge - 1
    assert list(frame["amount"]) == [huge / 10**6, (huge - 1) / 10**6]
    assert list(frames.balances(journal)["balance_base"]) == [huge, 1, huge - 1]
    moved = transfer("0x1", "0x2", 2**62)
    assert frames.transfers(journal_of(moved, moved))["amount_base"].sum() == 2**63, "no sum wraps"


@pytest.mark.parametrize("name", TABLES)
def test_help_has_the_columns_of_a_frame(name: str) -> None:
    table = vars(Run)[name]
    assert inspect.getdoc(table) == inspect.getdoc(TABLES[name])
    assert "| column |" in pydoc.render_doc(getattr(Run, name), renderer=pydoc.plaintext)
