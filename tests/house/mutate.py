"""`python -m tests.house.mutate`: draw defects of the product by a seed, and see whether a test fails.

A defect is one change of the code: a comparison or a condition turned round, a number one greater, a
statement left out. First the tests run once, and each notes which lines it passes. A defect meets only
tests that pass its line, the cheapest first: it `died` if one fails; it is `ALIVE` if none did in 20 s
of CPU.

The same seed draws the same defects, and a change of other lines draws no others: what died before a
change of the tests must die after it. `--out FILE` keeps the verdicts; `--before FILE` says which
defects live that died then.
"""

import argparse
import ast
import csv
import json
import os
import re
import resource
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import astuple, dataclass
from functools import cache, partial
from importlib.machinery import SourceFileLoader
from itertools import chain
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from coverage import Coverage, CoverageData

from tests.house import PACKAGE, ROOT
from tests.house.forked import run_pytest

FOLDERS = ["service", "payer", "protocol", "chain/ledger"]
"""Those of the product that are changed."""
TESTS = [
    "tests/service", "tests/payer", "tests/protocol", "tests/chain", "tests/facilitator",
    "tests/explorer", "tests/hostile", "tests/conformance", "tests/cli", "tests/scenarios",
    "tests/evm", "tests/world",
]  # fmt: skip
"""Those of the tests in whose own process the product runs; others start programs, or take long."""
OTHER = {
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE,
    ast.GtE: ast.Gt, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
    ast.And: ast.Or, ast.Or: ast.And, ast.Add: ast.Sub, ast.Sub: ast.Add,
}  # fmt: skip
TYPES = ("annotation", "returns", "type_params")
"""What no program looks at while it runs."""
CODE = (ast.AsyncFunctionDef, ast.FunctionDef, ast.Lambda)
NAMED = (ast.AsyncFunctionDef, ast.ClassDef, ast.FunctionDef)
SETTINGS = ("frozen", "kw_only", "maxsize", "slots")
"""Arguments of decorators that keep programmers from mistakes, or save time."""
ROUNDS_S = (1.0, 4.0, 15.0)
"""What the tests may cost that meet a defect in the first run of pytest, in the second, in the last."""
COLLECTED_S, STARTED_S = 0.05, 0.005
"""What a file costs more than its tests do, and a test more than it does itself."""
PATIENCE_S = 180
"""How long a test may wait before the defect counts as noticed: it may hang."""
MEMORY = 4 << 30
"""How many bytes a defect may fill."""
SEEDED = "--hypothesis-seed=1"
DIED, ALIVE, UNSEEN = "died", "ALIVE", "no test passes it"
LINES, SECONDS = "lines", "seconds"
"""How the files begin, of which each process of a noting run writes one."""
CACHING = type(cache(len))
AT_IMPORT = ""
"""Stands for a test where a line is executed outside of all."""


@dataclass(frozen=True, slots=True)
class Change:
    """What may be put in the place of a node, and the nodes and fields that lead to it."""

    within: tuple[tuple[ast.AST, str], ...]
    at: int | None
    new: ast.AST

    @property
    def old(self) -> Any:
        """The node itself."""
        place, field = self.within[-1]
        held = getattr(place, field)
        return held if self.at is None else held[self.at]

    def make(self) -> None:
        """Put the new node there."""
        place, field = self.within[-1]
        ast.copy_location(self.new, self.old)
        if self.at is None:
            setattr(place, field, self.new)
        else:
            getattr(place, field)[self.at] = self.new
        ast.fix_missing_locations(self.new)


def changes(place: ast.AST, outside: tuple[tuple[ast.AST, str], ...] = ()) -> Iterator[Change]:
    """Yield every change of a module."""
    for field, held in ast.iter_fields(place):
        if field in TYPES:
            continue
        for at, node in enumerate(held) if isinstance(held, list) else [(None, held)]:
            if isinstance(node, ast.AST) and getattr(node, "arg", None) not in SETTINGS:
                within = (*outside, (place, field))
                yield from (Change(within, at, new) for new in _instead(node))
                yield from changes(node, within)


