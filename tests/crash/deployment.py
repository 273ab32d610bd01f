"""The processes of one world: which of them is killed, on which files, and how to reach it."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import Any

import httpx

from tests.serve.driver import Running
from tests.suite.duo import service_env

LIMITS = httpx.Limits(max_connections=20, max_keepalive_connections=20)
PAYERS = 4
"""How many of the funded accounts pay. The last two are the merchant and the server wallet of a
service that runs alone."""


class Command(Enum):
    """The command whose process is killed."""

    SERVE = "serve --db"
    """The whole world: the service and the chain die together."""
    SERVICE = "service --db"
    """The service only: its world, `serve --no-service`, goes on."""


class Deployment:
    """A service and its world in one folder; `kill` and `start` as often as wanted."""

    def __init__(self, command: Command, folder: Path) -> None:
        self.command = command
        self.file = folder / "kept.db"
        self.restarts = 0
        self.start_s = 0.6
        """How long the last start took that was not killed."""
        self.complaints: list[str] = []
        """What processes wrote to stderr that no process should."""
        self.running: Running | None = None
        self.service = self.world = httpx.Client()
        self.world_process: Running | None = None
        self.twin: Running | None = None
        self.began: list[dict[str, Any]] = []
        """The funded accounts, with their balances when the world began."""
        self._env: dict[str, str] = {}
        self._spawned_s = 0.0
        if command is Command.SERVICE:
            world_file = folder / "world.db"
            self.world_process = Running(
                "serve", "--no-service", "--port", "0", "--json", "--db", str(world_file)
            )
            self._learn_world(json.loads(self._first_line(self.world_process)))
            self.chain_file = world_file.with_name("world.db.chain")
        else:
            self.chain_file = self.file.with_name("kept.db.chain")

    def spawn(self) -> None:
        """Start the process that is killed; it is not ready yet."""
        assert self.running is None
        self.restarts += 1
        self._spawned_s = time.monotonic()
        if self.command is Command.SERVE:
            self.running = Running("serve", "--port", "0", "--json", "--db", str(self.file))
        else:
            self.running = Running("service", "--port", "0", "--db", str(self.file), env=self._env)

    def await_ready(self) -> None:
        """Wait until it serves."""
        assert self.running is not None
        line = self._first_line(self.running)
        self.start_s = time.monotonic() - self._spawned_s
        if self.command is Command.SERVE:
            self._learn_world(json.loads(line))
            url = self.ready["service"]
        else:
            url = line.split()[3].rstrip(";")
        self.service.close()
        self.service = _client(url)

    def spawn_twin(self) -> httpx.URL:
        """Start another service on the same database, which is never killed; return its URL."""
        assert self.command is Command.SERVICE
        self.twin = Running("service", "--port", "0", "--db", str(self.file), env=self._env)
        return httpx.URL(self._first_line(self.twin).split()[3].rstrip(";"))

    def kill(self) -> None:
        """Send SIGKILL, and keep what the process complained about."""
        assert self.running is not None
        self.running.process.kill()
        self.running.process.wait()
        self._note_complaints(self.running)
        self.running.close()
        self.running = None

    def control(self, action: str, /, **arguments: Any) -> Any:
        """Send a command to the world's control API; it must work."""
        answer = self.world.post(f"/_sim/{action}", json=arguments)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def state(self) -> dict[str, Any]:
        """Return the world's state."""
        return self.world.get("/_sim/state").json()

    def close(self) -> None:
        """End every process; nothing is left behind."""
        for process in (self.running, self.twin, self.world_process):
            if process is not None:
                self._note_complaints(process)
                process.close()
        self.running = self.twin = self.world_process = None
        self.service.close()
        self.world.close()

    def _learn_world(self, ready: dict[str, Any]) -> None:
        self.ready = ready
        self.began = self.began or ready["accounts"]
        self.world.close()
        self.world = _client(ready["rpc"].removesuffix("/rpc"))
        self._env = service_env(ready)

    @property
    def wallet(self) -> str:
        """The address that receives deposits and pays refunds, lower-case."""
        if self.command is Command.SERVE:
            return str(self.ready["payTo"]).lower()
        return str(self.ready["accounts"][-1]["address"]).lower()

    def _first_line(self, process: Running) -> str:
        line = process.line(timeout_s=60)
        assert line, f"it did not start: {process.errors()}"
        return line

    def _note_complaints(self, process: Running) -> None:
        errors = process.errors()
        if "Traceback" in errors:
            self.complaints.append(f"a process wrote a stack trace: {errors[-2000:]}")


def _client(url: str) -> httpx.Client:
    return httpx.Client(base_url=url, timeout=60, trust_env=False, limits=LIMITS)


@contextmanager
def deployed(command: Command, folder: Path) -> Iterator[Deployment]:
    """Give a deployment whose process was not started yet; end all processes afterwards."""
    deployment = Deployment(command, folder)
    try:
        yield deployment
    finally:
        deployment.close()
