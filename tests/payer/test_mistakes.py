"""A payment with a mistake says, and has signed, what its draft says."""

import httpx
import pytest
from msgspec import to_builtins

from tests.strategies import requirements
from x402sim import TESTNET, Wallet
from x402sim.payer.core import settlement
from x402sim.payer.mistakes import MISTAKES, draft_of, request_of
from x402sim.protocol.crypto import checksum, recover
from x402sim.protocol.eip3009 import transfer_digest
from x402sim.protocol.header import read_header
from x402sim.protocol.messages import decode
from x402sim.protocol.ways import Dialect
from x402sim.protocol.x402 import (
    PAYMENT_HEADERS,
    Resource,
    encode_payment,
    network_name,
    read_payment,
    requirements_v1,
    requirements_v2,
)

URL, NOW_S = "http://shop.test/api/perp/quote", 1_800_000_000
WALLET, WANTED = Wallet(b"k" * 32), requirements(description=None)
AUTH = WALLET.authorize(WANTED, NOW_S)
HEADER = WALLET.payment_header(WANTED, NOW_S)
BODY = settlement("pay_1", HEADER, to_builtins(WANTED))
FIRST = requirements_v1(WANTED, TESTNET, url=URL)
SECOND = requirements_v2(WANTED, TESTNET)
SIGNATURE = WALLET.sign(AUTH, TESTNET.domain)
IN_TWO = encode_payment(AUTH, SIGNATURE, SECOND, Resource(url=URL))
RIGHT = {
    Dialect.TWO_STEPS: httpx.Request("POST", "http://shop.test/api/pay", json=BODY),
    Dialect.V1: httpx.Request(
        "GET", URL, headers={PAYMENT_HEADERS[1]: encode_payment(AUTH, SIGNATURE, FIRST)}
    ),
    Dialect.V2: httpx.Request("GET", URL, headers={PAYMENT_HEADERS[2]: IN_TWO}),
}
MADE = [(name, each) for name, made in MISTAKES.items() for each in made.dialects]


@pytest.mark.parametrize(("name", "dialect"), MADE)
def test_a_mistake_is_what_is_sent_and_signed(name: str, dialect: Dialect) -> None:
    draft = MISTAKES[name].change(draft_of(RIGHT[dialect], WALLET, TESTNET, NOW_S))
    sent = request_of(draft, RIGHT[dialect])
    read = draft_of(sent, WALLET, TESTNET, NOW_S)
    assert (read.dialect, read.auth, read.resource, read.payment_id) == (
        dialect, draft.auth, draft.resource, draft.payment_id,
    )  # fmt: skip
    if dialect is Dialect.TWO_STEPS:
        signed = read_header(decode(sent.content, dict[str, str | dict])["paymentHeader"])
        network = draft.named.name
    else:
        version = 1 if dialect is Dialect.V1 else 2
        signed = read_payment(version, sent.headers[PAYMENT_HEADERS[version]]).signed
        network = network_name(version, draft.named)
    asset = "" if dialect is Dialect.V1 else checksum(draft.named.asset)
    assert (signed.network, signed.asset) == (network, asset)
    digest = transfer_digest(draft.auth, draft.signed_for.domain)
    assert recover(digest, signed.signature) == draft.signer.address_bytes
