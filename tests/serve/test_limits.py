"""The code keeps each limit of the table: an attack on each row, and the server's answer."""

import asyncio
import json
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from typing import Any

import httpx
import pytest
from eth_account import Account

from tests.house import ROOT
from tests.serve.sockets import talking
from tests.serve.test_connections import Running, rest, running
from x402sim import LocalServer
from x402sim.chain.contract import MULTICALL
from x402sim.clock import Clock, stopwatch
from x402sim.http import limits
from x402sim.http.limits import TABLE, Limit
from x402sim.journal import Journal
from x402sim.protocol import abi
from x402sim.protocol.crypto import checksum, to_hex
from x402sim.protocol.networks import TESTNET as CRONOS
from x402sim.serving.connection import Deadlines
from x402sim.serving.log import Form, Names, ServerLog
from x402sim.serving.page import PageFeed
from x402sim.serving.requests import Requests

PATIENCE_S = 20
SOON = Deadlines(head_s=0.4, body_s=0.8, idle_s=1, unread_s=0.4)
POST = b"POST /size HTTP/1.1\r\nHost: x\r\n"
Attack = Callable[["Scene"], str]
ATTACKS: dict[str, Attack] = {}


def attack(what: str) -> Callable[[Attack], Attack]:
    def note(found: Attack) -> Attack:
        ATTACKS[what] = found
        return found

    return note


class Scene:
    """The tools of an attack; `shrink` lowers a limit that takes long to reach."""

    def __init__(self, hasty: Running, local: LocalServer, patch: pytest.MonkeyPatch) -> None:
        self.hasty, self.local, self.patch = hasty, local, patch
        self.nonces = dict[int, int]()

    def shrink(self, where: str, name: str, most: int) -> int:
        assert hasattr(limits, name)
        self.patch.setattr(f"x402sim.{where}.{name}", most)
        return most

    def answered(self, sent: bytes) -> str:
        """Return the hasty server's status; "closed" without an answer."""
        with self.hasty.connect() as to:
            with suppress(ConnectionError):
                to.sendall(sent)
            heard = rest(to)
        return heard[9:12].decode() if heard else "closed"

    def rpc(self, method: str, *params: Any) -> Any:
        return self.post({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})

    def post(self, body: Any) -> Any:
        return httpx.post(self.local.rpc_url, json=body, timeout=PATIENCE_S).json()

    def send(self, number: int = 0, size: int = 0, gap: int = 0) -> str:
        """Send a transaction; return the mempool's error, or "" if admitted."""
        nonce = self.nonces.setdefault(number, 0)
        found = self.rpc("eth_sendRawTransaction", self.signed(number, nonce + gap, size))
        if "error" not in found and not gap:
            self.nonces[number] = nonce + 1
        return found.get("error", {}).get("message", "")

    def signed(self, number: int, nonce: int, size: int = 0) -> str:
        """Return a signed transaction in hex."""
        fields = {"type": 2, "maxFeePerGas": 10**13, "maxPriorityFeePerGas": 0, "value": 0}
        fields |= {"to": checksum(b"\x33" * 20), "gas": 21_000 + 40 * size, "data": bytes(size)}
        fields |= {"nonce": nonce, "chainId": self.local.network.chain_id}
        key = self.local.wallets[number].private_key
        return to_hex(Account.sign_transaction(fields, key).raw_transaction)


@pytest.fixture(scope="module")
def hasty() -> Iterator[Running]:
    """A server whose deadlines are short."""
    with running(SOON) as server:
        yield server


@pytest.fixture(scope="module")
def local() -> Iterator[LocalServer]:
    """A world that mines only on request."""
    with LocalServer(seed=1, block_time_s=3600) as server:
        yield server


