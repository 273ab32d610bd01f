"""The processes of one world: the killed process, the moment of a kill, the files and the URLs."""

import json
import os
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from enum import Enum
from pathlib import Path
from typing import Any

import httpx

from tests.money import EVENTS, Ledger, Logged
from tests.serve.driver import Running, World, client
from tests.suite.deployment import service_env
from x402sim.protocol.crypto import to_hex

PAYERS = 4
"""How many of the funded accounts pay. The last two are the merchant and the server wallet of a
service that runs alone."""


class Command(Enum):
    SERVE = "serve --db"
    """The whole world: the service and the chain die together."""
    SERVICE = "service --db"
    """The service only: its world, `serve --no-service`, goes on."""


class Deployment:
    """A service and its world in one folder; `kill` and `start` as often as wanted."""

    def __init__(self, command: Command, folder: Path) -> None:
        self.command = command
        self.file = folder / "kept.db"
        self.start_s = 0.6
        """How long the last start took that was not killed."""
        self.complaints: list[str] = []
        """What processes wrote to stderr that no process should."""
        self.began: list[dict[str, Any]] = []
        """The funded accounts, with their balances when the world began."""
        self.service = httpx.Client()
        self.running: Running | None = None
        self.world_process: Running | None = None
        self._spawned_s = 0.0
        if command is Command.SERVICE:
            self.world_process = _process("serve", folder / "world.db", "--no-service", "--json")
            self._learn_world(self.world_process.first_line())
        of = self.file if command is Command.SERVE else folder / "world.db"
        self.chain_file = of.with_name(of.name + ".chain")

    def spawn(self) -> None:
        """Start the process that is killed; it is not ready yet."""
        assert self.running is None
        self._spawned_s = time.monotonic()
        self.running = self._service()

    def _service(self) -> Running:
        if self.command is Command.SERVE:
            return _process("serve", self.file, "--json")
        return _process("service", self.file, env=service_env(self.world.ready))

    def await_ready(self) -> None:
        assert self.running is not None
        line = self.running.first_line()
        self.start_s = time.monotonic() - self._spawned_s
        self.service.close()
        if self.command is Command.SERVE:
            self._learn_world(line)
            self.service = self.world.http
        else:
            self.service = client(_url(line))

    def kill(self) -> None:
        """Send SIGKILL, and keep what the process complained about."""
        assert self.running is not None
        self.running.process.kill()
        self.running.process.wait()
        self._close(self.running)
        self.running = None

    def close(self) -> None:
        """End every process; nothing is left behind."""
        for process in (self.running, self.world_process):
            if process is not None:
                self._close(process)
        self.running = self.world_process = None
        self.service.close()
        if self.began:
            self.world.http.close()

    def ledger(self) -> Ledger:
        """Read all events of the token, over public JSON-RPC, at one moment."""
        topics = [[to_hex(event) for event in EVENTS]]
        wanted = {"address": self.world.ready["asset"], "fromBlock": "0x0", "topics": topics}
        return Ledger.of(map(_logged, self.world.rpc("eth_getLogs", wanted)))

    def explorer_confirms(self, tx_hash: str) -> bool:
        """Tell whether the explorer shows a transaction that took effect."""
        query = {"module": "proxy", "action": "eth_getTransactionReceipt", "txhash": tx_hash}
        found = self.world.http.get("/explorer/api", params=query).json().get("result")
        return isinstance(found, dict) and found["status"] == "0x1"

    def _learn_world(self, line: str) -> None:
        self.world = World(json.loads(line))
        self.began = self.began or self.world.ready["accounts"]

    @property
    def wallet(self) -> str:
        """The address that receives deposits and pays refunds, lower-case."""
        ready = self.world.ready
        is_whole = self.command is Command.SERVE
        return str(ready["payTo"] if is_whole else ready["accounts"][-1]["address"]).lower()

    def _close(self, process: Running) -> None:
        errors = process.errors()
        if "Traceback" in errors:
            self.complaints.append(f"a process wrote a stack trace: {errors[-2000:]}")
        process.close()


def _process(command: str, file: Path, *options: str, env: dict[str, str] | None = None) -> Running:
    return Running(command, "--port", "0", "--db", str(file), *options, env=env)


def _logged(log: dict[str, Any]) -> Logged:
    data, tx_hash, *topics = (
        bytes.fromhex(text[2:]) for text in (log["data"], log["transactionHash"], *log["topics"])
    )
    return Logged(tuple(topics), data, tx_hash)


def _url(line: str) -> str:
    return line.split()[3].rstrip(";")


@contextmanager
def deployed(command: Command, folder: Path) -> Iterator[Deployment]:
    """Give a deployment whose process was not started yet; end all processes afterwards."""
    deployment = Deployment(command, folder)
    try:
        yield deployment
    finally:
        deployment.close()


# --- the moment of a kill -----------------------------------------------------------------

PATIENCE_S = 60


class Phase(Enum):
    LOAD = "at random under load"
    FILE = "as FILE was written"
    CHAIN = "as the chain's file was written, FILE not yet"
    MEMPOOL = "while a transfer waited to be mined"
    START = "while it started"
    FIRST_FILE = "in its first start, FILE just made"
    FIRST_CHAIN = "in its first start, FILE.chain just made"
    AGAIN = "just after it was ready"
    RESUMED = "as it resumed its work after a start"
    IDLE = "while idle"


def kill_under_load(deployment: Deployment, phase: Phase, luck: random.Random) -> None:
    match phase:
        case Phase.FILE | Phase.CHAIN:
            file = deployment.file if phase is Phase.FILE else deployment.chain_file
            assert is_written(file, within_s=PATIENCE_S), f"{file.name} was not written"
        case Phase.MEMPOOL:
            deployment.world.sim("mining", automine=False)
            wait_for(lambda: deployment.world.state()["chain"]["waiting"], "a transfer waits")
            time.sleep(luck.uniform(0, 0.05))
        case _:
            time.sleep(luck.uniform(0, 0.1))
    deployment.kill()


def is_written(file: Path, *, within_s: float) -> bool:
    """Return True as soon as a database is written: its log changes size or time."""
    log = file.with_name(file.name + "-wal")
    before, end = _stamp(log), time.monotonic() + within_s
    while _stamp(log) == before:
        if time.monotonic() > end:
            return False
    return True


def _stamp(file: Path) -> tuple[int, int]:
    with suppress(FileNotFoundError):
        found = os.stat(file)
        return found.st_size, found.st_mtime_ns
    return 0, 0


def wait_for(happened: Callable[[], object], what: str, pause_s: float = 0.001) -> None:
    end = time.monotonic() + PATIENCE_S
    while not happened():
        assert time.monotonic() < end, f"not in {PATIENCE_S} s: {what}"
        time.sleep(pause_s)
