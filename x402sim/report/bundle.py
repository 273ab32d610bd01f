"""What somebody else needs to repeat a result: `bundle.json`, and the program in `sources/`.

A result is the run that a program saves, or the sweep that it plays. To repeat it, the program runs
again, from its start to that call: so closures, policies of the user's own and faults that are
functions need no form of their own. What a program is made of is copied when the result is saved.
"""

import ast
import hashlib
import json
import platform
import shlex
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import msgspec

from x402sim.journal import BUNDLE as BUNDLE
from x402sim.report.sources import SCENARIOS, imported, imports, is_library

SOURCES = "sources"
NOTEBOOK, TYPED = "notebook.ipynb", "typed.py"
"""The places of a notebook's cells, and of the text of `python -c`."""


class Program(msgspec.Struct, frozen=True):
    """A program: how it runs, its place in `sources/` (of a module its name), its arguments.

    A program of cells is a notebook, as its cells were run, one after the other.
    """

    way: Literal["script", "module", "cells"]
    name: str
    args: list[str] = []

    def __str__(self) -> str:
        """Return how it is run, as a command."""
        given = shlex.join([self.name, *self.args])
        match self.way:
            case "script":
                return f"python {given}"
            case "module":
                return given if self.name == "x402sim" else f"python -m {given}"
            case "cells":
                return f"the cells of {self.name}"


class Origin(msgspec.Struct):
    """Where a result comes from.

    `calls` are the numbers of the program's calls that wrote it, counting all that write a bundle;
    the last one counts. `sources` are the SHA-256 of the files by their place, and `not_carried`
    says in sentences what is missing.
    """

    program: Program | None
    calls: list[int]
    sources: dict[str, str]
    not_carried: list[str]
    platform: str


class OfRun(msgspec.Struct, tag_field="bundle", tag="run"):
    """The `bundle.json` of a run: what it was, and the hashes of its journal and frames.

    `world` are the options of its world, as Python code; `frames` have the hashes of `canonical`,
    and `files` those of the files that hold the frames, as `sha256sum` prints them.
    """

    scenario: str
    seed: int
    world: dict[str, str]
    versions: dict[str, str]
    journal: str
    frames: dict[str, str]
    origin: Origin
    files: dict[str, str] = {}


class NotRepeatable(ValueError):
    """A result cannot be repeated, and its text says why, and what to do."""


def frame_files(name: str) -> tuple[str, str]:
    """Return the names of the files of a frame in the folder of a saved run."""
    return f"{name}.csv", f"{name}.parquet"


def file_sha256(file: Path) -> str:
    """Return the hash of a file, as `sha256sum` prints it; empty if there is no such file."""
    return hashlib.sha256(file.read_bytes()).hexdigest() if file.is_file() else ""


# --- the program that runs ---------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Running:
    """A program: its own text by its place, the folder that its files are in, what it imports."""

    program: Program
    texts: Mapping[str, bytes]
    root: Path
    imports: tuple[str, ...] = ()


