"""A client that closes its connection before the answer is written has not been served."""

import json
import socket

import httpx
import pytest

from tests.serve.driver import ORDER, QUOTE, Payer, Server
from x402sim.payer.standard import choose, read_standard, sign
from x402sim.protocol.networks import TESTNET
from x402sim.protocol.x402 import PAYMENT_HEADERS, Version


def head(path: str, headers: dict[str, str], body: bytes) -> bytes:
    lines = [f"POST {path} HTTP/1.1", "Host: x", f"Content-Length: {len(body)}"]
    return "\r\n".join([*lines, *(f"{k}: {v}" for k, v in headers.items()), "", ""]).encode() + body


def send_and_close(server: Server, headers: dict[str, str]) -> None:
    """Send a request for a quote and the end of the connection, in one segment."""
    with socket.create_connection(server.address) as connection:
        if hasattr(socket, "TCP_CORK"):
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 1)
        connection.sendall(head(QUOTE, headers, json.dumps(ORDER).encode()))


def signed(payer: Payer, version: Version, required: httpx.Response) -> dict[str, str]:
    """Return the header of a payment for a 402, which has a name in version 2."""
    offer = choose(read_standard(required, version), TESTNET)
    _, text = sign(offer, payer.wallet, TESTNET, payer.server.now_s())
    return {PAYMENT_HEADERS[version]: text}


@pytest.mark.parametrize("version", [1, 2])
def test_a_settled_payment_is_served_however_often_its_client_hung_up(
    server: Server, payer: Payer, version: Version
) -> None:
    paid = signed(payer, version, server.http.post(QUOTE, json=ORDER))
    for _ in range(5):
        send_and_close(server, paid)
    served = server.http.post(QUOTE, json=ORDER, headers=paid)
    assert served.status_code == 200, served.text
    again = server.http.post(QUOTE, json=ORDER, headers=paid)
    assert again.status_code == {1: 402, 2: 200}[version]
    assert version == 1 or again.content == served.content
    assert payer.transfers == 1


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
