"""`decode`: every message of a payment, of every dialect, and what is wrong in it."""

import base64
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import Result
from eth_abi import encode as encode_words

from tests.cli.runner import assert_misuse, run
from tests.cli.shops import MOON, SHOP, required, wanted
from tests.protocol.test_advice import UNKNOWN
from x402sim import Wallet
from x402sim.payer.core import settlement, signed_header
from x402sim.protocol.bazaar import declaration
from x402sim.protocol.crypto import UNDEPLOYED, PrivateKey, checksum, parse_address, sign, to_hex
from x402sim.protocol.eip3009 import Authorization, Permit, partial_digest, permit_digest
from x402sim.protocol.explain import explain
from x402sim.protocol.messages import BadMessage
from x402sim.protocol.networks import BASE_SEPOLIA, MAINNET, NETWORKS, TESTNET, Network
from x402sim.protocol.offers import offers
from x402sim.protocol.permit2 import (
    OLDER_UPTO_PROXY,
    PERMIT2,
    UPTO_PROXY,
    Permit2Authorization,
)
from x402sim.protocol.permit2_payments import permit2_payload
from x402sim.protocol.recognize import recognize
from x402sim.protocol.values import data_of
from x402sim.protocol.x402 import (
    AnyRequirements,
    Resource,
    Settlement,
    encode_payment,
    payment_of,
    requirements_v1,
    requirements_v2,
    to_base64,
)

NOW = 1_800_000_000
HASH = "0x" + "ab" * 32
PAYER = Wallet("0x" + "11" * 32, nonces=lambda: b"n" * 32)
URL = "http://shop.example/api/perp/quote"
SETTLER = parse_address("0x7E5F4552091A69125d5DfCb7b8C2659029395Bdf")
WANTED = wanted(resource="/api/perp/quote")
REQUIRED = required(WANTED)


@pytest.fixture(autouse=True)
def _at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("x402sim.clock.Clock.now_s", lambda _: NOW)


def decoded(text: str, *options: str, stdin: str | None = None) -> Result:
    return run("decode", *options, "--", text, stdin=stdin)


def findings(text: str) -> dict[str, dict[str, Any]]:
    """What is wrong, by what it is about; the exit code tells the same."""
    done = decoded(text, "--json")
    found = {each["about"]: each for each in json.loads(done.stdout)["findings"]}
    assert done.exit_code == any(each["stops"] for each in found.values())
    return found


def authorization(**changes: Any) -> Authorization:
    return msgspec.structs.replace(PAYER.authorize(WANTED, NOW), **changes)


def header(auth: Authorization | None = None, signed_for: Network = TESTNET) -> str:
    """Our payment header, which names the testnet, whatever network it is signed for."""
    auth = auth or authorization()
    domain = replace(TESTNET, chain_id=signed_for.chain_id, token_version=signed_for.token_version)
    return signed_header(auth, PAYER, domain)


def in_one_step(accepted: AnyRequirements, by: Wallet = PAYER, **changes: Any) -> str:
    auth = authorization(**changes)
    return encode_payment(auth, by.sign(auth, TESTNET.domain), accepted, Resource(url=URL))


V1 = requirements_v1(WANTED, TESTNET, url=URL)
V2 = requirements_v2(WANTED, TESTNET)


@pytest.mark.parametrize(
    ("text", "title"),
    [
        (header(), "Payment in two steps, hex"),
        (signed_header(authorization(), PAYER, TESTNET, "base64"), "Payment in two steps, base64"),
        (in_one_step(V1), "Payment in x402 version 1, base64"),
        (f"< X-PAYMENT: {in_one_step(V1)}\r\n", "Payment in x402 version 1, base64"),
        (in_one_step(V2), "Payment in x402 version 2, base64"),
        (in_one_step(V2).rstrip("="), "Payment in x402 version 2, base64"),
        (base64.b64decode(in_one_step(V2)).decode(), "Payment in x402 version 2, JSON"),
    ],
)
def test_a_payment_of_each_dialect(text: str, title: str) -> None:
    done = decoded(text)
    assert done.exit_code == 0
    said = " ".join(done.stdout.split())
    assert said.startswith(title)
    assert re.search(r" header (paymentHeader of|X-PAYMENT|PAYMENT-SIGNATURE) ", said)
    for fact in (
        f"from {PAYER.address}",
        f"to {SHOP}",
        "value 10000 = 0.01 devUSDC.e",
        "validAfter 1799999940 = 2027-01-15 07:59:00 UTC, 1 min ago",
        "validBefore 1800000300 = 2027-01-15 08:05:00 UTC, in 5 min",
        f"signed by {PAYER.address}, `from`",
        "cronos-testnet",
    ):
        assert fact in said
    assert said.endswith("Nothing is wrong in it.")


@pytest.mark.parametrize(
    ("text", "about", "seen"),
    [
        (header(authorization(valid_before=NOW)), "validBefore", "now"),
        (header(signed_for=MAINNET), "signature", "version 2, chainId 25"),
        (in_one_step(V1, by=Wallet("0x" + "22" * 32)), "signature", "signed by 0x1563"),
        (in_one_step(V2, value=5000), "value", "5000"),
        (in_one_step(V2, to=parse_address(PAYER.address)), "to", PAYER.address),
        (in_one_step(msgspec.structs.replace(V2, network="eip155:1")), "network", "eip155:1"),
        (in_one_step(msgspec.structs.replace(V2, extra=None)), "extra.version", "nothing"),
        (in_one_step(msgspec.structs.replace(V1, network="moon")), "network", "moon"),
        ("X-PAYMENT: " + base64.b64decode(in_one_step(V1)).decode(), "encoding", "JSON"),
    ],
)
def test_what_is_wrong_in_a_payment(text: str, about: str, seen: str) -> None:
    found = findings(text)
    assert seen in found[about]["seen"]
    assert found[about]["wanted"]
    assert found[about]["do"]
    shown = decoded(text).stdout
    assert f": {about}\n   seen " in shown


def test_a_signature_in_a_form_that_the_token_refuses() -> None:
    said = json.loads(base64.b64decode(in_one_step(V1)))
    signature = said["payload"]["signature"]
    said["payload"]["signature"] = signature[:-2] + f"{int(signature[-2:], 16) - 27:02x}"
    found = findings(json.dumps(said))["signature"]
    assert found["seen"] == f"v is {int(signature[-2:], 16) - 27}"
    assert "v 27 or 28" in found["do"]


def test_a_network_of_the_users_own(tmp_path: Path) -> None:
    file = tmp_path / "networks.toml"
    file.write_text(MOON)
    moon = Network("moon", 7, TESTNET.asset, "Cheese", "CHZ", "3", 2)
    text = signed_header(authorization(), PAYER, moon)
    assert "network" in findings(text)
    done = decoded(text, "--network-file", str(file))
    assert done.exit_code == 0
    assert "10000 = 100.00 CHZ" in done.stdout


