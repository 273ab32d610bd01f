"""Runs implementations through their adapters, and fills in who confirms a vector."""

import asyncio
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from tests import npm
from tests.interop.programs import FOLDER as INTEROP, python
from tests.published import pinned
from x402sim.suite.vectors.adapter import Adapter, Broken
from x402sim.suite.vectors.vector import (
    CAPABILITIES,
    INVALID,
    UNSUPPORTED,
    Answer,
    Failure,
    Vector,
    agrees,
)
from x402sim.version import VERSION

ADAPTERS = Path(__file__).with_name("adapters")
OURS = "x402sim"
PATIENCE_S = 60.0


@dataclass(frozen=True, slots=True)
class Implementation:
    """An independent implementation: the adapter's file, and the packages behind the adapter."""

    adapter: str
    packages: tuple[str, ...]

    @property
    def version(self) -> str:
        """The packages with their versions."""
        is_python = self.adapter.endswith(".py")
        program = "buy.py" if is_python else "npm_v2/buy.mjs"
        named = " and ".join(pinned(program, each) for each in self.packages)
        return f"{named} ({'PyPI' if is_python else 'npm'})"

    def command(self, folder: Path) -> list[str]:
        """Return the command, with its packages installed; JavaScript is started in the folder."""
        file = ADAPTERS / self.adapter
        if file.suffix == ".py":
            return [python(), "-E", str(file)]
        copy = folder / file.name
        copy.write_text(file.read_text("utf-8"), encoding="utf-8")
        packages = folder / "node_modules"
        if not packages.exists():
            packages.symlink_to(npm.packages(INTEROP / "npm_v2"))
        return [str(npm.node()), str(copy)]


IMPLEMENTATIONS = {
    "python": Implementation("official.py", ("x402",)),
    "npm": Implementation("official.mjs", ("@x402/core", "@x402/evm")),
    "viem": Implementation("with_viem.mjs", ("viem",)),
    "eth-account": Implementation("with_eth_account.py", ("eth-account",)),
}


def versions() -> dict[str, str]:
    """Return the table of implementations that a file has."""
    return {OURS: VERSION, **{name: each.version for name, each in IMPLEMENTATIONS.items()}}


async def answers(command: list[str], vectors: Iterable[Vector]) -> dict[str, Answer]:
    """Return the answers of an adapter, by id; only claimed and supported operations."""
    adapter, found = Adapter(words=command, patience_s=PATIENCE_S), dict[str, Answer]()
    try:
        claimed = (await adapter.ask(CAPABILITIES, {})).brief["operations"]
        for vector in vectors:
            if vector.op not in claimed:
                continue
            try:
                answer = await adapter.ask(vector.op, vector.input)
            except Broken:
                answer = Answer(0, error=Failure(INVALID))  # it does not survive the input
            if answer.error is None or answer.error.code != UNSUPPORTED:
                found[vector.id] = answer
        await adapter.finish()
    finally:
        await adapter.close()
    return found


def short(vector: Vector, answer: Answer) -> Any:
    if vector.op in ("decode", "encode"):
        return "refused" if answer.error else "taken"
    return {name: each for name, each in answer.brief.items() if each is not None} or {"index": None}  # fmt: skip


def confirmed(vectors: list[Vector]) -> list[Vector]:
    every = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, each in IMPLEMENTATIONS.items():
            every[name] = asyncio.run(answers(each.command(Path(folder)), vectors))
    return [_with(vector, every) for vector in vectors]


def _with(vector: Vector, every: dict[str, dict[str, Answer]]) -> Vector:
    agree, others = [OURS] if vector.expect is not None else [], dict[str, Any]()
    for name, found in every.items():
        answer = found.get(vector.id)
        if answer is None:
            continue
        if vector.expect is not None and agrees(vector, answer):
            agree.append(name)
            word = answer.brief.get("invalidReason")
            if vector.word and word not in (None, vector.word):
                others[name] = {"invalidReason": word}
        else:
            others[name] = short(vector, answer)
    return msgspec.structs.replace(vector, confirmed=tuple(agree), answers=others)
