"""The standard's wire: what is written is what the specification shows, and what is read back."""

import base64
import json

import pytest
from msgspec.structs import replace

from tests.strategies import requirements
from x402sim import BASE_SEPOLIA, Wallet
from x402sim.protocol import x402
from x402sim.protocol.messages import PaymentRequired, encode
from x402sim.protocol.offers import offers, written

ALICE = Wallet(b"\x01" * 32, nonces=lambda: b"\x02" * 32)
PAY_TO = "0xf39Fd6e51aad88F6F4ce6aB8827279cffFb92266"
ASSET = "0x036CbD53842c5426634e7929541eC2318f3dCF7e"
URL = "http://127.0.0.1:4020/api/perp/quote"
WANTED = requirements(network="base-sepolia", pay_to=PAY_TO, asset=ASSET)
FIRST = x402.requirements_v1(WANTED, BASE_SEPOLIA, url=URL)
SECOND = x402.requirements_v2(WANTED, BASE_SEPOLIA)
AUTH = ALICE.authorize(WANTED, 1_800_000_000)
SIGNATURE = ALICE.sign(AUTH, BASE_SEPOLIA.domain)
BOTH = pytest.mark.parametrize(("version", "accepted"), [(1, FIRST), (2, SECOND)])


def plain(message: object) -> dict:
    return json.loads(encode(message))


def read(header: str) -> dict:
    return json.loads(base64.b64decode(header))


@BOTH
def test_url_safe_base64_is_read_too(version, accepted) -> None:
    text = x402.encode_payment(AUTH, SIGNATURE, accepted)
    spelled = text.replace("+", "-").replace("/", "_")
    assert x402.read_payment(version, f" {spelled} ") == x402.read_payment(version, text)


def test_absent_fields_are_left_out_and_null_is_read() -> None:
    """Clients of version 1 refuse null where a field may be absent, and others send it."""
    assert plain(x402.Settlement(success=True, transaction="0x1", network="n", payer="0x2")) == {
        "success": True, "transaction": "0x1", "network": "n", "payer": "0x2",
    }  # fmt: skip
    assert plain(x402.Settlement(success=False, error_reason="x")) == {
        "success": False, "transaction": "", "network": "", "errorReason": "x",
    }  # fmt: skip
    sent = read(x402.encode_payment(AUTH, SIGNATURE, SECOND)) | {
        "extensions": None,
        "resource": None,
    }
    sent["accepted"]["extra"] = None
    assert x402.payment_of(2, encode(sent)).accepted.extra is None


def test_a_402_is_written_as_its_messages_are_encoded() -> None:
    required = PaymentRequired(
        error="Payment Required",
        payment_id="pay_" + "x" * 60,
        payment_requirements=WANTED,
        message="Pay",
        network="base-sepolia",
    )
    for each in (required, replace(required, payment_id="pay_" + "y" * 60)):
        for error, reason, flow in (
            ("", None, None),
            ("", None, "upfront"),
            ("invalid_payload", "invalid_payload: \ue000€", None),
        ):
            told = {"url": URL, "error": error, "reason": reason, "flow": flow}
            wanted = offers(each, BASE_SEPOLIA, **told)
            assert written(each, BASE_SEPOLIA, **told) == (encode(wanted.body), wanted.header)
