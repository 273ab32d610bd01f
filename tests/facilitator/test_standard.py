"""The facilitator in the words of the x402 standard, versions 1 and 2."""

import asyncio
import json
import sys
from typing import Any

import pytest
from msgspec import to_builtins
from msgspec.structs import replace

from tests.chain.helpers import (
    ALICE,
    MALLORY,
    NOW_S,
    RELAYER,
    SHOP,
    START_BASE,
    LedgerDriver,
    authorization,
    cancel_call,
    signature_of,
)
from tests.facilitator.test_facilitator import Desk
from x402sim.chain.base import ChainUnavailable
from x402sim.facilitator.engine import FacilitatorSettings
from x402sim.facilitator.standard import WAITS
from x402sim.payer.wallet import Wallet
from x402sim.protocol import x402_reasons
from x402sim.protocol.crypto import checksum, to_hex
from x402sim.protocol.eip3009 import Authorization
from x402sim.protocol.networks import MAINNET, TESTNET
from x402sim.protocol.rules import STANDARD, InvalidReason
from x402sim.protocol.x402 import exact_payload
from x402sim.protocol.x402_reasons import (
    INVALID_PAYLOAD,
    INVALID_REQUIREMENTS,
    INVALID_VERSION,
)

VERIFY, SETTLE = "/verify", "/settle"
DOMAIN = {"name": TESTNET.token_name, "version": TESTNET.token_version}
COMMON = {
    "scheme": "exact", "payTo": SHOP.address, "asset": checksum(TESTNET.asset),
    "maxTimeoutSeconds": 300, "extra": DOMAIN,
}  # fmt: skip
WANTED: dict[int, dict[str, Any]] = {
    1: {**COMMON, "network": "cronos-testnet", "maxAmountRequired": "10000",
        "resource": "http://shop.test/quote", "description": "", "mimeType": "text/plain"},
    2: {**COMMON, "network": "eip155:338", "amount": "10000"},
}  # fmt: skip
VERSIONS = pytest.mark.parametrize("version", [1, 2])
BOTH_PATHS = pytest.mark.parametrize("path", [VERIFY, SETTLE])


def asking(
    version: int,
    auth: Authorization | None = None,
    *,
    by: Wallet = ALICE,
    signature: bytes | None = None,
    paid: dict[str, Any] | None = None,
    **requirements: Any,
) -> dict[str, Any]:
    """A request body: `paid` changes what the payment says, `requirements` what is asked for."""
    auth = auth or authorization()
    signed = signature_of(auth, by=by) if signature is None else signature
    payload = to_builtins(exact_payload(auth, signed))
    wanted = WANTED[version] | requirements
    said = WANTED[version] | (paid or {})
    payment: dict[str, Any] = {"x402Version": version, "payload": payload}
    if version == 1:
        payment |= {"scheme": said["scheme"], "network": said["network"]}
    else:
        payment |= {"accepted": said, "resource": {"url": "http://shop.test/quote"}}
    return {"x402Version": version, "paymentPayload": payment, "paymentRequirements": wanted}


@pytest.fixture
def desk() -> Desk:
    return Desk()


def test_supported_names_both_versions_and_the_signer(desk: Desk) -> None:
    assert desk.request("GET", "/supported").json() == {
        "kinds": [
            {"x402Version": 1, "scheme": "exact", "network": "cronos-testnet"},
            {"x402Version": 2, "scheme": "exact", "network": "eip155:338"},
            {
                "x402Version": 2,
                "scheme": "upto",
                "network": "eip155:338",
                "extra": {"facilitatorAddress": RELAYER.address},
            },
        ],
        "extensions": ["bazaar", "eip2612GasSponsoring", "erc20ApprovalGasSponsoring"],
        "signers": {"eip155:*": [RELAYER.address]},
    }


