"""The rules of the house: style, types, layers, one clock, cheap imports, no local paths."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HEAVY = ("pandas", "matplotlib", "web3", "eth_account", "x402", "fastapi", "sqlalchemy", "IPython")


def run(*command: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False, input=stdin
    )


@pytest.mark.parametrize(
    "command",
    [("ruff", "check", "."), ("ruff", "format", "--check", "."), ("mypy",)],
    ids=" ".join,
)
def test_ruff_and_mypy_find_nothing(command: tuple[str, ...]) -> None:
    result = run(sys.executable, "-m", *command)
    assert result.returncode == 0, result.stdout + result.stderr


def test_the_import_layers_are_kept() -> None:
    code = "from importlinter.cli import lint_imports_command; lint_imports_command()"
    result = run(sys.executable, "-c", code)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize(
    "line",
    [
        "import time", "from time import monotonic", "import random", "import uuid",
        "import secrets", "import os\nos.urandom(1)", "import asyncio\nasyncio.sleep(1)",
        "import datetime\ndatetime.datetime.now(datetime.UTC)",
    ],
)  # fmt: skip
def test_a_second_clock_or_randomness_is_caught(line: str) -> None:
    where = "x402sim/service/example.py"
    command = (sys.executable, "-m", "ruff", "check", "--stdin-filename", where, "-")
    assert "TID251" in run(*command, stdin=line + "\n").stdout


@pytest.mark.parametrize("module", ["x402sim", "x402sim.cli", "x402sim.world.server.serve"])
def test_importing_is_cheap(module: str) -> None:
    code = f"import sys, {module}; print([m for m in {HEAVY!r} if m in sys.modules])"
    assert run(sys.executable, "-c", code).stdout.strip() == "[]"


def test_no_path_of_a_machine_is_in_the_product() -> None:
    names = run("git", "ls-files", "--cached", "--others", "--exclude-standard").stdout.split()
    folders, registries = r"/(work|root|home|tmp)/[a-z]|\.\./shared", r"pythonhosted|pypi|npmjs"
    local = re.compile(rf"{folders}|({registries})\.(org|com)")
    for name in names:
        if Path(name).suffix not in {".png", ".ipynb", ".csv", ".ndjson", ".xz"}:
            text = (ROOT / name).read_text(encoding="utf-8")
            found = local.search(text)
            assert found is None or name.endswith("test_house.py"), f"{name}: {found}"
