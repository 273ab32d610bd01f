"""What a failure shows was sent: as it was sent, and as a command that sends the same bytes."""

import base64
import json
import subprocess
from collections.abc import Iterator

import httpx
import pytest
from hypothesis import given, settings, strategies as st

from tests.suite.gateway import Gateway, running
from x402sim.suite.redact import as_curl, exchange, quoted
from x402sim.suite.report.exchange import written


@settings(max_examples=40)
@given(st.binary(max_size=40).filter(lambda text: b"\0" not in text))
def test_a_shell_reads_a_word_as_it_was(text: bytes) -> None:
    word = quoted(text)
    assert word.isprintable()
    assert "::" not in word
    said = subprocess.run(["bash", "-c", f"printf %s {word}"], capture_output=True, check=True)
    assert said.stdout == text


class Noting(Gateway):
    """A service that keeps what it was sent."""

    async def answer(self, request):  # type: ignore[no-untyped-def]
        from starlette.responses import Response

        named = {name: request.headers.get(name) for name in ("x-payment-id", "payment-signature")}
        self.seen = (request.method, request.scope["raw_path"], named, await request.body())
        return Response("{}")


@pytest.fixture(scope="module")
def noting() -> Iterator[Noting]:
    with running(Noting("", api_key=None)) as service:
        assert isinstance(service, Noting)
        yield service


@pytest.mark.parametrize(
    ("method", "path", "content", "headers"),
    [
        ("POST", "/api/pay", b'{"it\'s": "\\u0041 \xc3\xa9"}\n', {"X-Payment-Id": "pay_1"}),
        ("POST", "/api/pay", b"@file\x03\n\xff`id`$(id)", {}),
        ("GET", "/x//y/../z;a=b%20", None, {"X-Payment-Id": ""}),
        ("GET", "/", b"{}", {"PAYMENT-SIGNATURE": "e30="}),
    ],
)  # fmt: skip
def test_the_command_sends_what_was_sent(
    noting: Noting, method: str, path: str, content: bytes | None, headers: dict[str, str]
) -> None:
    with httpx.Client(base_url=noting.url) as http:
        request = http.build_request(method, "/", content=content, headers=headers)
        request.extensions["target"] = path.encode()
        http.send(request)
        first = noting.seen
    subprocess.run(["bash", "-c", as_curl(request)], capture_output=True, check=True)
    assert noting.seen == first


def test_there_is_no_command_for_what_a_shell_cannot_send_or_is_endless() -> None:
    for content in (b"\0", b"A" * 9000):
        assert as_curl(httpx.Request("POST", "http://a/", content=content)) == ""


HEADER = {
    "x402Version": 1,
    "payload": {"nonce": "0XAB", "value": "010", "signature": "0x" + "1" * 99},
}


@pytest.mark.parametrize(
    ("header", "shown"),
    [
        ("0X" + json.dumps(HEADER).encode().hex(), '"sentAs":"hex"'),
        (base64.b64encode(json.dumps(HEADER).encode()).decode().rstrip("="), '"sentAs":"base64"'),
        ("0xzz", '"paymentHeader":"0xzz"'),
        ("not base64!", '"paymentHeader":"not base64!"'),
    ],
)  # fmt: skip
def test_a_payment_header_is_shown_as_it_was_sent(header: str, shown: str) -> None:
    request = httpx.Request("POST", "http://a/api/pay", json={"paymentHeader": header})
    text = "\n".join(written((exchange(request, None, "broken"),)))
    assert shown in text
    if "sentAs" in shown:
        fields = '{"nonce":"0XAB","value":"010","signature":"<101 characters, hidden>"'
        assert fields in text
        assert "1" * 20 not in text
    assert header in exchange(request, None, "broken", is_play=True).again


def test_the_users_own_payment_has_no_command() -> None:
    signed = "0x" + "ab" * 65
    for request in (
        httpx.Request("POST", "http://a/", json={"paymentHeader": signed}),
        httpx.Request("GET", "http://a/", headers={"X-Payment-Id": "pay_123456789"}),
        httpx.Request("GET", "http://a/", headers={"PAYMENT-SIGNATURE": "e30="}),
    ):
        assert not exchange(request, None).again
        assert exchange(request, None, is_play=True).again
    assert exchange(httpx.Request("GET", "http://a/"), None).again
    own = httpx.Request("GET", "http://a/", headers={"X-API-Key": "secret-value"})
    assert "secret-value" not in str(exchange(own, None))
