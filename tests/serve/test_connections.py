"""Connections: what is idle, half sent or too large is answered and closed; keep-alive is not."""

import asyncio
import gc
import json
import re
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field

import httpx
import pytest
from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tests.serve.driver import IS_MEASURABLE, Server as Process, resident_bytes
from tests.serve.hosted import status_and_text
from x402sim.http import web
from x402sim.http.limits import MAX_HEADERS, MAX_TARGET_BYTES
from x402sim.protocol.refusals import RequestError
from x402sim.serving import connection
from x402sim.serving.connection import DEADLINES, Deadlines, Exchange
from x402sim.serving.listen import Listen, listening_socket
from x402sim.serving.serve import Server, run

SOON = Deadlines(head_s=0.4, body_s=0.8, idle_s=1)
PATIENCE_S = 10
HEAD = b"POST /size HTTP/1.1\r\nHost: x\r\n"
CLOSED = (ConnectionResetError, BrokenPipeError)


def application(server: "Running") -> Starlette:
    async def size(request: Request) -> Response:
        return web.answer({"size": len(await web.read_body(request))})

    async def early(_: Request) -> Response:
        return web.answer({"early": True})

    async def names(request: Request) -> Response:
        await request.body()
        return web.answer({"names": sorted(request.headers.keys()), "from": request.client.host})

    async def slow(_: Request) -> Response:
        await asyncio.to_thread(server.gate.wait, PATIENCE_S)
        return web.answer({"slow": True})

    async def number(request: Request) -> Response:
        return web.answer({"number": int(request.path_params["n"]) + len(await request.body())})

    async def long(_: Request) -> Response:
        return Response(bytes(1 << 24))

    async def told(request: Request) -> Response:
        async def tell() -> None:
            if not web.connection(request).is_answered():
                server.left.set()

        answer = web.answer({})
        answer.background = BackgroundTask(tell)
        server.begun.set()
        return answer

    return web.Application(
        [
            Route("/size", size, methods=["POST"]),
            Route("/early", early, methods=["POST"]),
            Route("/names", names, methods=["POST"]),
            Route("/slow", slow),
            Route("/number/{n}", number, methods=["GET", "POST"]),
            Route("/long", long),
            Route("/told", told),
        ]
    )


@dataclass
class Running:
    port: int
    gate: threading.Event = field(default_factory=threading.Event)
    begun: threading.Event = field(default_factory=threading.Event)
    left: threading.Event = field(default_factory=threading.Event)

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE_S)


@contextmanager
def running(deadlines: Deadlines) -> Iterator[Running]:
    sock, ready = listening_socket(Listen(port=0)), threading.Event()
    told = Running(sock.getsockname()[1])
    server = Server(application(told), ready.set, deadlines)
    thread = threading.Thread(target=run, args=(server.serve(sockets=[sock]),))
    thread.start()
    try:
        ready.wait(PATIENCE_S)
        yield told
    finally:
        told.gate.set()
        server.should_exit = True
        thread.join()


@pytest.fixture(scope="module")
def hasty() -> Iterator[Running]:
    """A server whose deadlines are short."""
    with running(SOON) as server:
        yield server


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    """A server with the usual deadlines."""
    with running(DEADLINES) as server:
        yield server


def rest(connection: socket.socket) -> bytes:
    """Return what arrives until the connection is closed."""
    parts = []
    with suppress(*CLOSED):
        while part := connection.recv(65536):
            parts.append(part)
    return b"".join(parts)


def refusal(answer: bytes) -> tuple[int, str]:
    """Return the status and the text of the one error in an answer that says it closes."""
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"\r\nconnection: close" in head.lower()
    assert b"\r\ncontent-type: application/json" in head.lower()
    return int(head.split()[1]), json.loads(body)["error"]


def answers(server: Running, *requests: bytes) -> list[bytes]:
    """Send each on a connection of its own; return what arrives on it until it is closed."""
    with ExitStack() as stack:
        connections = [stack.enter_context(server.connect()) for _ in requests]
        for connection, request in zip(connections, requests, strict=True):
            connection.sendall(request)
        return [rest(connection) for connection in connections]


