from typing import Any

import msgspec
import pytest

from tests.protocol.test_header import AUTH, KEY, SIGNATURE
from tests.strategies import requirements, signed_elsewhere
from x402sim.protocol.cronos import invalid_reason
from x402sim.protocol.crypto import PrivateKey, to_hex
from x402sim.protocol.header import SignedPayment
from x402sim.protocol.networks import MAINNET, TESTNET
from x402sim.protocol.refusals import Refusal
from x402sim.protocol.rules import (
    FRESHNESS,
    SETTLEMENT,
    VERIFICATION,
    Presented,
    Verification,
    first_broken,
    without,
)

# --- the service ---------------------------------------------------------------------

ISSUED = requirements()
NOW_S = 1_700_000_000


def presented(**changes: object) -> Presented:
    return Presented(requirements(**changes), ISSUED, expires_s=NOW_S + 300, now_s=NOW_S)


OTHER = "0x" + "99" * 20
PATH = "/api/perp/quote"
CHANGED: dict[str, tuple[dict[str, object], str]] = {
    "2.1/scheme": ({"scheme": "upto"}, "scheme: issued exact, got upto"),
    "2.1/network": ({"network": "x"}, "network: issued cronos-testnet, got x"),
    "2.1/pay-to": ({"pay_to": OTHER}, f"payTo: issued {ISSUED.pay_to}, got {OTHER}"),
    "2.1/asset": ({"asset": OTHER}, f"asset: issued {ISSUED.asset}, got {OTHER}"),
    "2.1/amount": ({"max_amount_required": "9"}, "maxAmountRequired: issued 10000, got 9"),
    "2.1/timeout": ({"max_timeout_seconds": 9}, "maxTimeoutSeconds: issued 300, got 9"),
    "2.1/resource": ({"resource": PATH + "/"}, f"resource: issued {PATH}, got {PATH}/"),
    "2.1/description": ({"description": "B"}, "description: issued 'A quote', or leave it out"),
}
"""What a payer changed, by the rule that notices, and what is then said."""


def test_every_row_of_settlement_has_a_case_that_breaks_it():
    assert list(CHANGED) == [rule.clause for rule in SETTLEMENT]


@pytest.mark.parametrize(
    "clause", [pytest.param(each, marks=pytest.mark.clause(each), id=each) for each in CHANGED]
)
def test_requirements_that_were_changed_are_refused_by_one_row(clause):
    changes, reason = CHANGED[clause]
    case = presented(**changes)
    broken = first_broken(SETTLEMENT, case)
    assert broken is not None
    assert (broken.clause, broken.refusal) == (clause, Refusal.MISMATCH)
    assert broken.reason(case) == reason
    assert first_broken(without(SETTLEMENT, clause), case) is None


@pytest.mark.clause("2.1/amount", "5/exact-amount")
@pytest.mark.parametrize("amount", ["9999", "10001", "010000", "10000.0", "1e4", ""])
def test_neither_more_nor_less_nor_another_spelling_is_the_amount(amount):
    broken = first_broken(SETTLEMENT, presented(max_amount_required=amount))
    assert broken is not None
    assert broken.clause == "2.1/amount"


@pytest.mark.parametrize(
    "changes",
    [
        *({"description": told} for told in (None, msgspec.UNSET, "", "A quote")),
        *({field: "0x" + getattr(ISSUED, field)[2:].upper()} for field in ("pay_to", "asset")),
    ],
    ids=str,
)
def test_the_description_may_be_left_out_and_addresses_be_of_any_case(changes):
    assert first_broken(SETTLEMENT, presented(**changes)) is None


@pytest.mark.clause("2.1/validity")
def test_requirements_are_fresh_until_they_expire_and_then_say_so_with_a_text_of_section_7():
    for late_s in (-300, 0, 1, 900):
        case = msgspec.structs.replace(presented(), expires_s=NOW_S - late_s)
        broken = first_broken(FRESHNESS, case)
        assert (broken is None) == (late_s <= 0)
        if broken is not None:
            assert (broken.clause, broken.refusal) == ("2.1/validity", Refusal.EXPIRED)
            said = f"the payment requirements expired {late_s} s ago"
            assert broken.reason(case).startswith(said)
    assert [rule.clause for rule in FRESHNESS] == ["2.1/validity"]


