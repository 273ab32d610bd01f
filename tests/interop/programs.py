"""Runs a program of other people's packages, in a process of its own.

It is one of `python`, with the packages that `venv` installs, or one of an npm folder, with those
that the folder pins. A program gets one JSON value and prints one; a server prints its URL first.
"""

import json
import os
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests import npm
from tests.interop import venv
from tests.serve.driver import Running

FOLDER = Path(__file__).parent

RUN_TIMEOUT_S = 60
NO_PROXY = {"NO_PROXY": "*", "no_proxy": "*"}


def command(program: str | Sequence[str]) -> list[str]:
    """Return the command of sell.py or npm_v2/buy.mjs, with its packages; -E keeps ours away."""
    if not isinstance(program, str):
        return [*program]
    if program.endswith(".py"):
        return [str(venv.python()), "-E", str(venv.FOLDER / program)]
    npm.packages((FOLDER / program).parent)
    return [str(npm.node()), str(FOLDER / program)]


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


def sale(shop: str, facilitator: str, pay_to: str, *networks: str) -> dict[str, Any]:
    """Return what a shop is told that sells a page for `PRICE` on these networks, or the first."""
    wanted = {"network": networks[0], "networks": [*networks], "price": "$0.01"}
    return {"server": shop, "facilitator": facilitator, "payTo": pay_to, **wanted}


@contextmanager
def serving(program: str | Sequence[str], told: dict[str, Any]) -> Iterator[str]:
    """Run a server until the block ends; yield the URL that it prints first.

    It gets a file with `told` as its last argument. If it fails, the assertion shows what it wrote.
    """
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "told.json"
        file.write_text(json.dumps(told))
        process = Running(program=[*command(program), str(file)], env=NO_PROXY)
        try:
            url = process.line().strip()
            assert url, f"{program} did not start:\n{process.errors()}"
            yield url
        finally:
            process.close()