def send_slowly(connection: socket.socket, data: bytes) -> None:
    """Send one byte at a time until the other side closes."""
    with suppress(*CLOSED):
        for byte in data:
            connection.sendall(bytes([byte]))
            time.sleep(0.02)


def test_a_request_that_was_answered_is_freed_without_the_collector(server):
    def kept() -> int:
        return sum(type(each) is Exchange for each in gc.get_objects())

    before, request = kept(), HEAD + b"Content-Length: 0\r\n"
    gc.disable()
    try:
        requests = (request + b"\r\n") * 20 + request + b"Connection: close\r\n\r\n"
        answered = answers(server, requests)
        assert answered[0].count(b'{"size":0}') == 21
        assert kept() - before < 5
    finally:
        gc.enable()


# --- what is too slow ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("whole", "slow"), [(b"", HEAD * 2), (HEAD + b"Content-Length: 1000\r\n\r\n", b"a" * 1000)]
)
def test_a_head_or_a_body_byte_by_byte_is_408(hasty, whole, slow):
    with hasty.connect() as connection:
        connection.sendall(whole)
        send_slowly(connection, slow)
        assert refusal(rest(connection)) == status_and_text(RequestError.TIMED_OUT)


HEADS = (b"G", b"GET / HTTP/1.1\r\nHost: x\r\nX-Long", HEAD)
BODIES = (
    b"Content-Length: 9\r\n\r\n",
    b"Content-Length: 9\r\n\r\nabc",
    b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
    b"Transfer-Encoding: chunked\r\n\r\n0\r\nX-Trailer: 1\r\n",
    b"Content-Length: 9\r\nExpect: 100-continue\r\n\r\n",
)


@pytest.mark.parametrize(
    ("sent", "told"),
    [(HEADS, b"head has 0.4 s"), ([HEAD + body for body in BODIES], b"body has 0.8 s")],
)
def test_a_half_sent_head_or_body_is_408(hasty, sent, told):
    for answer in answers(hasty, *sent):
        answer = answer.removeprefix(b"HTTP/1.1 100 Continue\r\n\r\n")
        assert refusal(answer) == status_and_text(RequestError.TIMED_OUT)
        assert told in answer


def test_a_body_that_was_answered_before_it_came_is_closed_without_another_answer(hasty):
    with hasty.connect() as connection:
        connection.sendall(HEAD.replace(b"size", b"early") + b"Content-Length: 9\r\n\r\nabc")
        answer = rest(connection)
    assert answer.count(b"HTTP/1.1 ") == 1
    assert b'{"early":true}' in answer


def test_a_body_that_comes_after_its_answer_leaves_an_idle_connection(hasty):
    with hasty.connect() as connection:
        connection.sendall(HEAD.replace(b"size", b"early") + b"Content-Length: 9\r\n\r\nabc")
        assert b'{"early":true}' in connection.recv(65536)
        began = time.monotonic()
        connection.sendall(b"defghi")
        send_slowly(connection, b"\r\n" * 81)
        assert rest(connection) == b""
        assert SOON.idle_s * 0.9 < time.monotonic() - began < PATIENCE_S / 2


def test_a_slow_answer_is_nobodys_deadline(hasty):
    """Not even with half of the next head sent: it is due once the answer has left."""
    with hasty.connect() as connection:
        connection.sendall(b"GET /slow HTTP/1.1\r\nHost: x\r\n\r\nGET /slow")
        time.sleep(SOON.body_s * 2)
        hasty.gate.set()
        _, answered, late = rest(connection).partition(b'{"slow":true}')
        assert answered
        assert refusal(late) == status_and_text(RequestError.TIMED_OUT)


# --- what is too large, or no HTTP ---------------------------------------------------


