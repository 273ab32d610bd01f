"""The structure of the package: no circles, short files and functions, few public names."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import x402sim
from tests.house.imports import circle, parsed

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "x402sim").rglob("*.py"))
LINES, FUNCTION_LINES, PUBLIC_NAMES = 400, 60, 25


def test_no_file_imports_itself_through_others() -> None:
    assert circle("x402sim") == []


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("from example.b import one", "def f():\n    from example.a import two"),
        ("import example.b", "if TYPE_CHECKING:\n    from .a import Two"),
        ("from . import b", "from .a import three"),
    ],
)
def test_a_circle_would_be_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: str, second: str
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    package = tmp_path / "example"
    package.mkdir()
    for name, text in {"__init__": "", "a": first, "b": second}.items():
        (package / f"{name}.py").write_text(text)
    assert set(circle("example")) == {"example.a", "example.b"}


def test_every_file_is_short() -> None:
    sizes = {str(file.relative_to(ROOT)): file.read_bytes().count(b"\n") for file in FILES}
    assert {name: size for name, size in sizes.items() if size > LINES} == {}


def test_every_function_is_short() -> None:
    sizes = {name: size for file in FILES for name, size in functions(file)}
    assert {name: size for name, size in sizes.items() if size > FUNCTION_LINES} == {}


def functions(file: Path) -> Iterator[tuple[str, int]]:
    """Yield each function's place and its number of lines, without its decorators."""
    for node in ast.walk(parsed(file)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            place = f"{file.relative_to(ROOT)}:{node.lineno} {node.name}"
            yield place, (node.end_lineno or 0) - node.lineno + 1


def test_every_file_says_what_it_is_for() -> None:
    silent = [file for file in FILES if not ast.get_docstring(parsed(file))]
    assert silent == []


def test_public_names_are_few_and_exist() -> None:
    assert len(x402sim.__all__) <= PUBLIC_NAMES
    for name in x402sim.__all__:
        assert getattr(x402sim, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        x402sim.nothing  # noqa: B018
