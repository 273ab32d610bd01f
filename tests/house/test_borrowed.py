"""Nothing is borrowed: what others do not publish is not used, and no module is exchanged.

A name that begins with `_` is its package's own, and the next release may not have it. What a file
defines itself is its own, unless a class inherits that name from another package.
"""

import ast
import importlib
import inspect
import json
import pkgutil
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import x402sim
from tests.house import PACKAGE, ROOT

PUBLISHED = {"_exit", "_replace", "_value_", "_repr_html_", "_repr_png_"}
"""What begins so, and is in the documentation of Python or IPython."""
PLAYS_FILES = PACKAGE / "world/scenario.py"
"""It imports a story's file, in the way that importlib's documentation shows."""
BY_NAME = {"getattr", "setattr", "hasattr", "delattr", "attrgetter", "methodcaller"}
"""Functions whose texts are names of attributes."""
ITSELF = {"self", "cls", "super()"}
"""What has the names that a class inherits, too."""
PRIVATE = re.compile(r"_[A-Za-z]\w*?(?<!__)")
INSTALLED = {".venv", "node_modules"}
"""What the interop tests install for the programs of others."""


SUSPECT = re.compile(
    r"""\.(?<!(?<![\w.])self\.)(?<!(?<![\w.])cls\.)\s*_[A-Za-z]"""  # an attribute
    r"""|from .*\b_[A-Za-z]|import .*(?:\b_[A-Za-z]|\\$)|import \([^)]*\b_[A-Za-z]"""
    r"""|"_[A-Za-z]|'_[A-Za-z]|eval\s*\(|exec\s*\(|modules\s*\[""",  # a text, or code
    re.MULTILINE,
)
"""What the text has of a file that borrows; most have none, and parsing all takes seconds."""


def sources() -> Iterator[tuple[str, str]]:
    """Yield what we wrote in Python, with its path: the package and all that comes with it."""
    for folder in ("x402sim", "scenarios", "conformance", "tests"):
        for file in (ROOT / folder).rglob("*.py"):
            if not INSTALLED & set(file.parts):
                yield str(file.relative_to(ROOT)), file.read_text(encoding="utf-8")
    for file in (ROOT / "notebooks").glob("*.ipynb"):
        cells = json.loads(file.read_text(encoding="utf-8"))["cells"]
        code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
        yield f"notebooks/{file.name}", "\n".join(code)


def is_private(name: str) -> bool:
    return PRIVATE.fullmatch(name) is not None and name not in PUBLISHED


def defined(tree: ast.AST) -> Iterator[str]:
    """Yield the names that code gives to something of its own."""
    for node in ast.walk(tree):
        match node:
            case (
                ast.FunctionDef(name=name)
                | ast.AsyncFunctionDef(name=name)
                | ast.ClassDef(name=name)
            ):
                yield name
            case ast.Name(id=name, ctx=ast.Store()):
                yield name
            case ast.Attribute(attr=name, ctx=ast.Store()):
                yield name
            case ast.Assign(targets=[ast.Name(id="__slots__")], value=ast.Tuple(elts=names)):
                yield from (name.value for name in names if isinstance(name, ast.Constant))


def borrowed(tree: ast.AST, ours: set[str], *, runs_code: bool = False) -> Iterator[str]:
    """Yield what code takes that others keep for themselves, with its line."""
    for node in ast.walk(tree):
        names: list[str] = []
        match node:
            case ast.Attribute(value=value, attr=name) if is_private(name):
                names = [] if ast.unparse(value) in ITSELF else [name]
            case ast.Import(names=imported):
                names = [part for each in imported for part in each.name.split(".")]
            case ast.ImportFrom(module=module, names=imported):
                names = [*(module or "").split("."), *(each.name for each in imported)]
            case ast.Call(func=ast.Name(id="eval" | "exec" as name)) if not runs_code:
                yield f"{node.lineno}: {name}"
            case ast.Call(func=ast.Name(id=function) | ast.Attribute(attr=function)):
                texts = [each.value for each in node.args if isinstance(each, ast.Constant)]
                names = [str(text) for text in texts if function in BY_NAME]
            case ast.Subscript(value=modules, ctx=ast.Store() | ast.Del()) if not runs_code:
                if ast.unparse(modules) == "sys.modules":
                    yield f"{node.lineno}: {ast.unparse(node)}"
        for name in names:
            if is_private(name) and name not in ours:
                yield f"{node.lineno}: {name}"