def test_a_head_that_is_too_large_is_431_and_one_that_fits_is_read(server):
    """Each limit by itself is attacked in test_limits.py."""
    long = b"GET /" + b"a" * MAX_TARGET_BYTES + b" HTTP/1.1\r\nHost: x\r\n\r\n"
    for answer in answers(server, HEAD + b"X: 1\r\n" * 9000, b"\r\n".join([long, long])):
        assert refusal(answer) == status_and_text(RequestError.HEAD_TOO_LARGE)
    fit = HEAD + b"Content-Length: 0\r\n" + b"a: b\r\n" * (MAX_HEADERS - 3)
    (answer,) = answers(server, fit + b"Connection: close\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize(
    "trailer", ["X-Payment-Id: pay_1", "X-Forwarded-For: 9.9.9.9", "Host: y", "Expect: x"]
)
def test_trailers_are_no_headers(server, trailer):
    """Only a field defined for trailers is merged with the headers (RFC 9110, 6.5.1)."""
    head = b"POST /names HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    sent = head + b"1\r\na\r\n0\r\n" + trailer.encode() + b"\r\n\r\n"
    for each in (sent, sent[: len(head)]):
        with server.connect() as connection:
            connection.sendall(each)
            time.sleep(0.05)
            connection.sendall(sent[len(each) :] + HEAD + b"Connection: close\r\n\r\n")
            answer = rest(connection)
        named = b'{"names":["host","transfer-encoding"],"from":"127.0.0.1"}'
        assert named in answer
        assert answer.count(b"HTTP/1.1 200") == 2


NO_HTTP = [
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    b"GET\r\n\r\n",
    b"GET / HTTP/9.9\r\nHost: x\r\n\r\n",
    b"GET /\xff HTTP/1.1\r\nHost: x\r\n\r\n",
    b"CONNECT x:80 HTTP/1.1\r\nHost: x\r\n\r\n",
    HEAD + b"X-Payment-Id: pay_\0\r\n\r\n",
    HEAD + b"X-Payment-Id: a\rb\r\n\r\n",
    HEAD + b"X-Payment-Id\0: a\r\n\r\n",
    *(HEAD + b"Content-Length: " + length + b"\r\n\r\n" for length in (b"-1", b"\xb2", b"9" * 40)),
    HEAD + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\n",
    HEAD + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n",
    HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
]


def test_what_is_not_http_is_400(server):
    for data, answer in zip(NO_HTTP, answers(server, *NO_HTTP), strict=True):
        assert refusal(answer) == status_and_text(RequestError.INVALID_HTTP), data


@pytest.mark.parametrize("behind", [b"", b"GET /slow HTTP/1.1\r\nHost: x\r\n\r\n"])
def test_a_request_learns_that_its_client_has_left(server, behind):
    """Also while its answer waits for the reader of an earlier one, and another request for it."""
    server.begun.clear()
    server.left.clear()
    asked = (b"GET /%b HTTP/1.1\r\nHost: x\r\n\r\n" % name for name in (b"long", b"told"))
    with server.connect() as connection:
        connection.sendall(b"".join(asked) + behind)
        assert server.begun.wait(PATIENCE_S)
    assert server.left.wait(PATIENCE_S)


# --- pipelining ----------------------------------------------------------------------


def numbers(answer: bytes) -> list[int]:
    """Return the number in each answer, in the order in which they came."""
    return [int(each) for each in re.findall(rb'{"number":(\d+)}', answer)]


GET_, POST_ = b"GET /number/%d HTTP/1.1\r\nHost: x\r\n", b"POST /number/%d HTTP/1.1\r\nHost: x\r\n"
FORMS = {
    "no body": GET_ + b"\r\n",
    "empty lines before it": b"\r\n\r\n" + GET_ + b"\r\n",
    "a body": POST_ + b"Content-Length: 8\r\n\r\n\r\n\r\n\r\n\r\n",
    "chunks": POST_ + b"Transfer-Encoding: chunked\r\n\r\n4\r\n\r\n\r\n\r\n4\r\nabcd\r\n0\r\n\r\n",
    "a trailer": POST_ + b"Transfer-Encoding: chunked\r\n\r\n8\r\nabcdefgh\r\n0\r\nX-A: b\r\n\r\n",
}


@pytest.mark.parametrize("form", FORMS)
def test_pipelined_requests_are_answered_in_order_however_they_are_cut(server, form):
    extra = 8 if b"POST" in FORMS[form] else 0
    sent = b"".join(FORMS[form] % n for n in range(12)) + GET_ % 12 + b"Connection: close\r\n\r\n"
    wanted = [n + extra for n in range(12)] + [12]
    with server.connect() as whole:
        whole.sendall(sent)
        assert numbers(rest(whole)) == wanted
    for size in (1, 3, 7, 61):
        with server.connect() as cut:
            cut.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for at in range(0, len(sent), size):
                cut.sendall(sent[at : at + size])
                if size == 61:
                    time.sleep(0.001)  # each part is read by itself
            assert numbers(rest(cut)) == wanted