def test_a_402_shows_each_way_to_pay() -> None:
    told = offers(REQUIRED, TESTNET, url=URL)
    body = decoded(msgspec.json.encode(told.body).decode())
    assert body.exit_code == 0
    assert "Payment requirements: two steps\n" in body.stdout
    assert "Payment requirements: x402 version 1\n" in body.stdout
    sent = decoded(f"PAYMENT-REQUIRED: {told.header}")
    assert sent.exit_code == 0
    assert "Payment required (402) in x402 version 2, base64\n" in sent.stdout
    assert "eip155:338 = cronos-testnet" in sent.stdout


def test_the_body_of_a_settlement_is_compared_with_its_header() -> None:
    said = settlement("pay_abc", header(authorization(value=5000)), msgspec.to_builtins(WANTED))
    found = findings(json.dumps(said))
    assert found["value"]["seen"] == "5000"
    assert found["value"]["wanted"] == "10000, as maxAmountRequired says"
    said["paymentHeader"] = "0xzz"
    assert "'0xzz' (4 characters)" in findings(json.dumps(said))["paymentHeader"]["seen"]
    as_text = bytes.fromhex(header()[2:]).decode()
    for raw in (as_text, json.loads(as_text)):
        found = findings(json.dumps({**said, "paymentHeader": raw}))
        assert found["paymentHeader"]["wanted"] == "base64 of the JSON, or 0x-hex"
        assert "shape" not in found


def test_receipts() -> None:
    ours = {"success": True, "paymentId": "pay_a", "txHash": HASH, "timestamp": NOW * 1000}
    assert "2027-01-15 08:00:00 UTC, now" in decoded(json.dumps(ours)).stdout
    theirs = to_base64(Settlement(success=True, transaction=HASH, network="eip155:338"))
    done = decoded("-", stdin=f"payment-response: {theirs}\r\n")
    assert done.stdout.startswith("Receipt in x402 version 2, base64\n")
    assert done.exit_code == 0


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "the text is empty"),
        ("0x7", "neither JSON, base64 nor 0x-hex: '0x7' (3 characters); copy the value"),
        ("%%%", "neither JSON, base64 nor 0x-hex"),
        ("aGVsbG8=", "it decodes as base64 to 'hello', but that is not JSON"),
        ("eyJ4NDAyVmVyc2lvbiI6", "from its first character to its last"),
        ("[1]", "JSON, but an array"),
        ('{"a": 1}', "it has 'a'; wanted payload, accepts"),
        ("http://shop/page", "neither JSON, base64 nor 0x-hex"),
        ("[" * 5000, "more than the 2000 read"),
    ],
)
def test_what_cannot_be_decoded(text: str, told: str) -> None:
    assert_misuse(decoded("-", stdin=text), "x402sim: cannot decode it: ", told)


ODD = (None, "", "0x", "9" * 5000, "\u202e", -1, 10**30, 1.5, True, [], {}, [[{}]])


def changed(said: Any) -> Iterator[Any]:
    """Every message that is one odd value away from this one."""
    if isinstance(said, dict):
        for name, value in said.items():
            for each in (*ODD, *changed(value)):
                yield {**said, name: each}
            yield {other: each for other, each in said.items() if other != name}
    elif isinstance(said, list):
        for number, value in enumerate(said):
            yield from ([*said[:number], each, *said[number + 1 :]] for each in changed(value))


def longest(text: str) -> int:
    return max(map(len, text.splitlines()))


def test_the_output_fits_in_80_columns_and_acts_on_no_terminal() -> None:
    said = msgspec.to_builtins(V1) | {"description": "\x1b[31m" + "red " * 40}
    shown = decoded(json.dumps(said)).stdout
    assert "\x1b" not in shown
    assert longest(shown) <= 80
    assert longest(decoded(header()).stdout) <= 88  # a nonce stays whole
    assert BASE_SEPOLIA.name not in shown


def test_of_a_whole_answer_it_reads_the_body_that_offers_payments_and_the_headers() -> None:
    body = msgspec.json.encode(REQUIRED).decode()
    receipt = to_base64(Settlement(success=True, transaction="0xabc", network="eip155:338"))
    head = "HTTP/1.1 402 Payment Required\r\ncontent-type: application/json\r\n"
    assert decoded(f"{head}\r\n{body}").stdout == decoded(body).stdout
    for space in ("", " ", "\t"):
        paid = f"{head}Payment-Response:{space}{receipt}\r\n\r\n"
        assert decoded(paid + '{"quote": 1}').stdout.startswith("Receipt")
    both = decoded(paid + body).stdout
    assert both.startswith("Payment required (402)")
    assert "\nReceipt in " in both
    assert "the text is empty" in decoded(f"{head}\r\n").stderr


@pytest.mark.parametrize("value", ["garbage", "W10=", ""])
def test_a_header_that_is_wrong_beside_a_body_that_is_right_is_told(value: str) -> None:
    body = msgspec.json.encode(REQUIRED).decode()
    head = f"HTTP/1.1 402 Payment Required\r\nPayment-Required: {value}\r\n"
    done = decoded(f"{head}\r\n{body}")
    assert (done.exit_code, "Payment-Required" in done.stdout) == (1, True)
    assert "Nothing is wrong" not in done.stdout


# --- every kind of message of the standard, and what can be wrong in each, by rows -------


def plain(message: Any) -> Any:
    return msgspec.to_builtins(message)


def opened(text: str) -> Any:
    return json.loads(base64.b64decode(text))


