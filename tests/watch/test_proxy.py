"""A proxy changes nothing: each message is heard as without it, by both sides."""

import asyncio
import gzip
import ssl
from contextlib import suppress
from typing import get_args

import h11
import pytest

from tests.watch.wire import Heard, Watcher, bounded, dialed, hear, proxied, send, upstream
from x402sim import Fault
from x402sim.clock import stopwatch
from x402sim.http.limits import MAX_HEADERS
from x402sim.watch.proxy import MAX_BODY, Upstream
from x402sim.world.faults import FaultType

GET = b"GET / HTTP/1.1\r\nHost: shop\r\n\r\n"
SSE = b"data: one\n\ndata: two\n\n"
ZIPPED = gzip.compress(b'{"paid": true}' * 40, mtime=0)


def lengthy(body: bytes, *headers: bytes, status: bytes = b"200 OK") -> bytes:
    head = b"".join(each + b"\r\n" for each in headers)
    return b"HTTP/1.1 %b\r\n%bContent-Length: %d\r\n\r\n%b" % (status, head, len(body), body)


REQUESTS = {
    "plain": GET,
    "no host": b"GET / HTTP/1.0\r\n\r\n",
    "duplicates": b"GET / HTTP/1.1\r\nHost: shop\r\nX-A: 1\r\nx-a: 2\r\nCookie: a\r\nCookie: b\r\n\r\n",
    "case and order": b"GET / HTTP/1.1\r\nX-PAYMENT: aGk=\r\nhOST: shop\r\naccept: */*\r\n\r\n",
    "path tricks": b"GET //a/../%2e%2E/b%2fc;d?x=%20&&y=1 HTTP/1.1\r\nHost: shop\r\n\r\n",
    "body": b"POST /pay HTTP/1.1\r\nHost: shop\r\nContent-Length: 5\r\n\r\nhello",
    "chunks and trailers": b"POST /pay HTTP/1.1\r\nHost: shop\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n"
    b"3\r\nhel\r\n2\r\nlo\r\n0\r\nX-Sum: 7\r\n\r\n",
    "empty chunks": b"POST / HTTP/1.1\r\nHost: shop\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "length of the connection": b"POST / HTTP/1.1\r\nHost: x\r\nConnection: content-length\r\n"
    b"Content-Length: 2\r\n\r\nhi",
    "other method": b"PROPFIND / HTTP/1.1\r\nHost: shop\r\n\r\n",
    "options star": b"OPTIONS * HTTP/1.1\r\nHost: shop\r\n\r\n",
    "hop by hop": b"GET / HTTP/1.1\r\nHost: shop\r\nConnection: x-mine, close\r\nX-Mine: 1\r\nX-Ours: 2\r\n\r\n",
    "binary value": b"GET / HTTP/1.1\r\nHost: shop\r\nX-Name: caf\xc3\xa9 \xff\r\n\r\n",
}
ANSWERS = {
    "plain": lengthy(b"sold", b"Content-Type: text/plain"),
    "another reason": lengthy(b"{}", status=b"402 Pay Me First"),
    "no reason": lengthy(b"{}", status=b"402 "),
    "duplicates": lengthy(b"", b"Set-Cookie: a=1", b"Set-Cookie: b=2", b"VARY: x"),
    "zipped": lengthy(ZIPPED, b"Content-Encoding: gzip"),
    "chunks and trailers": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n"
    b"4\r\nsold\r\n0\r\nX-Sum: 9\r\n\r\n",
    "events": b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n" + SSE,
    "old": b"HTTP/1.0 200 OK\r\nContent-Type: text/plain\r\n\r\nsold",
    "no content": b"HTTP/1.1 204 No Content\r\nX-A: 1\r\n\r\n",
    "not modified": b"HTTP/1.1 304 Not Modified\r\nETag: x\r\nContent-Length: 7\r\n\r\n",
    "early hints": b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 102 Processing\r\n\r\n"
    + lengthy(b"sold"),
    "hop by hop": lengthy(b"x", b"Connection: x-mine", b"X-Mine: 1", b"Keep-Alive: timeout=5"),
    "cut": b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nsold",
    "cut chunks": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nsold\r\n",
    "nothing": b"",
    "no HTTP": b"SSH-2.0-OpenSSH\r\n\r\n",
}