# --- the facilitator -----------------------------------------------------------------

ASSET = "0x" + TESTNET.asset.hex()
WANTED = requirements(pay_to=to_hex(AUTH.to))
PAYMENT = SignedPayment(
    scheme="exact",
    network="cronos-testnet",
    asset=ASSET,
    authorization=AUTH,
    signature=SIGNATURE,
)
GOOD = Verification(PAYMENT, WANTED, TESTNET)


def paying(**changes: Any) -> Verification:
    return Verification(msgspec.structs.replace(PAYMENT, **changes), WANTED, TESTNET)


def wanting(**changes: Any) -> Verification:
    return Verification(PAYMENT, msgspec.structs.replace(WANTED, **changes), TESTNET)


def said(rules: tuple, case: Verification) -> str | None:
    """Return what the Cronos facilitator says of a case."""
    broken = first_broken(rules, case)
    return invalid_reason(broken.refusal, broken.reason(case)) if broken else None


MAINNET_ASSET = "0x" + MAINNET.asset.hex()
FORGED = paying(authorization=msgspec.structs.replace(AUTH, valid_before=AUTH.valid_before + 1))

ANOTHER = PrivateKey(b"\x12" * 32)
UNFIT: dict[str, list[Verification]] = {
    "2.1/scheme": [paying(scheme="upto"), wanting(scheme="upto")],
    "2.1/network": [paying(network="ethereum-mainnet"), wanting(network="ethereum-mainnet")],
    "2.1/asset": [paying(asset=MAINNET_ASSET), wanting(asset=MAINNET_ASSET)],
    "5/exact-recipient": [wanting(pay_to=OTHER)],
    "5/exact-amount": [wanting(max_amount_required=amount) for amount in ("10001", "9999")],
    "5/signature-proves": [
        FORGED,
        paying(signature=signed_elsewhere(AUTH, TESTNET.domain, ANOTHER)),
        paying(signature=signed_elsewhere(AUTH, MAINNET.domain, KEY)),
        paying(signature=PAYMENT.signature[:64] + b"\0"),
        paying(signature=b""),
    ],
}
"""What does not fit, by the rule that sees it."""


def test_a_good_payment_is_valid():
    assert said(VERIFICATION, GOOD) is None


def test_every_row_of_verification_has_a_case_that_breaks_it():
    assert list(UNFIT) == [rule.clause for rule in VERIFICATION]


@pytest.mark.parametrize(
    ("clause", "case"),
    [
        pytest.param(clause, case, marks=pytest.mark.clause(clause), id=f"{clause} {number}")
        for clause, cases in UNFIT.items()
        for number, case in enumerate(cases)
    ],
)
def test_a_bad_payment_is_refused_by_one_row(clause, case):
    broken = first_broken(VERIFICATION, case)
    assert broken is not None
    assert broken.clause == clause
    assert first_broken(without(VERIFICATION, clause), case) is None


def test_reasons_come_in_the_facilitators_order():
    other = {"scheme": "upto", "network": "ethereum-mainnet", "pay_to": OTHER, "asset": OTHER}
    all_wrong = msgspec.structs.replace(
        FORGED, requirements=requirements(**other, max_amount_required="1")
    )
    rules, reasons = VERIFICATION, []
    while broken := first_broken(rules, all_wrong):
        reasons.append(said(rules, all_wrong))
        rules = without(rules, broken.clause)
    assert reasons == [
        "Unsupported scheme: upto",
        "Unsupported network: ethereum-mainnet",
        f"Unsupported asset: {OTHER}",
        "Recipient does not match payTo address",
        "Invalid amount: 10000",
        "Invalid EIP-3009 signature",
    ]


@pytest.mark.parametrize(
    ("case", "reason"),
    [
        (wanting(scheme="{0}{x}"), "Unsupported scheme: {0}{x}"),
        (wanting(network="n" * 1_000_000), "Unsupported network: " + "n" * 100),
        (paying(scheme="Exact"), "Unsupported scheme: Exact"),
        (wanting(network="Cronos-Testnet"), "Unsupported network: Cronos-Testnet"),
    ],
    ids=["braces", "long", "scheme", "network"],
)
def test_a_refused_value_is_named_as_it_was_sent_and_shortened(case, reason):
    assert said(VERIFICATION, case) == reason
