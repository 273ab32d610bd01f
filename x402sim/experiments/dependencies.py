"""The dependencies of an experiment's results: names with digests.

A function depends on code, defaults and closure; on global names, followed through the functions
among them; on the project's files that the module and these functions import, also inside
functions; and on the versions of Python, x402sim and the libraries. Data files and environment
variables of an experiment are not included.

Equal values have equal digests in every process, whatever the hash seed. The digest of a function
covers code, defaults and closure; of the user's class, attributes and methods; of any other object,
the content that pickle would store. Of the standard library, installed packages and x402sim, only
names count, as their versions are recorded, too. Line numbers and comments do not count.
"""

import ast
import copyreg
import dis
import hashlib
import re
import sys
import types
from abc import ABC
from collections import deque
from collections.abc import Iterable, Iterator
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any

from x402sim.report.bundle import imported, imports, is_library, own_versions, versions_of

_PLAIN = (type(None), bool, float, complex, type(Ellipsis), type(NotImplemented))
_CLASS_MAKING = {
    *("__dict__", "__weakref__", "__module__", "__doc__", "__qualname__", "__firstlineno__"),
    *("__static_attributes__", "__annotations_cache__", "__match_args__"),
    *("__dataclass_fields__", "__dataclass_params__"),
    *("__struct_config__", "__parameters__"),
    *(vars(ABC).keys() - {"__slots__"}),
}
"""Attributes about the making of a class; methods and defaults say the same."""
_MADE_AT_RUN_TIME = 1 << 9
"""The flag of a class made by a `class` statement, not in C (`Py_TPFLAGS_HEAPTYPE`)."""
_STORY = re.compile(r"([^\n]{1,300}\.py)(:\w+)?")
"""A text that `World.play` reads as a file with a scenario."""


def _is_users_function(function: types.FunctionType) -> bool:
    name, file = map(function.__globals__.get, ("__name__", "__file__"))
    return name is None or not is_library(file, name)


def _is_users_class(kind: type) -> bool:
    if kind.__module__ == "builtins":  # also of code that ran in a namespace without a name
        return bool(kind.__flags__ & _MADE_AT_RUN_TIME)
    module = sys.modules.get(kind.__module__)
    return not is_library(getattr(module, "__file__", None), kind.__module__)


