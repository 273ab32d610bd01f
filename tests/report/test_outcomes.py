"""Whether a payment is over is read from a field, never from the words of a refusal."""

from typing import Any

import msgspec
import pytest

from tests.report.stories import pending, run
from x402sim import World, events
from x402sim.journal import Journal
from x402sim.protocol.refusals import Refusal, SettlementRefused
from x402sim.report import frames
from x402sim.service import reconcile


def in_german(refusal: Refusal, reason: str | None = None, **said: Any) -> SettlementRefused:
    return SettlementRefused(refusal, "Bitte warten.", **said)


def test_a_pending_payment_is_pending_in_whatever_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reconcile, "SettlementRefused", in_german)
    monkeypatch.setattr(Refusal.UNREACHABLE, "_value_", "Nicht erreichbar")
    payments = World(seed=1).play(pending).payments
    assert list(payments["status"]) == ["pending", "refused"]


@pytest.mark.parametrize(
    ("error", "final", "status"),
    [
        ("Bitte warten.", True, "refused"),
        ("Bitte warten.", False, "pending"),
        ("Bitte warten.", None, "pending"),
        ("Invalid signature", None, "refused"),
        ("Invalid signature", False, "pending"),
        ("Settlement failed", None, "pending"),
        ("Settlement failed", True, "refused"),
    ],
)
def test_a_third_partys_answer_is_judged_by_its_field_then_by_a_known_text(
    error: str, final: bool | None, status: str
) -> None:
    """The journal of a service behind a URL: only the payers' side of it."""
    journal = Journal()
    for entry in run("pending").journal:
        event = entry.event
        if event.actor not in ("world", "alice"):
            continue
        if isinstance(event, events.AnswerReceived) and event.final is not None:
            event = msgspec.structs.replace(event, error=error, final=final)
        journal.record(entry.at_ms, event)
    assert list(frames.payments(journal)["status"]) == [status]