Change = dict[str, Any]
USDC = msgspec.structs.replace(WANTED, asset=checksum(BASE_SEPOLIA.asset))
USDC_V1 = requirements_v1(USDC, BASE_SEPOLIA, url=URL)
USDC_V2 = requirements_v2(USDC, BASE_SEPOLIA)
SOLANA = {
    "scheme": "exact",
    "network": "solana:5eykt4UsFv8P8NJdTREpY1vzqKqZKvdp",
    "amount": "10000",
    "asset": "EPjFWdd5AufqSSqeM2qN1xzybapC8G4wEGGkZwyTDt1v",
    "payTo": "2wKupLR9q6wXYppw8Gr2NvWxKBUqm4PPJKkQfoxHDBg4",
    "maxTimeoutSeconds": 60,
    "extra": {"feePayer": "EwWqGE4ZFKLofuestmU4LDdK7XM1N4ALgdZccwYugwGd"},
}
YEN = {
    **plain(USDC_V2),
    "network": "eip155:137",
    "asset": "0x431D5dfF03120AFA4bDf332c61A6e1766eF37BDB",
    "extra": {"name": "JPY Coin", "version": "1"},
}
ABOUT = {"url": URL, "description": "", "mimeType": "application/json"}
PAID_V1 = opened(in_one_step(V1))
PAID_V2 = opened(in_one_step(V2))
REQUIRED_V1 = {"x402Version": 1, "error": "pay", "accepts": [plain(USDC_V1)]}
REQUIRED_V2 = {"x402Version": 2, "error": "pay", "resource": ABOUT, "accepts": [plain(USDC_V2)]}
ASKED_V1 = {"x402Version": 1, "paymentPayload": PAID_V1, "paymentRequirements": plain(V1)}
ASKED_V2 = {"x402Version": 2, "paymentPayload": PAID_V2, "paymentRequirements": plain(V2)}
ASKED_CRONOS = {"x402Version": 1, "paymentHeader": header(), "paymentRequirements": plain(WANTED)}
RECEIPT = {"success": True, "transaction": HASH, "network": "eip155:84532", "payer": PAYER.address}
RECEIPT_V1 = RECEIPT | {"network": "base-sepolia"}
PENDING = RECEIPT | {"success": False, "errorReason": "settlement_pending"}
REFUSED = RECEIPT | {"success": False, "errorReason": "insufficient_funds", "transaction": ""}
OURS = {"success": True, "paymentId": "pay_a", "txHash": HASH, "timestamp": NOW * 1000}
VALID = {"isValid": True, "payer": PAYER.address}
INVALID = {"isValid": False, "invalidReason": "insufficient_funds", "payer": PAYER.address}
SUPPORTED = {
    "kinds": [{"x402Version": 2, "scheme": "exact", "network": "eip155:84532"}],
    "extensions": [],
    "signers": {"eip155:*": [PAYER.address]},
}
ITEM = {
    "resource": URL,
    "type": "http",
    "x402Version": 2,
    "accepts": [plain(USDC_V2)],
    "lastUpdated": NOW,
}
LISTING = {"x402Version": 2, "items": [ITEM], "pagination": {"limit": 10, "offset": 0, "total": 1}}
SETTLED = {
    "x402Version": 1,
    "event": "payment.settled",
    "txHash": HASH,
    "from": PAYER.address,
    "to": PAYER.address,
    "value": "10000",
    "blockNumber": 7,
    "network": "cronos-testnet",
    "timestamp": "2027-01-15T08:00:00.000Z",
}
FAILED = {
    "x402Version": 1,
    "event": "payment.failed",
    "network": "cronos-testnet",
    "timestamp": "2027-01-15T08:00:00.000Z",
    "error": "Authorization already used",
}


def rpc(**fields: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, **fields}


def a_text(text: str) -> dict[str, str]:
    """A part of what a tool answers."""
    return {"type": "text", "text": text}


UNPAID = {"structuredContent": REQUIRED_V2, "content": [a_text(json.dumps(REQUIRED_V2))]}
TOOL = rpc(result={"isError": True, **UNPAID})
PARAMS = {"name": "report", "arguments": {}, "_meta": {"x402/payment": PAID_V2}}
CALL = rpc(method="tools/call", params=PARAMS)
RECEIVED = {"x402/payment-response": RECEIPT}
DELIVERED = rpc(result={"content": [a_text("the report")], "_meta": RECEIVED})


def task(status: str, state: str = "input-required", **fields: Any) -> dict[str, Any]:
    told = {f"x402.payment.{name}": each for name, each in fields.items()}
    metadata = {"x402.payment.status": status, **told}
    message = {"kind": "message", "role": "agent", "parts": [], "metadata": metadata}
    status_of = {"state": state, "message": message}
    return {"jsonrpc": "2.0", "id": "1", "result": {"kind": "task", "status": status_of}}


SUBMITTED = {"x402.payment.status": "payment-submitted", "x402.payment.payload": PAID_V2}
MESSAGE = {"taskId": "t", "role": "user", "parts": [], "metadata": SUBMITTED}
SENT = rpc(method="message/send", params={"message": MESSAGE})
RIGHT: dict[str, tuple[Any, str]] = {
    "payment in two steps": (
        json.loads(bytes.fromhex(header()[2:])),
        "Payment in two steps",
    ),
    "402 v1": (REQUIRED_V1, "Payment required (402) in x402 version 1"),
    "402 v2": (REQUIRED_V2, "Payment required (402) in x402 version 2"),
    "payment v1": (PAID_V1, "Payment in x402 version 1"),
    "payment v2": (PAID_V2, "Payment in x402 version 2"),
    "requirements v1": (plain(USDC_V1), "Payment requirements: x402 version 1"),
    "requirements v2": (plain(USDC_V2), "Payment requirements: x402 version 2"),
    "list of requirements": ([plain(USDC_V2)], "Payment required (402) in x402 version 2"),
    "verify v1": (ASKED_V1, "Body of verify and settle in the x402 standard"),
    "verify v2": (ASKED_V2, "Body of verify and settle in the x402 standard"),
    "verify of Cronos": (ASKED_CRONOS, "Body of verify and settle in Cronos' facilitator"),
    "verified": (VALID, "Answer of verify in the x402 standard"),
    "verified by Cronos": (
        {"isValid": True, "invalidReason": None},
        "Answer of verify in the x402 standard",
    ),
    "settled v1": (RECEIPT_V1, "Receipt in x402 version 1"),
    "settled v2": (RECEIPT, "Receipt in x402 version 2"),
    "settled by Cronos": (SETTLED, "Answer of settle in Cronos' facilitator"),
    "receipt of two steps": (OURS, "Receipt in two steps"),
    "supported": (SUPPORTED, "Answer of supported in the x402 standard"),
    "supported v1": (
        {"kinds": [{"x402Version": 1, "scheme": "exact", "network": "base-sepolia"}]},
        "Answer of supported in the x402 standard",
    ),
    "discovery": (LISTING, "List of discovery in the x402 standard"),
    "search of discovery": (
        {"x402Version": 2, "resources": [ITEM], "partialResults": False},
        "List of discovery in the x402 standard",
    ),
    "/.well-known/x402": (
        {"version": 1, "resources": [URL], "accepts": [plain(USDC_V1)]},
        "List of /.well-known/x402",
    ),
    "MCP result": (TOOL, "Message of MCP"),
    "MCP result, wrapped": (
        {
            "isError": True,
            "structuredContent": {"x402/error": {"code": 402, "data": REQUIRED_V2}},
            "content": [
                a_text(json.dumps({"x402/error": {"data": REQUIRED_V2}})),
                a_text("Pay for it."),
            ],
        },
        "Message of MCP",
    ),
    "MCP result, an error": (
        {
            "x402/error": {"code": 402, "data": REQUIRED_V2},
            "content": [a_text(json.dumps(REQUIRED_V2))],
        },
        "Message of MCP",
    ),
    "MCP result, text only": (
        {"isError": True, "content": [a_text(json.dumps(REQUIRED_V1))]},
        "Message of MCP",
    ),
    "MCP result alone": (TOOL["result"], "Message of MCP"),
    "MCP result, experimental": (
        {"result": {"resultType": "payment_required", "paymentRequired": REQUIRED_V2}},
        "Message of MCP",
    ),
    "MCP call": (CALL, "Message of MCP"),
    "MCP call, params alone": (PARAMS, "Message of MCP"),
    "MCP receipt": (DELIVERED, "Message of MCP"),
    "MCP error": (
        rpc(error={"code": 402, "message": "p", "data": REQUIRED_V1}),
        "Message of MCP",
    ),
    "A2A 402": (task("payment-required", required=REQUIRED_V2), "Message of A2A"),
    "A2A payment": (SENT, "Message of A2A"),
    "A2A message alone": (MESSAGE, "Message of A2A"),
    "A2A receipt": (task("payment-completed", "completed", receipts=[RECEIPT]), "Message of A2A"),
}
"""A right message of each kind, and its title."""


