"""The rules of the house that no tool of .ci/run checks: one clock, cheap imports, no local paths."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
HEAVY = ("pandas", "matplotlib", "web3", "eth_account", "x402", "fastapi", "sqlalchemy", "IPython")


def run(*command: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False, input=stdin
    )


def test_a_second_clock_or_randomness_is_caught() -> None:
    second = [
        "import time", "from time import monotonic", "import random", "import uuid",
        "import secrets", "import os; os.urandom(1)", "import asyncio; asyncio.sleep(1)",
        "import datetime; datetime.datetime.now(datetime.UTC)",
    ]  # fmt: skip
    where = "x402sim/service/example.py"
    command = (sys.executable, "-m", "ruff", "check", "--output-format", "concise")
    found = run(*command, "--stdin-filename", where, "-", stdin="\n".join(second)).stdout
    for number, line in enumerate(second, 1):
        assert re.search(rf":{number}:\d+: TID251 ", found), line


def test_importing_is_cheap() -> None:
    code = "import sys, x402sim, x402sim.cli, x402sim.world.server.serve; "
    code += f"print([m for m in {HEAVY!r} if m in sys.modules])"
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