def _instead(node: ast.AST) -> Iterator[ast.AST]:
    match node:
        case ast.Compare(left, [op], right) if type(op) in OTHER:
            yield ast.Compare(left, [OTHER[type(op)]()], right)
        case ast.BoolOp(op, values):
            yield ast.BoolOp(OTHER[type(op)](), values)
        case ast.BinOp(left, op, right) if type(op) in OTHER:
            yield ast.BinOp(left, OTHER[type(op)](), right)
        case ast.Constant(bool(value)):
            yield ast.Constant(not value)
        case ast.Constant(int(value)):
            yield ast.Constant(value + 1)
        case ast.If(test, body, orelse):
            yield ast.If(ast.UnaryOp(ast.Not(), test), body, orelse)
        case ast.IfExp(test, body, orelse):
            yield ast.IfExp(test, orelse, body)
        case ast.Expr(ast.Call() | ast.Await()) | ast.AugAssign() | ast.Raise():
            yield ast.Pass()


@dataclass(frozen=True, slots=True)
class Defect:
    """The change number `number` of a file.

    `name` says where and what; it stays the same when lines above change. `spans` are lines: the tests
    that pass the first of them which any passes can notice the defect. What is executed at import,
    all tests may notice that use the file.
    """

    file: Path
    number: int
    name: str
    line: int
    spans: tuple[range, ...]
    at_import: bool

    def code(self) -> ast.Module:
        """Return the changed module."""
        module = ast.parse(self.file.read_text("utf-8"))
        list(changes(module))[self.number].make()
        return module


def defects(file: Path) -> Iterator[Defect]:
    """Yield every defect of a file."""
    module = ast.parse(file.read_text("utf-8"))
    seen: Counter[str] = Counter()
    for number, change in enumerate(changes(module)):
        names = [place.name for place, _ in change.within if isinstance(place, NAMED)]
        old, new = (" ".join(ast.unparse(each).split())[:60] for each in (change.old, change.new))
        name = f"{file.relative_to(PACKAGE)} {'.'.join(names)}: {old}  ->  {new}"
        seen[name] += 1
        functions = [(place, field) for place, field in change.within if isinstance(place, CODE)]
        at_import = all(field != "body" for _, field in functions)
        if at_import:
            scopes = [place for place, _ in functions]
            spans = [range(each.lineno, (each.end_lineno or 0) + 1) for each in scopes]
            spans.append(range(1, (module.body[-1].end_lineno or 0) + 1))
        else:
            # a part of an expression may have no line of its own
            parts = [place for place, _ in change.within if isinstance(place, ast.stmt)]
            spans = [_lines(each) for each in (change.old, parts[-1])]
            spans = spans[: 1 + isinstance(change.old, ast.expr)]
        named = f"{name} ({seen[name]})"
        yield Defect(file, number, named, change.old.lineno, tuple(spans), at_import)


def _lines(node: Any) -> range:
    """Return the lines of a node; of a statement with a body only those before it."""
    body = getattr(node, "body", None)
    end = body[0].lineno if isinstance(body, list) else node.end_lineno + 1
    return range(node.lineno, max(end, node.lineno + 1))


def drawn(seed: int, count: int, folders: Sequence[str]) -> list[Defect]:
    """Draw so many defects of these folders; each has its number in the lottery, whatever else is there."""
    found = [
        defect
        for folder in folders
        for file in sorted((PACKAGE / folder).rglob("*.py"))
        for defect in defects(file)
    ]
    return sorted(found, key=lambda defect: Random(f"{seed} {defect.name}").random())[:count]