@pytest.mark.parametrize("kind", RIGHT)
def test_each_kind_is_read_and_nothing_is_wrong_in_it(kind: str) -> None:
    message, title = RIGHT[kind]
    for text in (json.dumps(message), json.dumps(message, indent=2)):
        done = decoded(text)
        assert done.exit_code == 0, done.output
        assert done.stdout.startswith(title), done.output
        assert done.stdout.endswith("Nothing is wrong in it.\n"), done.output
    told = json.loads(decoded(text, "--json").stdout)
    assert told["findings"] == []
    assert told["parts"]


@pytest.mark.parametrize("kind", RIGHT)
def test_no_odd_value_stops_the_explanation(kind: str) -> None:
    for said in islice(changed(RIGHT[kind][0]), None, None, 3):  # kinds share most of their fields
        try:
            found = recognize(json.dumps(said))
        except BadMessage:
            continue
        for part in explain(found, NETWORKS, NOW):
            assert json.dumps(data_of(part.facts))
            assert all(map(str, part.facts))
            assert all(each.seen and each.wanted and each.do for each in part.findings)


WORKING = task("payment-required", "working", required=REQUIRED_V2)
UNSETTLED = task("payment-completed", "completed", receipts=[REFUSED])
WITHOUT = task("payment-submitted", "working", required=REQUIRED_V2)
STRANGER = opened(in_one_step(V2, by=Wallet("0x" + "22" * 32)))
WRONG: list[tuple[Any, str, Any, str, str]] = [
    # requirements
    (plain(V1), "payTo", "0x" + "0" * 40, "payTo", "the zero address"),
    (plain(V1), "payTo", "me", "payTo", "me"),
    (plain(V1), "asset", SHOP, "asset", SHOP),
    (plain(V1), "scheme", "upto", "scheme", "upto"),
    (plain(V1), "maxTimeoutSeconds", 5, "maxTimeoutSeconds", "5"),
    (plain(V1), "extra/name", "USDC", "extra.name", "USDC"),
    # a 402
    (REQUIRED_V1, "accepts/0/maxAmountRequired", ..., "maxAmountRequired", "nothing"),
    (REQUIRED_V1, "accepts/0/maxAmountRequired", 10000, "maxAmountRequired", "10000"),
    (REQUIRED_V1, "accepts/0/network", "eip155:84532", "network", "eip155:84532"),
    (REQUIRED_V1, "accepts/0/network", "base_sepolia", "network", "base_sepolia"),
    (REQUIRED_V1, "accepts", [], "accepts", "an empty list"),
    (REQUIRED_V2, "accepts/0/amount", "0.01", "amount", "0.01"),
    (REQUIRED_V2, "accepts/0/amount", "10000000000", "amount", "10000.00 USDC"),
    (REQUIRED_V2, "accepts/0/amount", "1", "amount", "0.000001 USDC"),
    (REQUIRED_V2, "accepts/0/network", "eip155:base", "network", "eip155:base"),
    (REQUIRED_V2, "accepts/0/scheme", "Exact", "scheme", "Exact"),
    (REQUIRED_V2, "accepts/0/scheme", 7, "scheme", "7"),
    (REQUIRED_V2, "accepts/0/extra/version", "1", "extra.version", "1"),
    (REQUIRED_V2, "resource", "a text", "shape", "`$.resource`"),
    # what a facilitator is sent
    (ASKED_V2, "paymentRequirements/amount", "20000", "value", "10000"),
    (ASKED_V2, "paymentRequirements/payTo", PAYER.address, "accepted", "payTo"),
    (ASKED_V2, "paymentRequirements/extra/version", "2", "accepted", "extra.version"),
    (ASKED_V2, "paymentRequirements", ..., "shape", "paymentRequirements"),
    (ASKED_V2, "x402Version", 1, "x402Version", "1"),
    (ASKED_V2, "paymentPayload", STRANGER, "signature", "signed by 0x1563"),
    (ASKED_V2, "paymentPayload", in_one_step(V2), "paymentPayload", "a text, base64"),
    (ASKED_V2, "paymentPayload", REQUIRED_V2, "paymentPayload", "a payment required"),
    (ASKED_V2, "paymentPayload", {}, "paymentPayload", "no message of a payment"),
    (ASKED_V1, "paymentRequirements/maxAmountRequired", "20000", "value", "10000"),
    (ASKED_V1, "paymentRequirements/network", "base-sepolia", "network", "cronos-testnet"),
    (ASKED_V1, "paymentPayload/payload/authorization/nonce", ..., "shape", "nonce"),
    (ASKED_CRONOS, "paymentRequirements/maxAmountRequired", "20000", "value", "10000"),
    (ASKED_CRONOS, "paymentHeader", "0xzz", "paymentHeader", "0xzz"),
    # what it answers
    (VALID, "invalidReason", "insufficient_funds", "invalidReason", "insufficient_funds"),
    (VALID, "isValid", "yes", "shape", "isValid"),
    (VALID, "payer", "alice", "payer", "alice"),
    (INVALID, "payer", PAYER.address, "isValid", "insufficient_funds"),
    (INVALID, "invalidReason", ..., "invalidReason", "nothing"),
    (RECEIPT, "transaction", "", "transaction", "''"),
    (RECEIPT, "transaction", ..., "transaction", "nothing"),
    (RECEIPT, "transaction", "0x12", "transaction", "0x12"),
    (RECEIPT, "transaction", HASH[2:], "transaction", HASH[2:]),
    (RECEIPT, "transaction", "0x" + "0" * 64, "transaction", "0x000"),
    (RECEIPT, "transaction", None, "shape", "transaction"),
    (RECEIPT, "network", "", "network", "''"),
    (RECEIPT, "network", "solana:5eykt4UsFv8P8NJdTREpY1vzqKqZKvdp", "transaction", HASH),
    (RECEIPT, "success", "true", "shape", "success"),
    (RECEIPT, "errorReason", "insufficient_funds", "errorReason", "insufficient_funds"),
    (RECEIPT_V1, "transaction", "", "transaction", "''"),
    (PENDING, "payer", PAYER.address, "success", "settlement_pending"),
    (PENDING, "transaction", "", "transaction", "''"),
    (PENDING, "network", ..., "network", "nothing"),
    (REFUSED, "payer", PAYER.address, "success", "insufficient_funds"),
    (REFUSED, "errorReason", ..., "errorReason", "nothing"),
    (OURS, "txHash", "0xabc", "txHash", "0xabc"),
    (OURS, "timestamp", NOW, "timestamp", str(NOW)),
    (OURS, "success", False, "success", "False"),
    (SETTLED, "txHash", "", "txHash", "''"),
    (FAILED, "error", "Authorization expired", "event", "Authorization expired"),
    (LISTING, "items", [7], "item 1", "7"),
    (SUPPORTED, "kinds", [], "kinds", "an empty list"),
    (SUPPORTED, "signers", ..., "signers", "nothing"),
    (SUPPORTED, "kinds/0/network", "base-sepolia", "network of kind 1", "base-sepolia"),
    (LISTING, "items/0/accepts", [], "accepts of item 1", "[]"),
    (LISTING, "items/0/accepts/0/amount", 7, "amount", "7"),
    (LISTING, "items/0/resource", ..., "resource of item 1", "nothing"),
    # MCP and A2A
    (TOOL, "result/isError", ..., "isError", "nothing"),
    (TOOL, "result/isError", False, "isError", "False"),
    (TOOL, "result/content", [], "content[0].text", "no 402"),
    (TOOL, "result/structuredContent/accepts/0/amount", "1000", "copies", "accepts[0].amount"),
    (TOOL, "result/structuredContent/accepts/0/payTo", "", "payTo", "''"),
    (CALL, "params/_meta/x402 payment", in_one_step(V2), 'params._meta["x402/payment"]', "base64"),
    (CALL, "params/_meta/x402 payment", 7, 'params._meta["x402/payment"]', "7"),
    (CALL, "params/_meta/x402 payment", STRANGER, "signature", "signed by 0x1563"),
    (DELIVERED, "result/_meta/x402 payment-response", REFUSED, "success", "insufficient_funds"),
    (SENT, "params/message/metadata/x402.payment.status", ..., "x402.payment.status", "nothing"),
    (WORKING, "id", "2", "status.state", "working"),
    (UNSETTLED, "id", "2", "x402.payment.status", "the last receipt says false"),
    (WITHOUT, "id", "2", "x402.payment.payload", "nothing"),
]
"""A message, a path in it and the value there; then what the finding is about, and what it saw."""


