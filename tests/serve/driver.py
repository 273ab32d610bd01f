"""What the tests of this folder share: a server as a subprocess, and a payer by hand.

The payer is plain httpx and `Wallet`: what it sends is in the test, not in a class.
"""

import json
import os
import queue
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import httpx
import msgspec

from tests.fork_server import Forked
from x402sim import Wallet
from x402sim.clock import stopwatch
from x402sim.payer.core import proofs, settlement
from x402sim.protocol import abi
from x402sim.protocol.crypto import parse_address, to_hex
from x402sim.protocol.messages import PaymentRequirements
from x402sim.protocol.networks import NETWORKS

QUOTE, SESSIONS, PAY = "/api/perp/quote", "/api/sessions/create", "/api/pay"
ORDER = {"pair": "BTC-USD", "side": "long", "leverage": 10, "sizeUsd": 1000}
PRICE = 10_000
READY_S = 60  # beside many other programs a start takes ten times as long
STOP_S = 15
IS_MEASURABLE = sys.platform == "linux"
Answer = httpx.Response


def resident_bytes(pid: int | str = "self") -> int:
    """Return the resident memory of a process, this one by default, on Linux."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


X402SIM = (sys.executable, "-m", "x402sim")


def command(*args: str) -> list[str]:
    return [*X402SIM, *args]


def environment() -> dict[str, str]:
    """Return an environment in which nothing but the arguments decides."""
    kept = {k: v for k, v in os.environ.items() if k not in ("FORCE_COLOR", "PY_COLORS")}
    kept.pop("X402SIM_CONTROL_TOKEN", None)
    return kept | {"COLUMNS": "80", "NO_COLOR": "1"}


class Running:
    """A process whose stdout is read by a thread, and whose stderr goes to a file."""

    def __init__(
        self,
        *args: str,
        program: Sequence[str] = X402SIM,
        env: dict[str, str] | None = None,
        cwd: Path | None = None,
    ) -> None:
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed in `close`
        env = environment() | (env or {})
        given: dict[str, Any] = {"stderr": self._errors, "env": env, "cwd": cwd}
        self.process: Any = (
            Forked(*program[1:], *args, **given)
            if (*program[:2],) == X402SIM[:2]
            else subprocess.Popen([*program, *args], stdout=subprocess.PIPE, text=True, **given)
        )
        self._lines: queue.Queue[str] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        for line in self.process.stdout:
            self._lines.put(line)
        self._lines.put("")

    def line(self, timeout_s: float = READY_S) -> str:
        """Return the next line of stdout; "" at its end."""
        return self._lines.get(timeout=timeout_s)

    def first_line(self) -> str:
        """Return the line with which it is ready."""
        line = self.line()
        assert line, f"it did not start: {self.errors()}"
        return line

    def rest(self) -> list[str]:
        """Return the lines of stdout that were not read yet, once the process has ended."""
        self._reader.join(STOP_S)
        return [line for line in self._lines.queue if line]

    def errors(self) -> str:
        # the process shares the file's place: a seek would make it write over its own lines
        file = self._errors.fileno()
        return os.pread(file, os.fstat(file).st_size, 0).decode("utf-8", "replace")

    def end(self, number: int | None) -> int:
        """Send a signal (None: it is ending by itself) and return the exit code."""
        if number is not None and self.process.poll() is None:
            self.process.send_signal(number)
        return self.process.wait(STOP_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self._reader.join(STOP_S)
        self.process.stdout.close()
        self._errors.close()


class World:
    """A world that is ready, by its ready line, and an httpx client for it."""

    def __init__(self, ready: dict[str, Any]) -> None:
        self.ready = ready
        self.http = client(ready["rpc"].removesuffix("/rpc"))

    @property
    def address(self) -> tuple[str, int]:
        """Host and port of the service."""
        return self.http.base_url.host, self.http.base_url.port

    # --- control ---------------------------------------------------------------------

    def sim(self, path: str, /, **arguments: Any) -> Any:
        """Send a command to the control API; it must work."""
        answer = self.http.post(f"/_sim/{path}", json=arguments)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def state(self) -> dict[str, Any]:
        return self.http.get("/_sim/state").json()

    def now_s(self) -> int:
        return self.state()["now"] // 1000

    def advance(self, seconds: float) -> None:
        self.sim("clock/advance", seconds=seconds)

    def journal(self, since: int = 0) -> list[dict[str, Any]]:
        """Return the lines of the journal as they are, without the header."""
        lines = self.http.get("/_sim/journal", params={"since": since}).text.splitlines()
        return [json.loads(line) for line in lines[1:]]

    def payer(self, funds: str | None = "100.00") -> "Payer":
        """Return a payer nobody has seen before, with money unless `funds` is None."""
        payer = Payer(self, Wallet.create())
        if funds is not None:
            self.sim("faucet", address=payer.address, amount=funds)
        return payer

    def account(self, number: int = 0) -> "Payer":
        return Payer(self, Wallet(self.ready["accounts"][number]["privateKey"]))

    # --- the chain -------------------------------------------------------------------

    def rpc(self, method: str, *params: Any) -> Any:
        """Return the result of a call of JSON-RPC."""
        call = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        answer = self.http.post("/rpc", json=call).json()
        assert "result" in answer, answer
        return answer["result"]

    def view(self, data: bytes) -> int:
        return int(self.rpc("eth_call", {"to": self.ready["asset"], "data": to_hex(data)}), 16)

    def record(self, asked: dict[str, Any]) -> dict[str, Any]:
        return self.http.get(f"/api/payments/{asked['paymentId']}").json()

    def balance(self, account: str) -> int:
        return self.view(abi.balance_of(parse_address(account)))

    def transfers(
        self, sender: str | None = None, to: str | None = None
    ) -> list[tuple[str, str, int]]:
        """Return the Transfer events there ever were: (from, to, base units), lower-case."""
        return [
            ("0x" + log["topics"][1][26:], "0x" + log["topics"][2][26:], int(log["data"], 16))
            for log in self.logs(abi.TRANSFER_EVENT, _topic(sender), _topic(to))
        ]

    def logs(self, event: bytes, *indexed: str | None) -> list[dict[str, Any]]:
        """Return the token's logs of an event."""
        topics = [to_hex(event), *indexed]
        wanted = {"address": self.ready["asset"], "fromBlock": "0x0", "topics": topics}
        return self.rpc("eth_getLogs", wanted)

    def assert_money_is_conserved(self, minted_base: int = 0) -> None:
        """What everybody has together is what was ever made, and that is the supply."""
        moves = self.transfers()
        known = {account["address"].lower() for account in self.ready["accounts"]}
        known |= {party for move in moves for party in move[:2]} | {self.ready["payTo"].lower()}
        together = sum(self.balance(account) for account in known)
        assert together == self.view(abi.TOTAL_SUPPLY) == 10 * 1_000_000_000 + minted_base


