"""The payer's decoders take any bytes and any JSON, and raise nothing but `PaymentFailed`."""

import json
from typing import Any

import httpx
import pytest
from hypothesis import given, settings, strategies as st

from tests.bounded.hostile_peer import RECEIPT, wanted
from tests.strategies import authorizations, json_values, uint256
from x402sim import PaymentAuth, PaymentFailed, SessionAuth, Wallet
from x402sim.payer.purchases import Payment
from x402sim.payer.reading import read_settlement
from x402sim.protocol.messages import Receipt, encode
from x402sim.protocol.ways import foreign_in

KEY = b"k" * 32
REQUEST = httpx.Request("GET", "http://shop/x")
STATUSES = st.sampled_from([200, 201, 202, 204, 301, 400, 402, 404, 409, 418, 500, 502, 503])
huge_numbers = st.sampled_from([-1, 0, 1, 2**31, 2**63, 2**64, 10**30, -(10**30), 1e300])
texts = st.text(st.characters(exclude_categories=[])) | st.sampled_from(
    ["0", "01", "1e4", "9" * 5000, "٣", "0x", "0x" + "2" * 40, "\r\nX-A: b", "pay_", "é", "\0"]
)
values = json_values | huge_numbers | texts


def changed(honest: dict[str, Any]) -> st.SearchStrategy[Any]:
    """An honest answer with some of its values replaced or missing, at any depth."""

    @st.composite
    def draw(draw: Any) -> Any:
        body = json.loads(json.dumps(honest))
        for _ in range(draw(st.integers(0, 3))):
            at = body
            inner = at.get("paymentRequirements")
            if isinstance(inner, dict) and draw(st.booleans()):
                at = inner
            if not at:
                continue
            name = draw(st.sampled_from(sorted(at)))
            if draw(st.booleans()):
                at[name] = draw(values)
            else:
                del at[name]
        return body

    return draw()


def as_bytes(bodies: st.SearchStrategy[Any]) -> st.SearchStrategy[bytes]:
    """JSON, some of it as no encoder writes it."""
    return bodies.flatmap(
        lambda body: st.sampled_from(
            [json.dumps(body).encode(), json.dumps(body, ensure_ascii=False).encode("utf-8", "surrogatepass"),
             json.dumps(body).encode("utf-16"), b"\xef\xbb\xbf" + json.dumps(body).encode(),
             json.dumps(body).encode() * 2]
        )
    )  # fmt: skip


ERROR = {"error": "Invalid signature", "reason": "x", "final": False}
offers = st.binary() | as_bytes(values) | as_bytes(changed(wanted("/x")))
answers = st.binary() | as_bytes(values) | as_bytes(changed(RECEIPT)) | as_bytes(changed(ERROR))
sessions = st.binary() | as_bytes(values) | as_bytes(changed({"sessionId": "session_1"}))
charsets = st.sampled_from(
    ["utf-8", "utf-16", "zlib_codec", "base64", "undefined", "idna", "rot13"]
)


def response(status: int, body: bytes, charset: str = "utf-8") -> httpx.Response:
    headers = {"Content-Type": f"application/json; charset={charset}"}
    return httpx.Response(status, content=body, headers=headers, request=REQUEST)


def require_printable(failed: PaymentFailed) -> None:
    assert str(failed).isprintable()


payments = st.builds(
    Payment, auth=authorizations, proof=st.just({}), shown=st.just(""), sent=st.integers(1, 2),
    sent_s=uint256,
)  # fmt: skip


@given(STATUSES, answers, charsets, payments)
def test_the_answer_to_a_settlement_is_a_receipt_or_fails(
    status: int, body: bytes, charset: str, payment: Payment
) -> None:
    try:
        found = read_settlement(response(status, body, charset), payment)
    except PaymentFailed as failed:
        require_printable(failed)
        return
    assert (found.receipt is None) is (found.hint != "")


@settings(max_examples=1)
@given(payments)
def test_an_error_has_the_beginning_of_a_long_answer(payment: Payment) -> None:
    for body in ({"error": "x" * 999_999}, {"error": "x", "reason": "y" * 999_999}):
        with pytest.raises(PaymentFailed) as failed:
            read_settlement(response(400, encode(body)), payment)
        assert len(str(failed.value)) < 2_000


@settings(max_examples=1)
@given(payments)
def test_a_payer_keeps_the_beginning_of_a_long_receipt(payment: Payment) -> None:
    body = encode(Receipt(success=True, payment_id="pay_1", tx_hash="x" * 999_999, timestamp=1))
    found = read_settlement(response(200, body), payment)
    assert found.receipt is not None
    assert found.receipt.tx_hash == "x" * 1_000


def shop(offer: bytes, settlement: httpx.Response, content: httpx.Response) -> httpx.MockTransport:
    def serve(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/api/pay":
            return settlement
        if "x-payment-id" in request.headers or "x-session-id" in request.headers:
            return content
        return response(402, offer)

    return httpx.MockTransport(serve)


@given(offers, st.tuples(STATUSES, answers, charsets), st.tuples(STATUSES, answers, charsets))
def test_a_payer_pays_or_fails(offer: bytes, settlement: Any, content: Any) -> None:
    auth = PaymentAuth(Wallet(KEY), reuse=False)
    transport = shop(offer, response(*settlement), response(*content))
    with httpx.Client(transport=transport, auth=auth) as http:
        for _ in range(2):
            try:
                answered = http.get("http://shop/x").status_code
            except PaymentFailed as failed:
                require_printable(failed)
            else:
                is_foreign = foreign_in({}, offer) is not None  # it is the caller's to read
                assert answered == (402 if is_foreign else content[0])
                assert is_foreign or answered != 402
    assert auth.signed_base <= auth.signer.max_total_base


HONEST_DEPOSIT = json.dumps(wanted("/api/sessions/create")).encode()


@given(st.just(HONEST_DEPOSIT) | offers, st.tuples(STATUSES, sessions, charsets))
def test_a_session_opens_or_fails(offer: bytes, created: Any) -> None:
    auth = SessionAuth(Wallet(KEY))
    receipt = response(200, json.dumps(RECEIPT).encode())
    with httpx.Client(transport=shop(offer, receipt, response(*created)), auth=auth) as http:
        try:
            http.get("http://shop/x")
        except PaymentFailed as failed:
            require_printable(failed)
    assert auth.payment.signed_base <= 10_000
