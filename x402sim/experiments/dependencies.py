"""The dependencies of an experiment's results: names with digests.

An experiment depends on text: on its function, and on the top-level names that the function uses,
also indirectly, in its own file or in a notebook's cells; on the project's files that this text
imports, and on the files of scenarios that it names. Values that no text has (labels, closures, the
arguments of a partial) count by their `repr`, arrays and frames by their content. The versions of
Python, x402sim and the libraries count, too. Comments and line numbers do not. Data files and
environment variables of an experiment are not included.
"""

import ast
import hashlib
import inspect
import pickle
import re
import symtable
import sys
import types
from collections.abc import Iterator
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from typing import Any

from x402sim.report.bundle import (
    TYPED,
    NotRepeatable,
    cells_run,
    imported,
    imports,
    own_versions,
    running,
    versions_of,
)

_STORY = re.compile(r"([^\n\0]{1,300}\.py)(:\w+)?")
"""A text that `World.play` reads as a file with a scenario."""
_FUNCTION = ast.FunctionDef | ast.AsyncFunctionDef
Namespace = dict[str, Any]


class Text:
    """A program's text: the top-level statements that bind or change each name."""

    def __init__(self, source: str) -> None:
        self.is_known = bool(source)
        self._about: dict[str, list[ast.stmt]] = {}
        self._used: dict[ast.stmt, set[str]] = {}
        for statement in ast.parse(source).body:
            table = symtable.symtable(ast.unparse(statement), "a statement", "exec")
            self._used[statement] = {*_globals(table)}
            bound = {each.get_name() for each in table.get_symbols() if each.is_assigned()}
            is_definition = isinstance(statement, _FUNCTION | ast.ClassDef)
            for name in bound if is_definition else bound.union(_changed(statement)):
                is_computed = name not in bound or name in self._used[statement]
                is_new = is_definition or (isinstance(statement, ast.Assign) and not is_computed)
                before = [] if is_new else self._about.get(name, [])
                self._about[name] = [*before, statement]

    def about(self, name: str) -> list[ast.stmt]:
        """Return the statements that make a value, from the last new binding on."""
        return self._about.get(name, [])

    def used(self, name: str) -> Iterator[str]:
        """Yield the names that these statements use."""
        for statement in self.about(name):
            yield from sorted(self._used[statement])


def _globals(table: symtable.SymbolTable) -> Iterator[str]:
    is_top = table.get_type() == "module"
    for symbol in table.get_symbols():
        if symbol.is_referenced() and (is_top or symbol.is_global()):
            yield symbol.get_name()
    for inner in table.get_children():
        yield from _globals(inner)


def _changed(statement: ast.stmt) -> Iterator[str]:
    """Yield the names whose values a statement changes: `x.y = 1`, `x[0] = 1`, `x.append(1)`."""
    for node in ast.walk(statement):
        place: ast.AST = node
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            place = node.value.func
        elif isinstance(getattr(node, "ctx", ast.Load()), ast.Load):
            continue
        while isinstance(place, ast.Attribute | ast.Subscript):
            place = place.value
            if isinstance(place, ast.Name):
                yield place.id


_text_of = cache(Text)


