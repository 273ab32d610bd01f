"""Revert data as text, and what the text is about."""

import pytest
from eth_abi import encode
from eth_utils import keccak
from hypothesis import given, settings, strategies as st

from x402sim.chain import contract
from x402sim.chain.base import Reverted
from x402sim.chain.ledger.frame import TABLES
from x402sim.chain.reverts import Cause, cause, data_of, text_of
from x402sim.protocol.crypto import checksum

ERRORS = contract.artifact().errors
VALUES = {
    "address": st.binary(min_size=20, max_size=20),
    "uint8": st.integers(0, 255),
    "uint256": st.integers(0, 2**256 - 1),
    "bytes32": st.binary(min_size=32, max_size=32),
}
SHOWN = {"address": checksum, "bytes32": lambda value: "0x" + value.hex()}


def selector(signature: str) -> bytes:
    return keccak(text=signature)[:4]


@settings(max_examples=20)
@given(data=st.data())
@pytest.mark.parametrize(
    "signature", [s for s in ERRORS if "string" not in s], ids=lambda s: s.split("(")[0]
)
def test_a_custom_error_is_a_call_of_its_name(signature: str, data: st.DataObject):
    name, kinds = signature.removesuffix(")").split("(")
    types = [kind for kind in kinds.split(",") if kind]
    values = [data.draw(VALUES[kind]) for kind in types]
    shown = [SHOWN.get(kind, str)(value) for kind, value in zip(types, values, strict=True)]
    expected = f"{name}({', '.join(shown)})"
    assert text_of(selector(signature) + encode(types, values)) == expected


@given(st.text())
def test_a_sentence_is_itself(sentence: str):
    assert text_of(selector("Error(string)") + encode(["string"], [sentence])) == sentence


@pytest.mark.parametrize("text", ["InvalidNonce()", "InvalidAmount()", "InvalidAmount(7)"])
def test_a_custom_error_of_permit2_is_text_and_data(text: str):
    data = data_of(Reverted(text))
    assert text_of(data) == text
    assert len(data) == (36 if "7" in text else 4)


def test_a_panic_tells_its_code():
    data = selector("Panic(uint256)") + encode(["uint256"], [0x11])
    assert text_of(data) == "Panic(0x11)"


TOO_LONG = selector("StringTooLong(string)") + encode(["string"], ["x" * 32])


@pytest.mark.parametrize(
    "data", [TOO_LONG, b"\xde\xad\xbe\xef", b"\xde\xad\xbe\xef" + bytes(64), b"\x01"]
)
def test_unknown_custom_errors_are_shown_as_hex(data: bytes):
    assert text_of(data) == f"custom error 0x{data.hex()}"


@given(st.sampled_from(ERRORS), st.binary(max_size=40))
def test_data_that_is_cut_short_is_no_crash(signature: str, rest: bytes):
    assert text_of(selector(signature) + rest)
    text_of(selector("Error(string)") + rest)


def test_every_refusal_of_an_authorization_has_a_cause():
    refusals = {rule.refusal for table in TABLES.values() for rule in table}
    assert {each for each in refusals if cause(each) in (Cause.OTHER, Cause.CALL)} == set()


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        ("ECRecover: invalid signature 's' value", Cause.SIGNATURE),
        ("ERC3009InvalidAuthorizationTime(1, 2)", Cause.WINDOW),
        ("ERC3009UsedAuthorization(0x1, 0x2)", Cause.NONCE),
        ("ECDSAInvalidSignatureS(0x1)", Cause.SIGNATURE),
        ("ERC20InsufficientBalance(0x1, 2, 3)", Cause.BALANCE),
        ("", Cause.CALL),
        ("out of gas", Cause.OTHER),
        ("Shop: caller is not the manager", Cause.OWNER),
        ("TokenV9: authorization is used or canceled", Cause.NONCE),
        ("Token: transfer amount exceeds balance", Cause.BALANCE),
        ("Voucher: permit is expired", Cause.LATE),
    ],
)
def test_the_cause_of_a_reason_whichever_contract_states_it(reason: str, expected: Cause):
    assert cause(reason) is expected