def running() -> Running:
    """Return the program that runs in this process; raises `NotRepeatable` if it has no source."""
    main, cells = sys.modules["__main__"], _cells()
    if cells is not None:
        return _of_cells(NOTEBOOK, cells)
    file, spec = getattr(main, "__file__", None), getattr(main, "__spec__", None)
    if file is None and sys.argv[:1] == ["-c"]:
        return _of_cells(TYPED, [sys.orig_argv[-len(sys.argv)]], sys.argv[1:])
    if file is None or not Path(file).is_file():
        raise NotRepeatable(
            "what is typed at Python's prompt, or read from standard input, has no source to "
            "carry: write it in a file, or in a notebook"
        )
    path = Path(file).resolve()
    if is_library(file, "its file") or path.parent == Path(sysconfig.get_path("scripts")).resolve():
        name = spec.name.partition(".")[0] if spec else path.name
        raise NotRepeatable(
            f"it was played by {name}, which is no program of yours: play it in a script, a "
            "notebook or `python -c`"
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
    """Return the cells that a notebook, or IPython, has run so far as Python; None without one."""
    if "IPython" not in sys.modules:
        return None
    from IPython.core.getipython import get_ipython

    shell = get_ipython()
    return None if shell is None else list(map(_without_magic, shell.user_ns["In"][1:]))


def _without_magic(cell: str) -> str:
    """Return a cell without its statements for IPython only, such as `%matplotlib inline`."""
    try:
        tree = ast.parse(cell)
    except SyntaxError:  # it was no Python then, either
        return ""
    left = cell.splitlines(keepends=True)
    for each in reversed(tree.body):
        names = {node.id for node in ast.walk(each) if isinstance(node, ast.Name)}
        if "get_ipython" in names:
            del left[each.lineno - 1 : each.end_lineno]
    return "".join(left)


def _of_cells(place: str, cells: list[str], args: Iterable[str] = ()) -> Running:
    """Return the program of some cells, as a notebook that Jupyter opens, or as text."""
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


# --- what is carried ---------------------------------------------------------------------


def carry(
    calls: list[int],
    folder: Path,
    program: Running | None = None,
    *,
    files: Mapping[str, Path] | None = None,
    missing: Iterable[str] = (),
) -> Origin:
    """Copy a program and its files into a folder; return what is there, and what is missing.

    It is the program that runs, if none is given. `files` are more files of the user's own, by
    module or by name; `missing` more sentences.
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
    """Return the user's own files that these modules are in, or import anywhere."""
    found = {name: file for name, file in imported(names) if file is not None}
    return {name: file for name, file in found.items() if file.parent != SCENARIOS}


def _loaded() -> dict[str, Path]:
    """Return the user's own files that this process has loaded, however: such as by a name."""
    files = {name: getattr(each, "__file__", None) for name, each in sys.modules.copy().items()}
    return {
        name: Path(file)
        for name, file in files.items()
        if isinstance(file, str)
        and file.endswith(".py")
        and name != "__main__"
        and not is_library(file, name)  # it is remembered, and true of most
        and Path(file).parent != SCENARIOS
    }


_OF_STORY = "x402sim_scenario_"


def _place(name: str, file: Path, root: Path) -> tuple[str, bool]:
    """Return where a file goes, so that it is found as before, and whether it will be."""
    for folder in (root, Path.cwd()):
        if file.is_relative_to(folder):
            return file.relative_to(folder).as_posix(), True
    if name.startswith(_OF_STORY) or name.endswith(".py"):
        return file.name, False
    inside = "/__init__.py" if file.name == "__init__.py" else ".py"
    return name.replace(".", "/") + inside, True


_READERS = {"open", "loadtxt", "genfromtxt", "read_text", "read_bytes"}
_LOADERS = {"np.load", "numpy.load", "Run.load"}
_WRITES = ("w", "a", "x")


def readings(place: str, text: bytes) -> Iterator[str]:
    """Yield a sentence for each call in a file that seems to read what is not carried."""
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
            is_written = name == "open" and any(mode.startswith(_WRITES) for mode in modes)
            is_read = name in _READERS or name.startswith("read_")
            is_loaded = name == "load" and ast.unparse(node.func) in _LOADERS
            if (is_read and not is_written) or is_loaded:
                yield f"{where}, reads data ({name}): no data are carried"
        elif node.attr in ("environ", "getenv") and ast.unparse(node.value) == "os":
            yield f"{where}, reads the environment, which is not carried"


def cells_in(notebook: bytes) -> list[str]:
    """Return the cells of a notebook that `carry` wrote."""
    return [each["source"] for each in json.loads(notebook)["cells"]]


# --- the call that is repeated -----------------------------------------------------------


class Reached(BaseException):
    """A program that runs again came to the call that is repeated; `what` was given there.

    It ends the program, and no `except Exception` of the user's stops it.
    """

    def __init__(self, what: Any) -> None:
        super().__init__(what)
        self.what = what


@dataclass
class Awaited:
    """The call that is awaited of a program: the last of `calls`; `done` is what others left."""

    calls: list[int]
    done: list[Any] = field(default_factory=list)
    made: int = 0
    """How many calls the program has made that write a bundle."""
    found: list[Any] = field(default_factory=list)
    """What was given in `calls`."""

    def arrive(self, what: Any) -> bool:
        """Note a call; return whether it wrote to the same folder; raises `Reached` at the last."""
        self.made += 1
        if self.made not in self.calls:
            return False
        self.found.append(what)
        if self.made == self.calls[-1]:
            raise Reached(self.found)
        return True


_awaited: ContextVar[Awaited | None] = ContextVar("the call that is repeated", default=None)
_begun: list[Path] = []
"""The folder of each call in this process that wrote a bundle. It counts for the whole process, as
the program is repeated as a whole, to the call of that number."""


def awaited() -> Awaited | None:
    """Return the call that is awaited of this program; None if it does not run to repeat one."""
    return _awaited.get()


@contextmanager
def awaiting(call: Awaited) -> Iterator[None]:
    """Run a block until it comes to a call, where it raises `Reached`; no call writes a bundle."""
    token = _awaited.set(call)
    try:
        yield
    finally:
        _awaited.reset(token)


def begin(folder: Path) -> list[int]:
    """Count a call that writes a bundle; return the numbers of those that wrote to this folder."""
    _begun.append(folder.resolve())
    return [number for number, each in enumerate(_begun, 1) if each == _begun[-1]]