class Server(Running, World):
    """A world in a process."""

    def __init__(self, *args: str, program: Sequence[str] = X402SIM) -> None:
        super().__init__("serve", "--port", "0", "--json", *args, program=program)
        try:
            World.__init__(self, json.loads(self.first_line()))
        except BaseException:
            super().close()
            raise

    def close(self) -> None:
        self.http.close()
        super().close()

    def stop(self, number: int | None = signal.SIGINT) -> None:
        """Stop it as a person does, or wait if it is ending; see that it ends well."""
        code = self.end(number)
        errors = self.errors()
        assert "Traceback" not in errors, errors
        assert (code, self.rest()) == (0, []), errors


def client(url: str) -> httpx.Client:
    limits = httpx.Limits(max_connections=60, max_keepalive_connections=60)
    return httpx.Client(base_url=url, timeout=30, trust_env=False, limits=limits)


def _topic(account: str | None) -> str | None:
    return None if account is None else to_hex(abi.word(parse_address(account)))


@contextmanager
def started(*args: str) -> Iterator[Server]:
    """Serve a world in a subprocess; at the end Ctrl-C must stop it cleanly."""
    with Server(*args) as server:
        yield server
        if server.process.poll() is None:
            server.stop()


@dataclass(frozen=True)
class Payer:
    """A wallet, and the requests of one payment, each on its own."""

    server: World
    wallet: Wallet

    @property
    def address(self) -> str:
        return self.wallet.address

    @property
    def balance(self) -> int:
        return self.server.balance(self.address)

    @property
    def transfers(self) -> int:
        """How often money has left this wallet."""
        return len(self.server.transfers(sender=self.address))

    def assert_paid(self, to: str, transaction: str) -> None:
        moved = (self.address.lower(), to.lower(), PRICE)
        assert self.server.transfers(sender=self.address) == [moved]
        assert self.server.rpc("eth_getTransactionReceipt", transaction)["status"] == "0x1"

    def ask(self) -> dict[str, Any]:
        """Return the 402 of a quote."""
        answer = self.server.http.post(QUOTE, json=ORDER)
        assert answer.status_code == 402, answer.text
        return answer.json()

    def ask_session(self, max_spend: str = "0.03", duration: int = 3600) -> dict[str, Any]:
        """Return the 402 of a session's deposit."""
        asked = {"maxSpend": max_spend, "duration": duration}
        answer = self.server.http.post(SESSIONS, json=asked)
        assert answer.status_code == 402, answer.text
        return answer.json()

    def sign(self, requirements: dict[str, Any]) -> str:
        """Return a payment header for requirements; see `header`."""
        return header(self.wallet, requirements, self.server.now_s())

    def pay(self, asked: dict[str, Any], payment_header: str | None = None) -> Answer:
        return self.server.http.post(PAY, json=self.settlement(asked, payment_header))

    def settlement(self, asked: dict[str, Any], payment_header: str | None = None) -> Any:
        """Return the body of POST /api/pay."""
        wanted = asked["paymentRequirements"]
        return settlement(asked["paymentId"], payment_header or self.sign(wanted), wanted)

    def paid(self) -> str:
        """Pay for a quote; return the payment id."""
        asked = self.ask()
        answer = self.pay(asked)
        assert answer.status_code == 200, answer.text
        return asked["paymentId"]

    def open(self, max_spend: str = "0.03", duration: int = 3600) -> dict[str, Any]:
        """Pay a deposit; return the session."""
        asked = self.ask_session(max_spend, duration)
        answer = self.pay(asked)
        assert answer.status_code == 200, answer.text
        created = self.create(asked["paymentId"], max_spend, duration)
        assert created.status_code == 201, created.text
        return created.json()

    def create(self, payment_id: str, max_spend: Any = "0.03", duration: Any = 3600) -> Answer:
        """Ask for a session whose deposit was paid with this id."""
        asked = {"maxSpend": max_spend, "duration": duration}
        return self.server.http.post(SESSIONS, json=asked, headers=proofs(payment_id))

    def quote(
        self, payment_id: str | None = None, session_id: str | None = None, body: Any = ORDER
    ) -> Answer:
        return self.server.http.post(QUOTE, json=body, headers=proofs(payment_id, session_id))

    def session(self, session_id: str) -> dict[str, Any]:
        return self.server.http.get(f"/api/sessions/{session_id}").json()


