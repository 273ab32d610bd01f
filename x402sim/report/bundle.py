"""The files with which others repeat a result: `bundle.json`, and the program in `sources/`.

A result is a run that a program saves, or a sweep that a program plays. To repeat the result, the
program runs again, from the start to the saving call; so closures, policies and functions
as faults need not be serialized. The parts of the program (the user's own files, libraries and
their versions) are found without an import of the program, and copied when the result is saved. A
resumed sweep compares the same parts.

The hash of a table depends on its content only, not on the version of pandas, Arrow or Python. It
is the SHA-256 of ASCII lines, each ended by a newline. The first line is a JSON array of the sorted
column names. Each row follows as a JSON object without spaces, with sorted names, and without
missing values. A whole number is written in digits (2, also for the float 2.0), another number as
Python's `repr` of the float, a moment as whole microseconds since 1970 (UTC), a date in ISO 8601,
True and False as true and false, and any other value as its text.
"""

import ast
import hashlib
import importlib.util
import json
import platform
import re
import shlex
import site
import sys
import sysconfig
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from functools import cache
from importlib.metadata import PackageNotFoundError, requires, version
from itertools import accumulate, chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from x402sim.journal import BUNDLE as BUNDLE
from x402sim.version import VERSION

if TYPE_CHECKING:
    from pandas import DataFrame

_AT_ONCE = 10_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_US = timedelta(microseconds=1)
_dump = json.JSONEncoder(sort_keys=True, separators=(",", ":")).encode


def frame_sha256(frame: "DataFrame") -> str:
    """Return the hash of a frame, without its index."""
    names = [str(name) for name in frame.columns]
    return lines_sha256(chain([json.dumps(sorted(names), separators=(",", ":"))], _lines(frame)))


def _lines(frame: "DataFrame") -> Iterator[str]:
    names = [str(name) for name in frame.columns]
    for first in range(0, len(frame), _AT_ONCE):  # Python's objects need ten times the memory
        part = frame.iloc[first : first + _AT_ONCE]
        columns = [part.iloc[:, at].astype(object).tolist() for at in range(len(names))]
        for row in zip(*columns, strict=True):
            yield row_line(dict(zip(names, row, strict=True)))


def lines_sha256(lines: Iterable[str]) -> str:
    """Return the hash of lines, each ended by a newline."""
    found = hashlib.sha256()
    for line in lines:
        found.update(line.encode() + b"\n")
    return found.hexdigest()


def row_line(row: Mapping[str, Any]) -> str:
    """Return the line of a row, given its values by name."""
    known = {name: _plain(value) for name, value in row.items()}
    return _dump({name: value for name, value in known.items() if value is not None})


def _plain(value: Any) -> Any:
    kind = type(value)
    if value is None or kind is str or kind is bool or kind is int:
        return value
    if kind.__name__ in ("NAType", "NaTType"):
        return None
    if isinstance(value, float):
        if value != value:  # not a number
            return None
        return int(value) if value.is_integer() else float(value)
    if isinstance(value, datetime):
        moment = value if value.tzinfo else value.replace(tzinfo=UTC)
        return (moment - _EPOCH) // _US
    if isinstance(value, date):
        return value.isoformat()
    return _plain(value.item()) if hasattr(value, "item") else str(value)


# --- files and libraries ----------------------------------------------------------------

PACKAGE = Path(__file__).resolve().parents[1]
"""The folder of x402sim."""
_SHIPPED = ("scenarios/", "conformance/")
"""Folders inside the package in a wheel, and beside it in a checkout."""
_INSIDE = PACKAGE / "scenarios"
SCENARIOS = _INSIDE if _INSIDE.is_dir() else PACKAGE.parent / "scenarios"
"""The folder of the shipped scenarios."""
_LIBRARIES = {
    *(Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "platstdlib")),
    *(Path(each).resolve() for each in site.getsitepackages()),
    PACKAGE,
}
_INSTALLED = {"site-packages", "dist-packages"}
_OF_THE_MACHINE = {"sitecustomize", "usercustomize"}
"""Modules that Python imports at the start, from any place that the installer chose."""
_NAME, _EXTRA = re.compile(r"[\w.-]+"), re.compile(r"\bextra == ['\"](\w+)['\"]")


