"""When does a payer sign again, if it is not known whether the first payment was made?

Never while the first authorization may be used. Later, when the server has refused it again and
does not serve its payment id either.
"""

import json
from typing import Any

import httpx
import pytest

from tests.bounded.hostile_peer import wanted
from tests.payer.shop import LOST, URL, Reply, Shop, all_at_once, ask, opened, receipt, served
from x402sim import PaymentAuth, PaymentFailed, SessionAuth, SpendingCapExceeded, Wallet
from x402sim.clock import Clock
from x402sim.payer.core import PaidNotServed
from x402sim.payer.purchases import EXPIRY_MARGIN_S, Payment, ResourcePayments, State
from x402sim.protocol.eip3009 import Authorization
from x402sim.protocol.x402 import Version

BALANCE = "Insufficient USDC balance"
SIGNATURE = "Invalid signature"
EXPIRED = "Authorization expired"
USED = "Nonce already used"
SETTLED = "Payment already settled"
WINDOW_S = 300
OVER_S = WINDOW_S + EXPIRY_MARGIN_S
STALE: Reply = (400, {"detail": "Payment requirements expired"})
"""A refusal as a server writes it that has no text of section 7 for it."""


PAID: Reply = (0, "paid")
"""In `Till.answers`: settle it."""


class Till:
    """A payer with a clock, at a shop that answers one settlement after the other from `answers`.

    None loses it, and the last one goes on for ever.
    """

    def __init__(self, *answers: Reply | None, **options: Any) -> None:
        self.now = [1_800_000_000.0]
        self.clock = Clock(lambda: self.now[0])
        self.auth = PaymentAuth(Wallet.create(), clock=self.clock, **options)
        self.answers = list(answers)
        self.paid: set[str | None] = set()
        """The payment ids that were settled."""
        self.shop = Shop(serves=served, settles=self._settle)

    def _settle(self, body: dict[str, Any]) -> Reply | Exception:
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if answer != PAID:
            return answer or LOST
        self.paid.add(body["paymentId"])
        return receipt(body)

    def refuses_proofs(self) -> "Till":
        """Let the shop answer every payment id with a 402."""
        self.shop.serves = lambda _: None
        return self

    def ask(self, auth: httpx.Auth | None = None) -> Any:
        """Send one request; return the status of its answer, or what was raised."""
        return ask(self.shop, auth or self.auth)

    def wait(self, seconds: float = OVER_S) -> None:
        self.now[0] += seconds

    @property
    def signed(self) -> int:
        """How many authorizations were signed."""
        return self.auth.signed_base // 10_000


def nested(text: str) -> list[Reply]:
    """The shapes that frameworks give an error's text; section 7 shows none."""
    return [
        (402, {"error": text}),
        (402, {"success": False, "error": text}),
        (402, {"detail": text}),
        (422, {"type": "about:blank", "title": text, "status": 402}),
        (400, {"error": {"code": 17, "message": text}}),
        (409, {"errors": [{"messages": [{"text": f"Settlement refused: {text}."}]}]}),
        (400, [text]),
        (400, json.dumps(text).encode()),
        (400, text.encode()),
        (403, b"<html><h1>Bad\n</h1><p>" + text.replace(" ", "\n  ").encode() + b"</p></html>"),
        (200, {"success": False, "message": text}),
        (500, {"detail": text}),
    ]


# --- the error's text, anywhere in the answer ------------------------------------------------


@pytest.mark.parametrize("text", [BALANCE, SIGNATURE, EXPIRED])
def test_a_known_text_is_found_in_any_shape(text: str) -> None:
    for answer in nested(text):
        till = Till(answer, PAID)
        assert str(till.ask()).startswith(f"the payment was refused: {answer[0]} {text}.")
        assert till.ask() == 200
        assert (till.signed, len(till.shop.settled)) == (1, 2)


def test_a_text_that_is_not_clear_is_no_refusal() -> None:
    for unclear in (
        (400, {"detail": {"help": [BALANCE, SIGNATURE]}}),  # which of them?
        (400, {"detail": BALANCE, "final": False}),
        (400, {BALANCE: "is the name of a field"}),
        (400, {"success": True, "error": BALANCE}),
        (200, receipt({"paymentId": "pay_1"})[1] | {"success": False}),  # a receipt, and none
        (500, f"Traceback: raise ApiError('{BALANCE}')".encode()),
    ):
        failed = Till(unclear).ask()
        assert isinstance(failed, PaymentFailed), unclear
        assert "the payment was refused" not in str(failed), unclear
    named = Till((400, {"error": "Bad Request", "message": [f"It says: {BALANCE}"]})).ask()
    assert f"the payment was refused: 400 Bad Request: {BALANCE}. " in str(named)


