"""Payments by Permit2 at the facilitator: `exact`, and `upto` with the used amount.

Each word has the sentence of the specification that demands it, or the library's check.
"""

import asyncio
import json
from typing import Any

import pytest
from msgspec import to_builtins

from tests.chain.helpers import ALICE, MALLORY, NOW_S, OWNER, RELAYER, SHOP, START_BASE
from tests.facilitator.test_facilitator import Desk
from x402sim.chain.contract import wallet_address, wallet_code, wallet_storage
from x402sim.facilitator.engine import FacilitatorSettings
from x402sim.payer.wallet import Wallet
from x402sim.protocol import abi, x402_reasons
from x402sim.protocol.bazaar import declaration
from x402sim.protocol.crypto import ZERO_ADDRESS, PrivateKey, checksum, sign, to_hex
from x402sim.protocol.eip3009 import Permit, permit_digest
from x402sim.protocol.money import MAX_UINT256
from x402sim.protocol.networks import TESTNET
from x402sim.protocol.permit2 import (
    EXACT_PROXY,
    PERMIT2,
    UPTO_PROXY,
    Permit2Authorization,
    permit2_digest,
)
from x402sim.protocol.permit2_payments import permit2_payload
from x402sim.protocol.x402_reasons import Meaning, PaymentFate, meaning_of

VERIFY, SETTLE = "/verify", "/settle"
MOST, USED = 20_000, 1_858
"""The specification's own example: signed, and used."""


def authorization(*, upto: bool = True, **changes: object) -> Permit2Authorization:
    """Return Alice's message for at most 20000 to the shop, valid now."""
    fields: dict[str, object] = {
        "from_": ALICE.address_bytes,
        "token": TESTNET.asset,
        "amount": MOST,
        "spender": UPTO_PROXY if upto else EXACT_PROXY,
        "nonce": 77,
        "deadline": NOW_S + 300,
        "to": SHOP.address_bytes,
        "valid_after": NOW_S - 60,
        "facilitator": RELAYER.address_bytes if upto else None,
    }
    return Permit2Authorization(**(fields | changes))  # type: ignore[arg-type]


def asking(
    amount: int = MOST,
    auth: Permit2Authorization | None = None,
    *,
    upto: bool = True,
    by: Wallet = ALICE,
    signature: bytes | None = None,
    accepted: dict[str, Any] | None = None,
    payload: dict[str, Any] | None = None,
    extensions: dict[str, Any] | None = None,
    **wanted: Any,
) -> dict[str, Any]:
    """Return a request body; `amount` is what the requirements have at this time."""
    auth = auth or authorization(upto=upto)
    signed = sign(permit2_digest(auth, TESTNET.chain_id), PrivateKey(by.private_key))
    terms: dict[str, Any] = {
        "scheme": "upto" if upto else "exact",
        "network": TESTNET.caip2,
        "amount": str(MOST),
        "asset": checksum(TESTNET.asset),
        "payTo": SHOP.address,
        "maxTimeoutSeconds": 300,
        "extra": {"name": TESTNET.token_name, "version": TESTNET.token_version},
    }
    if not upto:
        terms["extra"] |= {"assetTransferMethod": "permit2"}
    sent = to_builtins(permit2_payload(auth, signed if signature is None else signature))
    payment = {
        "x402Version": 2,
        "accepted": terms | (accepted or {}),
        "payload": sent | (payload or {}),
        "resource": {"url": "http://shop.test/answer"},
        "extensions": extensions or {},
    }
    requirements = terms | {"amount": str(amount)} | wanted
    return {"x402Version": 2, "paymentPayload": payment, "paymentRequirements": requirements}


def allow(desk: Desk, amount_base: int = MAX_UINT256, by: Wallet = ALICE) -> None:
    """Let a payer approve Permit2."""
    assert desk.driver.refusal(abi.approve(PERMIT2, amount_base), by) is None


@pytest.fixture
def desk() -> Desk:
    """A facilitator, and Alice who has approved Permit2."""
    desk = Desk()
    allow(desk)
    return desk


def reason(answer: dict[str, Any]) -> str | None:
    """Return the word of a refusal by verify or settle."""
    return answer.get("invalidReason", answer.get("errorReason"))


# --- what is announced ------------------------------------------------------------------


