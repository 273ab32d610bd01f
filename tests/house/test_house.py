"""The rules of the house that no tool of .ci/run checks."""

import ast
import json
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from packaging.specifiers import SpecifierSet

from tests.house import PACKAGE, ROOT
from tests.house.reference import facts
from tests.renew import GENERATED
from tests.running import run

HEAVY = (
    *("pandas", "matplotlib", "scipy", "web3", "eth_account", "x402", "fastapi", "IPython"),
    *("numpy", "pyarrow", "jinja2"),
)
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_importing_is_cheap() -> None:
    """Also that of reports of judges and of `run`, which need no extra."""
    code = "import sys, x402sim, x402sim.cli, x402sim.serving.local, x402sim.commands.run; "
    code += "import x402sim.suite.report.conformance, x402sim.report.trace; "
    code += f"print([m for m in {HEAVY!r} if m in sys.modules])"
    assert run([sys.executable, "-c", code]).strip() == "[]"


def test_no_path_of_a_machine_is_in_the_product() -> None:
    names = run(["git", "ls-files", "--cached", "--others", "--exclude-standard"]).split()
    folders, registries = r"/(work|root|home|tmp)/[a-z]|\.\./shared", r"pythonhosted|pypi|npmjs"
    local = re.compile(rf"{folders}|({registries})\.(org|com)")
    for name in names:
        if Path(name).suffix not in {".png", ".ipynb", ".csv", ".ndjson", ".xz"}:
            text = (ROOT / name).read_text(encoding="utf-8")
            found = local.search(text)
            assert found is None or name.endswith("test_house.py"), f"{name}: {found}"


@pytest.mark.thorough
def test_what_the_program_knows_of_itself_is_the_same_without_docstrings() -> None:
    code = "import json; from tests.house.reference import facts; print(json.dumps(facts()))"
    told = run([sys.executable, "-OO", "-c", code])
    assert json.loads(told) == json.loads(json.dumps(facts()))


# --- the package -------------------------------------------------------------------------


def test_what_is_renewed_exists() -> None:
    """A pattern that matches nothing hides every change of what it should watch."""
    for name, each in GENERATED.items():
        missing = [pattern for pattern in each.patterns.split() if not [*ROOT.glob(pattern)]]
        assert not missing, name


# --- the project -------------------------------------------------------------------------


def test_the_classifiers_name_every_python_that_can_install_it() -> None:
    wanted = SpecifierSet(PROJECT["requires-python"])
    installable = [f"3.{minor}" for minor in range(40) if wanted.contains(f"3.{minor}.0")]
    named = [text.rpartition(":: ")[2] for text in PROJECT["classifiers"]]
    assert [text for text in named if text.startswith("3.")] == installable
    assert f"3.{sys.version_info.minor}" in installable


# --- nothing is borrowed ------------------------------------------------------------------

PUBLISHED = {"_exit", "_replace", "_value_", "_repr_html_", "_repr_png_"}
"""Names that begin with `_`, and stand in the documentation of Python or IPython."""
PLAYS_FILES = PACKAGE / "world/scenario.py"
"""This file imports a story's file as importlib's documentation shows, with `sys.modules`."""


def borrowed(tree: ast.AST) -> Iterator[str]:
    """Yield what code takes of the private names of others, or replaces, with its line.

    A private name that the same file defines is the file's own.
    """
    ours, used = set[str](), list[tuple[int, str]]()
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                ours.add(name)
            case ast.ClassDef(name=name) | ast.Name(id=name, ctx=ast.Store()):
                ours.add(name)
            case ast.Attribute(value=ast.Name(id="self" | "cls"), attr=name):
                ours.add(name)
            case ast.Attribute(attr=name):
                used.append((node.lineno, name))
            case ast.ImportFrom(module=module, names=names):
                parts = [*(module or "").split("."), *(each.name for each in names)]
                used += [(node.lineno, part) for part in parts]
            case ast.Call(func=ast.Name(id="eval" | "exec" as name)):
                yield f"{node.lineno}: {name}"
            case ast.Call(func=ast.Name(id="getattr" | "setattr" | "hasattr"), args=args):
                texts = [each.value for each in args if isinstance(each, ast.Constant)]
                used += [(node.lineno, str(text)) for text in texts]
            case ast.Subscript(value=modules, ctx=ast.Store() | ast.Del()):
                if ast.unparse(modules) == "sys.modules":
                    yield f"{node.lineno}: {ast.unparse(node)}"
    for line, name in used:
        is_private = re.fullmatch(r"_[A-Za-z]\w*?(?<!__)", name) and name not in PUBLISHED
        if is_private and name not in ours:
            yield f"{line}: {name}"


@pytest.mark.parametrize(
    "code",
    [
        "from asyncio import _x", "from httpx._main import main", "sys._getframe()",
        "getattr(pool, '_max_workers', None)", "eval('1')", "sys.modules['x'] = None",
    ],
)  # fmt: skip
def test_what_is_borrowed_is_seen(code: str) -> None:
    assert [*borrowed(ast.parse(code))]


@pytest.mark.thorough
def test_no_private_name_of_others_is_used() -> None:
    found = []
    for folder in ("x402sim", "scenarios", "conformance"):
        for file in (ROOT / folder).rglob("*.py"):
            if file != PLAYS_FILES:
                tree = ast.parse(file.read_bytes())
                found += [f"{file.relative_to(ROOT)}:{each}" for each in borrowed(tree)]
    assert found == []