@pytest.mark.parametrize("text", [USED, SETTLED])
def test_a_text_that_says_the_money_is_gone_is_never_followed_by_another_signature(
    text: str,
) -> None:
    """The nonce was random: whoever says that it is used says that the payment was made."""
    final: list[Reply] = [(409, {"error": text, "final": True})]
    for status, body in nested(text) + final:
        till = Till((status, body)).refuses_proofs()
        for _ in range(3):
            failed = till.ask()
            assert isinstance(failed, PaidNotServed)
            assert f"the server answered {status} {text}" in str(failed)
            till.wait()
        assert (till.signed, len(till.shop.settled)) == (1, 1)
        till.auth.max_unserved = 2
        till.ask()
        assert till.signed == 2


# --- sent again, and not over yet -------------------------------------------------------------


def test_a_final_refusal_of_the_requirements_leaves_the_first_as_it_is() -> None:
    """A server that has restarted with another secret knows nothing of what it sent before."""
    unknown_id: Reply = (400, {"error": "Payment requirements do not match", "final": True})
    till = Till(None, unknown_id).refuses_proofs()
    till.ask()
    assert "it is not known whether the payment was made" in str(till.ask())
    assert till.signed == 1
    till.wait()
    till.ask()
    assert till.signed == 2


def test_refused_authorizations_count_for_the_caps() -> None:
    """The server that refused them may keep them."""
    till = Till((400, {"error": SIGNATURE, "final": True}), max_amount="0.01", max_total="0.03")
    till.refuses_proofs()
    for signed in (1, 2, 3):
        assert "400 Invalid signature" in str([till.ask() for _ in range(3)][-1])
        assert till.signed == signed
        till.wait()
    failed = till.ask()
    assert isinstance(failed, SpendingCapExceeded)
    assert "0.00 devUSDC.e is left of max_total 0.03" in str(failed)


# --- over -------------------------------------------------------------------------------------


@pytest.mark.parametrize("answer", [STALE, (400, {"error": "Nein.", "final": True})], ids=str)
def test_an_expired_authorization_that_is_refused_again_is_followed_by_another(
    answer: Reply,
) -> None:
    till = Till((503, {}), answer, PAID)
    till.shop.serves = lambda proof: (200, {}) if proof in till.paid else None
    assert isinstance(till.ask(), PaymentFailed)
    till.wait()
    assert till.ask() == 200
    first, again, second = till.shop.settled
    assert first == again
    assert (till.signed, len(till.shop.headers)) == (2, 2)
    assert ("/x", first["paymentId"]) in till.shop.asked, "its payment id was shown before"
    assert till.ask() == 200
    assert till.shop.asked[-1] == ("/x", second["paymentId"])
    assert till.signed == 2


@pytest.mark.parametrize("allowed_s", [1, 20, 300, 100_000])
def test_the_window_that_was_signed_counts(allowed_s: int) -> None:
    """validBefore comes from the authorization, not from a constant."""
    till = Till(STALE)
    offer = wanted("/x")
    offer["paymentRequirements"]["maxTimeoutSeconds"] = allowed_s
    till.shop.serves = lambda _: (402, offer | {"paymentId": f"pay_{len(till.shop.asked):09}"})
    over_s = min(allowed_s, WINDOW_S) + EXPIRY_MARGIN_S
    for wait_s, signed in ((0, 1), (over_s - 1, 1), (1, 2)):
        till.wait(wait_s)
        assert isinstance(till.ask(), PaymentFailed)
        assert till.signed == signed


SAYS_NOTHING: list[Reply] = [
    (200, {"success": True, "detail": EXPIRED}),
    *((status, {"detail": "Too early, late or many"}) for status in (408, 425, 429, 503)),
    (409, {"error": "Facilitator unreachable"}),
    (400, {"error": "Facilitator unreachable", "final": "yes"}),
    (400, {"success": False, "errorReason": "settle_exact_node_failure"}),
    (402, {"error": "Payment failed", "details": {"errorReason": "transaction_failed"}}),
]
"""Answers that say nothing of the payment."""
HINTS: list[Reply] = [
    (422, {"detail": "Duplicate payment"}),
    (400, {"code": "nonce_already_used"}),
    (409, {"detail": "Conflict"}),
    (409, {"error": "Settlement failed"}),
    (400, {"error": EXPIRED, "reason": "the nonce was used"}),
    (400, f"{SIGNATURE} or {USED}".encode()),
]
"""Refusals that hint at a payment."""


