"""Runs a program of other people's packages, in a process of its own.

A program gets one JSON value and prints one; a server prints its URL first.
"""

import json
import os
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.serve.driver import Running

RUN_TIMEOUT_S = 60
NO_PROXY = {"NO_PROXY": "*", "no_proxy": "*"}


def run(command: Sequence[str], told: dict[str, Any]) -> Any:
    """Run a program that gets `told` on stdin, and return the JSON value that it prints last.

    If it fails, the assertion shows what it wrote.
    """
    done = subprocess.run(
        command,
        input=json.dumps(told),
        capture_output=True,
        text=True,
        timeout=RUN_TIMEOUT_S,
        env={**os.environ, **NO_PROXY},
    )
    assert done.returncode == 0, f"{command[-1]} failed:\n{done.stdout}\n{done.stderr}"
    return json.loads(done.stdout.splitlines()[-1])


@contextmanager
def serving(command: Sequence[str], told: dict[str, Any]) -> Iterator[str]:
    """Run a server until the block ends; yield the URL that it prints first.

    It gets a file with `told` as its last argument. If it fails, the assertion shows what it wrote.
    """
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "told.json"
        file.write_text(json.dumps(told))
        process = Running(program=[*command, str(file)], env=NO_PROXY)
        try:
            url = process.line().strip()
            assert url, f"{command[-1]} did not start:\n{process.errors()}"
            yield url
        finally:
            process.close()