@VERSIONS
def test_a_valid_payment_is_verified_and_settled_once(desk: Desk, version: int) -> None:
    body = asking(version)
    network = WANTED[version]["network"]
    assert desk.post(VERIFY, body) == {"isValid": True, "payer": ALICE.address}
    assert desk.post(VERIFY, body) == {"isValid": True, "payer": ALICE.address}, "committed nothing"
    assert desk.driver.balance(SHOP) == 0
    settled = desk.post(SETTLE, body)
    tx_hash = settled.pop("transaction")
    assert settled == {"success": True, "payer": ALICE.address, "network": network}
    assert desk.driver.state.receipts[bytes.fromhex(tx_hash[2:])].succeeded
    assert desk.driver.balance(SHOP) == 10_000

    told = f"nonce: {to_hex(authorization().nonce)} is used or cancelled already"
    for path in (VERIFY, SETTLE):
        used = refusal(path, version, x402_reasons.NONCE_USED[version], told)
        assert desk.post(path, body) == used
    assert desk.driver.balance(SHOP) == 10_000


def refusal(path: str, version: int, reason: str, told: str) -> dict[str, Any]:
    """The answer of verify or settle that refuses a payment of Alice."""
    if path == VERIFY:
        answer = {"isValid": False, "invalidReason": reason, "invalidMessage": told}
    else:
        answer = {"success": False, "errorReason": reason, "errorMessage": told}
        answer |= {"transaction": "", "network": WANTED[version]["network"]}
    return answer | {"payer": ALICE.address}


def asks(amount: str) -> dict[str, Any]:
    return {"maxAmountRequired": amount, "amount": amount}


def in_domain(**changes: str | None) -> dict[str, Any]:
    return {"extra": {k: v for k, v in (DOMAIN | changes).items() if v is not None}}


OTHER = "0x" + "99" * 20
LATE = authorization(valid_before=NOW_S + 5)

EARLY = authorization(valid_after=NOW_S)
CLOCK = f"the server's clock says {NOW_S}"
WRAPPED = signature_of(authorization()) + bytes.fromhex("6492" * 16)
OURS, MAINNETS = checksum(TESTNET.asset), checksum(MAINNET.asset)
OTHER_SIGNER = (
    f"signer: wanted {ALICE.address}, got {MALLORY.address}, in the domain name "
    f"{TESTNET.token_name}, version 1, chainId 338, verifyingContract {OURS}"
)
UNFIT: list[tuple[dict[str, Any], InvalidReason, str]] = [
    ({"scheme": "upto"}, InvalidReason.SCHEME, "scheme: wanted exact, got upto"),
    ({"paid": {"scheme": "upto"}}, InvalidReason.SCHEME, "scheme: wanted exact, got upto"),
    ({"network": "eip155:1"}, InvalidReason.NETWORK, "network: wanted {network}, got eip155:1"),
    ({"paid": {"network": "base"}}, InvalidReason.NETWORK, "network: wanted {network}, got base"),
    ({"asset": MAINNETS}, InvalidReason.ASSET, f"asset: wanted {OURS}, got {MAINNETS}"),
    ({"payTo": OTHER}, InvalidReason.RECIPIENT, f"to: wanted {OTHER}, got {SHOP.address}"),
    (asks("10001"), InvalidReason.AMOUNT, "value: wanted 10001, got 10000"),
    ({"by": MALLORY}, InvalidReason.SIGNATURE, OTHER_SIGNER),
    ({"signature": b"\x01" * 64}, InvalidReason.SIGNATURE, "ECRecover: invalid signature length"),
    ({"extra": None}, InvalidReason.DOMAIN, "extra: wanted name and version, got neither"),
    (in_domain(version=None), InvalidReason.DOMAIN, "extra: wanted name and version, got name"),
    (
        in_domain(name="USDC"),
        InvalidReason.DOMAIN_NAME,
        f"extra.name: wanted {TESTNET.token_name}, got USDC",
    ),
    (in_domain(version="2"), InvalidReason.DOMAIN_VERSION, "extra.version: wanted 1, got 2"),
    (
        {"auth": LATE},
        InvalidReason.LATE,
        f"validBefore is {NOW_S + 5}, {CLOCK}; at least 6 s must be left",
    ),
    ({"auth": EARLY}, InvalidReason.EARLY, f"validAfter is {NOW_S}, {CLOCK}"),
    ({"signature": WRAPPED}, InvalidReason.UNDEPLOYED, InvalidReason.UNDEPLOYED.value),
]
"""Changes that do not fit, the reason, and the message."""


