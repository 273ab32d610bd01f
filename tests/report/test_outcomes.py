"""Whether a payment is over is read from a field, never from the words of a refusal."""

from typing import Any

import pytest

from tests.report.stories import pending
from x402sim import World
from x402sim.protocol.refusals import Refusal, SettlementRefused
from x402sim.service import reconcile


def in_german(refusal: Refusal, reason: str | None = None, **said: Any) -> SettlementRefused:
    return SettlementRefused(refusal, "Bitte warten.", **said)


def test_a_pending_payment_is_pending_in_whatever_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reconcile, "SettlementRefused", in_german)
    monkeypatch.setattr(Refusal.UNREACHABLE, "_value_", "Nicht erreichbar")
    payments = World(seed=1).play(pending).payments
    assert list(payments["status"]) == ["pending", "refused"]