def told(answer: bytes, heard: list[Heard] | None = None):
    """Return an upstream that hears a request, answers so, and ends the connection."""
    heard = [] if heard is None else heard

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append(await hear(reader, h11.SERVER))
        writer.write(answer)
        await writer.drain()

    return script


async def with_and_without(request: bytes, answer: bytes) -> list[tuple[Heard, Heard]]:
    """Return what the service and the client heard, without the proxy, and with it."""
    method, found = request.split(b" ")[0], []
    heard: list[Heard] = []
    async with upstream(told(answer, heard)) as port:
        found.append((await send(port, request, method=method), heard.pop()))
        async with proxied(port, Watcher()) as between:
            found.append((await send(between, request, method=method), heard.pop()))
    return found


@pytest.mark.parametrize("name", REQUESTS)
@bounded
async def test_a_request_passes_unchanged(name):
    without, through = await with_and_without(REQUESTS[name], ANSWERS["plain"])
    if name == "hop by hop":  # what the client's connection names is the connection's
        without[1].headers.remove((b"X-Mine", b"1"))
    assert through == without
    assert through[0].ended == "whole"


@bounded
async def test_two_lengths_become_one():
    """With both, the next one might find another end of the request (RFC 9112, 6.3)."""
    both = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n"
    _, (_, heard) = await with_and_without(both + b"2\r\nhi\r\n0\r\n\r\n", ANSWERS["plain"])
    assert heard.body == b"hi"
    assert b"Content-Length" not in dict(heard.headers)


@bounded
async def test_of_two_lengths_of_an_answer_its_chunks_count():
    both = b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\nTransfer-Encoding: chunked\r\n\r\n"
    without, through = await with_and_without(GET, both + b"4\r\nsold\r\n0\r\nX-Sum: 1\r\n\r\n")
    without[0].headers.remove((b"Content-Length", b"9"))
    assert through == without
    assert through[0].ended == "whole"


@pytest.mark.parametrize("method", [b"GET", b"HEAD", b"POST"])
@pytest.mark.parametrize("name", ANSWERS)
@bounded
async def test_an_answer_passes_unchanged(name, method):
    request = method + GET[3:] if method != b"POST" else REQUESTS["body"]
    answer = ANSWERS[name]
    if method == b"HEAD" and answer.startswith(b"HTTP"):
        answer = answer[: answer.rindex(b"\r\n\r\n") + 4]
        if name in ("events", "old"):
            return  # without a length a HEAD's answer ends like any other
    without, through = await with_and_without(request, answer)
    if name == "hop by hop":
        without[0].headers.remove((b"X-Mine", b"1"))
    if name in ("events", "old"):  # its end was the connection's: now it is a chunk
        assert without[0].ended == "whole"
    assert through == without


@pytest.mark.parametrize("name", ["cut", "cut chunks", "nothing", "no HTTP"])
@bounded
async def test_what_broke_is_reported(name):
    watcher = Watcher()
    async with upstream(told(ANSWERS[name])) as port, proxied(port, watcher) as between:
        await send(between, GET)
    broke = watcher.seen[0].broke
    assert ("in the middle of its answer" if "cut" in name else "without an answer") in broke
    assert ("it is no HTTP" if name == "no HTTP" else "it ended the connection") in broke


@bounded
async def test_a_stream_passes_as_it_comes():
    """The second event is sent only once the client has the first."""
    has_first = asyncio.Event()

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await hear(reader, h11.SERVER)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
        writer.write(b"data: 1\n\n")
        await writer.drain()
        await has_first.wait()
        writer.write(b"data: 2\n\n")

    async with dialed(script) as (reader, writer):
        writer.write(GET)
        assert (await reader.readuntil(b"data: 1\n\n")).startswith(b"HTTP/1.1 200")
        has_first.set()
        await reader.readuntil(b"data: 2\n\n")


