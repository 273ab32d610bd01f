"""JSON-RPC over WebSocket: what is told of, and what no client can do to the server."""

import json
import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import httpx
import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.frames import Close, CloseCode

from tests.serve.driver import IS_MEASURABLE, Server, resident_bytes
from tests.serve.sockets import PATIENCE_S, talking
from x402sim import LocalServer
from x402sim.chain.rpc.subscriptions import MAX_SUBSCRIPTIONS
from x402sim.clock import stopwatch
from x402sim.http.web import MAX_BODY_BYTES
from x402sim.protocol import abi
from x402sim.protocol.crypto import to_hex
from x402sim.serving import websocket


@pytest.fixture(scope="module")
def local() -> Iterator[LocalServer]:
    with LocalServer(seed=1) as server:
        yield server


def test_any_method_is_answered_and_a_get_is_what_it_was(local: LocalServer) -> None:
    with talking(local.rpc_url) as to:
        assert to.ask("eth_chainId")["result"] == hex(local.network.chain_id)
        assert to.ask("eth_nothing")["error"]["code"] == -32601
        to.connection.send(b"[" + b'{"jsonrpc":"2.0","id":1,"method":"eth_chainId"},' * 2 + b"5]")
        assert len(to.read()) == 3
        to.connection.send("{")
        assert to.read()["error"]["code"] == -32700
    assert "eth_subscribe" in httpx.get(local.rpc_url).text
    refused = httpx.post(
        local.rpc_url,
        json={"jsonrpc": "2.0", "id": 1, "method": "eth_subscribe", "params": ["newHeads"]},
    )
    assert "notifications not supported" in refused.json()["error"]["message"]


def test_heads_logs_and_transactions_are_told_with_what_a_reorganisation_removes(
    local: LocalServer,
) -> None:
    with talking(local.rpc_url) as to:
        topic = to_hex(abi.TRANSFER_EVENT)
        heads = to.ask("eth_subscribe", "newHeads")["result"]
        logs = to.ask("eth_subscribe", "logs", {"topics": [topic]})["result"]
        arrived = to.ask("eth_subscribe", "newPendingTransactions")["result"]
        assert len({heads, logs, arrived}) == 3
        account = local.wallets[0].address
        transfer = to_hex(abi.transfer(local.wallets[1].address_bytes, 5))
        asset = to_hex(local.network.asset)
        sent = {"from": account, "to": asset, "data": transfer, "gas": hex(200_000)}
        tx_hash = to.ask("eth_sendTransaction", sent)["result"]
        notifications = dict(to.next() for _ in range(3))
        block = to.ask("eth_getBlockByNumber", "latest", False)["result"]
        assert notifications[heads]["hash"] == block["hash"]
        assert notifications[heads]["number"] == block["number"]
        assert "transactions" not in notifications[heads]
        assert notifications[logs]["transactionHash"] == notifications[arrived] == tx_hash
        assert httpx.post(f"{local.control_url}/reorg", json={"depth": 1}).is_success
        notifications = [to.next() for _ in range(4)]  # the transaction arrives anew
        replaced = to.ask("eth_getBlockByNumber", block["number"], False)["result"]
        assert replaced["hash"] != block["hash"]
        assert [it["removed"] for name, it in notifications if name == logs] == [True, False]
        assert [it["hash"] for name, it in notifications if name == heads] == [replaced["hash"]]
        assert to.ask("eth_unsubscribe", heads)["result"] is True
        assert "not found" in to.ask("eth_unsubscribe", heads)["error"]["message"]
        to.ask("evm_mine")
        assert to.notifications == []


def test_what_is_no_subscription_is_refused(local: LocalServer) -> None:
    with talking(local.rpc_url) as to:
        whole = ["newPendingTransactions", True]
        for wrong in (
            whole,
            ["syncing"],
            [{}],
            ["logs", 5],
            ["logs", {"topics": 5}],
            ["newHeads", 1, 2],
        ):
            assert to.ask("eth_subscribe", *wrong)["error"]["code"] == -32602


def test_pages_and_other_paths_get_no_websocket(local: LocalServer) -> None:
    def status(url: str, **options: Any) -> int:
        with pytest.raises(InvalidStatus) as refused, talking(url, **options):
            pass
        return refused.value.response.status_code

    assert status(local.rpc_url, origin="https://evil.example") == 403
    assert status(local.rpc_url, additional_headers={"Sec-WebSocket-Version": "1"}) != 101
    assert status(local.url + "/nothing") == 404
    assert status(local.rpc_url + "/nothing") in (403, 404)


def raw(rpc_url: str) -> socket.socket:
    """Return a socket behind a handshake."""
    url = httpx.URL(rpc_url)
    made = socket.create_connection((url.host, url.port or 80), timeout=PATIENCE_S)
    made.sendall(
        f"GET {url.path} HTTP/1.1\r\nHost: {url.netloc.decode()}\r\nConnection: Upgrade\r\n"
        "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
        "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n".encode()
    )
    answer = made.recv(65536)
    assert answer.startswith(b"HTTP/1.1 101")
    return made