@BOTH_PATHS
@VERSIONS
@pytest.mark.parametrize(("changes", "why", "told"), UNFIT)
def test_what_does_not_fit_is_refused_in_200(
    desk: Desk, changes: dict[str, Any], why: InvalidReason, told: str, version: int, path: str
) -> None:
    answer = desk.post(path, asking(version, **changes))
    told = told.format(network=WANTED[version]["network"])
    assert answer == refusal(path, version, x402_reasons.invalid_reason(version, why), told)
    assert desk.driver.balance(SHOP) == 0


def test_every_row_of_the_standard_is_tested() -> None:
    assert {rule.refusal for rule in STANDARD} <= {why for _, why, _ in UNFIT}


def test_more_than_required_pays_in_version_1_only(desk: Desk) -> None:
    assert desk.post(VERIFY, asking(1, maxAmountRequired="9999"))["isValid"]
    refused = desk.post(VERIFY, asking(2, amount="9999"))
    mismatch = "invalid_exact_evm_payload_authorization_value_mismatch"
    assert refused["invalidReason"] == mismatch
    settled = desk.post(SETTLE, asking(1, maxAmountRequired="9999"))
    assert (settled["success"], desk.driver.balance(SHOP)) == (True, 10_000)


@VERSIONS
def test_verify_simulates_the_call_unless_told_not_to(version: int) -> None:
    poor = authorization(value=START_BASE + 1)
    body = asking(version, poor, **asks(str(START_BASE + 1)))
    told = f"balance of {ALICE.address}: wanted {START_BASE + 1}, got {START_BASE}"
    funds = {"isValid": False, "invalidReason": "insufficient_funds", "invalidMessage": told}
    assert Desk().post(VERIFY, body) == funds | {"payer": ALICE.address}
    assert Desk().post(SETTLE, body)["errorMessage"] == told
    cancelled = Desk()
    cancelled.driver.send(cancel_call(authorization().nonce))
    answer = cancelled.post(VERIFY, asking(version))
    assert answer["invalidReason"] == x402_reasons.NONCE_USED[version]
    assert to_hex(authorization().nonce) in answer["invalidMessage"]
    trusting = Desk(settings=FacilitatorSettings(simulates_verify=False))
    assert trusting.post(VERIFY, body)["isValid"]
    assert trusting.post(SETTLE, body)["errorReason"] == "insufficient_funds"


@VERSIONS
def test_a_payment_of_nothing_is_refused(desk: Desk, version: int) -> None:
    """A payment of nothing needs no token, and the gas would be the facilitator's."""
    body = asking(version, authorization(value=0), **asks("0"))
    assert desk.post(VERIFY, body)["invalidReason"] == "invalid_payment_requirements"
    assert desk.post(SETTLE, body)["errorReason"] == "invalid_payment_requirements"


@VERSIONS
def test_the_payment_says_its_version_if_the_request_does_not(desk: Desk, version: int) -> None:
    body = asking(version)
    del body["x402Version"]
    assert desk.post(VERIFY, body)["isValid"]
    assert desk.post(SETTLE, body)["success"]
    del body["paymentPayload"]["x402Version"]
    for path in (VERIFY, SETTLE):
        assert "invalid_x402_version" in desk.post(path, body).values()


@BOTH_PATHS
@VERSIONS
def test_a_refusal_names_the_payer_that_the_payment_names(
    desk: Desk, version: int, path: str
) -> None:
    """The texts' examples have the payer in every answer; the Python SDK of version 1 reads no other."""
    unknown, unsigned = asking(version), asking(version)
    unknown["paymentPayload"]["x402Version"] = unknown["x402Version"] = 3
    del unsigned["paymentPayload"]["payload"]["signature"]
    for body in (unknown, unsigned):
        assert desk.post(path, body)["payer"] == ALICE.address
    for payload in ({}, {"authorization": {"from": "Alice"}}, {"authorization": []}, []):
        unknown["paymentPayload"]["payload"] = payload
        assert "payer" not in desk.post(path, unknown)