def install(defect: Defect) -> None:
    """Let the changed module be imported in this process, and not what is compiled of it."""
    get_code = SourceFileLoader.get_code

    def changed(loader: SourceFileLoader, name: str) -> Any:
        if Path(loader.path) == defect.file:
            return compile(defect.code(), loader.path, "exec")
        return get_code(loader, name)

    SourceFileLoader.get_code = changed  # type: ignore[method-assign]
    seconds = int(60 + 3 * ROUNDS_S[-1])
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))


# --- what each test passes, and what it costs ---------------------------------------------
# This module is the plugin of pytest that notes it, if it is told `--passing FOLDER`. Lines that other programs
# execute, which a test starts, are not seen.


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


# --- the tests that meet a defect ----------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Only:
    """A plugin of pytest that leaves out all tests but these."""

    tests: frozenset[str]

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = [item for item in items if item.nodeid in self.tests]


def note(folder: Path, tests: Sequence[str], workers: int) -> Passing:
    """Run these folders of tests, and return which lines of the product each test passes."""
    patterns = [f"--passing-of={PACKAGE / each}/*" for each in FOLDERS]
    noting = ("-p", "tests.house.mutate", "--passing", str(folder), *patterns)
    run = run_pytest("-q", "-n", str(workers), SEEDED, *noting, *tests)
    if run.code not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        raise RuntimeError(run.output)
    return read(folder)


def failing(tests: Sequence[str], defect: Defect | None, *options: str) -> list[str]:
    """Return which of these tests fail."""
    files = dict.fromkeys(test.partition("::")[0] for test in tests)
    run = run_pytest(
        "-q", "--timeout", str(PATIENCE_S), SEEDED, *options, *files,
        before=partial(install, defect) if defect else None, plugins=[Only(frozenset(tests))],
    )  # fmt: skip
    failed = re.findall(r"^(?:FAILED|ERROR) (tests/.+?)(?: - .*)?$", run.output, re.MULTILINE)
    ended = (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)  # their names have changed
    return failed or ([] if run.code in ended else [f"exit code {run.code}"])


@dataclass(frozen=True, slots=True)
class Verdict:
    """How a defect ended, and the test that noticed it; if it lives, how many tests it met."""

    defect: str
    line: int
    verdict: str
    test: str


def look(defect: Defect, passing: Passing, earlier: str = "") -> Verdict:
    """Let a defect meet the tests that pass its line, until one fails: first the one that did earlier."""
    tests = meeting(defect, passing)
    if not tests:
        return Verdict(defect.name, defect.line, UNSEEN, "")
    if earlier in passing.seconds and (failed := failing([earlier], defect)):
        return Verdict(defect.name, defect.line, DIED, failed[0])
    met = 0
    lines = Counter(chain.from_iterable(passing.tests(defect.file).values()))
    for each in rounds(tests, passing.seconds, lines):
        if failed := failing(each, defect, "-x"):
            return Verdict(defect.name, defect.line, DIED, failed[0])
        met += len(each)
    return Verdict(defect.name, defect.line, ALIVE, f"{met} of {len(tests)}")


def meeting(defect: Defect, passing: Passing) -> list[str]:
    """Return the tests that pass the line of a defect, the cheapest first.

    What is executed at import may be noticed by all tests that pass a line of the file: these come
    after them. Of a file without such lines, they are the tests of the files that import it.
    """
    lines = passing.tests(defect.file)
    near = next(filter(None, (_in(span, lines) for span in defect.spans)), set[str]())
    wide = set[str]()
    if defect.at_import or any(AT_IMPORT in lines.get(line, ()) for line in defect.spans[0]):
        wide = _in(lines, lines)
        users = [] if wide else importing(defect.file)
        wide = wide.union(*(_in(used, used) for used in map(passing.tests, users)))
    return sorted(near | wide, key=lambda test: (test not in near, passing.seconds[test], test))


def _in(span: Iterable[int], lines: dict[int, set[str]]) -> set[str]:
    return set[str]().union(*(lines.get(line, ()) for line in span)) - {AT_IMPORT}