@pytest.fixture
def scene(hasty: Running, local: LocalServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    yield Scene(hasty, local, monkeypatch)
    monkeypatch.undo()
    local.reset()


@pytest.mark.parametrize("limit", TABLE, ids=lambda limit: limit.what)
def test_what_goes_beyond_a_limit_is_refused_as_the_table_says(limit: Limit, scene: Scene) -> None:
    seen = ATTACKS[limit.what](scene)
    assert seen
    assert seen in limit.beyond


def test_the_table_is_that_of_security_md() -> None:
    text = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    table = "".join(f"| {each.what} | {each.shown} | {each.beyond} |\n" for each in TABLE)
    assert table in text
    assert ATTACKS.keys() == {each.what for each in TABLE}


# --- requests ---------------------------------------------------------------------------


@attack("head of a request")
def _(scene: Scene) -> str:
    return scene.answered(POST + b"X-Long: " + b"a" * limits.MAX_HEAD_BYTES + b"\r\n\r\n")


@attack("target of a request: path and query")
def _(scene: Scene) -> str:
    path = b"a" * limits.MAX_TARGET_BYTES
    return scene.answered(b"GET /%b HTTP/1.1\r\nHost: x\r\n\r\n" % path)


@attack("headers of a request")
def _(scene: Scene) -> str:
    return scene.answered(POST + b"a: b\r\n" * limits.MAX_HEADERS + b"\r\n")


@attack("body of a request, message of a WebSocket")
def _(scene: Scene) -> str:
    with talking(scene.local.rpc_url) as to:
        to.connection.send("x" * limits.MAX_BODY_BYTES)
        assert to.read()["error"]["code"] == -32700
        with suppress(Exception):  # the server may close while the client sends
            to.connection.send("x" * (limits.MAX_BODY_BYTES + 1))
        with suppress(Exception):
            to.read()
        closed = to.connection.protocol.close_rcvd
    body = b"x" * (limits.MAX_BODY_BYTES + 1)
    status = scene.answered(POST + b"Content-Length: %d\r\n\r\n%b" % (len(body), body))
    return f"{status}, close {closed and closed.code}"


@attack("body with chunking and trailers")
def _(scene: Scene) -> str:
    chunks = b"1;%b\r\na\r\n" % (b"x" * 60_000) * (limits.MAX_MESSAGE_BYTES // 60_000 + 1)
    with scene.hasty.connect() as to:
        with suppress(ConnectionError):
            to.sendall(POST + b"Transfer-Encoding: chunked\r\n\r\n" + chunks)
        assert b"200" not in rest(to)
    return "closed"


@attack("time for a head to arrive")
def _(scene: Scene) -> str:
    return f"{scene.answered(POST)}, {scene.answered(b'')} if nothing came"


@attack("time for a body to arrive")
def _(scene: Scene) -> str:
    return scene.answered(POST + b"Content-Length: 5\r\n\r\nabc")


@attack("time until the next request of a connection")
def _(scene: Scene) -> str:
    with scene.hasty.connect() as to:
        to.sendall(POST + b"Content-Length: 0\r\n\r\n")
        assert rest(to).count(b"HTTP/1.1 ") == 1
    return "closed"


@attack("time for a client to read 1 MiB of an answer")
def _(scene: Scene) -> str:
    with scene.hasty.connect() as to:
        to.sendall(b"GET /long HTTP/1.1\r\nHost: x\r\n\r\n")
        time.sleep(2 * SOON.unread_s)
        assert len(rest(to)) < 1 << 24
    return "closed"


@attack("requests of one connection in work")
def _(scene: Scene) -> str:
    with scene.hasty.connect() as to:
        to.sendall(
            b"GET /slow HTTP/1.1\r\nHost: x\r\n\r\n" + b"GET /told HTTP/1.1\r\nHost: x\r\n\r\n"
        )
        assert not scene.hasty.begun.wait(0.2)
        scene.hasty.gate.set()
        assert scene.hasty.begun.wait(PATIENCE_S)
    return "the rest stays unread"


@attack("requests of a WebSocket in work")
def _(scene: Scene) -> str:
    with talking(scene.local.rpc_url) as to:
        for nonce in range(limits.MAX_AT_ONCE):
            to.send("eth_sendRawTransactionSync", scene.signed(0, nonce), 1000)
        to.send("eth_chainId")
        assert to.read()["error"]["code"] == 4  # no receipt in time
    return "the rest stays unread"


@attack("requests of all connections, beyond 16 KiB each")
def _(scene: Scene) -> str:
    scene.shrink("serving.connection", "MAX_HELD_BYTES", 300_000)
    frame = b"\x01\xff" + (200_000).to_bytes(8) + bytes(4) + bytes(150_000)
    with ExitStack() as opened:
        for _ in range(2):
            to = opened.enter_context(scene.hasty.connect())
            to.sendall(POST + b"Content-Length: 200000\r\n\r\n" + b"a" * 120_000)
        time.sleep(0.1)
        seen = scene.answered(POST + b"Content-Length: 200000\r\n\r\n" + b"a" * 120_000)
        for _ in range(3):  # of another server: messages of WebSockets count, too
            made = opened.enter_context(talking(scene.local.rpc_url, close_timeout=0.1))
            made.connection.socket.sendall(frame)
            time.sleep(0.1)
        with suppress(Exception):
            made.read()
        assert made.connection.protocol.close_rcvd.code == 1013
    return seen


@attack("unread answers of all clients, beyond 64 KiB each")
def _(scene: Scene) -> str:
    scene.shrink("serving.connection", "MAX_UNREAD_BYTES", 1 << 24)
    with ExitStack() as opened:
        for _ in range(2):
            to = opened.enter_context(scene.hasty.connect())
            to.sendall(b"GET /long HTTP/1.1\r\nHost: x\r\n\r\n")
        time.sleep(0.2)
        assert len(rest(to)) < 1 << 24
    return "closed"


# --- JSON-RPC ---------------------------------------------------------------------------

CALL = {"jsonrpc": "2.0", "id": 1, "method": "eth_chainId"}


@attack("calls of a JSON-RPC batch")
def _(scene: Scene) -> str:
    assert len(scene.post([CALL] * limits.MAX_BATCH)) == limits.MAX_BATCH
    return f"error {scene.post([CALL] * (limits.MAX_BATCH + 1))['error']['code']}"


@attack("answers of a batch")
def _(scene: Scene) -> str:
    scene.shrink("chain.rpc.app", "MAX_BATCH_BYTES", 100)
    *_, last = scene.post([CALL] * 5)
    return f"error {last['error']['code']}"


@attack("logs in an answer")
def _(scene: Scene) -> str:
    most = scene.shrink("chain.rpc.reading", "MAX_LOGS", 3)
    scene.shrink("chain.rpc.subscriptions", "MAX_LOGS", most)
    one, other = scene.local.wallets[:2]
    wanted = {"fromBlock": "0x0", "toBlock": "latest"}
    found = scene.rpc("eth_newFilter", wanted)["result"]
    for _ in range(2):  # in two blocks
        for _ in range(2):
            transfer = to_hex(abi.transfer(other.address_bytes, 1))
            to = checksum(scene.local.network.asset)
            sent = {"from": one.address, "to": to, "data": transfer}
            assert "result" in scene.rpc("eth_sendTransaction", sent)
        scene.rpc("anvil_mine")
    for size in (2, 2, 0):  # what is left comes with the next poll, block by block
        assert len(scene.rpc("eth_getFilterChanges", found)["result"]) == size
    for method, asked in (("eth_getLogs", wanted), ("eth_getFilterLogs", found)):
        each = scene.rpc(method, asked)
        assert each["error"]["message"] == f"query returned more than {most} results"
    return f"error {each['error']['code']}"


@attack("addresses and topics of a filter")
def _(scene: Scene) -> str:
    topics = {"topics": [[to_hex(bytes(32))] * (limits.MAX_ALTERNATIVES + 1)]}
    addresses = {"address": [to_hex(bytes(20))] * (limits.MAX_ALTERNATIVES + 1)}
    (code,) = {
        scene.rpc(method, wanted)["error"]["code"]
        for method in ("eth_getLogs", "eth_newFilter")
        for wanted in (topics, addresses)
    }
    return f"error {code}"


@attack("calls of a Multicall3 call")
def _(scene: Scene) -> str:
    """All calls are the same bytes: few bytes may ask for many."""
    tail = bytes(12) + b"\x11" * 20 + bytes(31) + b"\x01" + _word(96) + _word(0)

    def ask(calls: int, data: bytes = b"") -> Any:
        part = tail[:-32] + _word(len(data)) + data
        asked = abi.selector("aggregate3((address,bool,bytes)[])") + _word(32) + _word(calls)
        sent = asked + _word(32 * calls) * calls + part
        call = {"to": checksum(MULTICALL), "data": to_hex(sent)}
        return scene.rpc("eth_call", call, "latest")

    assert "result" in ask(limits.MAX_CALLS)
    assert "result" in ask(2, bytes(60_000))
    for beyond in (ask(4089), ask(3, bytes(60_000)), ask(limits.MAX_CALLS + 1)):
        assert "execution reverted" in beyond["error"]["message"]
    return "reverts"


def _word(number: int) -> bytes:
    return number.to_bytes(32)


@attack("filters")
def _(scene: Scene) -> str:
    most = scene.shrink("chain.rpc.subscriptions", "MAX_FILTERS", 3)
    first, *others = [scene.rpc("eth_newBlockFilter")["result"] for _ in range(most + 1)]
    assert all("result" in scene.rpc("eth_getFilterChanges", each) for each in others)
    assert "error" in scene.rpc("eth_getFilterChanges", first)
    return "the longest not polled ends"


@attack("time of a filter without a poll")
def _(scene: Scene) -> str:
    name = scene.rpc("eth_newBlockFilter")["result"]
    scene.shrink("chain.rpc.subscriptions", "MAX_AGE_S", -1)
    assert "error" in scene.rpc("eth_getFilterChanges", name)
    return "the filter ends"


@attack("subscriptions of a WebSocket")
def _(scene: Scene) -> str:
    with talking(scene.local.rpc_url) as to:
        for _ in range(limits.MAX_SUBSCRIPTIONS):
            assert "result" in to.ask("eth_subscribe", "logs")
        return f"error {to.ask('eth_subscribe', 'logs')['error']['code']}"


@attack("subscriptions")
def _(scene: Scene) -> str:
    most = scene.shrink("chain.rpc.subscriptions", "MAX_ALL_SUBSCRIPTIONS", 5)
    with talking(scene.local.rpc_url) as one, talking(scene.local.rpc_url) as other:
        for _ in range(most):
            assert "result" in one.ask("eth_subscribe", "logs")
        code = other.ask("eth_subscribe", "logs")["error"]["code"]
    with talking(scene.local.rpc_url) as later:  # departed clients do not count
        waited = stopwatch()
        while "error" in later.ask("eth_subscribe", "logs"):
            assert waited() < PATIENCE_S
    return f"error {code}"


@attack("a transaction")
def _(scene: Scene) -> str:
    garbage = "0x" + "ff" * (limits.MAX_TRANSACTION_BYTES + 1)  # is not decoded
    assert "oversized data" in scene.rpc("eth_sendRawTransaction", garbage)["error"]["message"]
    return scene.send(size=limits.MAX_TRANSACTION_BYTES).partition(":")[0]


@attack("waiting transactions")
def _(scene: Scene) -> str:
    most = scene.shrink("chain.ledger.machine", "MAX_POOL", 3)
    assert [scene.send(number) for number in range(most)] == [""] * most
    full = scene.send(5)
    scene.rpc("anvil_mine")
    assert scene.send(5) == ""
    return full


@attack("transactions waiting behind a gap")
def _(scene: Scene) -> str:
    most = scene.shrink("chain.ledger.machine", "MAX_QUEUED", 3)
    assert [scene.send(number, gap=2) for number in range(most)] == [""] * most
    return scene.send(5, gap=2)


@attack("all waiting transactions")
def _(scene: Scene) -> str:
    size = limits.MAX_TRANSACTION_BYTES - 1000
    most = scene.shrink("chain.ledger.machine", "MAX_POOL_BYTES", limits.MAX_POOL_BYTES >> 4)
    for number in range(most // size):
        assert scene.send(number % 10, size=size) == ""
    whole = json.dumps(scene.rpc("txpool_content"))
    assert len(whole) << 4 < limits.MAX_BATCH_BYTES
    return scene.send(0, size=size)


@attack("transactions of the blocks in memory")
def _(scene: Scene) -> str:
    """Old transactions go to a file, readable but final."""
    size, machine = 10_000, scene.local.parts.chain.machine
    most = scene.shrink("chain.ledger.machine", "MAX_MINED_BYTES", 10 * size)
    for _ in range(30):
        assert scene.send(size=size) == ""
        scene.rpc("anvil_mine")
    assert machine.deepest_reorg * size < most
    assert sum(len(each.signed.raw) for each in machine.state.transactions.values()) <= most
    block = scene.rpc("eth_getBlockByNumber", "0x1", True)["result"]
    (sent,) = block["transactions"]
    assert len(sent["input"]) == 2 + 2 * size
    assert scene.rpc("eth_getTransactionReceipt", sent["hash"])["result"]["status"] == "0x1"
    refused = httpx.post(f"{scene.local.control_url}/reorg", json={"depth": most // size})
    assert refused.is_error
    assert httpx.post(f"{scene.local.control_url}/reorg", json={"depth": 2}).is_success
    for _ in range(30):
        assert scene.send(size=size) == ""
        scene.rpc("anvil_mine")
    return "the oldest are final"


@attack("time to wait for a receipt")
def _(scene: Scene) -> str:
    wanted = scene.rpc("eth_sendRawTransactionSync", "0x00", 1000 * limits.MAX_WAIT_S + 1)
    return f"error {wanted['error']['code']}"


# --- what a server remembers ------------------------------------------------------------


@attack("journal of a server")
def _(scene: Scene) -> str:
    scene.patch.setattr("x402sim.world.running_world.MAX_EVENTS", 5)
    with LocalServer(seed=2) as local:
        for _ in range(6):
            local.advance(0)
        assert len(local.parts.journal) == 5
        assert local.parts.journal.length > 5
    return "the oldest are dropped"


def ask(count: int, size: int, subscribe: Callable[[Journal, Requests], Any]) -> Any:
    """Return a subscriber to the records of requests with headers of so many bytes."""
    journal = Journal()
    requests = Requests(journal, Clock())

    async def app(*_: Any) -> None:
        pass

    async def main() -> Any:
        subscribed = subscribe(journal, requests)
        scope = {"type": "http", "method": "POST", "path": "/api/x", "query_string": b""}
        scope["headers"] = [(b"x-payment", b"x" * size)]
        for _ in range(count):
            await requests.around(app)(scope, app, app)
        if isinstance(subscribed, ServerLog):
            subscribed.close()
        return subscribed

    return asyncio.run(main())


def kept(count: int, size: int) -> str:
    """Return the fate of the oldest requests on the page."""
    feed = ask(count, size, PageFeed)
    numbers = [json.loads(each)["n"] for each in dict(feed.messages())["exchanges"]]
    assert numbers[-1] == count
    assert numbers[0] > 1
    return "the oldest are dropped"


@attack("requests on the page")
def _(scene: Scene) -> str:
    return kept(limits.MAX_EXCHANGES + 1, 1)


@attack("requests and answers on the page")
def _(scene: Scene) -> str:
    return kept(limits.MAX_EXCHANGES_BYTES // limits.MAX_HEAD_BYTES + 1, limits.MAX_HEAD_BYTES)


def counted(count: int, size: int) -> str:
    """Return the fate of requests beyond the log's room."""
    lines = list[bytes]()

    def subscribe(_: Journal, requests: Requests) -> ServerLog:
        return ServerLog(Form(lines.append, is_json=True), Names({}, CRONOS), requests)

    ask(count, size, subscribe)
    assert b"".join(lines).count(b'"path"') < count
    assert b"requests are left out of this log" in lines[-1]
    return "counted in the log"


@attack("requests waiting to be logged")
def _(scene: Scene) -> str:
    most = scene.shrink("serving.log", "MAX_UNLOGGED", 10)
    return counted(most + 1, 1)


@attack("requests and answers waiting to be logged")
def _(scene: Scene) -> str:
    return counted(limits.MAX_UNLOGGED_BYTES // limits.MAX_HEAD_BYTES + 1, limits.MAX_HEAD_BYTES)
