"""`python -m tests.suite_facilitator.published NAME…`: judges facilitators that are published, and ours.

Each is what its repository's example is, on the versions that `tests/interop` pins. What came of it
is kept in `published.json` beside this file, of which `page.py` makes conformance/facilitators.md.
"""

import asyncio
import json
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tests.interop import programs
from tests.npm import packages
from x402sim.suite.facilitator.case import settlement
from x402sim.suite.facilitator.judge import Judge
from x402sim.suite.facilitator.payment import Dialect
from x402sim.suite.facilitator.play import Play
from x402sim.suite.facilitator.room import PLAIN
from x402sim.suite.facilitator.start import Command

FILE = Path(__file__).with_name("published.json")
JUDGE_S = 1500
"""Longer than a judgement takes of one that waits three minutes for a receipt."""


@dataclass(frozen=True)
class Published:
    """A facilitator that somebody has published: what it is, and how it is started."""

    about: str
    program: str | Sequence[str]
    version: Callable[[], str]
    dialects: tuple[Dialect, ...]

    def command(self) -> list[str]:
        """Return the command, its packages installed if need be."""
        return programs.command(self.program)


def _of_npm(folder: str, package: str) -> Callable[[], str]:
    def found() -> str:
        file = packages(programs.FOLDER / folder) / package / "package.json"
        return f"{package} {json.loads(file.read_text())['version']}"

    return found


def _of_pypi(package: str) -> Callable[[], str]:
    def found() -> str:
        pinned = (programs.PYTHON / "requirements.txt").read_text().splitlines()
        return next(line for line in pinned if line.startswith(f"{package}==")).replace("==", " ")

    return found


PUBLISHED = {
    "python": Published(
        "the official one in Python, behind FastAPI",
        "facilitator.py",
        _of_pypi("x402"),
        (Dialect.V2,),
    ),
    "npm": Published(
        "the official one for Node, behind express",
        "npm_v2/facilitator.mjs",
        _of_npm("npm_v2", "@x402/evm"),
        (Dialect.V2,),
    ),
    "npm-v1": Published(
        "the first official one for Node, behind express",
        "npm_v1/facilitator.mjs",
        _of_npm("npm_v1", "x402"),
        (Dialect.V1,),
    ),
    "ours": Published(
        "ours, `x402sim facilitator`",
        (sys.executable, "-m", "x402sim", "facilitator"),
        lambda: f"x402sim {version('x402sim')}",
        (Dialect.V1, Dialect.V2, Dialect.CRONOS),
    ),
}


def judgement(name: str, *options: str) -> dict[str, Any]:
    """Judge one in a process of its own, and return the report."""
    it = PUBLISHED[name]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "report.json"
        words = ["conformance", "facilitator", "--start", shlex.join(it.command())]
        words += ["--dialects", ",".join(it.dialects), "--json-file", str(file), *options]
        done = subprocess.run(
            [sys.executable, "-m", "x402sim", *words],
            capture_output=True,
            text=True,
            timeout=JUDGE_S,
        )
        assert file.exists(), done.stdout + done.stderr
        found: dict[str, Any] = json.loads(file.read_text())
        return found


def transaction(name: str) -> str:
    """Let one settle a good payment, and return the hash of its transaction."""
    it = PUBLISHED[name]

    async def main() -> str:
        judge = Judge(subject=Command(tuple(it.command())), dialects=it.dialects)
        try:
            room = await judge.room(PLAIN)
            play = await Play(
                room=room, dialect=it.dialects[-1], name="a good payment", patience_s=30
            ).begin()
            seen = await settlement(play, await play.draft())
            assert seen.settled.transaction in {each.tx_hash for each in seen.money.moved}
            return seen.settled.transaction
        finally:
            await judge.close()

    return asyncio.run(main())


def kept() -> dict[str, Any]:
    """Return what is kept of all."""
    found: dict[str, Any] = json.loads(FILE.read_text()) if FILE.exists() else {}
    return found


def summary(name: str, report: dict[str, Any], tx_hash: str) -> dict[str, Any]:
    """Return what is kept of a report."""
    it, counts = PUBLISHED[name], dict[str, int]()
    for each in report["results"]:
        counts[each["outcome"]] = counts.get(each["outcome"], 0) + 1
    names = ("id", "level", "title", "expected", "actual", "ground")
    return {
        "about": it.about,
        "version": it.version(),
        "dialects": [*it.dialects],
        "day": report["started"][:10],
        "transaction": tx_hash,
        "counts": counts,
        "failed": [
            {key: each[key] for key in names}
            for each in report["results"]
            if each["outcome"] == "failed"
        ],
        "inconclusive": [
            {"id": each["id"], "reason": each["reason"]}
            for each in report["results"]
            if each["outcome"] == "inconclusive"
        ],
    }


def main(names: Sequence[str]) -> None:
    """Judge these, or all, and keep what came of it."""
    for name in names or PUBLISHED:
        found = summary(name, judgement(name), transaction(name))
        FILE.write_text(json.dumps(kept() | {name: found}, indent=1, sort_keys=True) + "\n")
        print(name, found["counts"], flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
