"""Builds the standalone program: `python -m tests.release.standalone` writes `dist/x402sim`.

One file with Python inside, for the system and the processor of the machine that builds it: PyInstaller
packs what is installed. It needs Python 3.11 to 3.14 with its shared library, and nothing else that is
installed: an environment of its own gets x402sim and PyInstaller, and is deleted.
"""

import argparse
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.running import ROOT, Failed, run

SPEC = Path(__file__).with_name("x402sim.spec")
SUFFIX = ".exe" if os.name == "nt" else ""
PIP = ("-m", "pip", "--disable-pip-version-check")
EPOCH = "1577836800"
"""The time of all that is packed, unless SOURCE_DATE_EPOCH is set: that of hatchling's archives."""


def environment(at: Path, package: str | Path) -> Path:
    """Make an environment with a package; return its Python. Raises `Failed`."""
    run([sys.executable, "-m", "venv", at])
    python = at / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    install(python, package)
    return python


def install(python: Path, package: str | Path) -> None:
    """Install a package in an environment; raises `Failed`."""
    run([python, *PIP, "install", "--quiet", "--no-compile", package])


@dataclass(frozen=True, slots=True)
class Built:
    """The program, and the packages of the environment that it was made of, `NAME==VERSION` each."""

    file: Path
    packages: tuple[str, ...]


def build(to: Path, python: Path) -> Built:
    """Build the program of an environment with x402sim's extra `standalone`. Raises `Failed`."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        run(
            [python, "-m", "PyInstaller", "--log-level", "ERROR", "--distpath", folder, "--workpath",
             folder / "work", SPEC],
            cwd=folder,
            env={
                "SOURCE_DATE_EPOCH": EPOCH, **os.environ, "PYTHONHASHSEED": "0",
                "PYINSTALLER_CONFIG_DIR": str(folder / "cache"),
            },
        )  # fmt: skip
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(folder / f"x402sim{SUFFIX}", to)
    return Built(to, tuple(run([python, *PIP, "list", "--format=freeze"]).split()))


def main() -> int:
    """Build, and say what was built; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.release.standalone", description=__doc__)
    to = ROOT / "dist" / f"x402sim{SUFFIX}"
    parser.add_argument("--out", type=Path, default=to, metavar="FILE", help="(%(default)s)")
    given = parser.parse_args()
    print("standalone: about a minute", flush=True)
    try:
        with TemporaryDirectory() as name:
            python = environment(Path(name, "environment"), f"{ROOT}[standalone]")
            built = build(given.out, python)
        print(
            f"{built.file}, {built.file.stat().st_size:,} bytes: {run([built.file, '--version'])}",
            end="",
        )
    except (Failed, subprocess.TimeoutExpired) as failed:
        print(f"standalone: {failed}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
