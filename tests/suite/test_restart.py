"""--restart over TCP: a service with a database keeps what was paid, one without it does not."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.serve.driver import Running, environment

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


@pytest.fixture(scope="module")
def world() -> Iterator[dict[str, Any]]:
    running = Running("serve", "--no-service", "--port", "0", "--json")
    yield json.loads(running.line())
    running.close()


def judged(ready: dict[str, Any], folder: Path, *options: str) -> dict[str, Any]:
    """Run the suite against a service with these options, with a command that restarts it."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    merchant = ready["accounts"][-1]
    env = {
        **environment(),
        "PRIVATE_KEY": merchant["privateKey"],
        "MERCHANT_ADDRESS": merchant["address"],
        "FACILITATOR_URL": ready["facilitator"],
        "EXPLORER_URL": ready["explorer"],
        "RPC_URL": ready["rpc"],
    }
    script, pid = folder / "restart.py", folder / "pid"
    script.write_text(RESTART)
    service = [sys.executable, "-m", "x402sim", "service", "--port", str(port), *options]
    command = [sys.executable, str(script), str(pid), str(port), *service]
    subprocess.run(command, check=True, env=env)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "x402sim", "conformance", f"http://127.0.0.1:{port}",
             "--world", ready["control"], "--restart", " ".join(command), "--json", "-",
             *(part for each in IDS for part in ("--requirement", each))],
            capture_output=True, text=True, check=False, env=env,
        )  # fmt: skip
    finally:
        os.kill(int(pid.read_text()), signal.SIGTERM)
    assert done.stdout, done.stderr
    found: dict[str, Any] = done.report
    return {result["id"]: result for result in found["results"]}


def test_what_a_database_keeps_survives_the_restart(world: dict[str, Any], tmp_path: Path) -> None:
    found = judged(world, tmp_path, "--db", str(tmp_path / "shop.db"))
    assert {each: found[each]["outcome"] for each in IDS} == dict.fromkeys(IDS, "passed")


def test_a_service_that_keeps_all_in_memory_fails(world: dict[str, Any], tmp_path: Path) -> None:
    found = judged(world, tmp_path)
    assert {each: found[each]["outcome"] for each in IDS} == dict.fromkeys(IDS, "failed")