@pytest.mark.skipif(not IS_MEASURABLE, reason="the memory of a process is read on Linux")
def test_what_is_pipelined_is_not_begun_and_all_of_it_is_answered():
    """Two connections that send 128 KB each cost that, and a journal; not 10 MB each."""
    one = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
    count = 128 * 1024 // len(one)
    with Process("--quiet") as serving:
        pid = serving.process.pid
        serving.http.get("/healthz")
        before, most = resident_bytes(pid), 0
        with ExitStack() as stack:
            clients = [
                stack.enter_context(socket.create_connection(serving.address, timeout=PATIENCE_S))
                for _ in range(2)
            ]
            for client in clients:
                client.sendall(one * count)
            answered = [0] * len(clients)
            while min(answered) < count:
                for place, client in enumerate(clients):
                    if answered[place] < count:
                        answered[place] += client.recv(65536).count(b"HTTP/1.1 200")
                most = max(most, resident_bytes(pid))
        assert answered == [count] * len(clients)
        assert most - before < 8 << 20


# --- ordinary clients ----------------------------------------------------------------


def test_a_client_uses_one_connection_for_many_requests_with_pauses(hasty):
    """More seconds in total than a head may take, and as long a pause as is told to clients."""
    opened = []

    def count(event: str, _: object) -> None:
        if event == "connection.connect_tcp.started":
            opened.append(event)

    with httpx.Client(trust_env=False) as http:
        for pause_s in (0, 0.1, 0.6, 0.6):
            time.sleep(pause_s)
            url = f"http://127.0.0.1:{hasty.port}/size"
            assert http.post(url, content=b"abc", extensions={"trace": count}).json() == {"size": 3}
    assert len(opened) == 1
    usual = Server(application(hasty), lambda: None)
    assert usual.config.timeout_keep_alive == DEADLINES.idle_s


SMALL_PARTS = {
    "empty lines": b"%x\r\n%b\r\n" % (1 << 18, b"\r\n\r\n" * (1 << 16)),
    "chunks of a byte": b"1\r\na\r\n" * (1 << 16),
}


@pytest.mark.parametrize("name", SMALL_PARTS)
def test_a_chunked_body_is_parsed_in_turns(
    name: str, server: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    feed, in_turn, seen = Exchange.feed, [0], list[int]()

    def end_turn() -> None:
        seen.append(in_turn[0])
        in_turn[0] = 0

    def counted(exchange: Exchange, data: bytes) -> None:
        if not in_turn[0]:
            asyncio.get_running_loop().call_soon(end_turn)
        in_turn[0] += 1
        feed(exchange, data)

    monkeypatch.setattr(Exchange, "feed", counted)
    body = SMALL_PARTS[name]
    head = HEAD + b"Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
    with server.connect() as to:
        to.sendall(head + body + b"0\r\n\r\n")
        size = json.loads(rest(to).partition(b"\r\n\r\n")[2])["size"]
    assert size == (1 << 18 if name == "empty lines" else 1 << 16)
    assert max(seen) <= connection.BYTES_A_TURN  # four turns of empty lines; it was a whole read


@pytest.mark.parametrize(
    ("framing", "size"),
    [
        (b"Content-Length: 5\r\n\r\nhello", 5),
        (b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n1\r\n!\r\n0\r\nX: y\r\n\r\n", 6),
        (b"Content-Length: 0\r\n\r\n", 0),
    ],
)
@pytest.mark.parametrize("step", [1, 1000])
def test_a_request_to_upgrade_keeps_its_body(
    framing: bytes, size: int, step: int, server: Running
) -> None:
    """As curl --http2 sends it."""
    sent = HEAD + b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n" + framing
    with server.connect() as to:
        to.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for at in range(0, len(sent), step):
            to.sendall(sent[at : at + step])
        answer = rest(to)
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert b"connection: close" in answer
    assert json.loads(answer.partition(b"\r\n\r\n")[2]) == {"size": size}