@pytest.mark.parametrize("upto", [True, False])
def test_a_valid_payment_is_verified_and_settled_once(desk: Desk, upto: bool) -> None:
    """“the actual amount used at the end of the request” (upto); the whole amount (exact)."""
    used = USED if upto else MOST
    whole = asking(upto=upto)
    for _ in range(2):
        assert desk.post(VERIFY, whole) == {"isValid": True, "payer": ALICE.address}
    assert desk.driver.balance(SHOP) == 0, "verify commits nothing"
    answer = desk.post(SETTLE, asking(used, upto=upto))
    tx_hash = bytes.fromhex(answer.pop("transaction")[2:])
    expected = {"success": True, "payer": ALICE.address, "network": TESTNET.caip2}
    assert answer == expected | ({"amount": str(used)} if upto else {})
    receipt = desk.driver.state.receipts[tx_hash]
    assert receipt.logs[-1].topics == (abi.SETTLED,)
    assert desk.driver.balance(SHOP) == used

    for path in (VERIFY, SETTLE):
        again = desk.post(path, whole)
        assert reason(again) == "permit2_invalid_nonce"
    assert desk.driver.balance(SHOP) == used
    assert meaning_of("permit2_invalid_nonce").fate is PaymentFate.SETTLED


def test_nothing_used_settles_nothing_and_the_authorization_stays_usable(desk: Desk) -> None:
    """“If the settled amount = 0, no on-chain transaction is required.”"""
    nothing = desk.post(SETTLE, asking(0))
    answer = {"success": True, "payer": ALICE.address, "network": TESTNET.caip2}
    assert nothing == answer | {"transaction": "", "amount": "0"}
    assert desk.post(SETTLE, asking(USED))["success"]
    assert desk.driver.balance(SHOP) == USED


def test_the_catalogue_lists_the_offered_maximum_of_what_was_paid_for(desk: Desk) -> None:
    declared = declaration("GET", "sunny")
    desk.post(SETTLE, asking(0, extensions=declared))
    assert desk.request("GET", "/discovery/resources").json()["items"] == [], "nothing was paid"
    desk.post(SETTLE, asking(USED, extensions=declared))
    (item,) = desk.request("GET", "/discovery/resources").json()["items"]
    assert (item["resource"], item["accepts"][0]["amount"]) == (
        "http://shop.test/answer",
        str(MOST),
    )


def test_the_example_of_the_text_has_its_nonce_in_hex(desk: Desk) -> None:
    body = asking(auth=authorization(nonce=0xF3 << 248 | 7))
    fields = body["paymentPayload"]["payload"]["permit2Authorization"]
    fields["nonce"] = "0x" + (0xF3 << 248 | 7).to_bytes(32).hex()
    assert desk.post(VERIFY, body)["isValid"]


def test_in_exact_a_facilitator_in_the_witness_is_an_unknown_field(desk: Desk) -> None:
    body = asking(upto=False)
    witness = body["paymentPayload"]["payload"]["permit2Authorization"]["witness"]
    witness["facilitator"] = MALLORY.address
    assert desk.post(VERIFY, body)["isValid"]


# --- what is refused, by which word ------------------------------------------------------

