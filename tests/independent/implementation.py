"""Independent implementations: what each does differently, and how one starts.

Each folder here has a service, and an `implementation.toml`: its command, its legal choices, its defects,
and what its owner tells the suite about them (`target`). `fastapi` was written from the
specification, by somebody who had seen neither this package's service nor its suite; `express` is
like the public paywall.
"""

import os
import re
import signal
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec

from tests import npm
from tests.serve.driver import Running
from tests.suite.deployment import service_env
from x402sim.spec.ground import SENTENCES
from x402sim.suite.service.target import Target
from x402sim.suite.started import free_port

HERE = Path(__file__).parent
START_S = 120
KEEP = """trap 'kill $!; wait; exit' TERM; while true; do "$@" & echo $! > "$0"; wait $!; done"""
"""Runs a command, and again whenever it is killed; the file that is named first has its process id."""


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """Something legal that the service does only if CHOICES names it. `target` is what its owner says.

    `allowed_by` is the sentence that allows it; by default the specification is silent.
    """

    does: str
    allowed_by: str = "silent"
    target: dict[str, Any] = {}
    env: dict[str, str] = {}


class Defect(msgspec.Struct, frozen=True, kw_only=True):
    """A bug that breaks one sentence of the specification; none, if `breaks` is empty.

    `own_section` is given if the sentence stands in several sections, or in parts. `unseen` says why the suite does not see it, and `beyond` why no sentence demands what it
    takes; usually both are empty.
    """

    does: str
    breaks: str
    own_section: str = msgspec.field(name="section", default="")
    unseen: str = ""
    beyond: str = ""

    @property
    def section(self) -> str:
        """The section of what it breaks."""
        found = (it.section for it in SENTENCES if self.breaks and self.is_in(it.text))
        return self.own_section or next(found, "")

    def is_in(self, text: str) -> bool:
        """Tell whether a text says what the defect breaks."""
        return _plain(self.breaks) in _plain(text)


class About(msgspec.Struct, frozen=True, kw_only=True):
    """The table `service` of the file."""

    language: str
    command: str


class Implementation(msgspec.Struct, frozen=True, kw_only=True):
    """One service, as its `implementation.toml` tells; `folder` has its program."""

    folder: Path
    service: About
    groups: tuple[tuple[str, ...], ...] = ()
    """Choices that can be tried together."""
    is_loose: bool = False
    """It does not keep the specification; what it fails is documented."""
    target: dict[str, Any] = {}
    choices: dict[str, Choice] = {}
    defects: dict[str, Defect] = {}

    def target_for(self, choices: Sequence[str]) -> Target:
        """Return what its owner tells the suite, with these choices."""
        table: dict[str, Any] = {"name": self.folder.name}
        for more in (self.target, *(self.choices[name].target for name in choices)):
            table = _merged(table, more)
        return msgspec.convert(table, Target)

    def program(self) -> list[str]:
        """Return its command, with Node.js or this Python in place of their names."""
        first, *rest = self.service.command.split()
        if first == "node":
            npm.packages(self.folder)
            return [str(npm.node()), *rest]
        return [sys.executable, *rest]


@cache
def implementations() -> dict[str, Implementation]:
    found = {}
    for file in sorted(HERE.glob("*/implementation.toml")):
        fields = {**tomllib.loads(file.read_text("utf-8")), "folder": file.parent}
        found[file.parent.name] = msgspec.convert(
            fields, Implementation, dec_hook=lambda _, path: path
        )
    return found


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """A running implementation and its world. `restart` is a command that kills the implementation."""

    url: str
    world: str
    restart: str


World = Mapping[str, Any]
"""What a world has said of itself when it was ready."""


@contextmanager
def world() -> Iterator[World]:
    """Start a world without a service; implementations can be in it one after the other."""
    with _started("serve", "--no-service", "--port", "0", "--json") as line:
        yield msgspec.json.decode(line)


@contextmanager
def running(
    implementation: Implementation, choices: Sequence[str] = (), defect: str = "", *, within: World
) -> Iterator[Place]:
    """Start one within a world; it ends with the block."""
    with TemporaryDirectory() as folder:
        file = Path(folder) / "pid"
        env = {**settings(within), "CHOICES": ",".join(choices), "DEFECT": defect}
        env |= {"PORT": str(free_port()), "STATE": f"{folder}/state"}
        for name in choices:
            env |= implementation.choices[name].env
        kept = ["bash", "-c", KEEP, str(file), *implementation.program()]
        with _started(program=kept, env=env, cwd=implementation.folder) as line:
            yield Place(
                url=line.split()[-1],
                world=within["rpc"].removesuffix("/rpc"),
                restart=f"kill -9 $(cat {file})",
            )


@contextmanager
def _started(*args: str, **options: Any) -> Iterator[str]:
    """Start a program and yield its first line; it ends with the block."""
    process = Running(*args, **options)
    try:
        line = process.line(timeout_s=START_S)
        assert line, f"it did not start: {process.errors()}"
        yield line
    finally:
        process.end(signal.SIGTERM)
        process.close()


def settings(world: World) -> dict[str, str]:
    return service_env(world) | {
        "PATH": os.environ["PATH"],
        "NETWORK": world["network"],
        "CHAIN_ID": str(world["chainId"]),
        "TOKEN_ADDRESS": world["asset"],
    }


def _plain(text: str) -> str:
    """Return a text without table bars, repeated blanks and the number of a list's item."""
    return re.sub(r"^\d\. ", "", re.sub(r"[\s|]+", " ", text).strip())


def _merged(table: dict[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """Return a table with another's keys over it, also within tables."""
    both = dict(table)
    for key, value in more.items():
        inner = both.get(key)
        both[key] = (
            _merged(inner, value) if isinstance(value, dict) and isinstance(inner, dict) else value
        )
    return both