@pytest.mark.parametrize(("message", "path", "value", "about", "seen"), WRONG)
def test_what_can_be_wrong_in_each_kind(
    message: Any, path: str, value: Any, about: str, seen: str
) -> None:
    said = json.dumps(changed_at(message, path, value))
    found = findings(said)
    assert seen in found[about]["seen"], found
    assert found[about]["wanted"]
    assert found[about]["do"]
    stops = any(each["stops"] for each in found.values())
    assert ("Nothing is wrong" in decoded(said).stdout) is not stops


def changed_at(message: Any, path: str, value: Any) -> Any:
    """The message with another value at a path; a blank in a name is a slash, ... leaves it out."""
    said = json.loads(json.dumps(message))
    *before, last = [
        int(each) if each.isdigit() else each.replace(" ", "/") for each in path.split("/")
    ]
    inner = said
    for each in before:
        inner = inner[each]
    if value is ...:
        del inner[last]
    else:
        inner[last] = value
    return said


SIGNED_ELSEWHERE = {"transaction": "AQAB"}
DELEGATED = {"delegationManager": "0x12", "permissionContext": "0x12"}
OTHERS: list[tuple[Any, str]] = [
    (REQUIRED_V2 | {"accepts": [SOLANA, plain(USDC_V2)]}, "network"),
    (REQUIRED_V2 | {"accepts": [plain(USDC_V2) | {"scheme": "batch"}, plain(USDC_V2)]}, "scheme"),
    (REQUIRED_V2 | {"accepts": [YEN, plain(USDC_V2)]}, "asset"),
    (
        REQUIRED_V2 | {"accepts": [plain(USDC_V2) | {"extra": {"assetTransferMethod": "erc7710"}}]},
        "extra.assetTransferMethod",
    ),
    (
        REQUIRED_V2 | {"accepts": [plain(USDC_V2) | {"extra": {"paymentFlow": "escrow"}}]},
        "extra.paymentFlow",
    ),
    (REQUIRED_V1 | {"accepts": [plain(USDC_V1) | {"network": "solana-devnet"}]}, "network"),
    (REQUIRED_V1 | {"accepts": [plain(USDC_V1) | {"scheme": "deferred"}]}, "scheme"),
    (SOLANA, "network"),
    ({"x402Version": 2, "accepted": SOLANA, "payload": SIGNED_ELSEWHERE}, "network"),
    (
        {"x402Version": 1, "scheme": "exact", "network": "solana", "payload": SIGNED_ELSEWHERE},
        "network",
    ),
    ({"x402Version": 2, "accepted": plain(USDC_V2), "payload": DELEGATED}, "payload"),
    (
        {
            "x402Version": 2,
            "paymentPayload": {"x402Version": 2, "accepted": SOLANA, "payload": SIGNED_ELSEWHERE},
            "paymentRequirements": SOLANA,
        },
        "network",
    ),
    (LISTING | {"items": [ITEM | {"accepts": [SOLANA]}]}, "network"),
]
"""Honest messages for other payers, and what they differ in."""


@pytest.mark.parametrize(("message", "about"), OTHERS)
def test_what_is_for_other_payers_is_not_looked_at_and_not_wrong(message: Any, about: str) -> None:
    done = decoded(json.dumps(message))
    assert done.exit_code == 0, done.output
    assert f"not looked at: {about}" in done.stdout
    assert "wrong:" not in done.stdout
    assert done.stdout.endswith("Nothing is wrong in what was examined.\n")