OTHER = MALLORY.address_bytes
UNFIT: list[tuple[str, dict[str, Any], str]] = [
    ("unsupported_scheme", {"accepted": {"scheme": "exact"}}, "upto, and exact accepted"),
    ("unsupported_scheme", {"scheme": "deferred"}, "“Must be "),
    ("invalid_network", {"network": "eip155:1"}, "“Verify the Token and Network match”"),
    ("invalid_network", {"accepted": {"network": "eip155:1"}}, "the same"),
    (
        "unsupported_payload_type",
        {"upto": False, "extra": {"assetTransferMethod": "eip3009"}},
        "“MUST be permit2 when the payment payload uses the Permit2 shape”",
    ),
    ("invalid_permit2_spender", {"auth": authorization(spender=EXACT_PROXY)}, "own proxy"),
    (
        "invalid_permit2_spender",
        {"upto": False, "auth": authorization(upto=False, spender=RELAYER.address_bytes)},
        "“The spender in the signature is the x402ExactPermit2Proxy, not the Facilitator”",
    ),
    ("invalid_permit2_recipient_mismatch", {"auth": authorization(to=OTHER)}, "witness.to"),
    ("permit2_invalid_destination", {"auth": authorization(to=ZERO_ADDRESS)}, "proxy's revert"),
    ("permit2_invalid_owner", {"auth": authorization(from_=ZERO_ADDRESS)}, "proxy's revert"),
    (
        "upto_facilitator_mismatch",
        {"auth": authorization(facilitator=OTHER)},
        "“binds the authorization to a specific facilitator”",
    ),
    ("upto_facilitator_mismatch", {"auth": authorization(facilitator=None)}, "“MUST include”"),
    (
        "permit2_deadline_expired",
        {"auth": authorization(deadline=NOW_S + 5)},
        "“Verify the deadline (not expired)”, 6 s before",
    ),
    (
        "permit2_not_yet_valid",
        {"auth": authorization(valid_after=NOW_S + 1)},
        "“and witness.validAfter (active)”",
    ),
    ("permit2_token_mismatch", {"auth": authorization(token=OTHER)}, "“Verify the Token”"),
    ("permit2_token_mismatch", {"asset": MALLORY.address}, "“Verify the Token”"),
    ("invalid_permit2_signature", {"by": MALLORY}, "“recovers to permit2Authorization.from”"),
    ("invalid_permit2_signature", {"signature": b"\1" * 63}, "the same"),
    ("invalid_payment_requirements", {"payTo": "shop"}, "an address"),
    ("invalid_payment_requirements", {"amount": "ten"}, "base units"),
    ("invalid_payment_requirements", {"maxTimeoutSeconds": 0}, "a time"),
    ("invalid_payload", {"payload": {"permit2Authorization": {}}}, "“The payload must contain”"),
    ("invalid_payload", {"payload": {"signature": "0xno"}}, "“The payload must contain”"),
]


@pytest.mark.parametrize("path", [VERIFY, SETTLE])
@pytest.mark.parametrize(("word", "changes", "sentence"), UNFIT)
def test_a_payment_that_does_not_fit_is_refused_by_its_word(
    desk: Desk, path: str, word: str, changes: dict[str, Any], sentence: str
) -> None:
    changes = dict(changes)
    body = asking(MOST, **{k: v for k, v in changes.items() if k != "amount"})
    body["paymentRequirements"] |= {k: v for k, v in changes.items() if k == "amount"}
    answer = desk.post(path, body)
    assert reason(answer) == word, sentence
    assert answer.get("invalidMessage", answer.get("errorMessage"))
    assert desk.driver.balance(SHOP) == 0
    assert meaning_of(word).fate is PaymentFate.REFUSED


@pytest.mark.parametrize("signed", [MOST - 1, MOST + 1])
def test_at_verify_the_signed_amount_is_the_required_amount(desk: Desk, signed: int) -> None:
    """“Verify the permit2Authorization.permitted.amount equals the amount from requirements.”"""
    for upto in (True, False):
        body = asking(upto=upto, auth=authorization(upto=upto, amount=signed))
        assert reason(desk.post(VERIFY, body)) == "permit2_amount_mismatch"


def test_at_settle_a_part_is_settled_and_more_than_signed_never(desk: Desk) -> None:
    """“The settled amount MUST be <= the authorized maximum.”"""
    word = "invalid_upto_evm_payload_settlement_exceeds_amount"
    assert reason(desk.post(SETTLE, asking(MOST + 1))) == word
    assert desk.driver.balance(SHOP) == 0
    assert desk.post(SETTLE, asking(1))["amount"] == "1"


@pytest.mark.parametrize("amount", [MOST - 1, MOST + 1])
def test_in_exact_the_amounts_are_equal_at_settle_too(desk: Desk, amount: int) -> None:
    """“the Facilitator cannot modify the amount or destination”"""
    assert reason(desk.post(SETTLE, asking(amount, upto=False))) == "permit2_amount_mismatch"


def test_a_maximum_of_nothing_is_no_payment(desk: Desk) -> None:
    body = asking(0, auth=authorization(amount=0))
    assert reason(desk.post(VERIFY, body)) == x402_reasons.INVALID_REQUIREMENTS


def test_without_an_allowance_the_payer_is_told_to_approve() -> None:
    """“If neither exists: … (Error Code: PERMIT2_ALLOWANCE_REQUIRED)”"""
    desk = Desk()
    allow(desk, MOST - 1)
    for path in (VERIFY, SETTLE):
        answer = desk.post(path, asking())
        told = f"allowance of {ALICE.address} to Permit2: wanted {MOST}, got {MOST - 1}"
        assert reason(answer) == "permit2_allowance_required"
        assert answer.get("invalidMessage", answer.get("errorMessage")) == told
    assert meaning_of("permit2_allowance_required") is Meaning.ALLOWANCE
    assert desk.post(SETTLE, asking(USED))["success"], "the allowance covers what was used"


