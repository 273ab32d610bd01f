"""Anvil: search, start, end with our process, and errors."""

import os
import signal
import socket
import stat
import subprocess
import sys
import time
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.chain.helpers import NOW_S
from x402sim.chain.base import ChainError
from x402sim.chain.node import anvil
from x402sim.chain.node.anvil import AnvilNode, find_anvil


def script(path: Path, text: str = "exit 0") -> Path:
    """Write a program."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


# --- where it is ---------------------------------------------------------------------


def test_the_variable_comes_first_then_path_then_the_nearest_npm_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    named, on_path = script(tmp_path / "mine"), script(tmp_path / "bin/anvil")
    installed, below = script(tmp_path / "node_modules/.bin/anvil"), tmp_path / "project/notebooks"
    below.mkdir(parents=True)
    monkeypatch.chdir(below)
    monkeypatch.setenv(anvil.VARIABLE, str(named))
    monkeypatch.setenv("PATH", str(on_path.parent))
    assert find_anvil() == named
    monkeypatch.delenv(anvil.VARIABLE)
    assert find_anvil() == on_path
    monkeypatch.delenv("PATH")
    assert find_anvil() == installed
    nearer = script(tmp_path / "project/node_modules/.bin/anvil")
    assert find_anvil() == nearer


@pytest.mark.parametrize("name", ["missing", "not executable"])
def test_a_variable_without_a_program_is_an_error(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "not executable").write_text("text")
    monkeypatch.setenv(anvil.VARIABLE, str(tmp_path / name))
    with pytest.raises(ChainError, match=rf"X402SIM_ANVIL is '.*/{name}', which is not a program"):
        find_anvil()


def is_open(url: str) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", urlsplit(url).port)) == 0


def closes(url: str) -> bool:
    """Tell whether nobody listens, now or soon: the kernel takes a moment."""
    for _ in range(500):
        if not is_open(url):
            return True
        time.sleep(0.01)
    return False


# --- that it starts ------------------------------------------------------------------


def test_it_runs_as_asked_and_quietly(program: Path, capfd: pytest.CaptureFixture[str]):
    node = AnvilNode(338, NOW_S, program)
    try:
        ask = node.rpc.ask_now
        assert ask("eth_chainId") == hex(338)
        block = ask("eth_getBlockByNumber", "latest", False)
        assert (block["number"], block["timestamp"]) == ("0x0", hex(NOW_S))
        assert ask("eth_accounts") == []
    finally:
        node.stop()
    assert closes(node.url)
    assert capfd.readouterr() == ("", "")


def test_if_another_took_the_port_it_tries_the_next(program: Path, monkeypatch: pytest.MonkeyPatch):
    free_port = anvil._free_port
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        ports = [taken.getsockname()[1], free_port()]
        monkeypatch.setattr(anvil, "_free_port", lambda: ports.pop(0))
        node = AnvilNode(338, NOW_S, program)
        node.stop()
    assert ports == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("echo no room >&2; echo error: broken >&2; exit 1", "error: broken"),
        ("exit 0", "printed nothing"),
        (None, "No such file"),
    ],
)
def test_a_program_that_exits_immediately_is_an_error_with_its_output(tmp_path: Path, text, said):
    program = tmp_path / "missing" if text is None else script(tmp_path / "anvil", text)
    with pytest.raises(ChainError, match=f"anvil did not start: .*{said}"):
        AnvilNode(338, NOW_S, program)


def test_a_program_that_never_listens_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(anvil, "START_TIMEOUT_S", 0.2)
    pid = tmp_path / "pid"
    with pytest.raises(ChainError, match="anvil did not start"):
        AnvilNode(338, NOW_S, script(tmp_path / "anvil", f"echo $$ > {pid}; sleep 60"))
    assert has_ended(int(pid.read_text()))


def has_ended(pid: int) -> bool:
    """Tell whether a process is gone, or dead and not yet buried."""
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (ProcessLookupError, FileNotFoundError):
        return True


# --- that it ends --------------------------------------------------------------------

PARENTS = """
import os, sys
from pathlib import Path
from x402sim.chain.node.anvil import AnvilNode
for _ in range(2):
    if not os.fork():
        break
url = AnvilNode(338, 1, Path(sys.argv[1])).url
os.write(1, f"{os.getpid()} {url}\\n".encode())
sys.stdin.read()
"""
"""Three processes, for the imports of one; each starts a program of its own.

Each writes its line at once: an unbuffered `print` writes word by word, and the lines mix.
"""


@pytest.mark.thorough
def test_the_program_ends_with_its_parent(program: Path):
    """Whether the parent is killed, is terminated, or ends by itself."""
    with subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", PARENTS, str(program)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as first:
        assert first.stdout
        urls = dict(first.stdout.readline().split() for _ in range(3))
        assert all(map(is_open, urls.values()))
        last = urls.pop(str(first.pid))
        for (pid, url), how in zip(urls.items(), (signal.SIGKILL, signal.SIGTERM), strict=True):
            os.kill(int(pid), how)
            assert closes(url)
        assert is_open(last)
        first.communicate("")
    assert closes(last)