class Dependencies:
    """The dependencies of a value: `digests` and `versions` by name, and names of `unread` values.

    `home` is the namespace of the experiment's own module. The file of the module is not
    compared as a whole: the file may also have the grid, which may grow.
    """

    def __init__(self, root: Any, name: str, home: Namespace) -> None:
        self.digests: dict[str, str] = {}
        self.versions = own_versions() | versions_of(("numpy", "pandas", "scipy"))
        self.unread: list[str] = []
        self.files: dict[str, Path] = {}
        """The user's own files except the experiment's, by module or by name."""
        self._file, source = _file_in(home), _source_of(home)
        self._text = _text_of(source)
        self._imported = imports(source.encode(), home.get("__package__") or "")
        self._seen: set[str] = set()
        self._add_root(root, name)
        libraries = []
        for module, file in imported(self._imported, known=self._file):
            if file is None:
                libraries.append(module.partition(".")[0])
            else:
                self._add_file(module, file)
        self.versions |= versions_of(each for each in dict.fromkeys(libraries) if each != "x402sim")

    def _add_root(self, root: Any, name: str) -> None:
        if isinstance(root, partial):
            self._add_value(f"the arguments of the partial {name}", (root.args, root.keywords))
            self._add_root(root.func, name)
        elif not isinstance(root, types.FunctionType):
            self._add_value(f"the value of {name}", root)
        else:
            function = inspect.unwrap(root)
            top = function.__qualname__.partition(".")[0]
            self._add_text(top, f"the code of {name}")
            if not self._text.about(top):
                self._add_code(function, name)
            cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
            for each, cell in cells:
                if (value := _content(cell)) is not None:
                    self._add_value(f"the variable {each} around {name}", value)

    def _add_text(self, name: str, key: str = "") -> None:
        """Add the statements about a name, and about all names that they use."""
        statements = self._text.about(name)
        if name in self._seen or not statements:
            return
        self._seen.add(name)
        kind = "class" if isinstance(statements[-1], ast.ClassDef) else "value"
        kind = "function" if isinstance(statements[-1], _FUNCTION) else kind
        label = Path(self._file).name if self._file else "this session"
        key = key or f"the {kind} {name} in {label}"
        self.digests[key] = _digest(*map(ast.dump, statements))
        for node in (node for each in statements for node in ast.walk(each)):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                found = _STORY.fullmatch(node.value)
                if found and Path(found[1]).is_file():
                    self._add_file(found[1], Path(found[1]))
        for used in self._text.used(name):
            self._add_text(used)

    def _add_code(self, function: types.FunctionType, name: str) -> None:
        """Add a function that the text does not name: a lambda, or one typed at Python's prompt."""
        if not self._text.is_known:
            self.unread.append(f"what {name} uses: there is no text of it")
        codes = [*_codes(function.__code__)]
        parts = [(each.co_code.hex(), each.co_names, _constants(each)) for each in codes]
        given = function.__defaults__, function.__kwdefaults__
        self._add_value(f"the code of {name}", (parts, given))
        for each in codes:
            for used in each.co_names:
                self._add_text(used)

    def _add_value(self, key: str, value: Any) -> None:
        """Add a value without a text; a function or an object of a class counts by its text."""
        of: Any
        if isinstance(value, types.FunctionType):
            shown, of = value.__qualname__, value
        elif hasattr(value, "__array__"):
            shown, of = pickle.dumps(value, 5).hex(), type(value)
        else:
            shown, of = repr(value), type(value)
        if " at 0x" in shown:
            self.unread.append(f"{key} (it shows no content: {shown[:80]})")
            shown = type(value).__qualname__
        self.digests[key] = _digest(shown)
        self._add_text(of.__qualname__.partition(".")[0])
        self._imported.append(of.__module__)

    # --- files -----------------------------------------------------------------------

    def _add_file(self, name: str, file: Path) -> None:
        if name != "__main__":
            shown = name if name.endswith(".py") else f"of {name}"
            self.digests[f"the file {shown}"] = _digest(ast.dump(ast.parse(file.read_bytes())))
            self.files[name] = file


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for each in code.co_consts:
        if isinstance(each, types.CodeType):
            yield from _codes(each)


def _constants(code: types.CodeType) -> list[str]:
    plain = [each for each in code.co_consts if not isinstance(each, types.CodeType)]
    return [repr(sorted(map(repr, c)) if isinstance(c, frozenset) else c) for c in plain]


def _digest(*texts: str) -> str:
    return hashlib.sha256("\n".join(texts).encode("utf-8", "surrogatepass")).hexdigest()[:32]


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # the name has no value yet
        return None


def _file_in(space: Namespace) -> str | None:
    file = space.get("__file__")
    return str(Path(file).resolve()) if isinstance(file, str) and Path(file).is_file() else None


def _source_of(space: Namespace) -> str:
    """Return the text of a module, of the cells that have run, or of `python -c`; else ""."""
    if (file := _file_in(space)) is not None:
        return Path(file).read_text("utf-8") if file.endswith(".py") else ""
    if "In" in space:
        return "\n".join(cells_run(space))
    with suppress(NotRepeatable):
        program = running()
        if program.program.name == TYPED and space is vars(sys.modules["__main__"]):
            return program.texts[TYPED].decode()
    return ""
