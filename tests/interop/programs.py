"""Runs a program of other people's packages, in a process of its own.

It is one of `python`, or one of an npm folder, with the packages that the folder pins, in an
environment of their own: nothing of ours can leak in. What cannot be installed fails its tests.
A program gets one JSON value and prints one; a server prints its URL first.
"""

import base64
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from uv import find_uv_bin

from tests import npm
from tests.serve.driver import ORDER, QUOTE, READY_S, Payer, Running, Server

FOLDER = Path(__file__).parent
PYTHON = FOLDER / "python"
INSTALL_TIMEOUT_S = 300
RUN_TIMEOUT_S = 60
NETWORKS = {1: "base-sepolia", 2: "eip155:84532"}
"""How each version of the standard names the network."""
NO_PROXY = {"NO_PROXY": "*", "no_proxy": "*"}


@cache
def python() -> str:
    """Return the interpreter that has what `python/requirements.txt` pins, installed if need be."""
    found = PYTHON / ".venv" / "bin" / "python"
    make = ["venv", "--clear", "--python", sys.executable, str(found.parents[1])]
    install = ["pip", "sync", "--python", str(found), str(PYTHON / "requirements.txt")]
    with npm.locked(PYTHON / "requirements.txt"):
        for command in [install] if found.exists() else [make, install]:
            subprocess.run([find_uv_bin(), "-q", *command], check=True, timeout=INSTALL_TIMEOUT_S)
    return str(found)


def command(program: str | Sequence[str]) -> list[str]:
    """Return the command of sell.py or npm_v2/buy.mjs, with its packages; -E keeps ours away."""
    if not isinstance(program, str):
        return [*program]
    if program.endswith(".py"):
        return [python(), "-E", str(PYTHON / program)]
    npm.packages((FOLDER / program).parent)
    return [str(npm.node()), str(FOLDER / program)]


def in_python(program: str, folder: Path) -> list[str]:
    """Return the command of a Python program, which is written into the folder."""
    file = folder / "program.py"
    file.write_text(program, encoding="utf-8")
    return [python(), "-E", str(file)]


def in_node(program: str, folder: Path) -> list[str]:
    """Return the command of a JavaScript program, which is written into the folder."""
    file, packages = folder / "program.mjs", folder / "node_modules"
    file.write_text(program, encoding="utf-8")
    packages.symlink_to(npm.packages(FOLDER / "npm_v2"))
    return [str(npm.node()), str(file)]


def run(program: str | Sequence[str], told: dict[str, Any]) -> Any:
    """Run a program that gets `told` on stdin, and return the JSON value that it prints last.

    If it fails, the assertion shows what it wrote.
    """
    done = subprocess.run(
        command(program),
        input=json.dumps(told),
        capture_output=True,
        text=True,
        timeout=RUN_TIMEOUT_S,
        env={**os.environ, **NO_PROXY},
    )
    assert done.returncode == 0, f"{program} failed:\n{done.stdout}\n{done.stderr}"
    return json.loads(done.stdout.splitlines()[-1])


def buy(
    program: str, payer: Payer, client: str, url: str | None = None, **told: Any
) -> dict[str, Any]:
    """Let a client buy a quote, or what is at a URL; return the answer."""
    asked = {"client": client, "key": payer.wallet.private_key, "network": NETWORKS[2]}
    if url is None:
        asked |= {"url": payer.server.ready["service"] + QUOTE, "body": ORDER}
    else:
        asked["url"] = url
    answer: dict[str, Any] = run(program, asked | told)
    return answer


def assert_paid(payer: Payer, to: str, answer: dict[str, Any], network: str) -> None:
    """Check that an answer came for one payment of PRICE, and that its header names it."""
    assert answer["status"] == 200, answer
    sent = [text for name, text in answer["headers"].items() if name.endswith("payment-response")]
    told = json.loads(base64.b64decode(sent[0]))
    assert (told["success"], told["network"]) == (True, network)
    assert told["payer"].lower() == payer.address.lower()
    payer.assert_paid(to, told["transaction"])


def sale(shop: str, facilitator: str, pay_to: str, *networks: str) -> dict[str, Any]:
    """Return what a shop is told that sells a page for `PRICE` on these networks, or the first."""
    wanted = {"network": networks[0], "networks": [*networks], "price": "$0.01"}
    return {"server": shop, "facilitator": facilitator, "payTo": pay_to, **wanted}


@contextmanager
def selling(server: Server, program: str, shop: str, *networks: str) -> Iterator[tuple[str, str]]:
    """Run a shop whose payments our facilitator settles; yield its page's URL, and its address."""
    merchant = server.payer(funds=None).address
    with serving(program, sale(shop, server.ready["facilitator"], merchant, *networks)) as url:
        yield f"{url}/weather", merchant


@contextmanager
def serving(
    program: str | Sequence[str], told: dict[str, Any], within_s: float = READY_S
) -> Iterator[str]:
    """Run a server until the block ends; yield the URL that it prints first.

    It gets a file with `told` as its last argument. If it fails, the assertion shows what it wrote.
    """
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "told.json"
        file.write_text(json.dumps(told))
        process = Running(program=[*command(program), str(file)], env=NO_PROXY)
        try:
            url = process.line(within_s).strip()
            assert url, f"{program} did not start:\n{process.errors()}"
            yield url
        finally:
            process.close()
