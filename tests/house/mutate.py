"""`python -m tests.house.mutate`: draw defects of the product by a seed, and see whether a test fails.

A defect is one change of the code: a comparison or a condition turned round, a number one greater, a
statement left out. The same seed draws the same ones, so that a change of the tests can be judged:
what died before must die after it. Prints each with the test that noticed it, or ALIVE.
"""

import argparse
import ast
import os
import re
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from importlib.machinery import SourceFileLoader
from pathlib import Path
from random import Random
from typing import Any

from tests.house import ROOT
from tests.house.forked import run_pytest

TESTS = {
    "service": "service hostile scenarios conformance",
    "payer": "payer cli scenarios",
    "protocol": "protocol service payer facilitator cli scenarios",
    "chain/ledger": "chain explorer facilitator evm scenarios",
}
"""The folders of the product that are changed, and those of the tests that look, the first first."""
OTHER = {
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE,
    ast.GtE: ast.Gt, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
    ast.And: ast.Or, ast.Or: ast.And, ast.Add: ast.Sub, ast.Sub: ast.Add,
}  # fmt: skip
PATIENCE_S = "300"
"""How long a test may take before the defect counts as noticed: it may hang."""
TYPES = ("annotation", "returns", "type_params")
"""What no program looks at while it runs."""


@dataclass(frozen=True, slots=True)
class Defect:
    """The change number `number` of a file."""

    folder: str
    file: Path
    number: int

    def code(self) -> tuple[ast.Module, str]:
        """Return the changed module, and a line that tells where it is changed, and how."""
        module = ast.parse(self.file.read_text("utf-8"))
        place, field, at, new = list(changes(module))[self.number]
        held = getattr(place, field)
        old = held if at is None else held[at]
        shown = [" ".join(ast.unparse(each).split())[:60] for each in (old, new)]
        told = f"{self.file.relative_to(ROOT)}:{old.lineno}  {shown[0]}  ->  {shown[1]}"
        ast.copy_location(new, old)
        if at is None:
            setattr(place, field, new)
        else:
            held[at] = new
        return ast.fix_missing_locations(module), told


def changes(place: ast.AST) -> Iterator[tuple[ast.AST, str, int | None, Any]]:
    """Yield every change: in which field of which node (of a list: where), and what comes there."""
    for field, held in ast.iter_fields(place):
        if field in TYPES:
            continue
        for at, node in enumerate(held) if isinstance(held, list) else [(None, held)]:
            if isinstance(node, ast.AST):
                yield from ((place, field, at, new) for new in _instead(node))
                yield from changes(node)


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


def drawn(seed: int, count: int, folders: list[str]) -> list[Defect]:
    """Draw so many defects of these folders."""
    found = [
        Defect(folder, file, number)
        for folder in folders
        for file in sorted((ROOT / "x402sim" / folder).rglob("*.py"))
        for number, _ in enumerate(changes(ast.parse(file.read_text("utf-8"))))
    ]
    return Random(seed).sample(found, count)


def install(defect: Defect) -> None:
    """Let the changed module be imported in this process, and not what is compiled of it."""
    get_code = SourceFileLoader.get_code

    def changed(loader: SourceFileLoader, name: str) -> Any:
        if Path(loader.path) == defect.file:
            return compile(defect.code()[0], loader.path, "exec")
        return get_code(loader, name)

    SourceFileLoader.get_code = changed  # type: ignore[method-assign]


def look(defect: Defect) -> str:
    """Run the tests that look at a defect until one fails; return a line about it."""
    return f"{defect.code()[1]}  |  {noticed(defect.folder, partial(install, defect))}"


def noticed(folder: str, before: Callable[[], None] | None = None) -> str:
    """Return the first test that fails, or ALIVE."""
    folders = [f"tests/{each}" for each in TESTS[folder].split()]
    run = run_pytest("-x", "-q", "--timeout", PATIENCE_S, *folders, before=before)
    failed = re.search(r"^(?:FAILED|ERROR) (\S+)", run.output, re.MULTILINE)
    return failed[1] if failed else "ALIVE" if run.code == 0 else "it cannot even be collected"


def main() -> None:
    """Draw, look and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.house.mutate", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=400)
    parser.add_argument("--only", action="append", choices=TESTS, help="a folder; repeatable")
    given = parser.parse_args()
    folders, alive = given.only or [*TESTS], 0
    defects = drawn(given.seed, given.count, folders)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for folder, failed in zip(folders, pool.map(noticed, folders), strict=True):
            if failed != "ALIVE":  # then it would say nothing of a defect
                parser.error(f"the tests of {folder} fail without a defect: {failed}")
        for line in pool.map(look, defects):
            alive += line.endswith("ALIVE")
            print(line, flush=True)
    print(f"{len(defects) - alive} of {len(defects)} were noticed")
    sys.exit(bool(alive))


if __name__ == "__main__":
    main()