class Reader:
    """Makes digests, and collects functions, modules, classes and files on the way."""

    def __init__(self) -> None:
        self.functions: list[types.FunctionType] = []
        """The user's functions; their global names are dependencies, too."""
        self.modules: list[types.ModuleType] = []
        self.classes: list[type] = []
        """The user's classes."""
        self.stories: list[Path] = []
        """The files of scenarios that texts name."""
        self.unread: list[str] = []
        """Why a value has no digest."""
        self._met: dict[int, tuple[Any, int]] = {}
        """The objects met during this digest, by `id`, with a number. An entry keeps the object
        alive, since Python reuses the `id` of a freed object."""

    def digest(self, value: Any) -> str:
        """Return the digest of a value in hex; of an unreadable value, by the type."""
        self._met = {}
        try:
            return self._of(value).hex()[:32]
        except RecursionError:
            self.unread.append(f"a {type(value).__name__} is nested too deeply")
            return _hash("deep", type(value).__name__.encode()).hex()[:32]

    def _of(self, value: Any) -> bytes:
        if isinstance(value, _PLAIN) and type(value) in _PLAIN:
            return _hash(type(value).__name__, repr(value).encode())
        if type(value) is int:
            return _hash("int", hex(value).encode())  # of any length, unlike its decimal text
        if type(value) is str:
            self._note_story(value)
            return _hash("str", value.encode("utf-8", "surrogatepass"))
        if type(value) in (bytes, bytearray):
            return _hash(type(value).__name__, bytes(value))
        if id(value) in self._met:  # the number ends the walk in an object that contains itself
            return _hash("again", str(self._met[id(value)][1]).encode())
        self._met[id(value)] = value, len(self._met)
        return self._inside(value)

    def _inside(self, value: Any) -> bytes:
        kind = type(value)
        if kind in (list, tuple):
            return self._several(kind.__name__, value)
        if kind is dict:
            return self._several("dict", (each for pair in value.items() for each in pair))
        if isinstance(value, set | frozenset):
            return self._unordered(kind, value)
        if isinstance(value, types.ModuleType):
            self.modules.append(value)
            return _hash("module", value.__name__.encode())
        if isinstance(value, types.CodeType):
            return self._code(value)
        if isinstance(value, types.FunctionType):
            return self._function(value)
        if isinstance(value, types.MethodType):
            return self._several("method", (value.__func__, value.__self__))
        if isinstance(value, types.BuiltinFunctionType):
            held = None if isinstance(value.__self__, types.ModuleType) else value.__self__
            return self._several(f"builtin {value.__module__}.{value.__qualname__}", (held,))
        if isinstance(value, type):
            return self._class(value)
        if isinstance(value, Enum):
            return self._several("member", (kind, value.name, value.value))
        if hasattr(value, "__objclass__"):  # a method or a slot of a class
            return _hash("descriptor", value.__qualname__.encode())
        if isinstance(value, property):
            return self._several("property", (value.fget, value.fset, value.fdel))
        if isinstance(value, staticmethod | classmethod) or hasattr(value, "cache_parameters"):
            return self._several(kind.__name__, (value.__wrapped__,))
        return self._object(value)

    def _several(self, name: str, values: Iterable[Any]) -> bytes:
        return _hash(name, b"".join(map(self._of, values)))

    def _sorted(self, name: str, given: Any) -> bytes:
        return self._several(name, (part for key in sorted(given) for part in (key, given[key])))

    def _unordered(self, kind: type, values: Iterable[Any]) -> bytes:
        """Return the digest of a set, whose order depends on the process."""
        own = b"" if kind in (set, frozenset) else self._of(kind)
        before, found = self._met, []
        for each in values:
            self._met = before.copy()  # else a member's numbers depend on the members before
            found.append(self._of(each))
        self._met = before
        return _hash("set", own + b"".join(sorted(found)))

    def _code(self, code: types.CodeType) -> bytes:
        counts = code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags
        names = code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars, code.co_name
        raw = code.co_code, code.co_exceptiontable
        return self._several("code", (*raw, counts, names, code.co_consts))

    def _function(self, function: types.FunctionType) -> bytes:
        cells = function.__closure__ or ()
        held = [cell.cell_contents if _has_content(cell) else None for cell in cells]
        if not _is_users_function(function):
            name = f"{function.__module__}.{function.__qualname__}"
            return self._several(f"function {name}", held)
        self.functions.append(function)
        given = function.__defaults__, function.__kwdefaults__, function.__dict__
        return self._several("function", (function.__code__, *given, held))

    def _class(self, kind: type) -> bytes:
        if not _is_users_class(kind):
            return _hash("class", f"{kind.__module__}.{kind.__qualname__}".encode())
        self.classes.append(kind)
        if issubclass(kind, Enum):
            members = [(name, each.value) for name, each in kind.__members__.items()]
            methods = {k: v for k, v in vars(kind).items() if isinstance(v, types.FunctionType)}
            own: dict[str, Any] = {"members": members} | methods
        else:
            own = {name: each for name, each in vars(kind).items() if name not in _CLASS_MAKING}
            own["of msgspec"] = getattr(kind, "__struct_defaults__", None)
        return _hash(
            kind.__name__, self._several("bases", kind.__bases__) + self._sorted("own", own)
        )

    def _object(self, value: Any) -> bytes:
        kind = type(value)
        if kind.__module__ == "numpy" and kind.__name__ == "ndarray":
            held = value.tolist() if value.dtype.hasobject else value.tobytes()
            return self._several("array", (str(value.dtype), value.shape, held))
        try:
            own = copyreg.dispatch_table.get(kind)  # of `re.Pattern`, and of the user's
            reduced = own(value) if own else value.__reduce_ex__(4)
        except Exception as error:  # noqa: BLE001 - whatever a class of the user's raises
            self.unread.append(f"a {kind.__name__}: {error}")
            return self._several("unread", (kind,))
        if isinstance(reduced, str):
            return _hash("name", f"{kind.__module__}.{reduced}".encode())
        parts: list[Any] = [*reduced, None, None, None]
        make, args, state, items, pairs = parts[:5]
        listed = [[*items] if items else [], [*pairs] if pairs else []]
        states = state if isinstance(state, tuple) and len(state) == 2 else (state, None)
        held = [self._state(each) for each in states]
        return _hash("object", self._several("made", (make, args, *listed)) + b"".join(held))

    def _state(self, state: Any) -> bytes:
        """Return the digest of an object's attributes, independent of their order."""
        if isinstance(state, dict) and all(isinstance(name, str) for name in state):
            return self._sorted("state", state)
        return self._of(state)

    def _note_story(self, text: str) -> None:
        if text.endswith(".py") or ".py:" in text:
            story = _STORY.fullmatch(text)
            if story and "\0" not in text and Path(story[1]).is_file():
                self.stories.append(Path(story[1]))


def _hash(name: str, content: bytes) -> bytes:
    return hashlib.sha256(f"{name} {len(content)} ".encode() + content).digest()


# --- dependencies -----------------------------------------------------------------------

_NUMERIC = ("numpy", "pandas", "scipy")
Namespace = dict[str, Any]


