"""The guide's table of other people's programs: which work here, in which version, on which chain.

A test says what it shows with the mark `interop`, made by `shows`. The guide's table is made of these marks, once all the tests have passed.
"""

import json
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from x402sim.text.templates import markdown_table

FOLDER = Path(__file__).parent
ROOT = FOLDER.parents[1]
PAGE = ROOT / "x402sim" / "guide" / "facilitator.md"
CHAINS = ("ledger", "anvil")
THOROUGH = pytest.mark.thorough
"""For what must install other people's programs first."""
TITLES = ("program", "what it is", "speaks", *CHAINS)


@dataclass(frozen=True, slots=True, order=True)
class Row:
    """One line of the table: a program in the role it has here, and what it speaks."""

    role: str
    package: str
    speaks: str


COLLECTED = pytest.StashKey[list[pytest.Item]]()
"""The tests of this folder that were collected, whichever of them -m chooses."""


def shows(
    role: str, package: str | Mapping[str, str], speaks: str, chain: str = "{server}"
) -> pytest.MarkDecorator:
    """Return the mark of a test that shows that a program works.

    The texts may name parameters of the test in braces. `package` is "npm NAME" or "PyPI NAME",
    or one for each value of a parameter (a version is "1" or "2").
    """
    return pytest.mark.interop(role, package, speaks, chain)


def shown(item: pytest.Item) -> list[tuple[Row, str]]:
    """Return the rows that a test shows, each with its chain."""
    params: dict[str, Any] = getattr(getattr(item, "callspec", None), "params", {})
    texts = {name: str(value) for name, value in params.items()}
    texts["version"] = texts.get("version", "").removeprefix("v")
    found = []
    for mark in item.iter_markers("interop"):
        if not mark.args:  # a mark of `pairings.py`
            continue
        role, package, speaks, chain = mark.args
        if not isinstance(package, str):
            package = next(package[text] for text in texts.values() if text in package)
        row = Row(
            role.format(**texts), with_version(package.format(**texts)), speaks.format(**texts)
        )
        found.append((row, chain.format(**texts)))
    return found


def with_version(package: str) -> str:
    """Return "npm NAME" or "PyPI NAME" as Markdown, with the version that the tests pin."""
    registry, _, name = package.partition(" ")
    (version,) = {*_pinned(registry, name)}
    return f"`{name}` {version} ({registry})"


def _pinned(registry: str, name: str) -> Iterable[str]:
    if registry == "npm":
        for file in [*FOLDER.glob("*/package.json"), ROOT / "tests" / "evm" / "package.json"]:
            versions = json.loads(file.read_text()).get("dependencies", {})
            if name in versions:
                yield versions[name]
        return
    pins = (FOLDER / "python" / "requirements.txt").read_text()
    yield from re.findall(rf"^{re.escape(name)}==(\S+)$", pins, re.MULTILINE | re.IGNORECASE)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = project["optional-dependencies"]["dev"]
    yield from (f"from {it.split('>=')[1]}" for it in wanted if it.startswith(f"{name}>="))


def markdown(items: Iterable[pytest.Item]) -> str:
    """Return the table: a row for each program, and on which chains it was shown to work."""
    chains: dict[Row, set[str]] = {}
    for row, chain in (place for item in items for place in shown(item)):
        chains.setdefault(row, set()).add(chain)
    works = ((row, ["yes" if each in on else "" for each in CHAINS]) for row, on in chains.items())
    rows = ((row.package, row.role, row.speaks, *on) for row, on in sorted(works))
    return markdown_table(TITLES, rows)


def replaced(page: str, new: str) -> str:
    """Return the page with this table in the place of the old one with the same titles."""
    before, _, rest = page.partition("".join(new.splitlines(keepends=True)[:2]))
    _, _, after = rest.partition("\n\n")
    return f"{before}{new}\n{after}"
