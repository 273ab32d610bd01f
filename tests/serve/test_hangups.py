"""A client that closes its connection before the answer is written has not been served."""

import json
import socket

from tests.serve.driver import ORDER, QUOTE, Payer, Server


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