@bounded
async def test_a_body_passes_as_it_comes_and_its_answer_may_come_first():
    """The service answers before the client has sent its body: 402 needs no upload."""

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(lengthy(b"pay", status=b"402 Payment Required"))
        await writer.drain()
        await reader.read()

    async with dialed(script) as (reader, writer):
        writer.write(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nhalf")
        assert (await reader.readuntil(b"pay")).startswith(b"HTTP/1.1 402")


@bounded
async def test_expect_100_continue_is_the_services_to_answer():
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert b"Expect: 100-continue" in await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        writer.write(lengthy(await reader.readexactly(5)))

    async with dialed(script) as (reader, writer):
        writer.write(
            b"POST / HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n"
        )
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 100")
        writer.write(b"hello")
        assert (await reader.readuntil(b"hello")).startswith(b"HTTP/1.1 200")


@bounded
async def test_after_an_upgrade_all_bytes_pass():
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        assert b"Upgrade: ping" in head
        writer.write(
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: ping\r\nConnection: Upgrade\r\n\r\nready"
        )
        while data := await reader.read(100):
            writer.write(data.upper())
        writer.write(b"bye")

    watcher = Watcher()
    async with dialed(script, watcher) as (reader, writer):
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: ping\r\n\r\n")
        await reader.readuntil(b"ready")
        writer.write(b"\x00abc")
        await reader.readuntil(b"\x00ABC")
        writer.write_eof()
        assert await reader.read() == b"bye"
        await watcher.has_seen()
    assert (watcher.seen[0].status, watcher.seen[0].broke) == (101, "")


@bounded
async def test_many_requests_on_one_connection_are_in_order():
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while head := await reader.readuntil(b"\r\n\r\n"):
            writer.write(lengthy(head.split(b" ")[1]))
            await writer.drain()

    watcher = Watcher()
    async with dialed(script, watcher) as (reader, writer):
        for number in range(5):  # sent before the first is answered
            writer.write(b"GET /%d HTTP/1.1\r\nHost: x\r\n\r\n" % number)
        for number in range(5):
            assert (await reader.readuntil(b"\r\n\r\n/")).count(b"HTTP") == 1
            assert await reader.readexactly(1) == b"%d" % number
    assert watcher.requests == [f"GET /{number}" for number in range(5)]


@pytest.mark.parametrize("how", ["ends", "breaks"])
@bounded
async def test_a_client_that_hangs_up_is_seen_by_the_service(how):
    """Services undo a debit, or keep a payment good, when their client hangs up."""
    left = asyncio.get_running_loop().create_future()

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        with suppress(ConnectionError):
            assert await reader.read() == b""
        left.set_result(None)

    watcher = Watcher()
    async with dialed(script, watcher) as (_, writer):
        writer.write(GET)
        await writer.drain()
        await asyncio.sleep(0.05)
        if how == "ends":
            writer.close()
        else:
            writer.transport.abort()
        await left
        await watcher.has_seen()
    assert "the client" in watcher.seen[0].broke


@bounded
async def test_a_client_that_only_sends_no_more_is_answered():
    async with upstream(told(ANSWERS["plain"])) as port, proxied(port, Watcher()) as between:
        without, through = await send(port, GET, eof=True), await send(between, GET, eof=True)
    assert through == without
    assert through.ended == "whole"


@bounded
async def test_an_upstream_that_refuses_is_named():
    async with upstream(told(b"")) as port:
        pass
    watcher = Watcher()
    async with proxied(port, watcher) as between:
        heard = await send(between, GET)
    assert heard.first[0] == 502
    assert b"nothing listens there" in heard.body
    assert "nothing listens there" in watcher.seen[0].broke


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("127.0.0.1:8000", "a URL is wanted"),
        ("ftp://x", "a URL is wanted"),
        ("http://", "a URL is wanted"),
        ("http://x:99999", "Port out of range"),
        ("http://me:pass@x", "without user"),
        ("http://x/?a=1", "without user, query"),
    ],
)
def test_a_url_that_cannot_be_an_upstream_is_refused(url, why):
    with pytest.raises(ValueError, match=why):
        Upstream.at(url)


def test_an_upstream_by_https_is_verified():
    assert Upstream.at("https://shop.example").port == 443
    tls = Upstream.at("https://shop.example").tls
    assert tls is not None
    assert (tls.verify_mode, tls.check_hostname) == (ssl.CERT_REQUIRED, True)


# --- faults --------------------------------------------------------------------------------


async def struck(
    fault: Fault, request: bytes = REQUESTS["body"], method: bytes = b"POST"
) -> tuple[Heard, list[Heard], Watcher]:
    watcher, heard = Watcher(fault), list[Heard]()
    script = told(lengthy(b"0123456789"), heard)
    async with upstream(script) as port, proxied(port, watcher) as between:
        return await send(between, request, method=method), heard, watcher