def by_permit2(**changes: Any) -> dict[str, Any]:
    """A payment of `upto`, with a permit for Permit2 beside it; `changes` of what is signed."""
    settles = {"facilitatorAddress": checksum(SETTLER)}
    offer = plain(USDC_V2) | {"scheme": "upto", "extra": settles}
    signed = Permit2Authorization(
        from_=PAYER.address_bytes, token=BASE_SEPOLIA.asset, amount=int(offer["amount"]),
        spender=UPTO_PROXY, nonce=7, deadline=NOW + 300, to=parse_address(offer["payTo"]),
        valid_after=NOW - 60, facilitator=SETTLER,
    )  # fmt: skip
    message = msgspec.structs.replace(
        signed, **{k: v for k, v in changes.items() if k != "permitted"}
    )
    value = changes.get("permitted", message.amount)
    permit = Permit(PAYER.address_bytes, PERMIT2, value, 0, NOW + 300)
    info = {
        "from": PAYER.address,
        "asset": checksum(BASE_SEPOLIA.asset),
        "spender": checksum(PERMIT2),
        "amount": str(value),
        "nonce": "0",
        "deadline": str(NOW + 300),
        "signature": to_hex(
            sign(permit_digest(permit, BASE_SEPOLIA.domain), PrivateKey(b"\x11" * 32))
        ),
        "version": "1",
    }
    signature = PAYER.sign_permit2(message, BASE_SEPOLIA.chain_id)
    return {
        "x402Version": 2,
        "accepted": offer,
        "payload": msgspec.to_builtins(permit2_payload(message, signature)),
        "extensions": {"eip2612GasSponsoring": {"info": info}},
    }


def test_a_payment_by_permit2_is_shown_by_its_names() -> None:
    done = decoded(json.dumps(by_permit2()))
    assert done.exit_code == 0, done.output
    for name, value in {
        "maximum": "10000 = 0.01 USDC",
        "spender": f"{checksum(UPTO_PROXY)} = upto proxy",
        "facilitator": f"{checksum(SETTLER)}, alone may settle",
        "deadline": "in ",
        "signed by": f"{PAYER.address}, `from`",
        "amount": "10000 = 0.01 USDC",
    }.items():
        assert re.search(rf"^ +{name} .*{re.escape(value)}", done.stdout, re.M), name
    assert "EIP-2612 permit in extensions.eip2612GasSponsoring" in done.stdout


@pytest.mark.parametrize(
    ("changes", "about", "seen"),
    [
        ({"spender": OLDER_UPTO_PROXY}, "spender", "older upto proxy"),
        ({"spender": b"\x33" * 20}, "spender", "no x402 proxy"),
        ({"facilitator": b"\x33" * 20}, "witness.facilitator", "0x3333"),
        ({"amount": 20_000}, "permitted.amount", "20000"),
        ({"deadline": 1}, "deadline", "deadline is 1"),
        ({"from_": b"\x33" * 20}, "signature", "another"),
        ({"permitted": 2**256 - 1}, "eip2612GasSponsoring.amount", str(2**256 - 1)),
        ({"from_": b"\x33" * 20}, "eip2612GasSponsoring.from", PAYER.address),
    ],
)
def test_what_a_facilitator_refuses_of_a_payment_by_permit2_is_found(
    changes: dict[str, Any], about: str, seen: str
) -> None:
    assert seen in findings(json.dumps(by_permit2(**changes)))[about]["seen"]


def test_a_receipt_of_solana_names_a_signature_of_solana() -> None:
    signature = (
        "5h6xBEauJ3PK6SWCZ1PGjBvj8vDdWG3KpwATGy1ARAXFSDwt8GFXM7W5Ncn16wmqokgpiKRLuS83KUxyZyv2sUYv"
    )
    receipt = RECEIPT | {"network": SOLANA["network"], "transaction": signature}
    assert decoded(json.dumps(receipt)).exit_code == 0


@pytest.mark.parametrize("word", UNKNOWN)
def test_after_an_unknown_word_of_settle_nobody_is_told_to_sign_anew(word: str) -> None:
    failed = REFUSED | {"errorReason": word, "network": "base", "transaction": "0x" + "8e" * 32}
    cronos = FAILED | {"error": word}
    for said in (failed, failed | {"transaction": ""}, RECEIPT | failed, cronos):
        done = decoded(json.dumps(said))
        told = " ".join(done.stdout.split())
        assert "may have moved" in told
        assert "Sign no other" in told
        assert "sign anew" not in told
        assert done.exit_code == 1
    verified = INVALID | {"invalidReason": word}
    assert "Verify moves no money" in " ".join(decoded(json.dumps(verified)).stdout.split())


def test_an_amount_of_another_token_is_not_shown_in_ours() -> None:
    paid = {"x402Version": 2, "accepted": YEN, "payload": PAID_V2["payload"]}
    for message in (YEN, paid, REQUIRED_V2 | {"accepts": [YEN, plain(USDC_V2)]}):
        shown = decoded(json.dumps(message)).stdout
        assert shown.count("10000 = 0.01 USDC") == ("accepts" in message), shown


def test_a_402_whose_header_and_body_differ() -> None:
    other = REQUIRED_V2 | {"accepts": [plain(USDC_V2) | {"amount": "20000"}]}
    head = f"HTTP/1.1 402 Payment Required\r\nPAYMENT-REQUIRED: {to_base64(REQUIRED_V2)}\r\n\r\n"
    done = decoded(head + json.dumps(other))
    assert done.exit_code == 1
    assert "accepts[0].amount" in done.stdout
    assert decoded(head + json.dumps(REQUIRED_V2)).exit_code == 0


def test_a_402_of_version_2_in_a_body_lacks_its_header() -> None:
    head = "HTTP/1.1 402 Payment Required\r\ncontent-type: application/json\r\n\r\n"
    done = decoded(head + json.dumps(REQUIRED_V2))
    assert done.exit_code == 1
    assert "wrong: header PAYMENT-REQUIRED\n" in done.stdout
    assert decoded(head + json.dumps(REQUIRED_V1)).exit_code == 0


@pytest.mark.parametrize(
    ("name", "message", "wanted", "code"),
    [
        ("PAYMENT-REQUIRED", REQUIRED_V1, "the body, as it is", 1),
        ("X-PAYMENT-RESPONSE", REQUIRED_V2, "PAYMENT-REQUIRED", 1),
        ("PAYMENT-RESPONSE", RECEIPT_V1, "X-PAYMENT-RESPONSE", 0),
        ("X-PAYMENT", PAID_V2, "PAYMENT-SIGNATURE", 1),
        ("X-PAYMENT", RECEIPT, "PAYMENT-RESPONSE", 0),
    ],
)
def test_a_message_in_the_header_of_another(
    name: str, message: Any, wanted: str, code: int
) -> None:
    done = decoded(f"{name}: {to_base64(message)}")
    assert done.exit_code == code
    said = " ".join(done.stdout.split())
    assert f": header seen {name} wanted {wanted} " in said


def test_what_curl_prints_with_its_marks_is_read() -> None:
    sent = "* Connected to shop\n> GET /page HTTP/1.1\n> Host: shop\n> \n"
    got = f"< HTTP/1.1 402 Payment Required\n< payment-required: {to_base64(REQUIRED_V2)}\n< \n"
    done = decoded(f"{sent}* Request done\n{got}{{ [2 bytes data]\n{{}}\n* Connection closed\n")
    assert done.stdout.startswith("Payment required (402) in x402 version 2, base64\n"), done.output
    paid = sent.replace("> \n", f"> PAYMENT-SIGNATURE: {in_one_step(V2)}\n> \n")
    assert decoded(paid).stdout.startswith("Payment in x402 version 2, base64\n")


