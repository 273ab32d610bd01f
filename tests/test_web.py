import asyncio
import logging
from collections.abc import AsyncIterator

import httpx
import pytest
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tests.serve.hosted import status_and_text
from x402sim.http.web import (
    MAX_BODY_BYTES,
    Application,
    answer,
    read_body,
)
from x402sim.protocol.refusals import RequestError

SECRET = "the secret of line 42"


async def echo_size(request: Request) -> Response:
    return answer({"size": len(await read_body(request))})


async def fail(_: Request) -> Response:
    raise RuntimeError(SECRET)


ROUTES = [
    Route("/size", echo_size, methods=["POST"]),
    Route("/fail", fail),
]


def ask(method: str, path: str, **sent) -> httpx.Response:
    async def exchange() -> httpx.Response:
        transport = httpx.ASGITransport(Application(ROUTES), raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://kit") as http:
            return await http.request(method, path, **sent)

    return asyncio.run(exchange())


def error_of(response: httpx.Response) -> tuple[int, str]:
    """Return the status and the text of an error in JSON."""
    assert response.headers["content-type"] == "application/json"
    return response.status_code, response.json()["error"]


def test_a_bug_is_500_and_its_trace_is_in_the_log_only(caplog):
    with caplog.at_level(logging.ERROR, logger="x402sim"):
        response = ask("GET", "/fail")
    assert error_of(response) == status_and_text(RequestError.INTERNAL)
    assert response.json().keys() == {"error"}
    (record,) = [record for record in caplog.records if record.name == "x402sim"]
    assert record.getMessage() == "GET /fail failed"
    assert SECRET in str(record.exc_info[1])


# --- bodies --------------------------------------------------------------------------


class Chunks(httpx.AsyncByteStream):
    """A body of unknown length, which counts how much of it was taken."""

    def __init__(self, count: int) -> None:
        self.count, self.taken = count, 0

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for _ in range(self.count):
            self.taken += 1
            yield b"x" * (1 << 16)


@pytest.mark.parametrize(
    ("chunks", "announced", "taken"),
    [(1, MAX_BODY_BYTES + 1, 0), (1000, None, 17), (17, 10, 17)],
    ids=["announced", "in chunks", "more than announced"],
)
def test_a_larger_body_is_413_as_soon_as_that_is_known(chunks, announced, taken):
    body = Chunks(chunks)
    headers = {"content-length": str(announced)} if announced else {}
    response = ask("POST", "/size", content=body, headers=headers)
    assert error_of(response) == status_and_text(RequestError.BODY_TOO_LARGE)
    assert response.json()["reason"] == f"at most {MAX_BODY_BYTES} bytes are read"
    assert body.taken == taken


def ask_raw(message: dict, *headers: tuple[bytes, bytes]) -> int:
    """Return the status for what an HTTP client would not send."""
    statuses = []

    async def receive() -> dict:
        return message

    async def send(message: dict) -> None:
        if message["type"] == "http.response.start":
            statuses.append(message["status"])

    scope = {"type": "http", "method": "POST", "path": "/size", "query_string": b""}
    asyncio.run(Application(ROUTES)(scope | {"headers": headers}, receive, send))
    return statuses[0]


@pytest.mark.parametrize(
    ("content_length", "status"),
    [*((text, 200) for text in (b"", b"-1", b"1e9", b"one", b"\xb2")), (b"9" * 5000, 413)],
    ids=["empty", "negative", "1e9", "word", "superscript-two", "5000-digits"],
)
def test_an_unreadable_content_length_is_not_believed(content_length, status):
    body = {"type": "http.request", "body": b"x", "more_body": False}
    assert ask_raw(body, (b"content-length", content_length)) == status


def test_a_client_that_went_away_is_no_bug(caplog):
    status, _ = status_and_text(RequestError.DISCONNECTED)
    assert ask_raw({"type": "http.disconnect"}) == status
    assert caplog.records == []
