"""How the program is started again: of an environment, and as the standalone program."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from x402sim.text import program as of
from x402sim.text.program import install, program, shown, start
from x402sim.version import VERSION

STANDALONE = """
import json, sys
sys.frozen, sys.executable = True, sys.argv[1]
from x402sim.commands.run import Chosen
from x402sim.report import need_extra
from x402sim.text.program import program, start
try:
    need_extra(("no_such_module",))
except ModuleNotFoundError as missing:
    print(json.dumps([start(), program(), Chosen("replay", None).command, str(missing)]))
"""


def test_the_command_that_repeats_a_run_starts_this_package_without_its_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    (root, *_) = Path(sys.executable).parents[2:]
    for folder in (tmp_path, root):
        monkeypatch.chdir(folder)
        done = subprocess.run(
            ["bash", "-c", f"{shown()} --version"], capture_output=True, text=True
        )
        assert done.stdout == f"x402sim {VERSION}\n"
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert program()[0].startswith(f"{Path(sys.executable).parent}/")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent))
    assert program() == ("x402sim",)
    monkeypatch.setattr("shutil.which", lambda *_, **__: None)
    assert program()[1:] == ("-m", "x402sim")


def test_it_starts_itself() -> None:
    done = subprocess.run([*start(), "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"x402sim {VERSION}\n"
    assert install("evm") == "pip install 'x402sim[evm]'"


def test_the_standalone_program_starts_itself_and_says_so(tmp_path: Path) -> None:
    """Python sets `sys.frozen` in no other program, and `sys.executable` is the program itself."""
    file = tmp_path / "x402sim"
    words = [sys.executable, "-c", STANDALONE, str(file)]
    done = subprocess.run(words, capture_output=True, text=True, check=True, cwd=tmp_path)
    assert json.loads(done.stdout) == [
        [str(file)],
        ["./x402sim"],
        "./x402sim run replay",
        "reports need no_such_module: the standalone program has no extras; where there is Python, "
        "pip install 'x402sim[report]'",
    ]


def test_of_the_standalone_program_its_name_is_enough_where_it_is_on_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "x402sim"
    file.touch(mode=0o755)
    monkeypatch.setattr(of, "STANDALONE", True)
    monkeypatch.setattr(sys, "executable", str(file))
    assert program() == (str(file),)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert program() == ("x402sim",)