def test_a_stream_of_events_holds_the_answer_of_a_tool() -> None:
    stream = f"event: message\ndata: {json.dumps(TOOL)}\n\n"
    assert decoded(stream).stdout.startswith("Message of MCP")
    head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n"
    assert decoded(head + stream).stdout.startswith("Message of MCP")


@pytest.mark.parametrize(
    ("text", "told", "quoted"),
    [
        (
            'HTTP/1.1 402 Payment Required\r\nWWW-Authenticate: Payment id="x7", realm="api", '
            'method="tempo", intent="charge", request="eyJhbW91bnQiOiIxMDAwIn0"\r\n\r\n{}',
            "the HTTP authentication scheme Payment",
            '{"amount":"1000"}',
        ),
        (
            'WWW-Authenticate: L402 macaroon="AGIA", invoice="lnbc1500n1"',
            "L402, which is paid over the Lightning network",
            "lnbc1500n1",
        ),
        (
            "HTTP/1.1 402 Payment Required\r\n\r\n<h1>Top up</h1>",
            "a bill without a way to pay",
            "<h1>Top up</h1>",
        ),
    ],
)
def test_a_402_of_another_protocol_is_called_so(text: str, told: str, quoted: str) -> None:
    done = decoded(text)
    assert done.exit_code == 1
    assert done.stdout.startswith(f"402 Payment Required: {told}")
    assert quoted in done.stdout


def test_an_answer_of_a_node_is_an_error_of_json_rpc() -> None:
    error = rpc(error={"code": -32000, "message": "nonce too low"})
    done = decoded(json.dumps(error))
    assert done.exit_code == 0
    assert "Message of JSON-RPC, JSON: no payment is in it" in done.stdout
    assert "nonce too low" in done.stdout
    error["error"] = {"code": 402, "message": "Payment required"}
    assert decoded(json.dumps(error)).exit_code == 1


# --- what people paste ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("message", "word", "do"),
    [
        (
            {
                "error": "Settlement failed",
                "details": 'Facilitator settle failed (500): {"errorReason":'
                '"settle_exact_node_failure","success":false}',
            },
            "settle_exact_node_failure",
            "may have moved",
        ),
        ({"error": "No facilitator registered for scheme: exact"}, "scheme", "GET /supported"),
        ({"error": "payment_failed", "detail": {"reason": "a_new_word"}}, "failed", "may have"),
        ({"detail": "Payment failed: insufficient_funds"}, "insufficient_funds", "Fund the payer"),
        (
            {"error": {"code": "insufficient_funds", "transaction": HASH}},
            "insufficient_funds",
            "may have moved",
        ),
        (
            {"error": "Nonce already used", "final": True},
            "Nonce already used",
            "sign anew with a new nonce",
        ),
        (
            {"error": "settlement_failed", "reason": "insufficient_funds"},
            "settlement_failed",
            "may have moved",
        ),
        (
            {"errorType": "timed_out", "errorMessage": "No answer", "correlationId": "a1"},
            "No answer",
            "may have moved",
        ),
        (REQUIRED_V1 | {"error": "settle_exact_node_failure"}, "node_failure", "may have moved"),
    ],
    ids=str,
)
def test_an_error_is_no_receipt_and_its_words_are_read(message: Any, word: str, do: str) -> None:
    found = findings(json.dumps(message))["error"]
    assert word in found["seen"]
    assert do in found["do"]
    assert found["stops"]


@pytest.mark.parametrize("key", ["x402.payment", "x402.org/payment", "payment", "x402Payment"])
def test_a_payment_of_mcp_under_another_key_is_named(key: str) -> None:
    for value in (PAID_V2, in_one_step(V2)):
        call = CALL | {"params": {"name": "report", "_meta": {key: value}}}
        for message in (call, call["params"]):
            found = json.loads(decoded(json.dumps(message), "--json").stdout)["findings"]
            wanted = {each["wanted"] for each in found if key in each["about"]}
            assert 'params._meta["x402/payment"]' in wanted


def test_a_payment_of_a2a_under_another_key_is_named() -> None:
    found = findings(json.dumps(SENT).replace("x402.payment.payload", "payment"))
    (where,) = [each for each in found if each.endswith("metadata.payment")]
    assert found[where]["wanted"] == 'metadata["x402.payment.payload"]'


@pytest.mark.parametrize(
    "said",
    [
        {"error": {"code": -32603, "message": "Settlement failed: settle_exact_node_failure"}},
        {
            "result": {
                "isError": True,
                "content": [a_text('{"error": "settle_exact_node_failure"}')],
            }
        },
    ],
    ids=str,
)
def test_a_tools_error_has_its_word_read(said: Any) -> None:
    found = findings(json.dumps(rpc(**said)))["error"]
    assert found["seen"] == "settle_exact_node_failure"
    assert "may have moved" in found["do"]


def test_a_message_inside_another_object_is_read() -> None:
    assert "success" in findings(json.dumps({"settlement": REFUSED}))
    said = {"payment": {"status": "failed", "errorReason": "settle_exact_node_failure"}}
    assert "may have moved" in findings(json.dumps(said))["error"]["do"]
    said = {"message": "Payment failed", "code": "insufficient_funds"}
    assert "Fund the payer" in findings(json.dumps(said))["error"]["do"]


def test_a_receipt_of_mcp_in_another_place_is_named() -> None:
    message = rpc(result={"content": [], "x402": {"receipt": RECEIPT}})
    found = findings(json.dumps(message))["result.x402.receipt"]
    assert found["wanted"] == 'result._meta["x402/payment-response"]'


def snake(value: Any) -> Any:
    """The same with every name in snake_case."""
    if isinstance(value, list):
        return [snake(each) for each in value]
    if not isinstance(value, dict):
        return value
    return {re.sub("([A-Z])", r"_\1", name).lower(): snake(each) for name, each in value.items()}


@pytest.mark.parametrize("message", [REQUIRED_V1, REQUIRED_V2, PAID_V1, PAID_V2, ASKED_V1], ids=str)
def test_names_in_snake_case_are_named_and_the_rest_is_read(message: Any) -> None:
    found = findings(json.dumps(snake(message)))
    assert set(found) == {"spelling"}
    assert "x402_version" in found["spelling"]["seen"]
    assert "x402Version" in found["spelling"]["wanted"]