@cache
def is_library(file: str | None, name: str) -> bool:
    """Tell whether a module belongs to Python, to an installed package or to x402sim.

    `__main__` is the user's, whichever program started it, such as a notebook's kernel.
    """
    if name == "__main__":
        return False
    if name in _OF_THE_MACHINE:
        return True
    if file is None:
        top = name.partition(".")[0]
        return top in sys.stdlib_module_names or top in sys.builtin_module_names
    if file.startswith("<frozen "):
        return True
    if _INSTALLED & {*Path(file).parts}:
        return True
    path = Path(file).resolve()
    return bool(_INSTALLED & {*path.parts}) or any(each in _LIBRARIES for each in path.parents)


def imported(
    names: Iterable[str], *, known: str | None = None
) -> Iterator[tuple[str, Path | None]]:
    """Yield modules by name, and all modules that the user's own files among them import.

    A pair has a module's name and file, or None for a library. `known` is a file to leave out.
    """
    left, seen = deque(names), {""}
    while left:
        name = left.popleft()
        if name in seen:
            continue
        seen.add(name)
        file = _file_of(name) or ""
        if is_library(file or None, name):
            yield name, None
        elif file.endswith(".py") and file != known:
            yield name, Path(file)
            is_package = Path(file).name == "__init__.py"
            left += imports(
                Path(file).read_bytes(), name if is_package else name.rpartition(".")[0]
            )


