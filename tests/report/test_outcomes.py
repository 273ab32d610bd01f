"""Whether a payment is over is read from a field, never from the words of a refusal."""

from typing import Any

import msgspec
import pytest

from tests.report.stories import journal_of, pending
from x402sim import World, events
from x402sim.protocol.refusals import Refusal, RequestError, SettlementRefused
from x402sim.report import frames
from x402sim.service import unsettled


def in_german(refusal: Refusal, reason: str | None = None, **said: Any) -> SettlementRefused:
    return SettlementRefused(refusal, "Bitte warten.", **said)


def test_a_pending_payment_is_pending_in_whatever_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unsettled, "SettlementRefused", in_german)
    monkeypatch.setattr(Refusal.UNREACHABLE, "_value_", "Nicht erreichbar")
    found = World(seed=1).play(pending).payments
    assert list(found["status"]) == ["pending", "pending"]


EVE = {"actor": "eve", "to": "service"}


def attempt(number: int) -> events.RequestSent:
    return events.RequestSent(
        **EVE, exchange=number, method="POST", path="/api/pay", payment_id="pay_1"
    )


def answered(status: int, error: str, **said: Any) -> events.AnswerReceived:
    return events.AnswerReceived(**EVE, exchange=1, status=status, error=error, **said)


def refused(*, final: bool, leaves_earlier: bool = False) -> events.PaymentRefused:
    return events.PaymentRefused(
        payment_id="pay_1", refusal="?", reason=None, final=final, leaves_earlier=leaves_earlier
    )


INVALID, UNREACHABLE = Refusal.INVALID_SIGNATURE.text, Refusal.UNREACHABLE.text


@pytest.mark.parametrize(
    ("told", "status"),
    [
        ([refused(final=True)], "refused"),
        ([refused(final=False)], "pending"),
        ([refused(final=False), refused(final=True)], "refused"),
        ([refused(final=True, leaves_earlier=True)], "refused"),
        ([refused(final=False), refused(final=True, leaves_earlier=True)], "pending"),
        ([answered(402, INVALID)], "refused"),
        ([answered(402, INVALID, final=False)], "pending"),
        ([answered(402, Refusal.PENDING.text)], "pending"),
        ([answered(402, UNREACHABLE)], "pending"),
        ([answered(402, UNREACHABLE, final=True)], "refused"),
        ([answered(402, "Abgelehnt", final=True)], "refused"),
        ([answered(402, "Abgelehnt")], "pending"),
        ([answered(400, RequestError.INVALID_BODY.text)], "refused"),
        ([answered(500, RequestError.INTERNAL.text)], "pending"),
    ],
)
def test_the_service_says_whether_an_attempt_is_over_and_the_answer_where_it_is_not_seen(
    told: list[events.Event], status: str
) -> None:
    """An unknown text without `final` does not say that the payment is over."""
    happened = [each for n, event in enumerate(told, 1) for each in (attempt(n), event)]
    assert list(frames.payments(journal_of(*happened))["status"]) == [status]


@pytest.mark.parametrize(
    ("status", "outcome"), [(400, "refused"), (413, "refused"), (500, "pending")]
)
def test_a_request_that_was_not_read_leaves_no_payment_pending(status: int, outcome: str) -> None:
    """An internal error tells nothing; the others come before the payment is looked at."""
    errors = {400: RequestError.INVALID_BODY, 413: RequestError.BODY_TOO_LARGE}
    error = errors.get(status, RequestError.INTERNAL).text
    other = msgspec.structs.replace(refused(final=True), payment_id="pay_2")
    journal = journal_of(attempt(1), answered(status, error), other)
    found = frames.payments(journal).set_index("payment_id")["status"]
    assert found["pay_1"] == outcome
