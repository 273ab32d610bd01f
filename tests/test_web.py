import asyncio
import logging
from collections.abc import AsyncIterator

import httpx
import pytest
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from x402sim.clock import Clock
from x402sim.events import AnswerSent
from x402sim.http.web import (
    MAX_BODY_BYTES,
    Refused,
    answer,
    application,
    parse,
    read_body,
    recorded,
)
from x402sim.journal import Journal
from x402sim.protocol.messages import SessionRequest

SECRET = "the secret of line 42"


async def echo_size(request: Request) -> Response:
    return answer({"size": len(await read_body(request))})


async def session(request: Request) -> Response:
    return answer(parse(await read_body(request), SessionRequest), 201)


async def refuse(_: Request) -> Response:
    raise Refused(409, "Nonce already used", "seen before")


async def refuse_shortly(_: Request) -> Response:
    raise Refused(400, "Invalid signature")


async def fail(_: Request) -> Response:
    raise RuntimeError(SECRET)


ROUTES = [
    Route("/size", echo_size, methods=["POST"]),
    Route("/session", session, methods=["POST"]),
    Route("/refuse", refuse),
    Route("/refuse-shortly", refuse_shortly),
    Route("/fail", fail),
]


def ask(method: str, path: str, app=None, **sent) -> httpx.Response:
    """Return the application's answer to one request."""

    async def exchange() -> httpx.Response:
        transport = httpx.ASGITransport(app or application(ROUTES), raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://kit") as http:
            return await http.request(method, path, **sent)

    return asyncio.run(exchange())


def is_json(response: httpx.Response) -> bool:
    return response.headers["content-type"] == "application/json"


@pytest.mark.parametrize("path", ["/", "/nothing", "/size/", "/SIZE", "//size"])
def test_an_unknown_path_is_404_in_json(path):
    response = ask("POST", path)
    assert response.status_code == 404
    assert is_json(response)
    assert response.json()["error"] == "Not found"


def test_a_404_says_what_was_asked():
    assert ask("POST", "/nothing").json()["reason"] == "POST /nothing"


def test_a_path_with_a_slash_too_many_is_no_redirect():
    response = ask("POST", "/size/")
    assert response.status_code == 404
    assert "location" not in response.headers


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("GET", "/size", {"POST"}),
        ("DELETE", "/size", {"POST"}),
        ("POST", "/refuse", {"GET", "HEAD"}),
    ],
)
def test_a_wrong_method_is_405_in_json_and_says_which_are_allowed(method, path, allowed):
    response = ask(method, path)
    assert response.status_code == 405
    assert is_json(response)
    assert response.json()["error"] == "Method not allowed"
    assert set(response.headers["allow"].replace(" ", "").split(",")) == allowed


def test_a_refusal_is_an_error_and_a_reason():
    response = ask("GET", "/refuse")
    assert response.status_code == 409
    assert is_json(response)
    assert response.json() == {"error": "Nonce already used", "reason": "seen before"}


def test_a_refusal_without_a_reason_has_none():
    response = ask("GET", "/refuse-shortly")
    assert (response.status_code, response.json()) == (400, {"error": "Invalid signature"})


def test_a_bug_is_500_and_shows_nothing(caplog):
    with caplog.at_level(logging.CRITICAL, logger="x402sim"):
        response = ask("GET", "/fail")
    assert response.status_code == 500
    assert is_json(response)
    assert response.content == b'{"error":"Internal server error"}'


def test_a_bug_is_logged_with_its_trace(caplog):
    with caplog.at_level(logging.ERROR, logger="x402sim"):
        ask("GET", "/fail")
    (record,) = [record for record in caplog.records if record.name == "x402sim"]
    assert record.getMessage() == "GET /fail failed"
    assert SECRET in str(record.exc_info[1])


# --- bodies --------------------------------------------------------------------------


class Chunks(httpx.AsyncByteStream):
    """A body of unknown length, which counts how much of it was taken."""

    def __init__(self, count: int, size: int = 1 << 16) -> None:
        self.count, self.size, self.taken = count, size, 0

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for _ in range(self.count):
            self.taken += 1
            yield b"x" * self.size


TOO_LARGE = {"error": "Request body too large", "reason": "at most 1048576 bytes are read"}


def test_a_body_of_1_mib_is_read():
    response = ask("POST", "/size", content=b"x" * MAX_BODY_BYTES)
    assert (response.status_code, response.json()) == (200, {"size": 1 << 20})


def test_a_body_in_chunks_of_1_mib_is_read():
    response = ask("POST", "/size", content=Chunks(16))
    assert (response.status_code, response.json()) == (200, {"size": 1 << 20})


def test_a_body_announced_as_larger_is_413_before_it_is_read():
    body = Chunks(1)
    response = ask(
        "POST", "/size", content=body, headers={"content-length": str(MAX_BODY_BYTES + 1)}
    )
    assert (response.status_code, response.json()) == (413, TOO_LARGE)
    assert is_json(response)
    assert body.taken == 0


def test_a_larger_body_in_chunks_is_413_as_soon_as_it_passes_1_mib():
    body = Chunks(1000)
    response = ask("POST", "/size", content=body)
    assert (response.status_code, response.json()) == (413, TOO_LARGE)
    assert body.taken == 17