def imports(source: bytes, package: str) -> list[str]:
    """Return the names of all modules that a file imports, with their parent packages."""
    found: list[str] = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found += [each.name for each in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = absolute(node.module or "", node.level, package)
            found += [base, *(f"{base}.{each.name}" for each in node.names)]
    parts = (each.split(".") for each in dict.fromkeys(found))
    return [name for each in parts for name in accumulate(each, "{}.{}".format)]


def absolute(name: str, level: int, package: str) -> str:
    """Return the absolute name of a module that is imported relative to a package."""
    if not level:
        return name
    base = package.rsplit(".", level - 1)[0] if level > 1 else package
    return f"{base}.{name}" if name else base


def _file_of(name: str) -> str | None:
    """Return the file of a module; None for a module without a file, or a missing one."""
    if name in sys.modules:
        file = getattr(sys.modules[name], "__file__", None)
        return str(Path(file).resolve()) if file else None
    top, *rest = name.split(".")
    try:
        spec = importlib.util.find_spec(top)
    except (ImportError, ValueError):
        return None
    if spec is None:
        return None
    if not rest:
        return spec.origin
    for folder in spec.submodule_search_locations or ():
        place = Path(folder, *rest)
        for file in (place.with_name(place.name + ".py"), place / "__init__.py"):
            if file.is_file():
                return str(file.resolve())
    return None


# --- versions ----------------------------------------------------------------------------


def own_versions() -> dict[str, str]:
    """Return the versions of Python and of x402sim, and a digest of x402sim's code."""
    return {
        "Python": platform.python_version(),
        "implementation of Python": platform.python_implementation(),
        "x402sim": VERSION,
        "code of x402sim": _ours(),
    }


def versions_of(names: Iterable[str]) -> dict[str, str]:
    """Return the versions of the libraries installed under these names."""
    found = {}
    for name in names:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue  # in the standard library, or a package with another name than its module
    return found


@cache
def required() -> Mapping[str, str]:
    """Return the versions of the libraries that x402sim requires to play and to make frames."""
    try:
        lines = requires("x402sim") or []
    except PackageNotFoundError:  # in the standalone file
        return {}
    found = ["numpy"]  # pandas requires it
    for line in lines:
        name, extra = _NAME.match(line), _EXTRA.search(line)
        if name and (extra is None or extra[1] in ("report", "sweep")):
            found.append(name[0])
    return versions_of(sorted(found))


@cache
def _ours() -> str:
    """Return a short digest of x402sim's code, since a checkout changes without a new version."""
    found = hashlib.sha256()
    for folder in (PACKAGE, SCENARIOS):
        for pattern in ("*.py", "*.toml", "*.json"):
            for file in sorted(folder.rglob(pattern)):
                name = file.relative_to(folder).as_posix()
                if not name.startswith(_SHIPPED):
                    found.update(name.encode() + file.read_bytes())
    return found.hexdigest()[:8]


# --- the bundle -------------------------------------------------------------------------

SOURCES = "sources"
NOTEBOOK, TYPED = "notebook.ipynb", "typed.py"
"""File names in `sources/`: for a notebook's cells, and for the text of `python -c`."""


class Program(msgspec.Struct, frozen=True):
    """A program: the way to run, the file in `sources/` (or the module's name), the arguments.

    "cells" is a notebook: the cells in the order of execution.
    """

    way: Literal["script", "module", "cells"]
    name: str
    args: list[str] = []

    def __str__(self) -> str:
        """Return the command that runs the program."""
        given = shlex.join([self.name, *self.args])
        match self.way:
            case "script":
                return f"python {given}"
            case "module":
                return given if self.name == "x402sim" else f"python -m {given}"
            case "cells":
                return f"the cells of {self.name}"


class Origin(msgspec.Struct):
    """The origin of a result.

    `calls` numbers the program's calls that wrote this result, among all calls that write a bundle;
    the last call counts. `sources` has the SHA-256 of each file, and `not_carried` has a sentence
    for each missing part.
    """

    program: Program | None
    calls: list[int]
    sources: dict[str, str]
    not_carried: list[str]
    platform: str


class OfRun(msgspec.Struct, tag_field="bundle", tag="run"):
    """The `bundle.json` of a run: facts, and hashes of journal and frames.

    `world` has the options of its world as Python code, `frames` each frame's `frame_sha256`, and
    `files` the hashes of the frames' files, as `sha256sum` prints them. `source` is the Maker's.
    """

    scenario: str
    seed: int
    world: dict[str, str]
    versions: dict[str, str]
    journal: str
    frames: dict[str, str]
    origin: Origin
    files: dict[str, str] = {}
    source: str | None = None


class NotRepeatable(ValueError):
    """A result cannot be repeated; the text has the reason and the remedy."""


def frame_files(name: str) -> tuple[str, str]:
    """Return the names of the files of a frame in the folder of a saved run."""
    return f"{name}.csv", f"{name}.parquet"


def file_sha256(file: Path) -> str:
    """Return the hash of a file, as `sha256sum` prints it; empty without the file."""
    return hashlib.sha256(file.read_bytes()).hexdigest() if file.is_file() else ""


# --- the program that runs ---------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Running:
    """A running program: own files by place, the folder of the files, imported modules."""

    program: Program
    texts: Mapping[str, bytes]
    root: Path
    imports: tuple[str, ...] = ()


def running() -> Running:
    """Return the running program; raises `NotRepeatable` for a program without a source."""
    main, cells = sys.modules["__main__"], _cells()
    if cells is not None:
        return _of_cells(NOTEBOOK, cells)
    file, spec = getattr(main, "__file__", None), getattr(main, "__spec__", None)
    if file is None and sys.argv[:1] == ["-c"]:
        return _of_cells(TYPED, [sys.orig_argv[-len(sys.argv)]], sys.argv[1:])
    if file is None or not Path(file).is_file():
        raise NotRepeatable(
            "code typed at Python's prompt, or read from stdin, has no source file to carry: write "
            "it in a file or a notebook"
        )
    path = Path(file).resolve()
    if is_library(file, "its file") or path.parent == Path(sysconfig.get_path("scripts")).resolve():
        name = spec.name.partition(".")[0] if spec else path.name
        raise NotRepeatable(
            f"it was played by {name}, which is not your program: play it in a script, a notebook "
            "or `python -c`"
        )
    text = path.read_bytes()
    if spec is None:
        return Running(Program("script", path.name, sys.argv[1:]), {path.name: text}, path.parent,
                       tuple(imports(text, "")))  # fmt: skip
    root = path.parents[spec.name.count(".")]
    name = spec.parent if spec.name.endswith(".__main__") else spec.name
    texts = {path.relative_to(root).as_posix(): text}
    packages = tuple(imports(f"import {spec.parent}".encode(), "")) if spec.parent else ()
    program = Program("module", name, sys.argv[1:])
    return Running(program, texts, root, (*packages, *imports(text, spec.parent or "")))


def _cells() -> list[str] | None:
    """Return the cells that IPython has run until now, as Python; None outside IPython."""
    if "IPython" not in sys.modules:
        return None
    from IPython.core.getipython import get_ipython

    shell = get_ipython()
    return None if shell is None else cells_run(shell.user_ns)


def cells_run(space: Mapping[str, Any]) -> list[str]:
    """Return the cells that have run in a namespace, as Python, by IPython's list `In`."""
    return list(map(_without_magic, space["In"][1:]))


def _without_magic(cell: str) -> str:
    """Return a cell without IPython's own statements, such as `%matplotlib inline`."""
    try:
        tree = ast.parse(cell)
    except SyntaxError:  # the cell did not run as Python either
        return ""
    left = cell.splitlines(keepends=True)
    for each in reversed(tree.body):
        names = {node.id for node in ast.walk(each) if isinstance(node, ast.Name)}
        if "get_ipython" in names:
            del left[each.lineno - 1 : each.end_lineno]
    return "".join(left)


def _of_cells(place: str, cells: list[str], args: Iterable[str] = ()) -> Running:
    """Return the program of some cells: a notebook that Jupyter can open, or text."""
    is_text = place == TYPED
    made: list[dict[str, Any]] = [
        {"cell_type": "code", "execution_count": None, "metadata": {}, "outputs": []}
        | {"source": c}
        for c in cells
    ]
    book = {"cells": made, "metadata": {}, "nbformat": 4, "nbformat_minor": 4}
    text = cells[0] if is_text else json.dumps(book, indent=1, ensure_ascii=False) + "\n"
    found = tuple(name for each in cells for name in imports(each.encode(), ""))
    return Running(Program("cells", place, [*args]), {place: text.encode()}, Path.cwd(), found)


# --- the carried files -------------------------------------------------------------------


def carry(
    calls: list[int],
    folder: Path,
    program: Running | None = None,
    *,
    files: Mapping[str, Path] | None = None,
    missing: Iterable[str] = (),
) -> Origin:
    """Copy a program with all files into a folder; return the copied and the missing parts.

    The default is the running program. `files` are more of the user's files, by module or name;
    `missing` are more sentences for `not_carried`.
    """
    system = f"{platform.system()} {platform.machine()}"
    try:
        program = program or running()
    except NotRepeatable as wrong:
        return Origin(None, calls, {}, [str(wrong), *missing], system)
    texts, missing = dict(program.texts), [*missing]
    main = {program.root / place for place in texts}
    loaded, named = _loaded(), _imported(program.imports) | dict(files or {})
    for name, file in (loaded | named).items():
        whole = file.resolve()
        if whole in main or not file.is_file():
            continue
        place, is_found = _place(name, whole, program.root)
        texts[place] = file.read_bytes()
        if not is_found:
            missing.append(f"the scenario {file.name} is given by a path that others do not have")
        if name in named:
            missing += readings(place, texts[place])
    for place, text in texts.items():
        if place in program.texts:
            missing += readings(place, text)
        target = folder / SOURCES / place
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(text)
    hashes = {place: hashlib.sha256(text).hexdigest() for place, text in sorted(texts.items())}
    return Origin(program.program, calls, hashes, missing, system)


def _imported(names: Iterable[str]) -> dict[str, Path]:
    found = {name: file for name, file in imported(names) if file is not None}
    return {name: file for name, file in found.items() if file.parent != SCENARIOS}


def _loaded() -> dict[str, Path]:
    """Return the user's own files that this process has loaded, in whatever way."""
    files = {name: getattr(each, "__file__", None) for name, each in sys.modules.copy().items()}
    return {
        name: Path(file)
        for name, file in files.items()
        if isinstance(file, str)
        and file.endswith(".py")
        and name != "__main__"
        and not is_library(file, name)  # cached, and true of most modules
        and Path(file).parent != SCENARIOS
    }


_OF_STORY = "x402sim_scenario_"


def _place(name: str, file: Path, root: Path) -> tuple[str, bool]:
    """Return the place of a file in `sources/`, and whether the program will find it there."""
    for folder in (root, Path.cwd()):
        if file.is_relative_to(folder):
            return file.relative_to(folder).as_posix(), True
    if name.startswith(_OF_STORY) or name.endswith(".py"):
        return file.name, False
    inside = "/__init__.py" if file.name == "__init__.py" else ".py"
    return name.replace(".", "/") + inside, True


_READERS = {"open", "loadtxt", "genfromtxt", "read_text", "read_bytes"}
_LOADERS = {"np.load", "numpy.load", "Run.load"}


def readings(place: str, text: bytes) -> Iterator[str]:
    """Yield a sentence for each call in a file that seems to read data or the environment."""
    source = "\n".join(cells_in(text)).encode() if place == NOTEBOOK else text
    looked_at = [
        each for each in ast.walk(ast.parse(source)) if isinstance(each, ast.Call | ast.Attribute)
    ]
    for node in sorted(looked_at, key=lambda each: (each.lineno, each.col_offset)):
        where = f"{place}, line {node.lineno}"
        if isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else ""
            name = node.func.id if isinstance(node.func, ast.Name) else name
            given = [*node.args[1:2], *(each.value for each in node.keywords if each.arg == "mode")]
            modes = [str(each.value) for each in given if isinstance(each, ast.Constant)]
            is_written = name == "open" and any(mode.startswith(("w", "a", "x")) for mode in modes)
            is_read = name in _READERS or name.startswith("read_")
            is_loaded = name == "load" and ast.unparse(node.func) in _LOADERS
            if (is_read and not is_written) or is_loaded:
                yield f"{where}, reads data ({name}): no data are carried"
        elif node.attr in ("environ", "getenv") and ast.unparse(node.value) == "os":
            yield f"{where}, reads the environment, which is not carried"


def cells_in(notebook: bytes) -> list[str]:
    """Return the cells of a notebook that `carry` wrote."""
    return [each["source"] for each in json.loads(notebook)["cells"]]


# --- the repeated call -------------------------------------------------------------------


class Reached(BaseException):
    """A repeated program reached the call that saved the result; `what` has its arguments.

    The exception ends the program. As a `BaseException`, it passes the user's `except Exception`.
    """

    def __init__(self, what: Any) -> None:
        super().__init__(what)
        self.what = what


@dataclass
class Awaited:
    """The call that a repeated program must reach: the last of `calls`. `done` has the saved
    tables of the sweep."""

    calls: list[int]
    done: list[Any] = field(default_factory=list)
    made: int = 0
    """The number of the program's calls so far that write a bundle."""
    found: list[Any] = field(default_factory=list)
    """The arguments of `calls` so far."""

    def arrive(self, what: Any) -> bool:
        """Note a call; return whether it wrote to this folder. Raises `Reached` at the last."""
        self.made += 1
        if self.made not in self.calls:
            return False
        self.found.append(what)
        if self.made == self.calls[-1]:
            raise Reached(self.found)
        return True


_awaited: ContextVar[Awaited | None] = ContextVar("the call that is repeated", default=None)
_begun: list[Path] = []
"""The folder of each bundle-writing call in this process. Global, because the whole program is
repeated, up to the call with a number."""


def awaited() -> Awaited | None:
    """Return the call that this program must reach; None outside `reproduce`."""
    return _awaited.get()


@contextmanager
def awaiting(call: Awaited) -> Iterator[None]:
    """Run a block up to a call, which raises `Reached`; meanwhile no call writes a bundle."""
    token = _awaited.set(call)
    try:
        yield
    finally:
        _awaited.reset(token)


def begin(folder: Path) -> list[int]:
    """Count a call that writes a bundle; return the numbers of the calls for this folder."""
    _begun.append(folder.resolve())
    return [number for number, each in enumerate(_begun, 1) if each == _begun[-1]]