@VERSIONS
def test_what_is_not_mined_in_time_is_pending_and_waited_for_again(version: int) -> None:
    desk = Desk(settings=FacilitatorSettings(receipt_timeout_s=0.01))
    asyncio.run(desk.driver.ledger.set_automine(False))
    body = asking(version)
    pending = desk.post(SETTLE, body)
    tx_hash = pending["transaction"]
    assert pending == {
        "success": False, "errorReason": "settlement_pending", "transaction": tx_hash,
        "errorMessage": WAITS,
        "payer": ALICE.address, "network": WANTED[version]["network"],
    }  # fmt: skip
    assert len(tx_hash) == 66
    assert desk.post(SETTLE, body) == pending, "nothing is sent twice"
    other = replace(authorization(), nonce=b"\x07" * 32)
    assert desk.post(SETTLE, asking(version, other))["transaction"] != tx_hash
    asyncio.run(desk.driver.ledger.mine())
    desk.driver.now[0] += 400  # its window has closed, after it was mined in time
    assert not desk.post(
        SETTLE, body | {"paymentRequirements": {**WANTED[version], "payTo": OTHER}}
    )["success"]
    settled = desk.post(SETTLE, body)
    assert (settled["success"], settled["transaction"]) == (True, tx_hash)
    assert not desk.post(SETTLE, body)["success"]
    assert desk.driver.balance(SHOP) == 20_000


@VERSIONS
def test_the_same_payment_while_the_first_is_under_way_sends_nothing(version: int) -> None:
    desk = Desk()
    ledger = desk.driver.ledger

    async def main() -> list[Any]:
        await ledger.set_automine(False)
        asked = [
            asyncio.create_task(desk.ask("POST", SETTLE, json=asking(version))) for _ in range(3)
        ]
        while not await ledger.waiting():
            await asyncio.sleep(0)
        for _ in range(100):  # the others had time to send theirs
            await asyncio.sleep(0)
        assert await ledger.waiting() == 1
        await ledger.mine()
        return [(await each).json() for each in asked]

    answers = asyncio.run(main())
    assert sorted(each["success"] for each in answers) == [False, False, True]
    assert asyncio.run(ledger.waiting()) == 0
    assert desk.driver.balance(SHOP) == 10_000


def test_what_is_mined_without_effect_carries_its_hash() -> None:
    desk = Desk(settings=FacilitatorSettings(simulates=False))
    body = asking(2, authorization(value=START_BASE + 1), amount=str(START_BASE + 1))
    failed = desk.post(SETTLE, body)
    assert (failed["success"], failed["errorReason"]) == (False, "invalid_transaction_state")
    assert len(failed["transaction"]) == 66
    assert "transfer amount exceeds balance" in failed["errorMessage"]


def test_a_relayer_without_gas_answers_the_nodes_words() -> None:
    failed = Desk(account=Wallet("0x" + "77" * 32)).post(SETTLE, asking(2))
    assert (failed["success"], failed["transaction"]) == (False, "")
    assert "insufficient funds for gas" in failed["errorMessage"]


@BOTH_PATHS
def test_of_a_window_the_time_is_named_that_was_compared(path: str) -> None:
    """The clock goes on between blocks: the token compares the newest block's time."""
    driver = LedgerDriver(calls_at_block_time=True)
    desk = Desk(chain=driver.ledger, clock=driver.clock)
    driver.now[0] += 5
    block_s = driver.state.head.timestamp_s
    refused = desk.post(path, asking(2, authorization(valid_after=block_s)))
    message = refused.get("invalidMessage") or refused["errorMessage"]
    assert message == f"validAfter is {block_s}, the block's time is {block_s}"


class Away:
    """A chain whose operations of these names are not answered."""

    def __init__(self, desk: Desk, *names: str) -> None:
        self._chain, self._names = desk.driver.ledger, names

    def __getattr__(self, name: str) -> Any:
        async def no_answer(*_: Any) -> Any:
            raise ChainUnavailable("no answer")

        return no_answer if name in self._names else getattr(self._chain, name)