def header(
    wallet: Wallet, requirements: dict[str, Any], now_s: int, fixed_nonce: bytes | None = None
) -> str:
    if fixed_nonce is not None:
        wallet = Wallet(wallet.private_key, nonces=lambda: fixed_nonce)
    network = NETWORKS[requirements["network"]]
    wanted = msgspec.convert(requirements, PaymentRequirements)
    return wallet.payment_header(wanted, now_s, network=network)


def until(is_so: Callable[[], object]) -> None:
    """Wait until something is so."""
    waited = stopwatch()
    while not is_so():
        assert waited() < READY_S
        time.sleep(0.02)


def in_parallel(*jobs: Any) -> list[Any]:
    """Run functions at the same moment, each in its own thread; return what they returned."""
    gate = threading.Barrier(len(jobs))

    def run(job: Any) -> Any:
        gate.wait(30)
        return job()

    with ThreadPoolExecutor(len(jobs)) as pool:
        return list(pool.map(run, jobs))


def exchange(address: tuple[str, int], sent: bytes) -> bytes:
    """Send bytes, and return everything that comes back until the server closes."""
    with socket.create_connection(address, timeout=10) as sock:
        sock.sendall(sent)
        return b"".join(iter(lambda: sock.recv(65536), b""))


def refusal(answer: Answer) -> tuple[int, str]:
    assert answer.headers["content-type"] == "application/json"
    assert "Traceback" not in answer.text
    return answer.status_code, answer.json()["error"]
