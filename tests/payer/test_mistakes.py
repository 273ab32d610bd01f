"""A payment with a mistake says, and has signed, what its draft says."""

import httpx
import pytest
from msgspec import to_builtins

from tests.protocol.test_x402 import ALICE, AUTH, FIRST, SECOND, SIGNATURE, URL, WANTED
from x402sim import BASE_SEPOLIA
from x402sim.payer.core import settlement
from x402sim.payer.mistakes import MISTAKES, draft_of, request_of
from x402sim.protocol.crypto import checksum, recover
from x402sim.protocol.eip3009 import transfer_digest
from x402sim.protocol.header import encode_header, read_header
from x402sim.protocol.messages import decode
from x402sim.protocol.ways import Dialect
from x402sim.protocol.x402 import PAYMENT_HEADERS, Resource, encode_payment, read_payment

NOW_S = AUTH.valid_after + 60
BODY = settlement("pay_1", encode_header(AUTH, SIGNATURE, BASE_SEPOLIA), to_builtins(WANTED))
PAYMENTS = {
    1: encode_payment(AUTH, SIGNATURE, FIRST),
    2: encode_payment(AUTH, SIGNATURE, SECOND, Resource(url=URL)),
}
MADE = [(name, each) for name, made in MISTAKES.items() for each in made.dialects]


@pytest.mark.parametrize(("name", "dialect"), MADE)
def test_a_mistake_is_what_is_sent_and_signed(name: str, dialect: Dialect) -> None:
    if (version := dialect.version) is None:
        right = httpx.Request("POST", "http://shop.test/api/pay", json=BODY)
    else:
        right = httpx.Request("GET", URL, headers={PAYMENT_HEADERS[version]: PAYMENTS[version]})
    draft = MISTAKES[name].change(draft_of(right, ALICE, BASE_SEPOLIA, NOW_S))
    sent = request_of(draft, right)
    read = draft_of(sent, ALICE, BASE_SEPOLIA, NOW_S)
    assert (read.dialect, read.auth, read.resource, read.payment_id) == (
        dialect, draft.auth, draft.resource, draft.payment_id,
    )  # fmt: skip
    if version is None:
        signed = read_header(decode(sent.content, dict[str, str | dict])["paymentHeader"])
    else:
        signed = read_payment(version, sent.headers[PAYMENT_HEADERS[version]]).signed
    asset = "" if dialect is Dialect.V1 else checksum(draft.named.asset)
    assert (signed.network, signed.asset) == (dialect.name_of(draft.named), asset)
    digest = transfer_digest(draft.auth, draft.signed_for.domain)
    assert recover(digest, signed.signature) == draft.signer.address_bytes