def test_without_the_balance_it_is_refused(desk: Desk) -> None:
    """“Verify the client has sufficient balance of the asset to cover amount.”"""
    desk.driver.send(abi.transfer(OTHER, START_BASE - MOST + 1), ALICE)
    for path in (VERIFY, SETTLE):
        assert reason(desk.post(path, asking())) == "permit2_insufficient_balance"


def test_an_allowance_that_goes_between_verify_and_settle_costs_no_gas(desk: Desk) -> None:
    assert desk.post(VERIFY, asking())["isValid"]
    allow(desk, 0)
    before = desk.driver.state.account_nonces.get(RELAYER.address_bytes, 0)
    assert reason(desk.post(SETTLE, asking(USED))) == "permit2_allowance_required"
    assert desk.driver.state.account_nonces.get(RELAYER.address_bytes, 0) == before


def test_a_paused_token_is_told(desk: Desk) -> None:
    desk.driver.send(abi.PAUSE, OWNER)
    answer = desk.post(VERIFY, asking())
    assert reason(answer) == x402_reasons.STATE


def test_a_smart_wallet_pays_by_its_owners_signature(desk: Desk) -> None:
    owner = ALICE.address_bytes
    account = wallet_address(owner)
    desk.driver.run(desk.driver.ledger.set_code(account, wallet_code(), wallet_storage(owner)))
    auth = authorization(from_=account)
    assert reason(desk.post(VERIFY, asking(auth=auth))) == "permit2_allowance_required"
    other = asking(auth=auth, by=MALLORY)
    assert reason(desk.post(VERIFY, other)) == "invalid_permit2_signature"


def test_a_chain_without_the_proxy_offers_no_upto_and_settles_none(desk: Desk) -> None:
    state = desk.driver.state
    del state.codes[UPTO_PROXY]
    supported = desk.request("GET", "/supported").json()
    assert "upto" not in {kind["scheme"] for kind in supported["kinds"]}
    assert supported["extensions"] == ["bazaar"]
    assert reason(desk.post(VERIFY, asking())) == "permit2_proxy_not_deployed"


# --- lost answers -----------------------------------------------------------------------


def test_a_pending_settlement_is_waited_for_and_not_sent_twice() -> None:
    desk = Desk(settings=FacilitatorSettings(receipt_timeout_s=0.05))
    allow(desk)
    driver = desk.driver
    driver.run(driver.ledger.set_automine(False))
    first = desk.post(SETTLE, asking(USED))
    assert (first["success"], reason(first)) == (False, x402_reasons.PENDING)
    assert "amount" not in first
    again = desk.post(SETTLE, asking(USED))
    assert again == first
    assert driver.run(driver.ledger.waiting()) == 1
    driver.run(driver.ledger.mine())
    driver.now[0] += 400  # after the deadline
    settled = desk.post(SETTLE, asking(USED))
    assert (settled["success"], settled["transaction"]) == (True, first["transaction"])
    assert driver.balance(SHOP) == USED


def test_another_amount_of_a_pending_settlement_is_refused_after_the_first() -> None:
    desk = Desk(settings=FacilitatorSettings(receipt_timeout_s=0.05))
    allow(desk)
    driver = desk.driver
    driver.run(driver.ledger.set_automine(False))
    assert reason(desk.post(SETTLE, asking(USED))) == x402_reasons.PENDING
    assert reason(desk.post(SETTLE, asking(USED + 1))) == x402_reasons.PENDING
    assert driver.run(driver.ledger.waiting()) == 1
    driver.run(driver.ledger.mine())
    answer = desk.post(SETTLE, asking(USED + 1))
    assert reason(answer) == "permit2_invalid_nonce"
    assert (
        answer["errorMessage"] == f"nonce: used for {USED} base units, in another request to settle"
    )
    assert driver.balance(SHOP) == USED


def test_the_same_settlement_at_once_is_sent_once(desk: Desk) -> None:
    async def both() -> list[dict[str, Any]]:
        body = json.dumps(asking(USED))
        answers = await asyncio.gather(*(desk.ask("POST", SETTLE, content=body) for _ in range(3)))
        return [answer.json() for answer in answers]

    answers = desk.driver.run(both())
    assert sorted(answer["success"] for answer in answers) == [False, False, True]
    assert desk.driver.balance(SHOP) == USED
    assert desk.driver.state.account_nonces[RELAYER.address_bytes] == 1