@VERSIONS
def test_a_chain_that_does_not_answer_is_a_refusal_in_200(version: int) -> None:
    desk = Desk()
    away = Desk(chain=Away(desk, "call"))
    refused = away.post(VERIFY, asking(version))
    assert refused["invalidReason"] == "unexpected_verify_error"
    assert refused["invalidMessage"] == "no answer"
    unsettled = away.post(SETTLE, asking(version))
    assert (unsettled["errorReason"], unsettled["transaction"]) == ("unexpected_settle_error", "")
    lost = Desk(chain=Away(desk, "wait")).post(SETTLE, asking(version))
    assert lost["errorReason"] == "settlement_pending"
    assert len(lost["transaction"]) == 66


def test_a_receipt_without_the_transfer_proves_nothing(desk: Desk, monkeypatch: Any) -> None:
    """A status of success is no payment: another contract may stand at the token's address."""
    ledger = desk.driver.ledger
    wait = ledger.wait

    async def without_events(tx_hash: Any, timeout_s: float) -> Any:
        return replace(await wait(tx_hash, timeout_s), logs=())

    monkeypatch.setattr(ledger, "wait", without_events)
    settled = desk.post(SETTLE, asking(2))
    assert (settled["success"], settled["errorReason"]) == (False, "settlement_pending")


# --- what cannot be read -------------------------------------------------------------


DELEGATED = {"signature": "0x12", "delegationManager": ALICE.address}
BY_EIP_3009 = "supported: scheme exact by EIP-3009's authorization"


@BOTH_PATHS
@pytest.mark.parametrize(
    ("scheme", "payload", "extra", "reason", "told"),
    [
        ("exact", DELEGATED, {}, "unsupported_payload_type",
         f"a payload of signature, delegationManager; {BY_EIP_3009}"),
        ("upto", DELEGATED, {}, "unsupported_scheme", f"scheme: 'upto'; {BY_EIP_3009}"),
        ("auth-capture", {"signature": "0x12"}, {}, "unsupported_scheme",
         f"scheme: 'auth-capture'; {BY_EIP_3009}"),
        ("exact", None, {"assetTransferMethod": "permit2"}, "unsupported_asset_transfer_method",
         "extra.assetTransferMethod: 'permit2'; supported: eip3009"),
        ("exact", None, {"paymentFlow": "escrow"}, "unsupported_payment_flow",
         "extra.paymentFlow: 'escrow'; supported: authorization and upfront"),
        ("exact", None, {"paymentFlow": "upfront", "decimals": 9}, None, None),
    ],
)  # fmt: skip
@VERSIONS
def test_another_way_to_pay_is_refused_by_its_name(
    desk: Desk, path: str, version: int, scheme: str, payload: dict[str, Any] | None,
    extra: dict[str, Any], reason: str | None, told: str | None,
) -> None:  # fmt: skip
    body = asking(version, scheme=scheme, paid={"scheme": scheme}, extra=DOMAIN | extra)
    if payload is not None:
        body["paymentPayload"]["payload"] = payload
    answer = desk.post(path, body)
    assert (answer.get("invalidReason") or answer.get("errorReason")) == reason
    assert (answer.get("invalidMessage") or answer.get("errorMessage")) == told


def test_the_words_are_those_of_section_9_in_version_1() -> None:
    known = {
        "insufficient_funds", "invalid_network", "invalid_payload",
        "invalid_payment_requirements", "invalid_scheme", "unsupported_scheme",
        "invalid_x402_version", "invalid_transaction_state", "unexpected_verify_error",
        "unexpected_settle_error", "settlement_pending",
        *(f"invalid_exact_evm_payload_{it}" for it in (
            "authorization_valid_after", "authorization_valid_before", "authorization_value",
            "signature", "recipient_mismatch",
            "undeployed_smart_wallet",  # of the list of version 1's libraries
        )),
    }  # fmt: skip
    said = {x402_reasons.invalid_reason(1, why) for why in InvalidReason}
    said |= {x402_reasons.NONCE_USED[1], x402_reasons.FUNDS, x402_reasons.STATE}
    assert said <= known


# --- the words, where the text of the standard demands them ---------------------------------

PAYMENT, WANTS = "paymentPayload", "paymentRequirements"
AUTH = f"{PAYMENT}.payload.authorization"
GONE = object()
"""In a row of `WORDS`: the field is left out."""
NO_TEXTS = (7, None, {}, GONE)
NO_OBJECTS = ("text", None, [], GONE)

