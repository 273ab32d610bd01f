"""A server for the tests of a module, and options that ask the tests about one clause.

`--clause ID` runs only the tests that are marked with it. `--knock-out` also removes the
code that keeps it, so that those tests must fail. `--clause-map FILE` writes to a file of which
clauses each test file has tests.
"""

import gc
import inspect
import json
import os
import re
import sys
from collections.abc import Callable, Generator, Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest.mock import patch

import httpcore  # noqa: F401 - pytester forgets what only an inner run has imported, and httpx keeps it
import httpx
import msgspec
import pytest
from hypothesis import settings
from typer.main import get_command

from x402sim.spec.clauses import CLAUSES

# jsonschema compiles a grammar for the format "iri" in a second, in each worker; no schema has one.
sys.modules["rfc3987_syntax"] = None
# A slow machine breaks no property; as many examples as are usual are for tests.campaign.
settings.register_profile(
    "x402sim", deadline=None, max_examples=100 if "X402SIM_FULL_LENGTH" in os.environ else 30
)
settings.load_profile("x402sim")

# What the files beside the tests assert holds under PYTHONOPTIMIZE, too.
_BESIDE = {each.stem for each in Path(__file__).parent.glob("[!_]*")} - {"conftest"}
pytest.register_assert_rewrite(*(f"tests.{name}" for name in sorted(_BESIDE)))


@pytest.fixture(scope="module")
def server() -> Iterator[Any]:
    """A server that the tests of one module share; some folders have one of their own."""
    from x402sim import LocalServer

    with LocalServer(seed=1) as running:
        yield running


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--clause", help="run only the tests marked with this clause")
    parser.addoption(
        "--knock-out", action="store_true", help="remove the code that keeps the clause"
    )
    parser.addoption("--clause-map", help="write test file -> clauses to this file, as JSON")


@cache
def _trusted(read: Callable[..., Any], authorities: str | None, *args: Any, **options: Any) -> Any:
    return read(*args, **options)


def read_once(*args: Any, read: Any = httpx.create_ssl_context, **options: Any) -> Any:
    """Do as httpx's function: it reads the system's certificates for 25 ms, for thousands of clients."""
    return _trusted(read, os.environ.get("SSL_CERT_FILE"), *args, **options)


ONCE = [
    *(
        patch(f"httpx.{name}", read_once)
        for name in ("create_ssl_context", "_transports.default.create_ssl_context")
    ),
    patch("typer.testing._get_command", cache(get_command)),  # of our 21 commands it takes 8 ms
]


@pytest.hookimpl(optionalhook=True)  # without xdist there is no such hook
def pytest_xdist_auto_num_workers() -> int | None:
    """Let `-n auto` be two more than the CPUs: tests that wait for programs leave those without work."""
    if "PYTEST_XDIST_AUTO_NUM_WORKERS" in os.environ:  # xdist reads it
        return None
    cpus = (
        os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1)
    )
    return len(cpus) + 2


def pytest_configure(config: pytest.Config) -> None:
    gc.disable()  # until all is collected: a walk through what is imported finds nothing to free
    for each in ONCE:
        each.start()
    # Workers of xdist, and the processes that tests start, would compile everything each time.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    if config.getoption("--knock-out"):
        knock_out(config.getoption("--clause"))


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out the files that have no test of the marks that -m wants all of.

    Of nine workers of the thorough lines, each would import two hundred files for the tests of fifty.
    """
    wanted = re.fullmatch(r"(thorough)(?: and (waits))?(?: and not waits)?", config.option.markexpr)
    if wanted is None or not collection_path.match("test_*.py"):
        return None
    text = collection_path.read_text("utf-8").lower()
    return any(mark and mark not in text for mark in wanted.groups()) or None


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Let the collector leave alone what was imported, and come seldom: it takes an eighth of the CPU."""
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(100_000, 20, 20)
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_unconfigure() -> None:
    """Let pytest, which collects ten times at its end, find after the first time what is new."""
    gc.collect()
    gc.freeze()


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print the lines that tests have recorded as their property "told", each once."""
    reports = (report for kind in terminalreporter.stats.values() for report in kind)
    said = (pair for report in reports for pair in getattr(report, "user_properties", ()))
    for line in dict.fromkeys(text for name, text in said if name == "told"):
        terminalreporter.write_line(line)


BY_FILE = pytest.StashKey[dict[str, list[str]]]()
"""All test files of this session, and the clauses that each has tests of."""


@pytest.hookimpl(tryfirst=True)  # before -m and -k choose
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    found: dict[str, set[str]] = {}
    for item in items:
        found.setdefault(str(item.path), set()).update(clauses_of(item))
    config.stash[BY_FILE] = {file: sorted(clauses) for file, clauses in found.items()}
    if wanted := config.getoption("--clause"):
        items[:] = [item for item in items if wanted in clauses_of(item)]
    if config.option.markexpr == "thorough and waits":
        # all would wait for a long one that begins last
        items.sort(key=patience_s, reverse=True)
    else:
        _mix(items)
    if file := config.getoption("--clause-map"):
        Path(file).write_text(json.dumps(config.stash[BY_FILE]))


def _mix(items: list[pytest.Item]) -> None:
    """Spread the judges' files evenly among the others: their tests take longest, and wait.

    Each worker of xdist begins with as many tests, in their order; else one has all the long ones.
    """
    kinds: dict[bool, list[Path]] = {}
    for path in dict.fromkeys(item.path for item in items):
        kinds.setdefault("suite" in path.parent.name, []).append(path)
    places = {
        path: (place + 0.5) / len(paths)
        for paths in kinds.values()
        for place, path in enumerate(paths)
    }
    items.sort(key=lambda item: places[item.path])


def patience_s(item: pytest.Item) -> float:
    mark = item.get_closest_marker("timeout")
    return mark.args[0] if mark else 0


def clauses_of(item: pytest.Item) -> set[str]:
    return {clause_id for mark in item.iter_markers("clause") for clause_id in mark.args}


def find(kept_by: str) -> tuple[Any, str, Any]:
    """Return where a `module:name` lives, its last name, and what it is."""
    module, name = kept_by.split(":")
    owner: Any = import_module(f"x402sim.{module}")
    *outer, last = name.split(".")
    for part in outer:
        owner = getattr(owner, part)
    return owner, last, getattr(owner, last)


def knock_out(clause_id: str) -> None:
    """Remove what keeps a clause: its rows of a rule table, or the body of the function."""
    (clause,) = (c for c in CLAUSES if c.id == clause_id)
    owner, name, kept = find(clause.kept_by)
    if isinstance(kept, tuple):
        from x402sim.protocol.rules import without

        replace(owner, name, kept, without(kept, clause_id))
    elif isinstance(kept, type) and issubclass(kept, msgspec.Struct):
        replace(owner, name, kept, _gone)
    elif isinstance(kept, type):
        kept.__init__ = _gone  # type: ignore[misc]
    else:
        target: Callable[..., Any] = getattr(kept, "__wrapped__", kept)
        is_async = inspect.iscoroutinefunction(target)
        target.__code__ = (_gone_async if is_async else _gone).__code__


def replace(owner: Any, name: str, kept: object, by: object) -> None:
    """Put something else in the place of a name, wherever it has been imported."""
    setattr(owner, name, by)
    for module in list(sys.modules.values()):
        if getattr(module, name, None) is kept:
            setattr(module, name, by)


def _gone(*_: Any, **__: Any) -> Any:
    raise AssertionError("knocked out")


async def _gone_async(*_: Any, **__: Any) -> Any:
    raise AssertionError("knocked out")