def test_a_settlement_that_reverts_in_its_block_is_told_with_its_hash(desk: Desk) -> None:
    desk.driver.run(desk.driver.ledger.force_revert(1))
    answer = desk.post(SETTLE, asking(USED))
    assert reason(answer) == x402_reasons.STATE
    assert answer["transaction"].startswith("0x")
    assert meaning_of(x402_reasons.STATE, answer["transaction"]).fate is PaymentFate.UNKNOWN


# --- the payer's permit instead of an approval -------------------------------------------


def sponsored(**changes: Any) -> dict[str, Any]:
    """Return the extension with Alice's permit for Permit2, with some fields changed."""
    permit = Permit(ALICE.address_bytes, PERMIT2, MOST, 0, NOW_S + 300)
    signed = sign(permit_digest(permit, TESTNET.domain), PrivateKey(ALICE.private_key))
    info = {
        "from": ALICE.address,
        "asset": checksum(TESTNET.asset),
        "spender": checksum(PERMIT2),
        "amount": str(MOST),
        "nonce": "0",
        "deadline": str(NOW_S + 300),
        "signature": to_hex(signed),
        "version": "1",
    }
    return {"eip2612GasSponsoring": {"info": info | changes}}


@pytest.mark.parametrize("upto", [True, False])
def test_a_permit_takes_the_place_of_an_approval(upto: bool) -> None:
    """“Settlement is performed by calling the x402Permit2Proxy.settleWithPermit.”"""
    desk, used = Desk(), USED if upto else MOST
    assert desk.post(VERIFY, asking(upto=upto, extensions=sponsored()))["isValid"]
    answer = desk.post(SETTLE, asking(used, upto=upto, extensions=sponsored()))
    receipt = desk.driver.state.receipts[bytes.fromhex(answer["transaction"][2:])]
    assert receipt.logs[-1].topics == (abi.SETTLED_WITH_PERMIT,)
    assert desk.driver.balance(SHOP) == used


def test_with_an_allowance_the_permit_is_not_used(desk: Desk) -> None:
    """“If the user has a sufficient direct allowance, call settle.”"""
    answer = desk.post(SETTLE, asking(USED, extensions=sponsored()))
    receipt = desk.driver.state.receipts[bytes.fromhex(answer["transaction"][2:])]
    assert receipt.logs[-1].topics == (abi.SETTLED,)
    assert desk.driver.state.permit_nonces == {}


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"from": MALLORY.address}, "eip2612_from_mismatch"),
        ({"asset": MALLORY.address}, "eip2612_asset_mismatch"),
        ({"spender": MALLORY.address}, "eip2612_spender_not_permit2"),
        ({"amount": str(MOST - 1)}, "permit2_2612_amount_mismatch"),
        ({"deadline": str(NOW_S + 5)}, "eip2612_deadline_expired"),
        ({"signature": "0x12"}, "invalid_eip2612_extension_format"),
        ({"nonce": 7}, "invalid_eip2612_extension_format"),
        ({"signature": to_hex(b"\1" * 64 + b"\x1b")}, "permit2_allowance_required"),
    ],
)
@pytest.mark.parametrize("path", [VERIFY, SETTLE])
def test_a_wrong_permit_is_refused_by_its_word(path: str, changes: dict, word: str) -> None:
    """“The Facilitator MUST verify that spender matches the expected contract.”"""
    desk = Desk()
    assert reason(desk.post(path, asking(extensions=sponsored(**changes)))) == word
    assert desk.driver.state.account_nonces.get(RELAYER.address_bytes, 0) == 0


@pytest.mark.parametrize("extension", ["eip2612GasSponsoring", "erc20ApprovalGasSponsoring"])
def test_an_offer_of_sponsoring_sent_back_unchanged_is_nothing_signed(extension: str) -> None:
    offer = {extension: {"info": {"description": "…", "version": "1"}}}
    answer = Desk().post(VERIFY, asking(extensions=offer))
    assert reason(answer) == "permit2_allowance_required"


def test_version_1_has_no_permit2() -> None:
    body = asking(upto=False)
    version_1 = {"x402Version": 1, "scheme": "exact", "network": TESTNET.name}
    payment = version_1 | {"payload": body["paymentPayload"]["payload"]}
    answer = Desk().post(VERIFY, body | {"x402Version": 1, "paymentPayload": payment})
    assert reason(answer) == "unsupported_payload_type"
