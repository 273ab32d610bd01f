"""`decode`: every message of a payment, of every dialect, and what is wrong in it."""

import base64
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import Result

from tests.cli.runner import assert_misuse, run
from tests.cli.shops import MOON, SHOP, required, wanted
from x402sim import Wallet
from x402sim.commands.decode import explain
from x402sim.payer.core import settlement, signed_header
from x402sim.protocol.crypto import parse_address
from x402sim.protocol.eip3009 import Authorization
from x402sim.protocol.messages import BadMessage
from x402sim.protocol.networks import BASE_SEPOLIA, MAINNET, NETWORKS, TESTNET, Network
from x402sim.protocol.offers import offers
from x402sim.protocol.recognize import recognize
from x402sim.protocol.x402 import (
    AnyRequirements,
    Resource,
    Settlement,
    encode_payment,
    requirements_v1,
    requirements_v2,
    to_base64,
)

NOW = 1_800_000_000
HASH = "0x" + "ab" * 32
PAYER = Wallet("0x" + "11" * 32, nonces=lambda: b"n" * 32)
URL = "http://shop.example/api/perp/quote"
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
        (
            header(authorization(valid_after=1, valid_before=NOW - 61)),
            "validBefore",
            "1 min 1 s ago",
        ),
        (header(authorization(valid_after=NOW + 90)), "validAfter", "in 1 min 30 s"),
        (header(authorization(valid_after=NOW + 900)), "window", "in 5 min"),
        (header(signed_for=MAINNET), "signature", "version 2, chainId 25"),
        (in_one_step(V1, by=Wallet("0x" + "22" * 32)), "signature", "signed by 0x1563"),
        (in_one_step(V2, value=5000), "value", "5000"),
        (in_one_step(V2, to=parse_address(PAYER.address)), "to", PAYER.address),
        (in_one_step(msgspec.structs.replace(V2, network="eip155:1")), "network", "eip155:1"),
        (in_one_step(msgspec.structs.replace(V2, extra=None)), "extra.version", "nothing"),
        (in_one_step(msgspec.structs.replace(V1, network="moon")), "network", "moon"),
        (f"X-PAYMENT: {in_one_step(V2)}", "header", "X-PAYMENT"),
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


@pytest.mark.parametrize(
    ("changes", "about"),
    [
        ({"maxAmountRequired": 10000}, "maxAmountRequired"),
        ({"maxAmountRequired": "0.01"}, "maxAmountRequired"),
        ({"payTo": "0x" + "0" * 40}, "payTo"),
        ({"payTo": "me"}, "payTo"),
        ({"asset": SHOP}, "asset"),
        ({"network": "eip155:338"}, "network"),
        ({"scheme": "upto"}, "scheme"),
        ({"maxTimeoutSeconds": 5}, "maxTimeoutSeconds"),
        ({"maxTimeoutSeconds": "300"}, "maxTimeoutSeconds"),
        ({"extra": {"name": "USDC", "version": "1"}}, "extra.name"),
    ],
)
def test_what_is_wrong_in_requirements(changes: dict[str, Any], about: str) -> None:
    said = msgspec.to_builtins(V1) | changes
    assert list(findings(json.dumps(said))) == [about]


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
        ("aGVsbG8=", "base64 of 'hello', which is no JSON"),
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


def test_no_odd_value_stops_the_explanation() -> None:
    told = offers(REQUIRED, TESTNET, url=URL)
    bodies = [json.loads(bytes.fromhex(header()[2:])), msgspec.to_builtins(told.body)]
    texts = in_one_step(V1), in_one_step(V2), told.header
    bodies += [json.loads(base64.b64decode(text)) for text in texts]
    bodies.append(settlement("pay_abc", header(), msgspec.to_builtins(WANTED)))
    count = 0
    for said in (each for body in bodies for each in changed(body)):
        try:
            found = recognize(json.dumps(said))
        except BadMessage:
            continue
        parts = list(explain(found, NETWORKS, NOW))
        assert all(each.do for part in parts for each in part.findings)
        count += bool(parts)
    assert count > 1000


@pytest.mark.parametrize("field", ["nonce", "signature", "validBefore"])
def test_a_payment_without_a_field_says_which(field: str) -> None:
    said = json.loads(bytes.fromhex(header()[2:]))
    del said["payload"][field]
    assert f"required field `{field}`" in findings(json.dumps(said))["shape"]["seen"]


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