def test_a_shape_or_a_name_of_the_other_version_is_named() -> None:
    flat = PAID_V1 | {"x402Version": 2, "network": "eip155:84532"}
    found = findings(json.dumps(flat))["shape"]
    assert "version 1" in found["seen"]
    assert "accepted" in found["wanted"]
    nested = PAID_V2 | {"x402Version": 1}
    assert "version 2" in findings(json.dumps(nested))["shape"]["seen"]
    (old,) = REQUIRED_V2["accepts"]
    offer = {name: each for name, each in old.items() if name != "amount"}
    said = REQUIRED_V2 | {"accepts": [offer | {"maxAmountRequired": old["amount"]}]}
    assert "maxAmountRequired" in findings(json.dumps(said))["amount"]["seen"]
    (new,) = REQUIRED_V1["accepts"]
    offer = {name: each for name, each in new.items() if name != "maxAmountRequired"}
    said = REQUIRED_V1 | {"accepts": [offer | {"amount": "10000"}]}
    assert "'amount'" in findings(json.dumps(said))["maxAmountRequired"]["seen"]


def test_what_is_encoded_twice_is_read_and_named() -> None:
    once = to_base64(PAID_V2)
    for text in (base64.b64encode(once.encode()).decode(), "0x" + once.encode().hex()):
        assert "twice" in findings(text)["encoding"]["seen"]
    assert findings(json.dumps(json.dumps(PAID_V2)))["encoding"]["wanted"] == "the object"


X7 = to_base64({"challenge": {"id": "x7"}}).rstrip("=")


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (f"Payment {X7}", "payment by the HTTP authentication"),
        (f"GET /a HTTP/1.1\r\nAuthorization: Payment {X7}\r\n\r\n", "payment by the HTTP"),
        (f"HTTP/1.1 200 OK\r\nPayment-Receipt: {X7}\r\n\r\n{{}}", "receipt of the HTTP"),
        ("Authorization: L402 AGIA:00", "payment by L402"),
    ],
)
def test_a_payment_of_another_protocol_is_called_so(text: str, name: str) -> None:
    done = decoded(text)
    assert done.exit_code == 0, done.output
    assert name in done.stdout
    assert "not looked at: protocol" in done.stdout
    assert "x7" in done.stdout or "L402" in name


def test_a_signature_without_its_prefix_has_130_digits() -> None:
    payload = PAID_V2["payload"]
    for cut in (slice(2, None), slice(0, -1)):
        said = PAID_V2 | {"payload": payload | {"signature": payload["signature"][cut]}}
        assert "130 hex digits" in findings(json.dumps(said))["shape"]["seen"]


PAGE = '<!DOCTYPE html><html><head><script>window.x402 = {"accepts": []};' + "a1" * 40


def test_the_page_of_the_sdk_beside_its_header_is_left() -> None:
    head = "HTTP/1.1 402 Payment Required\r\ncontent-type: text/html\r\n"
    answer = f"{head}payment-required: {to_base64(REQUIRED_V2)}\r\n\r\n{PAGE}"
    assert decoded(answer).stdout.startswith("Payment required (402) in x402 version 2")
    without = decoded(f"{head}\r\n{PAGE}")
    assert "the page that the x402 SDK sends to browsers" in " ".join(without.stdout.split())
    assert "application/json" in without.stdout
    assert_misuse(decoded(PAGE), "Accept: application/json")


def resigned(signature: bytes, **changes: Any) -> dict[str, Any]:
    """A payment of version 2 with another signature."""
    auth = PAID_V2["payload"]["authorization"] | changes
    return PAID_V2 | {"payload": {"signature": "0x" + signature.hex(), "authorization": auth}}


WRAPPER = encode_words(["address", "bytes", "bytes"], [PAYER.address, b"make", b"s" * 65])


@pytest.mark.parametrize(
    ("signature", "what"),
    [(WRAPPER + UNDEPLOYED, "ERC-6492"), (b"s" * 130, "130 bytes"), (b"s" * 400, "EIP-1271")],
)
def test_the_signature_of_a_contract_wallet_is_for_the_chain(signature: bytes, what: str) -> None:
    said = json.dumps(resigned(signature))
    found = findings(said)
    assert list(found) == ["signature"]
    assert found["signature"]["skipped"]
    assert what in found["signature"]["seen"]
    assert "isValidSignature(0x" in found["signature"]["do"]
    assert "nobody" not in decoded(said).stdout


@pytest.mark.parametrize("names", [(), ("name",), ("name", "version", "chainId")])
def test_a_signature_under_a_domain_with_fewer_fields_is_found(names: tuple[str, ...]) -> None:
    auth = payment_of(2, json.dumps(PAID_V2).encode()).signed.authorization
    digest = partial_digest(auth, TESTNET.domain, names)
    found = findings(json.dumps(resigned(sign(digest, PrivateKey("0x" + "11" * 32)))))
    seen = found["signature"]["seen"]
    assert (", ".join(names) or "without any field") in seen
    assert "verifyingContract" in seen


@pytest.mark.parametrize("name", ["validBefore", "validAfter"])
def test_a_window_in_milliseconds_is_called_so(name: str) -> None:
    found = findings(json.dumps(resigned(b"s" * 130, **{name: str(NOW * 1000 + 60_000)})))
    assert "milliseconds" in found[name]["do"]


@pytest.mark.parametrize(
    "part",
    [{"amount": "0"}, {"scheme": "deferred"}, {"extra": {"channelState": {"channelId": "0x1"}}}],
    ids=str,
)
def test_a_receipt_without_a_transaction_may_be_right_by_its_scheme(part: Any) -> None:
    found = findings(json.dumps(RECEIPT | {"transaction": ""} | part))
    assert found["transaction"]["skipped"]
    assert findings(json.dumps(RECEIPT | {"transaction": ""}))["transaction"]["stops"]


def test_an_offer_of_another_contract_is_not_looked_at() -> None:
    (offer,) = REQUIRED_V2["accepts"]
    extra = {
        "name": "GatewayWalletBatched",
        "version": "1",
        "verifyingContract": "0x0077777d7EBA4688BDeF3E311b846F25870A19B9",
    }
    said = REQUIRED_V2 | {"accepts": [offer | {"extra": extra, "maxTimeoutSeconds": 604_900}]}
    found = findings(json.dumps(said))
    assert found["extra.verifyingContract"]["skipped"]
    own = REQUIRED_V2 | {
        "accepts": [offer | {"extra": offer["extra"] | {"verifyingContract": offer["asset"]}}]
    }
    assert findings(json.dumps(own)) == {}


@pytest.mark.parametrize("message", [REQUIRED_V1, PAID_V1], ids=["402", "payment"])
def test_why_no_index_lists_a_resource(message: Any) -> None:
    """Each reason is a row of tests/protocol/test_bazaar.py."""
    found = findings(json.dumps(message | {"extensions": {"bazaar": {}}}))["extensions.bazaar"]
    assert "in version 1, which has no extensions: no index lists the resource" in found["seen"]
    assert not found["stops"]
    listed = {"extensions": declaration("GET", "sunny")}
    assert findings(json.dumps(REQUIRED_V2 | listed)) == {}
