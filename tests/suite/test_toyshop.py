"""A newcomer's shop, paid in one step: each fault is found, and the report names the causes."""

import tomllib
from base64 import b64decode
from json import loads
from shlex import split

import pytest

from tests.suite.toyshop import FAULTS, judged
from x402sim.report.causes import WORDS, cause, causes
from x402sim.report.conformance import RAW
from x402sim.report.results import Demand, Outcome
from x402sim.spec.folder import folder
from x402sim.suite.service.engine import all_checks

FIVE = ("payee", "replay", "expired", "receipt", "status")
"""In the order of a report: the goods that are given away go before the words."""


def causes_with(*faults: str) -> list[str]:
    """Return the causes that a report on a shop with these faults names."""
    return [each.cause for each in causes([*judged(*faults).values()])]


def test_the_report_of_five_faults_names_these_five_causes() -> None:
    found = causes_with(*FIVE)
    assert len(found) == len(FIVE), found
    assert all(cause.startswith(FAULTS[fault]) for cause, fault in zip(found, FIVE, strict=True))


def test_a_shop_without_faults_has_passed() -> None:
    assert {each.outcome for each in judged().values()} == {Outcome.PASSED}


def test_that_nothing_is_ever_settled_is_the_first_cause() -> None:
    first, second = causes_with("amount", "unasked")
    assert first == FAULTS["unasked"]
    assert second.startswith(FAULTS["amount"])


def test_an_offer_with_another_status_hides_no_other_fault() -> None:
    assert causes_with("welcome", "replay") == [FAULTS["replay"], FAULTS["welcome"]]


def test_a_refusal_with_a_2xx_is_none_and_the_only_cause() -> None:
    failed = [each for each in judged("polite").values() if each.outcome is Outcome.FAILED]
    assert len(failed) > 10
    assert {cause(each) for each in failed} == {FAULTS["polite"]}


@pytest.mark.thorough
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_told_by_its_cause(fault: str) -> None:
    found = causes_with(fault)
    assert any(each.startswith(FAULTS[fault]) for each in found), found
    assert len(found) == 1, found


def test_a_missing_receipt_is_named_beside_the_payment_that_was_sent() -> None:
    receipt = judged("receipt", part="4.1/receipt:the")["spec/4.1/receipt"]
    assert receipt.expected == "the header PAYMENT-RESPONSE, the receipt of the settlement"
    causes_with, raw = receipt.exchange.splitlines()[1:3]
    words = split(raw.removeprefix(RAW))
    header = next(each for each in words if each.startswith("PAYMENT-SIGNATURE: "))
    sent = loads(b64decode(header.partition(" ")[2]))
    said = loads(causes_with.removeprefix("payment-signature: "))
    assert said["payload"]["authorization"] == sent["payload"]["authorization"]
    assert sent["payload"]["signature"] not in causes_with, "only as it was sent, to be sent again"


def test_each_id_that_can_fail_has_words_for_its_cause() -> None:
    ids = {each.id for each in all_checks() if not each.id.startswith("silent/")}
    causes_with = tomllib.loads((folder() / WORDS).read_text("utf-8"))
    assert {key.partition(": ")[0] for key in causes_with} - {*Demand} == ids