def test_a_body_larger_than_announced_is_413_too():
    response = ask("POST", "/size", content=Chunks(17), headers={"content-length": "10"})
    assert (response.status_code, response.json()) == (413, TOO_LARGE)


def ask_raw(content_length: bytes) -> int:
    """Return the status for a Content-Length that an HTTP client would not send."""
    statuses = []

    async def receive() -> dict:
        return {"type": "http.request", "body": b"x", "more_body": False}

    async def send(message: dict) -> None:
        if message["type"] == "http.response.start":
            statuses.append(message["status"])

    scope = {
        "type": "http",
        "method": "POST",
        "path": "/size",
        "query_string": b"",
        "headers": [(b"content-length", content_length)],
    }

    async def exchange() -> None:
        try:
            await application(ROUTES)(scope, receive, send)
        except ValueError:
            assert statuses == [500]  # Starlette raises a bug again once it has answered

    asyncio.run(exchange())
    return statuses[0]


@pytest.mark.parametrize("content_length", [b"", b"-1", b"1e9", b"one"])
def test_an_unreadable_content_length_is_not_believed(content_length):
    assert ask_raw(content_length) == 200


@pytest.mark.parametrize(
    ("content_length", "status"),
    [(b"\xb2", 200), (b"9" * 5000, 413)],
    ids=["superscript-two", "5000-digits"],
)
def test_a_content_length_that_python_cannot_read_is_no_bug(content_length, status):
    assert ask_raw(content_length) == status


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b"\xff",
        b'{"maxSpend":1,"duration":1}',
        b'{"maxSpend":"1.00"}',
        b'{"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    ],
    ids=["empty", "cut", "null", "array", "not-utf-8", "type", "missing", "nested"],
)
def test_a_body_that_is_not_the_message_is_400_saying_why(body):
    response = ask("POST", "/session", content=body)
    assert response.status_code == 400
    assert is_json(response)
    assert response.json()["error"] == "Invalid request body"
    assert response.json()["reason"]


def test_the_reason_says_where():
    response = ask("POST", "/session", json={"maxSpend": "1.00", "duration": 0})
    assert response.json()["reason"].endswith("at `$.duration`")


def test_json_of_too_many_brackets_says_so():
    response = ask("POST", "/session", content=b'{"x":' + b"[" * 100_000)
    assert response.status_code == 400
    assert response.json()["reason"].startswith("100001 arrays and objects are more than")


def test_a_good_body_becomes_a_message_and_is_answered_as_json():
    response = ask("POST", "/session", json={"maxSpend": "1.00", "duration": 60})
    assert response.status_code == 201
    assert is_json(response)
    assert response.json() == {"maxSpend": "1.00", "duration": 60}


def test_a_client_that_went_away_is_no_bug(caplog):
    sent = []

    async def receive() -> dict:
        return {"type": "http.disconnect"}

    async def send(message: dict) -> None:
        sent.append(message)

    scope = {
        "type": "http",
        "method": "POST",
        "path": "/size",
        "query_string": b"",
        "headers": [],
    }
    asyncio.run(application(ROUTES)(scope, receive, send))
    assert sent[0]["status"] == 400
    assert caplog.records == []


def test_an_application_may_have_handlers_of_its_own():
    async def teapot(_: Request, raised: Exception) -> Response:
        return answer({"error": type(raised).__name__}, 418)

    class Brew(Exception):
        pass

    async def brew(_: Request) -> Response:
        raise Brew

    app = application([Route("/brew", brew)], {Brew: teapot})
    response = ask("GET", "/brew", app)
    assert (response.status_code, response.json()) == (418, {"error": "Brew"})


# --- the journal ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/refuse", 409),
        ("GET", "/nothing", 404),
        ("GET", "/size", 405),
        ("GET", "/fail", 500),
        ("POST", "/size?x=1", 200),
    ],
)
def test_an_exchange_is_one_event(method, path, status, caplog):
    journal, clock = Journal(), Clock(lambda: 1_700_000_000.5)
    with caplog.at_level(logging.CRITICAL, logger="x402sim"):
        ask(method, path, recorded(application(ROUTES), "service", journal, clock))
    assert len(journal) == 1
    (entry,) = journal
    assert entry.at_ms == 1_700_000_000_500
    assert entry.event == AnswerSent(
        actor="service", method=method, path=path.split("?")[0], status=status
    )


def test_an_answer_in_pieces_is_still_one_event():
    async def pieces(scope, receive, send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for part in (b"a", b"b", b"c"):
            await send({"type": "http.response.body", "body": part, "more_body": part != b"c"})

    journal = Journal()
    response = ask("GET", "/", recorded(pieces, "service", journal, Clock()))
    assert response.content == b"abc"
    assert len(journal) == 1


def test_recording_changes_nothing_in_the_answer():
    plain = ask("GET", "/refuse")
    seen = ask("GET", "/refuse", recorded(application(ROUTES), "service", Journal(), Clock()))
    assert (seen.status_code, seen.headers, seen.content) == (
        plain.status_code,
        plain.headers,
        plain.content,
    )


def test_other_asgi_scopes_pass_unrecorded():
    journal, seen = Journal(), []

    async def app(scope, receive, send) -> None:
        seen.append(scope["type"])

    asyncio.run(recorded(app, "service", journal, Clock())({"type": "lifespan"}, None, None))
    assert seen == ["lifespan"]
    assert len(journal) == 0