MASK = bytes(4)
HOSTILE = {
    "not masked": (b"\x81\x02{}", 1002),
    "reserved bit": (b"\xf1\x80" + MASK, 1002),
    "unknown opcode": (b"\x83\x80" + MASK, 1002),
    "a continuation of nothing": (b"\x80\x80" + MASK, 1002),
    "a long ping": (b"\x89\xfe\x01\x00" + MASK + bytes(256), 1002),
    "too long": (b"\x81\xff" + (MAX_BODY_BYTES + 1).to_bytes(8) + MASK, 1009),
    "too long in parts": (
        (b"\x01\xff" + (MAX_BODY_BYTES // 2).to_bytes(8) + MASK + bytes(MAX_BODY_BYTES // 2))
        + (b"\x00\xff" + (MAX_BODY_BYTES // 2 + 1).to_bytes(8) + MASK),
        1009,
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_frames_that_break_the_rules_end_the_connection(local: LocalServer, name: str) -> None:
    frames, code = HOSTILE[name]
    with raw(local.rpc_url) as to:
        to.sendall(frames)
        assert to.recv(65536)[:4][2:] == code.to_bytes(2)
        assert to.recv(65536) == b""


def test_random_frames_never_break_the_server(local: LocalServer) -> None:
    for seed in range(20):
        with raw(local.rpc_url) as to:
            to.sendall(os.urandom(2000 + seed))
            to.shutdown(socket.SHUT_WR)
            while to.recv(65536):
                pass
    with talking(local.rpc_url) as alive:
        assert "result" in alive.ask("eth_blockNumber")


def test_a_silent_client_is_asked_and_cut_off(
    local: LocalServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(websocket, "ALIVE_S", 0.2)
    with raw(local.rpc_url) as to:
        assert to.recv(65536) == b"\x89\x00"
        with suppress(ConnectionResetError):
            assert to.recv(65536) == b""
    with talking(local.rpc_url) as alive:  # whose library answers
        with pytest.raises(TimeoutError):
            alive.connection.recv(1)
        assert "result" in alive.ask("eth_blockNumber")


@pytest.mark.skipif(not IS_MEASURABLE, reason="the memory of a process cannot be read here")
def test_a_client_that_does_not_read_costs_nothing_more() -> None:
    with Server("--seed", "1") as server, raw(server.ready["rpc"]) as to:
        asked = {"jsonrpc": "2.0", "id": 1, "method": "eth_subscribe", "params": ["newHeads"]}
        to.sendall(text(json.dumps(asked).encode()) * MAX_SUBSCRIPTIONS)
        server.rpc("anvil_mine", hex(1000))
        before = resident_bytes(server.process.pid)
        to.setblocking(False)
        flood(to, b"\x89\x80" + MASK)
        flood(to, text(b'{"jsonrpc":"2.0","id":1,"method":"eth_accounts","params":[]}'))
        for _ in range(3):  # each would be told a hundred times
            server.rpc("anvil_mine", hex(1000))
        assert resident_bytes(server.process.pid) - before < 40e6


def text(data: bytes) -> bytes:
    return b"\x81" + bytes([0x80 | len(data)]) + MASK + data


def flood(to: socket.socket, frame: bytes) -> None:
    """Send until the server reads no more, or so much that it must have been too much."""
    sent, data = 0, frame * 5000
    while sent < 50e6:
        try:
            sent += to.send(data)
        except BlockingIOError:
            return


def test_a_server_that_stops_says_so() -> None:
    with LocalServer(seed=2) as server, talking(server.rpc_url) as to:
        assert "result" in to.ask("eth_chainId")
        server.__exit__(None, None, None)
        with pytest.raises(ConnectionClosed) as closed:
            to.connection.recv(PATIENCE_S)
        assert closed.value.rcvd == Close(CloseCode.SERVICE_RESTART, "")


# --- one client does not silence the others ---------------------------------------------


BEGUN = b"\x01\x80" + MASK
"""An empty first fragment of a message."""
FLOODS = {"pings": (b"", b"\x89\x80" + MASK), "empty fragments": (BEGUN, b"\x00\x80" + MASK)}


@pytest.mark.parametrize("name", FLOODS)
def test_a_flood_of_frames_leaves_the_others_their_turns(name: str) -> None:
    begin, frame = FLOODS[name]
    with Server("--seed", "1") as server, raw(server.ready["rpc"]) as to:
        url = server.ready["service"] + "/healthz"
        usual_s = slowest(url, 20)
        held = resident_bytes(server.process.pid) if IS_MEASURABLE else 0
        to.sendall(begin)
        with flooding(to, frame * 20_000):
            loaded_s = slowest(url, 20)
        assert loaded_s < 1 + 20 * usual_s  # it was 40 s
        if IS_MEASURABLE:
            assert resident_bytes(server.process.pid) - held < 8e6


def slowest(url: str, requests: int) -> float:
    """Return the seconds of the slowest of some requests, each on a separate connection."""
    took = []
    for _ in range(requests):
        elapsed = stopwatch()
        assert httpx.get(url, timeout=60).is_success
        took.append(elapsed())
    return max(took)


@contextmanager
def flooding(to: socket.socket, data: bytes) -> Iterator[None]:
    """Send the same message repeatedly in a thread, and read the answers, until the block's end."""
    is_over = threading.Event()
    to.settimeout(0.1)

    def send() -> None:
        rest = b""
        while not is_over.is_set():
            with suppress(TimeoutError, BlockingIOError):
                rest = rest or data
                rest = rest[to.send(rest) :]

    def read() -> None:
        while not is_over.is_set():
            with suppress(TimeoutError):
                to.recv(1 << 20)

    threads = [threading.Thread(target=each) for each in (send, read)]
    for each in threads:
        each.start()
    try:
        time.sleep(0.3)
        yield
    finally:
        is_over.set()
        for each in threads:
            each.join()
