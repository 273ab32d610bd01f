"""A plugin of pytest that notes which lines of the product each test passes, and what it costs.

`-p tests.house.passing --passing FOLDER` writes there; `Passing` reads it. Lines that other programs
execute, which a test starts, are not seen.
"""

import json
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
from coverage import Coverage, CoverageData

LINES, SECONDS = "lines", "seconds"
"""How the files begin, of which each process of a run writes one."""
CACHING = type(cache(len))
AT_IMPORT = ""
"""Stands for a test where a line is executed outside of all."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--passing", type=Path, help="the folder to write to")
    parser.addoption("--passing-of", action="append", help="files of the product: a pattern")


@pytest.hookimpl(trylast=True)  # after that of xdist, whose first process runs no test
def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--passing") and not config.getoption("numprocesses", None):
        config.pluginmanager.register(Noting(config))


class Noting:
    """Notes what the tests of this process pass; a test that fails says nothing."""

    def __init__(self, config: pytest.Config) -> None:
        self._seconds: dict[str, float] = {}
        self._failed: set[str] = set()
        self._folder: Path = config.getoption("--passing").absolute()
        os.environ["COVERAGE_CORE"] = "ctrace"  # the newer one of Python 3.12 knows no contexts
        self._coverage = Coverage(
            data_file=self._folder / LINES,
            data_suffix=str(os.getpid()),
            config_file=False,
            include=config.getoption("--passing-of"),
        )
        self._coverage.start()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        _forget_results()
        began_s = _cpu_s()
        self._coverage.switch_context(_file(item.nodeid))  # what fixtures do, they do for all of it
        try:
            return (yield)
        finally:
            self._coverage.switch_context(AT_IMPORT)
            self._seconds[item.nodeid] = _cpu_s() - began_s

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        self._coverage.switch_context(item.nodeid)
        try:
            return (yield)
        finally:
            self._coverage.switch_context(_file(item.nodeid))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if not report.passed:
            self._failed.add(report.nodeid)

    def pytest_sessionfinish(self) -> None:
        self._coverage.stop()
        self._coverage.save()
        passed = {test: s for test, s in self._seconds.items() if test not in self._failed}
        (self._folder / f"{SECONDS}.{os.getpid()}").write_text(json.dumps(passed))


def _file(test: str) -> str:
    return test.partition("::")[0]


def _forget_results() -> None:
    """Clear the caches of our functions: what one returns from its cache, no test after would pass."""
    ours = [module for name, module in sys.modules.items() if name.startswith("x402sim")]
    for value in [value for module in ours for value in vars(module).values()]:
        if isinstance(value, CACHING):
            value.cache_clear()


def _cpu_s() -> float:
    """Return what this process has computed, and those that it started: a busy machine adds nothing."""
    return sum(os.times()[:4])


@dataclass(frozen=True, slots=True)
class Passing:
    """What the processes of a run noted: the CPU seconds of each test that passed, and its lines."""

    seconds: dict[str, float]
    parts: list[CoverageData]

    def __hash__(self) -> int:
        return id(self)

    @cache  # noqa: B019 - there is one
    def tests(self, file: Path) -> dict[int, set[str]]:
        """Return for each line of a file which tests pass it; all of a file, if its fixtures do."""
        known, found = self.seconds.keys() | {AT_IMPORT}, dict[int, set[str]]()
        for part in self.parts:
            for line, contexts in part.contexts_by_lineno(str(file)).items():
                tests = (self._of_context().get(each, {each}) for each in contexts)
                found.setdefault(line, set()).update(known & set().union(*tests))
        return found

    @cache  # noqa: B019
    def _of_context(self) -> dict[str, set[str]]:
        by_file: dict[str, set[str]] = {}
        for test in self.seconds:
            by_file.setdefault(_file(test), set()).add(test)
        return by_file


def read(folder: Path) -> Passing:
    """Read what was noted into a folder."""
    seconds: dict[str, float] = {}
    for each in sorted(folder.glob(f"{SECONDS}.*")):
        seconds |= json.loads(each.read_text())
    parts = [CoverageData(str(each)) for each in sorted(folder.glob(f"{LINES}.*"))]
    for part in parts:
        part.read()
    return Passing(seconds, parts)