WORDS: list[tuple[str, str, tuple[Any, ...], tuple[int, ...]]] = [
    # section 5.2.2: fields, their types, and that they are required
    (INVALID_PAYLOAD, PAYMENT, ("text", None, [], {}), (1, 2)),
    (INVALID_PAYLOAD, f"{PAYMENT}.x402Version", (GONE,), (1, 2)),
    (INVALID_PAYLOAD, f"{PAYMENT}.payload", NO_OBJECTS, (1, 2)),
    (INVALID_PAYLOAD, f"{PAYMENT}.payload.signature", (*NO_TEXTS, "text", "0x123"), (1, 2)),
    (INVALID_PAYLOAD, AUTH, NO_OBJECTS, (1, 2)),
    (INVALID_PAYLOAD, f"{AUTH}.value", ("010000", "1e4", "１", str(2**256), 1, GONE), (1, 2)),
    (INVALID_PAYLOAD, f"{AUTH}.to", ("99" * 20, "0x" + "zz" * 20, None, GONE), (1, 2)),
    (INVALID_PAYLOAD, f"{PAYMENT}.scheme", NO_TEXTS, (1,)),
    (INVALID_PAYLOAD, f"{PAYMENT}.network", NO_TEXTS, (1,)),
    (INVALID_PAYLOAD, f"{PAYMENT}.accepted", NO_OBJECTS, (2,)),
    (INVALID_PAYLOAD, f"{PAYMENT}.accepted.scheme", NO_TEXTS, (2,)),
    (INVALID_PAYLOAD, f"{PAYMENT}.accepted.amount", ("1e4", 10000, GONE), (2,)),
    (INVALID_PAYLOAD, f"{PAYMENT}.accepted.maxTimeoutSeconds", ("300", 0, None, GONE), (2,)),
    (INVALID_PAYLOAD, f"{PAYMENT}.accepted.extra", ("text", []), (2,)),
    (INVALID_PAYLOAD, f"{PAYMENT}.resource", ("text", [], {}), (2,)),
    (INVALID_PAYLOAD, f"{PAYMENT}.resource.url", (7, None), (2,)),
    (INVALID_PAYLOAD, f"{PAYMENT}.extensions", ("text", []), (2,)),
    # section 5.1.2
    (INVALID_REQUIREMENTS, WANTS, ("text", None, [], {}), (1, 2)),
    (INVALID_REQUIREMENTS, f"{WANTS}.network", NO_TEXTS, (1, 2)),
    (INVALID_REQUIREMENTS, f"{WANTS}.asset", ("0x99", None, GONE, OTHER), (1, 2)),
    (INVALID_REQUIREMENTS, f"{WANTS}.maxTimeoutSeconds", ("300", 0, 1.5, True, GONE), (1, 2)),
    (INVALID_REQUIREMENTS, f"{WANTS}.resource", NO_TEXTS, (1,)),
    (INVALID_REQUIREMENTS, f"{WANTS}.description", NO_TEXTS, (1,)),
    (INVALID_REQUIREMENTS, f"{WANTS}.mimeType", (7, []), (1,)),
    (INVALID_REQUIREMENTS, f"{WANTS}.outputSchema", ("text", []), (1,)),
    (INVALID_REQUIREMENTS, f"{WANTS}.extra", ("text", [], {}, None, GONE), (1, 2)),
    (INVALID_REQUIREMENTS, f"{WANTS}.extra.version", NO_TEXTS, (1, 2)),
    # sections 5 and 9: what is not supported, and what differs from what was asked for
    (INVALID_VERSION, "x402Version", (0, 3, 1.5, 10**400, "1", True, []), (1, 2)),
    (INVALID_VERSION, f"{PAYMENT}.x402Version", (0, 3, "1", True, None), (1, 2)),
    ("unsupported_scheme", f"{WANTS}.scheme", ("upto", "Exact", ""), (1, 2)),
    ("unsupported_scheme", f"{PAYMENT}.scheme", ("upto", ""), (1,)),
    ("unsupported_scheme", f"{PAYMENT}.accepted.scheme", ("upto", ""), (2,)),
    ("invalid_network", f"{WANTS}.network", ("base", "eip155:1", "solana:x", "", "338"), (1, 2)),
    ("invalid_network", f"{PAYMENT}.network", ("base", "eip155:338"), (1,)),
    ("invalid_network", f"{PAYMENT}.accepted.network", ("base", "cronos-testnet"), (2,)),
]
"""A word, and the values that demand the word: a path in an otherwise good request, and the
versions with this path. The vectors, `conformance/vectors/facilitator.json`, have more values.
"""


