import base64
import json
from types import SimpleNamespace
from typing import get_args

import pytest
from crypto_com_facilitator_client.lib.utils import payment_header as published
from hypothesis import given, strategies as st

from tests.strategies import headers_authorizations, signed_elsewhere
from x402sim.protocol.crypto import Address, PrivateKey, checksum, to_hex
from x402sim.protocol.eip3009 import Authorization
from x402sim.protocol.header import (
    Spelling,
    authorization_of,
    decode_header,
    encode_header,
    spelling_of,
)
from x402sim.protocol.messages import BadMessage
from x402sim.protocol.networks import TESTNET

KEY = PrivateKey(b"\x11" * 32)
PAYER = KEY.address
AUTH = Authorization(
    from_=PAYER,
    to=Address(b"\x22" * 20),
    value=10_000,
    valid_after=1_700_000_000,
    valid_before=1_700_000_360,
    nonce=b"\x33" * 32,
)
SIGNATURE = signed_elsewhere(AUTH, TESTNET.domain, KEY)
WIRE = {
    "x402Version": 1,
    "scheme": "exact",
    "network": "cronos-testnet",
    "payload": {
        "from": checksum(PAYER),
        "to": "0x" + "22" * 20,
        "value": "10000",
        "validAfter": 1_700_000_000,
        "validBefore": 1_700_000_360,
        "nonce": "0x" + "33" * 32,
        "signature": "0x" + SIGNATURE.hex(),
        "asset": "0xc01efAaF7C5C61bEbFAeb358E1161b537b8bC0e0",
    },
}


def as_hex(message: object) -> str:
    return to_hex(json.dumps(message).encode())


def with_payload(**changes: object) -> dict:
    return WIRE | {"payload": WIRE["payload"] | changes}


@pytest.mark.clause("2.3/hex-header")
def test_the_header_is_0x_and_the_hex_of_the_published_json():
    text = encode_header(AUTH, SIGNATURE, TESTNET)
    assert text.startswith("0x")
    assert json.loads(bytes.fromhex(text[2:])) == WIRE


@pytest.mark.clause("2.3/hex-header", "2.3/contents")
@given(auth=headers_authorizations, signature=st.binary(max_size=70))
def test_both_spellings_decode_to_the_authorization_that_was_encoded(auth, signature):
    for spelling in get_args(Spelling):
        text = encode_header(auth, signature, TESTNET, spelling)
        assert spelling_of(text) == spelling
        assert authorization_of(text) == (auth, signature)


@pytest.mark.parametrize(
    "spell",
    [
        lambda raw: "0X" + raw.hex().upper(),
        lambda raw: base64.urlsafe_b64encode(raw).decode(),
    ],
    ids=["upper-case-hex", "url-safe-base64"],
)
def test_other_usual_spellings_are_read_too(spell):
    # "~~~" and "???" give + and / in base64, - and _ in its URL-safe alphabet
    raw = json.dumps(WIRE | {"extra": "~~~???"}).encode()
    assert decode_header(spell(raw)) == decode_header(as_hex(WIRE))


def test_the_published_client_library_writes_what_we_write(monkeypatch):
    chain_id = SimpleNamespace(raise_for_status=lambda: None, json=lambda: {"result": hex(338)})
    monkeypatch.setattr(published.requests, "post", lambda *_, **__: chain_id)
    monkeypatch.setattr(published, "random_nonce_hex32", lambda: to_hex(AUTH.nonce))
    text = published.generate_cronos_payment_header(
        signer=to_hex(KEY.secret),
        network="cronos-testnet",
        to=checksum(AUTH.to),
        value="10000",
        valid_after=AUTH.valid_after,
        valid_before=AUTH.valid_before,
    )
    assert json.loads(base64.b64decode(text)) == WIRE


@pytest.mark.parametrize("text", ["0x 7b7d", "e30=\n", "e30é"])
def test_neither_blanks_nor_other_letters_are_read(text):
    with pytest.raises(BadMessage, match="neither 0x-hex nor base64"):
        decode_header(text)


BAD_PAYLOADS = [
    {"from": "0x11"}, {"to": "0x" + "zz" * 20}, {"nonce": "0x" + "33" * 31},
    {"value": "1e4"}, {"value": str(2**256)}, {"validAfter": 2**256},
    {"signature": ""}, {"signature": SIGNATURE.hex()}, {"signature": "0x" + SIGNATURE.hex(" ")},
]  # fmt: skip


@pytest.mark.clause("2.3/contents")
@pytest.mark.parametrize("changes", BAD_PAYLOADS, ids=lambda changes: str(changes)[:30])
def test_a_payload_that_is_no_authorization_is_refused(changes):
    header = as_hex(with_payload(**changes))
    decode_header(header)
    with pytest.raises(BadMessage):
        authorization_of(header)


def test_what_is_no_spelling_is_refused_and_not_written_as_base64() -> None:
    with pytest.raises(AssertionError, match="base58"):
        encode_header(AUTH, SIGNATURE, TESTNET, "base58")  # type: ignore[arg-type]