STRIKES = {
    "lose request": (b"", 0, False),
    "refuse": (b"", 0, False),
    "lose answer": (b"", 1, False),
    "truncate": (b"01234", 1, False),
    "shorten": (b"01234", 1, True),
    "duplicate": (b"0123456789", 2, True),
}
"""What the client gets of an answer, how often the service is reached, and whether the answer looks whole."""
DELAYS = ("delay request", "delay answer")


def test_each_kind_of_fault_is_tested():
    """But "answer", below, and crashes: nobody else's service can be killed."""
    others = {each for each in get_args(FaultType) if not each.startswith("crash")} - {"answer"}
    assert others == {*STRIKES, *DELAYS}


@pytest.mark.parametrize("does", STRIKES)
@bounded
async def test_a_fault_strikes(does):
    answered, reached, is_whole = STRIKES[does]
    answer, heard, watcher = await struck(Fault(victim="service", does=does))
    assert len(heard) == reached
    assert answer.body == answered
    assert (answer.ended == "whole") == is_whole
    assert all(each.body == b"hello" for each in heard)
    assert watcher.seen[0].struck.does == does


@bounded
async def test_a_request_longer_than_a_fault_can_look_at_passes_as_it_comes():
    body = b"0123456789abcdef" * (MAX_BODY // 8)
    request = b"POST /pay HTTP/1.1\r\nHost: shop\r\nContent-Length: %d\r\n\r\n" % len(body)
    fault = Fault(victim="service", does="lose request")
    answer, heard, watcher = await struck(fault, request + body)
    assert (answer.first[0], answer.body) == (200, b"0123456789")
    assert [each.body for each in heard] == [body]
    assert watcher.seen[0].struck is None


@pytest.mark.parametrize("work_done", [False, True])
@bounded
async def test_a_made_up_answer(work_done):
    fault = Fault(
        victim="service", does="answer", status=503, body="busy", work_done=work_done,
        headers={"Retry-After": "1"},
    )  # fmt: skip
    answer, heard, watcher = await struck(fault)
    assert (answer.first[0], answer.body, len(heard)) == (503, b"busy", int(work_done))
    assert (b"retry-after", b"1") in answer.headers
    assert watcher.seen[0].status == 503


@bounded
async def test_a_made_up_answer_to_head_has_no_body():
    fault = Fault(victim="service", does="answer", status=503, body="busy")
    answer, _, watcher = await struck(fault, b"HEAD / HTTP/1.1\r\nHost: shop\r\n\r\n", b"HEAD")
    assert (answer.first[0], answer.body, answer.ended) == (503, b"", "whole")
    assert watcher.seen[0].broke == ""


@pytest.mark.parametrize("does", DELAYS)
@bounded
async def test_a_delay(does):
    waited = stopwatch()
    answer, _, _ = await struck(Fault(victim="service", does=does, seconds=0.2))
    assert answer.ended == "whole"
    assert waited() >= 0.2


# --- clients that take their time -------------------------------------------------------


async def sells(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer each request without a body."""
    with suppress(asyncio.IncompleteReadError):
        while await reader.readuntil(b"\r\n\r\n"):
            writer.write(lengthy(b"sold"))


SLOW = {
    "nothing": (b"", b""),
    "half a head": (GET[:20], b"HTTP/1.1 408 "),
    "nothing more": (GET, b"HTTP/1.1 200 OK"),
    "half of the next head": (GET + GET[:20], b"HTTP/1.1 200 OK"),
}


@pytest.mark.parametrize("name", SLOW)
@bounded
async def test_a_silent_client_is_let_go(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for limit in ("HEAD_S", "IDLE_S"):
        monkeypatch.setattr(f"x402sim.watch.proxy.{limit}", 0.2)
    sent, answer = SLOW[name]
    async with dialed(sells) as (reader, writer):
        writer.write(sent)
        heard = await reader.read()
    assert heard[: len(answer)] == answer
    assert bool(heard) is bool(answer)
    assert heard.count(b" 408 ") == name.startswith("half")


@bounded
async def test_a_slow_body_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("x402sim.watch.proxy.BODY_S", 0.3)

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.read(100):
            pass

    watcher = Watcher()
    async with dialed(script, watcher) as (reader, writer):
        writer.write(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 500\r\n\r\n")
        with suppress(ConnectionError):
            while not watcher.seen:  # byte by byte: the whole head has that long
                writer.write(b"a")
                await writer.drain()
                await asyncio.sleep(0.02)
        with suppress(ConnectionError):
            assert await reader.read() == b""
    (seen,) = watcher.seen
    assert "did not send its body" in seen.broke


@bounded
async def test_a_client_that_does_not_read_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("x402sim.watch.proxy.UNREAD_S", 0.2)
    watcher = Watcher()
    async with dialed(told(lengthy(bytes(1 << 25))), watcher, limit=1024) as (_, writer):
        writer.write(GET)
        await watcher.has_seen()
        writer.transport.abort()


# --- one side does not silence the others -----------------------------------------------


@bounded
async def test_of_a_client_that_pipelines_no_more_is_read_than_one_request_needs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    receive, held = h11.Connection.receive_data, list[int]()

    def counted(http: h11.Connection, data: bytes) -> None:
        receive(http, data)
        if http.our_role is h11.SERVER:
            held.append(len(http.trailing_data[0]))

    asked, number = b"GET / HTTP/1.1\r\nHost: x\r\nX-A: %b\r\n\r\n" % (b"a" * 8000), 200
    monkeypatch.setattr(h11.Connection, "receive_data", counted)
    async with dialed(sells) as (reader, writer):
        writer.write(asked * number)
        for _ in range(number):
            await reader.readuntil(b"sold")
    assert max(held) < 3 * 65536  # it was 1.3 MB


CHUNKED = b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
MANY = {
    "chunks of a client": (
        CHUNKED + b"1\r\na\r\n" * 3000 + b"0\r\n\r\n",
        b"0\r\n\r\n",
        lengthy(b"sold"),
    ),
    "interim answers": (GET, b"\r\n\r\n", b"HTTP/1.1 103 Early\r\n\r\n" * 3000 + lengthy(b"sold")),
}


@pytest.mark.parametrize("name", MANY)
@bounded
async def test_small_parts_pass_one_in_a_turn(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sent, end, answer = MANY[name]
    next_event, in_turn, seen = h11.Connection.next_event, [0], list[int]()

    def end_turn() -> None:
        seen.append(in_turn[0])
        in_turn[0] = 0

    def counted(http: h11.Connection):
        if not in_turn[0]:
            asyncio.get_running_loop().call_soon(end_turn)
        in_turn[0] += 1
        return next_event(http)

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(end)
        writer.write(answer)
        await writer.drain()

    monkeypatch.setattr(h11.Connection, "next_event", counted)
    async with dialed(script, limit=1 << 20) as (reader, writer):
        writer.write(sent)
        await reader.readuntil(b"sold")
    assert sum(seen) > 3000
    assert max(seen) < 10


@pytest.mark.parametrize("more", [0, 1])
@bounded
async def test_a_head_has_so_many_headers_from_both_sides(more: int) -> None:
    fields = (b"A: b",) * (MAX_HEADERS - 1 + more)
    asked = GET[:-2] + b"".join(each + b"\r\n" for each in fields) + b"\r\n"
    async with upstream(told(lengthy(b"sold"))) as port, proxied(port, Watcher()) as to:
        assert (await send(to, asked)).first[0] == (431 if more else 200)
    watcher = Watcher()
    async with upstream(told(lengthy(b"", *fields))) as port, proxied(port, watcher) as to:
        await send(to, GET)
    assert ("headers" in watcher.seen[0].broke) is bool(more)


# --- what a client may not ask ----------------------------------------------------------


@pytest.mark.parametrize(
    ("target", "passed"),
    [
        (b"http://other/verify?x", b"/base/verify?x"),
        (b"http://other", b"/base/"),
        (b"/a/../b", b"/base/a/../b"),
        (b"/a?/../..", b"/base/a?/../.."),
        (b"*", b"*"),
        (b"/../admin", None),
        (b"http://other/../admin", None),
        (b"/a//../../admin", None),
        (b"/%2e%2E%2fadmin", None),
        (b"/..;x/admin", None),
        (b"/..\\admin", None),
    ],
)
@bounded
async def test_no_target_leaves_the_path_of_the_upstream(
    target: bytes, passed: bytes | None
) -> None:
    heard = list[Heard]()
    script = told(ANSWERS["plain"], heard)
    async with upstream(script) as port, proxied(port, Watcher(), "/base/") as to:
        answer = await send(to, b"OPTIONS %b HTTP/1.1\r\nHost: x\r\n\r\n" % target)
    assert answer.first[0] == (200 if passed else 400)
    assert [each.first[1] for each in heard] == [passed] * bool(passed)