def importing(file: Path) -> list[Path]:
    """Return the files of the product that import this one."""
    package, name = ".".join(file.relative_to(ROOT).parent.parts), file.stem
    written = re.compile(rf"from {package}\.{name} import|from {package} import [^)]*\b{name}\b")
    files = [each for folder in FOLDERS for each in sorted((PACKAGE / folder).rglob("*.py"))]
    return [each for each in files if written.search(each.read_text("utf-8"))]


def rounds(
    tests: Sequence[str], seconds: Mapping[str, float], lines: Mapping[str, int]
) -> Iterator[list[str]]:
    """Yield which tests meet a defect in each run of pytest: the cheapest, more of them, and then
    those that pass the most `lines` of its file, whatever each costs.
    """
    left = list(tests)
    for limit_s in ROUNDS_S:
        if limit_s == ROUNDS_S[-1]:
            left.sort(key=lambda test: -lines.get(test, 0))
        cost_s, files, chosen = 0.0, set[str](), list[str]()
        for test in left:
            file = test.partition("::")[0]
            more_s = seconds[test] + STARTED_S + (0 if file in files else COLLECTED_S)
            if cost_s + more_s <= limit_s:
                cost_s += more_s
                files.add(file)
                chosen.append(test)
        if limit_s == ROUNDS_S[-1]:
            chosen = chosen or left[:1]
        if chosen:
            yield chosen
        left = [test for test in left if test not in set(chosen)]


def written(file: Path) -> dict[str, Verdict]:
    """Read the verdicts of an earlier run."""
    with file.open(newline="", encoding="utf-8") as rows:
        found = [Verdict(**row | {"line": int(row["line"])}) for row in csv.DictReader(rows)]
    return {each.defect: each for each in found}


def write(file: Path, verdicts: Iterable[Verdict]) -> None:
    """Write verdicts for a later run."""
    with file.open("w", newline="", encoding="utf-8") as opened:
        rows = csv.writer(opened, lineterminator="\n")
        rows.writerow(["defect", "line", "verdict", "test"])
        rows.writerows(map(astuple, verdicts))


def main() -> None:
    """Draw, look and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.house.mutate", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=400)
    parser.add_argument("--out", type=Path, help="write the verdicts to this CSV file")
    parser.add_argument("--before", type=Path, help="compare them with those of this file")
    given = parser.parse_args()
    before = written(given.before) if given.before else {}
    chosen = drawn(given.seed, given.count, FOLDERS)
    workers = os.cpu_count() or 1
    with TemporaryDirectory() as folder, ThreadPoolExecutor(workers) as pool:
        passing = note(Path(folder), TESTS, workers)
        jobs = [
            pool.submit(look, each, passing, before[each.name].test if each.name in before else "")
            for each in chosen
        ]
        now = {}
        for job in jobs:
            verdict = job.result()
            now[verdict.defect] = verdict
            print("  |  ".join(map(str, astuple(verdict))), flush=True)
            if given.out:  # each time: who stops it keeps what is known
                write(given.out, now.values())
    kinds = Counter(each.verdict for each in now.values())
    print(f"of {len(now)} defects: {', '.join(f'{n} {kind}' for kind, n in kinds.most_common())}")
    sys.exit(judged(now, before))


def judged(now: dict[str, Verdict], before: dict[str, Verdict]) -> int:
    """Print what speaks against the tests, and return 1 if anything does, 0 otherwise."""
    died = {each.test for each in now.values() if each.verdict == DIED and "::" in each.test}
    found = [f"{test} fails without a defect, too" for test in failing(sorted(died), None)]
    found += [
        f"died before, by {before[name].test}: {name}"
        for name, verdict in now.items()
        if name in before and before[name].verdict == DIED != verdict.verdict
    ]
    if gone := before.keys() - now.keys():
        print(
            f"{len(gone)} of before are not drawn now: their code has changed, or fewer are drawn"
        )
    print(*found, sep="\n")
    return int(bool(found))


if __name__ == "__main__":
    main()
