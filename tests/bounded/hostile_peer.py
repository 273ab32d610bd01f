"""A TCP server that answers as no honest server does; the path says how.

`/HABIT/STATUS/...`: the first part names a habit of this file, the second the status to answer. A
habit writes to the connection until done, or until the reader has gone.
"""

import gzip
import json
import socketserver
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from http.server import BaseHTTPRequestHandler
from typing import Any, cast

PATIENCE_S = 30.0
"""After this long a reader that has not gone is held for ever, as far as a test can tell."""
BOMB_MIB = 100
Write = Callable[[bytes], None]


def wanted(path: str) -> dict[str, Any]:
    """A 402 that any payer pays."""
    requirements = {
        "scheme": "exact", "network": "cronos-testnet", "payTo": "0x" + "2" * 40,
        "asset": "0xc01efAaF7C5C61bEbFAeb358E1161b537b8bC0e0", "maxAmountRequired": "10000",
        "maxTimeoutSeconds": 300, "resource": path,
    }  # fmt: skip
    return {"error": "", "paymentId": "pay_secret0123456789", "paymentRequirements": requirements,
            "message": "", "network": ""}  # fmt: skip


RECEIPT = {"success": True, "paymentId": "pay_x", "txHash": "0x" + "1" * 64, "timestamp": 1}


@cache
def bomb(bits: int) -> bytes:
    """Zeros, compressed a thousandfold."""
    squeeze = zlib.compressobj(1, zlib.DEFLATED, bits)
    zeros = bytes(1 << 20)
    return b"".join(squeeze.compress(zeros) for _ in range(BOMB_MIB)) + squeeze.flush()


def head(status: int, *lines: str) -> bytes:
    return "\r\n".join([f"HTTP/1.1 {status} X", *lines, "", ""]).encode("latin-1")


def whole(body: bytes, *lines: str) -> Callable[[int, Write], None]:
    def answer(status: int, write: Write) -> None:
        write(head(status, f"Content-Length: {len(body)}", *lines) + body)

    return answer


def forever(first: Callable[[int], bytes], part: bytes, pause_s: float = 0) -> Any:
    def answer(status: int, write: Write) -> None:
        write(first(status))
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            write(part)
            if pause_s:
                time.sleep(pause_s)

    return answer


def exactly(*lines: str, body: bytes) -> Callable[[int, Write], None]:
    return lambda status, write: write(head(status, *lines) + body)


