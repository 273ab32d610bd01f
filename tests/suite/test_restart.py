"""--restart over TCP: a service with a database keeps what was paid, one without it does not."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.strangers.stranger import free_port
from tests.suite.duo import Duo, conformance, service_env

IDS = (
    "spec/3/record-outlives-cache",
    "spec/4.1/store-settled",
    "kit/5/session-survives-restart",
)
RESTART = """
import os, pathlib, signal, socket, subprocess, sys, time

def answers():
    with socket.socket() as caller:
        return caller.connect_ex(("127.0.0.1", int(port))) == 0

def wait(until):
    end = time.monotonic() + 30
    while answers() != until and time.monotonic() < end:
        time.sleep(0.05)

pid_file, port, *command = sys.argv[1:]
pid = pathlib.Path(pid_file)
if pid.exists():
    os.kill(int(pid.read_text()), signal.SIGTERM)
    wait(until=False)
quiet = subprocess.DEVNULL
new = subprocess.Popen(command, stdin=quiet, stdout=quiet, stderr=quiet, start_new_session=True)
pid.write_text(str(new.pid))
wait(until=True)
"""
"""Ends the service of a pid file, if there is one, and starts it again in the background."""


def judged(ready: dict[str, Any], folder: Path, *options: str) -> dict[str, Any]:
    """Run the suite against a service with these options, with a command that restarts it."""
    port = free_port()
    script, pid = folder / "restart.py", folder / "pid"
    script.write_text(RESTART)
    service = [sys.executable, "-m", "x402sim", "service", "--port", str(port), *options]
    command = [sys.executable, str(script), str(pid), str(port), *service]
    subprocess.run(command, check=True)
    try:
        done = conformance(
            f"http://127.0.0.1:{port}", "--world", ready["control"], "--restart",
            " ".join(command), "--json", "--only", ",".join(IDS),
        )  # fmt: skip
    finally:
        os.kill(int(pid.read_text()), signal.SIGTERM)
    return done.results


@pytest.fixture(autouse=True)
def settings(duo: Duo, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever starts the service again has its settings in the environment."""
    for name, value in service_env(duo.ready).items():
        monkeypatch.setenv(name, value)


def test_what_a_database_keeps_survives_the_restart(duo: Duo, tmp_path: Path) -> None:
    found = judged(duo.ready, tmp_path, "--db", str(tmp_path / "shop.db"))
    assert {each: found[each]["outcome"] for each in IDS} == dict.fromkeys(IDS, "passed")


def test_a_service_that_keeps_all_in_memory_fails(duo: Duo, tmp_path: Path) -> None:
    found = judged(duo.ready, tmp_path)
    assert {each: found[each]["outcome"] for each in IDS} == dict.fromkeys(IDS, "failed")