@pytest.mark.parametrize(
    ("answer", "shown", "end", "settlements"),
    [
        (None, None, httpx.ReadTimeout, 4),
        *((unclear, None, PaymentFailed, 4) for unclear in SAYS_NOTHING),
        *((hint, None, PaidNotServed, 2) for hint in HINTS),
        *(((409, {"detail": text}), (200, {}), 200, 2) for text in (USED, SETTLED)),
        (STALE, (200, {}), 200, 2),  # it has lost the payment, and still serves it
        *((STALE, (status, {}), status, 4) for status in (500, 503, 429)),
        (STALE, (422, {}), 422, 2),  # that comes after the check of the payment, which was made
        (STALE, LOST, httpx.ReadTimeout, 4),
    ],
    ids=str,
)
def test_what_may_have_been_paid_is_never_followed_by_another(
    answer: Reply | None, shown: Reply | Exception | None, end: Any, settlements: int
) -> None:
    """The first answer is lost; later it is sent again, or else the payment id is `shown`."""
    till = Till(None, answer)
    till.shop.serves = lambda proof: shown if proof else None
    till.ask()
    for _ in range(3):
        till.wait()
        found = till.ask()
        assert (found if isinstance(found, int) else type(found)) == end
        assert "authorizationState(0x" in str(found) or not isinstance(found, PaymentFailed)
    assert (till.signed, len(till.shop.settled)) == (1, settlements)


@pytest.mark.parametrize(("answer", "signed"), [(STALE, 2), ((409, {"detail": USED}), 1)])
def test_many_tasks_at_once_sign_one_other_at_most(answer: Reply, signed: int) -> None:
    till = Till(None, answer).refuses_proofs()
    till.ask()
    till.wait()
    found = all_at_once(till.shop, till.auth, 6)
    assert {isinstance(each, PaymentFailed) for each in found} == {True}
    assert till.signed == signed


# --- sessions ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "signed"),
    [(STALE, 2), ((503, {}), 1), ((409, {"detail": USED}), 1), ((400, {"detail": EXPIRED}), 2)],
)
def test_a_deposit_is_given_up_as_a_payment_is(answer: Reply, signed: int) -> None:
    till = Till(None, answer, PAID).refuses_proofs()
    auth = SessionAuth(Wallet.create(), deposit="1.00", max_sessions=3, clock=till.clock)
    till.ask(auth)
    till.wait()
    till.shop.serves = lambda proof: opened(proof) if len(till.shop.settled) > 2 else None
    end = till.ask(auth)
    assert (end == 200) is (signed == 2)
    assert auth.payment.signed_base == signed * 10_000


def test_another_object_goes_on_with_all_that_is_unfinished() -> None:
    """An answer that is being read bought nothing yet; in one step, its payment is sent once more."""

    def paid(name: str, state: State = State.UNRESOLVED, version: Version | None = None) -> Payment:
        auth = Authorization(b"a" * 20, b"b" * 20, 1, 0, 300, name.encode().ljust(32))
        return Payment(auth=auth, proof={}, shown=name, version=version, state=state)

    first = ResourcePayments(
        open=[
            paid("read, in one step", State.READING, 2),
            paid("refused", State.UNSERVED),
            paid("read", State.READING),
            paid("over", State.OVER),
            paid("lost"),
        ]
    )
    left = first.unfinished()
    assert [each.shown for each in left.sent] == ["read, in one step", "over", "lost"]
    assert [each.shown for each in left.unserved] == ["refused", "read"]
    second = ResourcePayments()
    assert second.resume(left) == 5
    resumed = second.unfinished()
    assert [each.auth for each in resumed.payments] == [each.auth for each in left.payments]
    assert {each.state for each in resumed.sent} == {State.UNRESOLVED}
    assert {each.state for each in resumed.unserved} == {State.UNSERVED}
    assert [each.state for each in left.unserved] == [State.UNSERVED, State.READING], "copied"
    assert second.resume(left) == second.resume(ResourcePayments().unfinished()) == 0
    assert second.unfinished() == resumed, "another object's are beside those here"
    assert second.resume(ResourcePayments(open=[paid("another")]).unfinished()) == 1
    assert "another" in [each.shown for each in second.unfinished().sent]
    for each in second.open.copy():
        second.end_reading(each, None, is_whole=True)
    assert second.open == [], "a payer that runs for long keeps none"


def test_what_was_given_up_counts_in_another_object() -> None:
    """A shop may settle what it seems to refuse; each object goes on with the one before."""
    till, request = Till(STALE, max_total="0.02").refuses_proofs(), httpx.Request("GET", URL)
    for _ in range(4):
        found, left = till.ask(), till.auth.unfinished(request)
        till.wait()
        till.auth = PaymentAuth(Wallet.create(), clock=till.clock, max_total="0.02")
        till.auth.resume(request, left)
    assert isinstance(found, SpendingCapExceeded)
    assert len(till.shop.headers) == 2


def test_who_lacked_funds_is_told_that_the_payment_was_not_made_yet() -> None:
    till = Till((402, {"error": BALANCE, "final": False}))
    assert str(till.ask()).startswith(f"the payment was not made yet: 402 {BALANCE}")