CHUNKED = "Transfer-Encoding: chunked"
BLOCK = b"x" * 65_536
HABITS: dict[str, Any] = {
    # the size
    "endless_body": forever(lambda s: head(s), BLOCK),
    "endless_chunks": forever(lambda s: head(s, CHUNKED), b"10000\r\n" + BLOCK + b"\r\n"),
    "huge_length": forever(lambda s: head(s, "Content-Length: 99999999999"), BLOCK),
    "gzip_bomb": lambda s, w: whole(bomb(31), "Content-Encoding: gzip")(s, w),
    "deflate_bomb": lambda s, w: whole(bomb(-15), "Content-Encoding: deflate")(s, w),
    "zlib_bomb": lambda s, w: whole(bomb(15), "Content-Encoding: deflate")(s, w),
    "gzip_in_gzip": lambda s, w: whole(gzip.compress(bomb(31)), "Content-Encoding: gzip, gzip")(
        s, w
    ),
    "charset_bomb": lambda s, w: whole(bomb(15)[:900_000], "Content-Type: a/b; charset=zlib_codec")(
        s, w
    ),
    "gzip_and_rubbish": forever(
        lambda s: head(s, "Content-Encoding: gzip") + gzip.compress(b"{}"), BLOCK
    ),
    "endless_headers": forever(lambda s: head(s)[:-2], b"X-A: " + b"a" * 1000 + b"\r\n"),
    "endless_header": forever(lambda s: head(s)[:-2] + b"X-A: ", b"a" * 1000),
    "endless_status": forever(lambda s: b"HTTP/1.1 200 ", b"a" * 1000),
    "endless_trailers": forever(
        lambda s: head(s, CHUNKED) + b"0\r\n", b"X-A: " + b"a" * 1000 + b"\r\n"
    ),
    "endless_extension": forever(lambda s: head(s, CHUNKED) + b"5;", b"a=b;" * 100),
    # the pace
    "slow_body": forever(lambda s: head(s), b"x", 0.05),
    "slow_chunks": forever(lambda s: head(s, CHUNKED), b"1\r\nx\r\n", 0.05),
    "slow_gzip": forever(
        lambda s: head(s, "Content-Encoding: gzip") + gzip.compress(b"")[:10],
        b"\0\0\0\xff\xff",  # an empty block, and others follow
        0.05,
    ),
    "slow_head": forever(lambda s: b"HTTP/1.1 200 ", b"a", 0.05),
    "endless_informational": forever(
        lambda s: b"", b"HTTP/1.1 103 Early\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n", 0.01
    ),
    "endless_continue": forever(lambda s: b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    "silent": forever(lambda s: b"", b"", 0.05),
    # the form
    "cut_short": exactly("Content-Length: 1000", body=b'{"a": 1'),
    "length_too_small": exactly("Content-Length: 3", body=b'{"a": 1}' * 100),
    "length_negative": exactly("Content-Length: -1", body=b"{}"),
    "length_twice": exactly("Content-Length: 1", "Content-Length: 2", body=b"{}"),
    "length_and_chunks": exactly("Content-Length: 1", CHUNKED, body=b"2\r\n{}\r\n0\r\n\r\n"),
    "chunk_size_rubbish": exactly(CHUNKED, body=b"zz\r\n{}\r\n0\r\n\r\n"),
    "chunk_size_huge": exactly(CHUNKED, body=b"f" * 40 + b"\r\n{}\r\n"),
    "gzip_cut_short": exactly("Content-Encoding: gzip", body=gzip.compress(b"{}" * 999)[:-12]),
    "not_gzip": exactly("Content-Encoding: gzip", body=b"{}"),
    "brotli": exactly("Content-Encoding: br", body=b"\x0b\x02\x80{}\x03"),
    "zstd": exactly("Content-Encoding: zstd", body=b"(\xb5/\xfd\0\0"),
    "unknown_encoding": exactly("Content-Encoding: \xe9", body=b"{}"),
    "charset_undefined": whole(b"hello", "Content-Type: text/html; charset=undefined"),
    "charset_base64": whole(b"aGVsbG8=", "Content-Type: text/html; charset=base64"),
    "deep_json": whole(b"[" * 400_000 + b"]" * 400_000),
    "deep_object": whole(b'{"a":' * 900 + b"1" + b"}" * 900),
    "long_number": whole(b'{"now": ' + b"9" * 100_000 + b', "service": 1, "result": 1}'),
    "half_a_surrogate": whole(rb'{"error": "\ud800", "paymentId": "\udfff"}'),
    "not_http": lambda s, w: w(b"\x16\x03\x01\x02\0\x01\0" * 10),
    "nothing": lambda s, w: None,
    # redirects
    "redirect_loop": exactly("Location: ?", "Content-Length: 0", body=b""),
    "redirect_slowly": forever(lambda s: head(s, "Location: ?"), b"x", 0.05),
    "redirect_to_nowhere": exactly("Location: http://[", "Content-Length: 0", body=b""),
}
REDIRECTS = ("redirect_loop", "redirect_slowly", "redirect_to_nowhere")


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def handle(self) -> None:
        with suppress(OSError):  # the reader has gone
            super().handle()

    def do_GET(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        headers = {name.lower(): value for name, value in self.headers.items()}
        path, server = self.path, cast(Any, self.server)
        if path.startswith("http://"):  # it is asked as a proxy
            path = "/" + path.split("/", 3)[3]
        server.seen.append((path, headers, body))
        time.sleep(server.pause_s)
        _, habit, status, *_ = [*path.split("?")[0].split("/"), "", ""]
        if habit == "seller":  # takes the payment, then has a habit or sends the payer elsewhere
            if status == "pay" or "x-payment-id" not in headers:
                habit = "pay" if status == "pay" else "pays"
            else:
                habit, status = (status, "200") if status in HABITS else ("away", "307")
        if habit == "pays":  # an honest 402, at any path below
            self._write(402, json.dumps(wanted(path)).encode())
        elif habit == "pay":
            self._write(200, json.dumps(RECEIPT).encode())
        elif habit == "hops" and status != "0":
            self._write(307, b"", f"Location: /hops/{int(status) - 1}/x")
        elif habit == "away":
            self._write(int(status), b"", f"Location: {server.away}/leaked")
        elif habit in HABITS:
            self.close_connection = True
            HABITS[habit](307 if habit in REDIRECTS else int(status), self.wfile.write)
        else:
            self._write(200, b'{"honest": true}')

    do_POST = do_GET  # noqa: N815 - so named by its base

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def _write(self, status: int, body: bytes, *lines: str) -> None:
        whole(body, *lines)(status, self.wfile.write)


class Server(socketserver.ThreadingTCPServer):
    """The server; `seen` are the requests, and `away` is where the habit `away` redirects to.

    It pauses for `pause_s` before each answer.
    """

    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 50

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.seen: list[tuple[str, dict[str, str], bytes]] = []
        self.away = ""
        self.pause_s = 0.0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


@contextmanager
def serving() -> Iterator[Server]:
    """Serve every habit, each connection in a thread of its own."""
    for bits in (31, 15, -15):
        bomb(bits)
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
