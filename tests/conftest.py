"""Options for asking the tests about one clause.

`--clause ID` runs only the tests that are marked with it. `--knock-out` also takes away
the code that keeps it, so that those tests must fail. `--clause-map FILE` writes down
which files have tests of which clause.
"""

import json
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from x402sim.spec.clauses import CLAUSES


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--clause", help="run only the tests marked with this clause")
    parser.addoption(
        "--knock-out", action="store_true", help="take away the code that keeps the clause"
    )

    parser.addoption("--clause-map", help="write clause -> test files to this file, as JSON")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--knock-out"):
        knock_out(config.getoption("--clause"))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print what tests had to tell (their user property "told"), each line once."""
    reports = [r for kind in terminalreporter.stats.values() for r in kind]
    told = [
        text for r in reports for name, text in getattr(r, "user_properties", ()) if name == "told"
    ]
    for line in dict.fromkeys(told):
        terminalreporter.write_line(line)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    wanted = config.getoption("--clause")
    if wanted:
        items[:] = [
            item
            for item in items
            if any(wanted in mark.args for mark in item.iter_markers("clause"))
        ]
    file = config.getoption("--clause-map")
    if file:
        found: dict[str, list[str]] = {}
        for item in items:
            for mark in item.iter_markers("clause"):
                for clause_id in mark.args:
                    found.setdefault(clause_id, []).append(str(item.path))
        Path(file).write_text(json.dumps({k: sorted(set(v)) for k, v in found.items()}))


def find(kept_by: str) -> tuple[Any, str, Any]:
    """Return where a `module:name` lives, its last name, and what it is."""
    module, name = kept_by.split(":")
    owner: Any = import_module(f"x402sim.{module}")
    *outer, last = name.split(".")
    for part in outer:
        owner = getattr(owner, part)
    return owner, last, getattr(owner, last)


def knock_out(clause_id: str) -> None:
    """Take away what keeps a clause: its rows of a rule table, or the function altogether."""
    (clause,) = (c for c in CLAUSES if c.id == clause_id)
    owner, name, kept = find(clause.kept_by)
    if isinstance(kept, tuple):
        from x402sim.protocol.rules import without

        setattr(owner, name, without(kept, clause_id))
        for module in list(sys.modules.values()):  # whoever imported the table by name
            if getattr(module, name, None) is kept:
                setattr(module, name, getattr(owner, name))
    elif isinstance(kept, type):
        kept.__init__ = _gone  # type: ignore[misc]
    else:
        target: Callable[..., Any] = getattr(kept, "__wrapped__", kept)
        target.__code__ = _gone.__code__


def _gone(*_: Any, **__: Any) -> Any:
    raise AssertionError("knocked out")
