"""What a shell and a terminal get: completions of names, and with NO_COLOR no codes."""

import json
import os
import pty
import select
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.serve.driver import QUOTE, command, environment
from x402sim import LocalServer
from x402sim.cli import app
from x402sim.payer.mistakes import MISTAKES
from x402sim.protocol.networks import NETWORKS
from x402sim.spec.clauses import CLAUSES
from x402sim.world.scenario import shipped_names

ENDS_S = 60


def asked(line: str) -> dict[str, str]:
    """Return the variables with which bash asks for the last word of a line."""
    return {
        "_X402SIM_COMPLETE": "complete_bash",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(line.split(" ")) - 1),
    }


def test_a_shell_asks_the_program() -> None:
    line = "x402sim pa"
    program = "from x402sim.cli import app; app(prog_name='x402sim')"
    done = subprocess.run(
        [*command()[:1], "-c", program],
        env=environment() | asked(line),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout.split(), done.stderr) == (["payments", "pay"], "")


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("x402sim run rep", [each for each in shipped_names() if each.startswith("rep")]),
        ("x402sim list ", shipped_names()),
        ("x402sim pay http://x --wrong ", list(MISTAKES)),
        ("x402sim pay http://x --wrong re", ["resource", "replay"]),
        ("x402sim serve --network ", list(NETWORKS)),
        ("x402sim serve --network base --network ava", ["avalanche", "avalanche-fuji"]),
        ("x402sim run --network pol", ["polygon"]),
        ("x402sim service --network base-", ["base-sepolia"]),
        ("x402sim conformance x --only 2.8", [c.id for c in CLAUSES if c.id.startswith("2.8")]),
    ],
)
def test_a_shell_completes_names(line: str, names: list[str]) -> None:
    done = CliRunner().invoke(app, env=asked(line), prog_name="x402sim")
    assert (done.stdout.split(), done.stderr) == (names, "")
    assert names


def in_terminal(*program: str, **variables: str) -> bytes:
    leader, follower = pty.openpty()
    env = environment() | {"TERM": "xterm-256color", "COLUMNS": "80"} | variables
    running = subprocess.Popen(program, stdin=follower, stdout=follower, stderr=follower, env=env)
    os.close(follower)
    written = b""
    while select.select([leader], [], [], ENDS_S)[0]:
        try:
            got = os.read(leader, 1 << 16)
        except OSError:  # the other end is closed
            break
        if not got:
            break
        written += got
        if b"Ctrl-C stops" in written:
            running.terminate()
    os.close(leader)
    running.wait(ENDS_S)
    return written


COMMANDS = [
    ["demo"],
    ["pay", "URL/api/perp/market"],
    ["pay", "URL/api/perp/market", "--wrong", "amount"],
    ["doctor", f"URL{QUOTE}", "-X", "POST"],
    ["decode", '{"success": true, "transaction": "", "network": "base"}'],
    ["list"],
    ["list", "replay"],
    ["run", "replay"],
    ["conformance", "URL", "--only", "2.8"],
    ["target", "init", "URL", "-o", "-"],
    ["sweep", "FILE:one", "--seeds", "2", "--workers", "0"],
]
"""Each command that prints to a terminal and ends."""
STUDY = "def one(seed):\n    return {'seed_again': seed}\n"
IN_TURN = """
import json, sys
from contextlib import suppress
from x402sim.cli import main
for words in json.loads(sys.argv[1]):
    print("=== ", *words, flush=True)
    sys.argv = ["x402sim", *words]
    with suppress(SystemExit):
        main()
"""
"""Gives several commands one process: to start one for each takes as long as all that they do."""


def is_plain(written: bytes) -> bool:
    return len(written) > 50 and b"\x1b" not in written and b"Traceback" not in written


@pytest.mark.thorough
def test_with_no_color_a_terminal_gets_no_codes(server: LocalServer, tmp_path: Path) -> None:
    file = tmp_path / "study.py"
    file.write_text(STUDY)
    lines = json.dumps(COMMANDS).replace("URL", server.url).replace("FILE", str(file))
    _, *told = in_terminal(sys.executable, "-c", IN_TURN, lines, NO_COLOR="1").split(b"=== ")
    assert len(told) == len(COMMANDS), told
    assert [each for each in told if not is_plain(each.partition(b"\n")[2])] == []


@pytest.mark.thorough
def test_with_no_color_nor_does_that_of_a_server() -> None:
    assert is_plain(in_terminal(*command("serve", "--port", "0"), NO_COLOR="1"))


def test_without_it_a_terminal_gets_colours() -> None:
    assert b"\x1b[" in in_terminal(*command("list"), NO_COLOR="")
