"""A client that closes its connection before the answer is written has not been served."""

import json
import socket
import struct
import threading

import pytest

from tests.serve.driver import ORDER, QUOTE, Payer, Server
from tests.serve.hosted import hosted
from x402sim.serving.connection import Wire


def head(path: str, headers: dict[str, str], body: bytes) -> bytes:
    lines = [f"POST {path} HTTP/1.1", "Host: x", f"Content-Length: {len(body)}"]
    return "\r\n".join([*lines, *(f"{k}: {v}" for k, v in headers.items()), "", ""]).encode() + body


def send_and_close(server: Server, headers: dict[str, str]) -> None:
    """Send a request for a quote and the end of the connection, in one segment."""
    with socket.create_connection(server.address) as connection:
        if hasattr(socket, "TCP_CORK"):
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 1)
        connection.sendall(head(QUOTE, headers, json.dumps(ORDER).encode()))


def test_a_session_pays_for_nothing_that_its_client_did_not_wait_for(
    server: Server, payer: Payer
) -> None:
    session = payer.open()
    proof = {"X-Session-Id": session["sessionId"]}
    for _ in range(5):
        send_and_close(server, proof)
    assert server.http.post(QUOTE, json=ORDER, headers=proof).status_code == 200
    shown = server.http.get(f"/api/sessions/{session['sessionId']}").json()
    assert shown["released"] == "10000"


NEXT = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"


@pytest.mark.parametrize("how", ["fin", "reset"])
def test_who_leaves_while_the_head_is_written_is_not_debited(
    monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """The body follows behind another look, so nobody is debited who has not got it."""
    written, left, bodies = threading.Event(), threading.Event(), []
    plain = Wire.write

    def write(wire: Wire, data: bytes) -> None:
        plain(wire, data)
        if data.startswith(b"HTTP/1.1 200") and not left.is_set():
            written.set()
            assert left.wait(10)
        elif b'"pair"' in data:
            bodies.append(data)

    with hosted() as server:
        session_id = server.payer().open()["sessionId"]
        monkeypatch.setattr(Wire, "write", write)
        with socket.create_connection(server.address) as client:
            if how == "reset":
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            proof = {"X-Session-Id": session_id}
            client.sendall(head(QUOTE, proof, json.dumps(ORDER).encode()))
            assert written.wait(10)
            if how == "fin":
                assert b"\r\n\r\n" in client.recv(65536)
        left.set()
        shown = server.http.get(f"/api/sessions/{session_id}").json()
        assert (shown["released"], bodies) == ("0", [])
        assert server.http.post(QUOTE, json=ORDER, headers=proof).status_code == 200
        assert len(bodies) == 1, "a body is known by its words"
        told = [each["event"] for each in server.journal()]
        assert (told.count("session debited"), told.count("debit undone")) == (2, 1)