class Dependencies:
    """The dependencies of a value: `digests` and `versions` by name, and names of `unread` values.

    `home` is the namespace of the experiment's own module. The file of the module is not
    compared as a whole: the file may also have the grid, which may grow.
    """

    def __init__(self, root: Any, name: str, home: Namespace) -> None:
        self.digests: dict[str, str] = {}
        self.versions = own_versions() | versions_of(_NUMERIC)
        self.unread: list[str] = []
        self.files: dict[str, Path] = {}
        """The user's own files except the experiment's, by module or by name."""
        self._home, self._home_file = home, _file_in(home)
        self._reader = Reader()
        self._seen: set[str] = set()
        self._functions: deque[types.FunctionType] = deque()
        self._imported: list[str] = []
        self._add_root(root, name)
        while self._functions:
            self._follow(self._functions.popleft())
        self._follow_imports()

    # --- values ----------------------------------------------------------------------

    def _add_root(self, root: Any, name: str) -> None:
        """Add the parts of an experiment separately: an error can then name the changed part."""
        if isinstance(root, partial):
            self._add(f"the arguments of the partial {name}", (root.args, root.keywords))
            self._add_root(root.func, name)
            return
        if not isinstance(root, types.FunctionType):
            self._add(f"the value of {name}", root)
            return
        self._add(f"the code of {name}", root.__code__)
        self._functions.append(root)
        given = root.__defaults__ or ()
        count = root.__code__.co_argcount
        names = root.__code__.co_varnames[count - len(given) : count]
        defaults = dict(zip(names, given, strict=True)) | (root.__kwdefaults__ or {})
        for each, value in defaults.items():
            self._add(f"the default of {each} in {name}", value)
        cells = zip(root.__code__.co_freevars, root.__closure__ or (), strict=True)
        for each, cell in cells:
            if _has_content(cell):
                self._add(f"the variable {each} around {name}", cell.cell_contents)
        if root.__dict__:
            self._add(f"the attributes of {name}", root.__dict__)

    def _add(self, name: str, value: Any) -> None:
        """Add a value under a name, and queue functions and modules found inside."""
        reader = self._reader
        before = len(reader.functions), len(reader.modules), len(reader.classes), len(reader.unread)
        self.digests[name] = reader.digest(value)
        self._functions.extend(reader.functions[before[0] :])
        self._imported += [each.__name__ for each in reader.modules[before[1] :]]
        self._imported += [each.__module__ for each in reader.classes[before[2] :]]
        self.unread += [f"{name} ({each})" for each in reader.unread[before[3] :]]
        for story in reader.stories:
            self._add_file(f"the file {story}", story)
            self.files[str(story)] = story

    def _follow(self, function: types.FunctionType) -> None:
        space, used = function.__globals__, list(dict.fromkeys(_used(function.__code__)))
        self._imported.append(space.get("__name__") or "")
        self._imported += [name for kind, name in used if kind == "import"]
        attributes = [name for kind, name in used if kind == "attribute"]
        for kind, name in used:
            if kind == "global" and name in space:
                self._add_global(space, name, attributes)

    def _add_global(self, space: Namespace, name: str, attributes: list[str]) -> None:
        value, key = space[name], f"{name} in {self._label(space)}"
        if isinstance(value, types.ModuleType):
            self._imported.append(value.__name__)
            if not is_library(getattr(value, "__file__", None), value.__name__):
                for each in attributes:
                    if each in vars(value) and f"{each} in {value.__name__}" not in self._seen:
                        self._add_global(vars(value), each, attributes)
            return
        if key in self._seen:
            return
        self._seen.add(key)
        kind = "class" if isinstance(value, type) else "value"
        kind = "function" if isinstance(value, types.FunctionType) else kind
        self._add(f"the {kind} {key}", value)

    def _label(self, space: Namespace) -> str:
        """Return the name of a namespace, the same for a script, a module and a notebook."""
        if space is self._home or _file_in(space) == self._home_file is not None:
            return Path(self._home_file).name if self._home_file else "this session"
        return str(space.get("__name__") or "a namespace without a name")

    # --- files -----------------------------------------------------------------------

    def _follow_imports(self) -> None:
        if self._home_file and Path(self._home_file).suffix == ".py":
            package = self._home.get("__package__") or ""
            self._imported += imports(Path(self._home_file).read_bytes(), package)
        libraries = []
        for name, file in imported(self._imported, known=self._home_file):
            if file is None:
                libraries.append(name.partition(".")[0])
            else:
                self._add_file(f"the file of {name}", file)
                self.files[name] = file
        self.versions |= versions_of(each for each in dict.fromkeys(libraries) if each != "x402sim")

    def _add_file(self, name: str, file: Path) -> None:
        tree = ast.parse(file.read_bytes())
        self.digests[name] = hashlib.sha256(ast.dump(tree).encode()).hexdigest()[:32]


def _used(code: types.CodeType) -> Iterator[tuple[str, str]]:
    for each in dis.get_instructions(code):
        if each.opname == "IMPORT_NAME":
            yield "import", each.argval
        elif "GLOBAL" in each.opname or each.opname == "LOAD_NAME":
            yield "global", each.argval
        elif "ATTR" in each.opname or "METHOD" in each.opname:
            yield "attribute", each.argval
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _used(constant)


def _has_content(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018 - an access raises if the name has no value yet
    except ValueError:
        return False
    return True


def _file_in(space: Namespace) -> str | None:
    file = space.get("__file__")
    return str(Path(file).resolve()) if isinstance(file, str) and Path(file).is_file() else None
