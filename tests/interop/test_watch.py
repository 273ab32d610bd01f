"""`watch` before the shops of other people, with their clients: nothing differs, each lane is right."""

import contextlib
import hashlib
import json
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import h11
import pytest

from tests.interop import programs
from tests.interop.conftest import base_sepolia
from tests.interop.programs import NETWORKS, buy
from tests.interop.table import THOROUGH
from tests.interop.test_guide import CLIENTS, SHOP, guide_shop
from tests.serve.driver import ORDER, Running, command, environment, started
from tests.watch.wire import HOP
from x402sim.report.run import Run

Message = tuple[Any, ...]


class Tap:
    """A relay to an address; `url` is where it listens, with the path of the address."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._to = (parts.hostname, parts.port)
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}{parts.path}"
        self._kept: list[tuple[bytearray, bytearray]] = []
        self._sockets, self._path = [self._listening], parts.path.encode()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                ours, _ = self._listening.accept()
                theirs = socket.create_connection(self._to)
                self._sockets += ours, theirs
                kept = bytearray(), bytearray()
                self._kept.append(kept)
                for source, to, bytes_ in ((ours, theirs, kept[0]), (theirs, ours, kept[1])):
                    threading.Thread(
                        target=self._relay, args=(source, to, bytes_), daemon=True
                    ).start()

    def _relay(self, source: socket.socket, to: socket.socket, kept: bytearray) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                kept += data
                to.sendall(data)
        with contextlib.suppress(OSError):
            to.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        for each in self._sockets:
            each.close()

    def exchanges(self) -> list[tuple[Message, Message]]:
        """Return each request with its answer, without what belongs to one connection, sorted."""
        found = []
        for sent, answered in self._kept:
            rest = bytes(answered)
            for method, (_, target, *more) in _requests(bytes(sent)):
                request = method, target.removeprefix(self._path), *more
                answer, rest = _answer(method, rest)
                found.append((request, answer))
        return sorted(found, key=repr)


def _end_to_end(headers: Any) -> tuple[Any, ...]:
    return tuple(each for each in headers.raw_items() if each[0].lower() not in HOP)


def _requests(data: bytes) -> Iterator[tuple[bytes, Message]]:
    while data:
        http, head, body = h11.Connection(h11.SERVER, 1 << 20), None, b""
        http.receive_data(data)
        while type(event := http.next_event()) is not h11.EndOfMessage:
            if type(event) is h11.Request:
                head = event
            elif type(event) is h11.Data:
                body += event.data
            else:
                return  # a client that left
        yield (
            head.method,
            (
                head.method,
                head.target,
                _end_to_end(head.headers),
                body,
                tuple(event.headers.raw_items()),
            ),
        )
        data = http.trailing_data[0]


def _answer(method: bytes, data: bytes) -> tuple[Message, bytes]:
    http, head, body = h11.Connection(h11.CLIENT, 1 << 20), None, b""
    http.send(h11.Request(method=method, target="/", headers=[("Host", "x")]))
    http.send(h11.EndOfMessage())
    http.receive_data(data)
    while type(event := http.next_event()) is not h11.EndOfMessage:
        if type(event) is h11.Response:
            head = event
        elif type(event) is h11.Data:
            body += event.data
        elif event is h11.NEED_DATA:
            http.receive_data(b"")  # its end was the connection's
    trailers = tuple(event.headers.raw_items())
    said = head.status_code, head.reason, _end_to_end(head.headers), body, trailers
    return said, http.trailing_data[0]


# --- the tests ----------------------------------------------------------------------


pytestmark = [*([THOROUGH] if not isinstance(THOROUGH, list) else THOROUGH), pytest.mark.waits]


class Watched:
    """A `watch` with a tap on each side of it."""

    def __init__(self, option: str, url: str, file: Path, stack: ExitStack, *more: str) -> None:
        self.file, self._behind = file, Tap(url)
        ports = ("--port", "0")
        self._running = stack.enter_context(
            Running("watch", option, self._behind.url, *ports, "--json", "--out", str(file), *more)
        )
        ready = json.loads(self._running.first_line())
        self._before = Tap(ready["service"] or ready["facilitator"])
        self.url = self._before.url
        for tap in (self._behind, self._before):
            stack.callback(tap.close)

    def stop(self) -> Run:
        """Stop it; check that what passed before it and behind it was the same."""
        assert self._running.end(signal.SIGINT) == 0, self._running.errors()
        before, behind = self._before.exchanges(), self._behind.exchanges()
        assert len(before) == len(behind) > 0
        assert _digests(before) == _digests(behind), _first_difference(before, behind)
        return Run.load(self.file)


def _digests(found: list) -> list[str]:
    return [hashlib.sha256(repr(each).encode()).hexdigest() for each in found]


def _first_difference(before: list, behind: list) -> str:
    return next((f"{a}\n{b}" for a, b in zip(before, behind, strict=True) if a != b), "")


@pytest.mark.parametrize(("shop", "client"), [("fastapi", "python"), ("express", "fetch")])
def test_before_the_shops_of_the_guide(shop: str, client: str, tmp_path: Path) -> None:
    with ExitStack() as stack:
        server = stack.enter_context(base_sepolia("ledger"))
        asked = Watched("--facilitator", server.ready["facilitator"], tmp_path / "f.ndjson", stack)
        url = stack.enter_context(guide_shop(shop, asked.url, tmp_path / "shop"))
        sold = Watched(
            "--upstream", url, tmp_path / "s.ndjson", stack, "--rpc", server.ready["rpc"]
        )
        runs = programs.in_python if client == "python" else programs.in_node
        program = CLIENTS[client].replace(SHOP, sold.url)
        assert programs.run(runs(program, tmp_path), {}) == {"weather": "sunny"}
        run = sold.stop()
        assert_sold(run, "/weather")
        steps = asked.stop().steps
    # what the shop asked its facilitator
    sent = {each for each in _paths(asked.file) if each.endswith(("verify", "settle"))}
    assert sent == {"/facilitator/verify", "/facilitator/settle"}
    assert steps.empty  # a shop is no payer


@pytest.mark.parametrize("version", [1, 2])
def test_before_an_express_shop_of_each_version(version: int, tmp_path: Path) -> None:
    with ExitStack() as stack:
        server = stack.enter_context(base_sepolia("ledger"))
        network = NETWORKS[version]
        page, merchant = stack.enter_context(
            programs.selling(server, f"npm_v{version}/sell.mjs", "express", network)
        )
        base = page.removesuffix("/weather")
        sold = Watched("--upstream", base, tmp_path / "s.ndjson", stack)
        payer = server.payer()
        answer = buy(f"npm_v{version}/buy.mjs", payer, "fetch", f"{sold.url}/weather")
        programs.assert_paid(payer, merchant, answer, network)
        assert_sold(sold.stop(), "/weather")


def test_before_a_cronos_shop(tmp_path: Path) -> None:
    with ExitStack() as stack:
        server = stack.enter_context(started())
        payer = server.payer()
        sold = Watched("--upstream", server.ready["service"], tmp_path / "s.ndjson", stack)
        told = {"base": sold.url, "key": payer.wallet.private_key, "order": ORDER}
        assert programs.run("npm_v2/cronos.cjs", told)["status"] == 200
        assert_sold(sold.stop(), "/api/perp/quote")


def test_before_an_mcp_server(tmp_path: Path) -> None:
    with ExitStack() as stack:
        server = stack.enter_context(base_sepolia("ledger"))
        payer = server.payer()
        sold = Watched("--upstream", server.ready["service"], tmp_path / "s.ndjson", stack)
        told = {"url": f"{sold.url}/mcp", "key": payer.wallet.private_key, "tool": "market"}
        programs.run("mcp_client.py", {**told, "arguments": {}})
        assert payer.transfers == 1
        sold.stop()
    assert _paths(sold.file).count("mcp://tool/market") == 3


@pytest.mark.parametrize("args", [(), ("--steps", "1"), ("--session", "--max", "0.10")])
def test_before_serve_itself(args: tuple[str, ...], tmp_path: Path) -> None:
    with ExitStack() as stack:
        server = stack.enter_context(base_sepolia("ledger"))
        sold = Watched("--upstream", server.ready["service"], tmp_path / "s.ndjson", stack)
        pay = command("pay", f"{sold.url}/api/perp/market", *args)
        done = subprocess.run(pay, env=environment(), capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        run = sold.stop()
    if not args or args[0] == "--steps":
        assert_sold(run, "/api/perp/market")


def assert_sold(run: Run, path: str) -> None:
    """One order, paid and served, and nothing wrong that stops a payment."""
    orders = run.orders[run.orders["resource"] == path]
    assert list(orders["charged"]) == [True], orders
    assert list(orders["served"]) == [True], orders
    notes = [
        each.event.data for each in run.journal if getattr(each.event, "name", "") == "finding"
    ]
    assert [each for each in notes if each["stops"]] == []


def _paths(file: Path) -> list[str]:
    notes = [each.event for each in Run.load(file).journal]
    return [each.data["path"] for each in notes if getattr(each, "name", "") == "exchange"]