def with_value(body: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    changed: dict[str, Any] = json.loads(json.dumps(body))
    *outer, name = path.split(".")
    inside = changed
    for each in outer:
        inside = inside[each]
    if value is GONE:
        del inside[name]
    else:
        inside[name] = value
    return changed


@pytest.mark.parametrize(
    ("word", "path", "values", "version"),
    [
        pytest.param(word, path, values, version, id=f"{version}-{path}-{word}")
        for word, path, values, versions in WORDS
        for version in versions
    ],
)
def test_every_word_is_said_where_the_text_demands_it(
    desk: Desk, word: str, path: str, values: tuple[Any, ...], version: int
) -> None:
    for value in values:
        body = with_value(asking(version), path, value)
        verified = desk.post(VERIFY, body)
        assert (verified["isValid"], verified.get("invalidReason")) == (False, word), value
        assert verified["invalidMessage"]
        settled = desk.post(SETTLE, body)
        assert (settled["success"], settled["errorReason"]) == (False, word), value
        assert settled["transaction"] == ""
        assert settled["network"] in ("cronos-testnet", "eip155:338")
    assert desk.post(SETTLE, asking(version))["success"], "it is good without them"


# --- what is no request, and what is built to break a reader --------------------------------


@BOTH_PATHS
@pytest.mark.parametrize(
    "body",
    [
        b"", b"null", b"[]", b'"text"', b"7", b"{", b"{}", b"NaN", b"\xff\xfe", b'{"x402Version":2}',
        json.dumps(with_value(asking(2), PAYMENT, GONE)).encode(),
        json.dumps(with_value(asking(2), WANTS, GONE)).encode(),
        json.dumps([asking(2)]).encode(),
        json.dumps(asking(2)).encode()[:-1],
        b"[" * 100_000 + b"]" * 100_000,
        b'{"x402Version": 1' + b"0" * 5000 + json.dumps(asking(2)).encode()[17:],
    ],
)  # fmt: skip
def test_what_is_no_request_is_400(desk: Desk, path: str, body: bytes) -> None:
    """The transport's text: a malformed payload or requirements, 400; never a 500."""
    answer = desk.request("POST", path, content=body)
    assert (answer.status_code, answer.json()["error"]) == (400, "Invalid request body")
    assert answer.json()["reason"]


DEEP = [
    ("x402Version", "@"),
    (PAYMENT, "@"),
    (f"{PAYMENT}.x402Version", "@"),
    (f"{PAYMENT}.payload", "@"),
    (f"{PAYMENT}.extensions", {"payment-identifier": {"info": {"id": "@"}}}),
    (f"{PAYMENT}.extensions", {"bazaar": {"info": {"input": {"type": "http", "a": "@"}}}}),
    (WANTS, "@"),
    (f"{WANTS}.extra.name", "@"),
    (f"{WANTS}.extra.more", "@"),
    (f"{WANTS}.extra.paymentFlow", "@"),
]


@pytest.mark.parametrize("limit", [1000, 100_000])
@pytest.mark.parametrize(("path", "value"), DEEP)
def test_deep_nesting_breaks_nothing(path: str, value: Any, limit: int) -> None:
    """Libraries like eth_account raise Python's recursion limit beyond the stack's size."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(limit)
    try:
        for depth in (*range(900, 1000, 20), 1990, 100_000):
            text = json.dumps(with_value(asking(2), path, value))
            deep = text.replace('"@"', "[" * depth + "]" * depth).encode()
            desk = Desk()
            for to in (VERIFY, SETTLE):
                assert desk.request("POST", to, content=deep).status_code in (200, 400), depth
            assert desk.request("GET", "/discovery/resources").status_code == 200
    finally:
        sys.setrecursionlimit(before)
