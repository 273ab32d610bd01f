"""Runs a program of tests/interop/npm_v1 or npm_v2 with the npm packages that its folder pins."""

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from tests import npm
from tests.interop import programs

FOLDER = Path(__file__).parent


def command(program: str) -> list[str]:
    """Return the command of a program such as npm_v2/buy.mjs; its packages are installed first."""
    file = FOLDER / program
    npm.packages(file.parent)
    return [str(npm.node()), str(file)]


def run(program: str, told: dict[str, Any]) -> Any:
    """Run a program; see `programs.run`."""
    return programs.run(command(program), told)


def serving(program: str, told: dict[str, Any]) -> AbstractContextManager[str]:
    """Run a server; see `programs.serving`."""
    return programs.serving(command(program), told)