@pytest.mark.parametrize(
    "code",
    [
        "import _ssl", "import asyncio._x", "from warnings import _y", "from httpx._main import main",
        "sys._getframe()", "getattr(pool, '_max_workers', None)", "setattr(warnings, '_warn', f)",
        "operator.attrgetter('_when')", "eval('1')", "exec('1')", "sys.modules['x'] = None",
        "del sys.modules['x']",
    ],
)  # fmt: skip
def test_what_is_borrowed_is_seen(code: str) -> None:
    assert SUSPECT.search(code)
    assert list(borrowed(ast.parse(code), {"_ours"}))


def test_no_private_name_of_others_is_used() -> None:
    """Tests may look into any file of the kit, and run code that they make."""
    texts = dict(sources())
    found: set[str] = set()
    of_tests: dict[str, list[str]] = {}
    for path, text in texts.items():
        if not SUSPECT.search(text):
            continue
        tree = ast.parse(text)
        is_test = path.startswith("tests/")
        runs_code = is_test or ROOT / path == PLAYS_FILES
        for each in borrowed(tree, set(defined(tree)), runs_code=runs_code):
            if is_test:
                of_tests.setdefault(each.rpartition(" ")[2], []).append(f"{path}:{each}")
            else:
                found.add(f"{path}:{each}")
    for text in texts.values():
        if any(name in text for name in of_tests):
            for name in set(defined(ast.parse(text))) & {*of_tests}:
                del of_tests[name]
    assert found | {each for lines in of_tests.values() for each in lines} == set()


# --- what is inherited -------------------------------------------------------------------


@cache
def classes(file: str) -> dict[str, ast.ClassDef]:
    """Return the classes of a file by their qualified names, the first of a name."""
    found: dict[str, ast.ClassDef] = {}

    def look(node: ast.AST, within: str) -> None:
        for each in ast.iter_child_nodes(node):
            match each:
                case ast.ClassDef(name=name):
                    found.setdefault(within + name, each)
                    look(each, f"{within}{name}.")
                case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                    look(each, f"{within}{name}.<locals>.")
                case ast.stmt():
                    look(each, within)

    look(ast.parse(Path(file).read_bytes()), "")
    return found


@cache
def named(kind: type) -> set[str]:
    """Return the private names in a class: its own and those of its objects."""
    try:
        file = inspect.getsourcefile(kind)
    except TypeError:  # it is written in C
        file = None
    written = file and classes(file).get(kind.__qualname__)
    if not written:  # or by another class
        return set(filter(is_private, vars(kind)))
    of_self = {
        node.attr
        for node in ast.walk(written)
        if isinstance(node, ast.Attribute)
        and is_private(node.attr)
        and ast.unparse(node.value) in ITSELF
    }
    return set(filter(is_private, of_self | set(defined(written))))


def inherited(kind: type) -> set[str]:
    """Return the private names in a class that are also in one of another package that it extends."""
    theirs = [each for each in kind.__mro__ if not each.__module__.startswith(("x402sim", "test"))]
    names = {name for each in theirs for name in named(each)}
    return named(kind) & names if names else names


def test_no_private_name_is_inherited_from_others() -> None:
    """Neither replaced nor used; one of the same name would be a mistake in any case."""
    found = {}
    for module in pkgutil.walk_packages(x402sim.__path__, "x402sim."):
        if module.name != "x402sim.__main__":
            for kind in vars(importlib.import_module(module.name)).values():
                if isinstance(kind, type) and kind.__module__ == module.name:
                    found[f"{module.name}.{kind.__qualname__}"] = inherited(kind)
    assert {name: names for name, names in found.items() if names} == {}


def test_what_is_inherited_is_seen() -> None:
    import asyncio

    class Loop(asyncio.SelectorEventLoop):
        def _run_once(self) -> None:
            self._ready = None

    assert inherited(Loop) == {"_run_once", "_ready"}
