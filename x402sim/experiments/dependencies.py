"""What the results of an experiment depend on, by name, with a digest of each.

From a function on, that is: its code, defaults and closure; the global names that its code uses,
and those that the functions among them use; the files of the project that its module and these
import, also inside functions; and the versions of Python, x402sim and the libraries. What is read
while an experiment plays, such as a file of data or an environment variable, is not among them.
"""

import ast
import dis
import hashlib
import types
from collections import deque
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from x402sim.experiments.digest import Reader
from x402sim.report.bundle import absolute, imported, imports, is_library, own_versions, versions_of

_NUMERIC = ("numpy", "pandas")
Namespace = dict[str, Any]


class Dependencies:
    """What a value depends on: `digests` by name, `versions` by name, and what is `unread`.

    `home` is the namespace of the experiment's own module. That file is not compared as a whole: it
    has the grid, too, which may grow.
    """

    def __init__(self, root: Any, name: str, home: Namespace) -> None:
        self.digests: dict[str, str] = {}
        self.versions = own_versions() | versions_of(_NUMERIC)
        self.unread: list[str] = []
        self.files: dict[str, Path] = {}
        """The files of the user's own, but for the experiment's, by module or by their names."""
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
        """Note the parts of an experiment one by one, so that a change can be told by its name."""
        if isinstance(root, partial):
            self._add(f"the arguments of the partial {name}", (root.args, root.keywords))
            self._add_root(root.func, name)
            return
        if isinstance(root, types.MethodType):
            self._add(f"the object of {name}", root.__self__)
            self._add_root(root.__func__, name)
            return
        if not isinstance(root, types.FunctionType):
            self._add(f"the value of {name}", root)
            return
        function = root
        self._add(f"the code of {name}", function.__code__)
        self._functions.append(function)
        given = function.__defaults__ or ()
        count = function.__code__.co_argcount
        names = function.__code__.co_varnames[count - len(given) : count]
        defaults = dict(zip(names, given, strict=True)) | (function.__kwdefaults__ or {})
        for each, value in defaults.items():
            self._add(f"the default of {each} in {name}", value)
        cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
        for each, cell in cells:
            if _has_content(cell):
                self._add(f"the variable {each} around {name}", cell.cell_contents)
        if function.__dict__:
            self._add(f"the attributes of {name}", function.__dict__)

    def _add(self, name: str, value: Any) -> None:
        """Note a value under a name, and what it refers to for later."""
        reader = self._reader
        before = len(reader.functions), len(reader.modules), len(reader.classes), len(reader.unread)
        self.digests[name] = reader.digest(value)
        self._functions.extend(reader.functions[before[0] :])
        self._import(each.__name__ for each in reader.modules[before[1] :])
        self._import(each.__module__ for each in reader.classes[before[2] :])
        self.unread += [f"{name} ({each})" for each in reader.unread[before[3] :]]
        for story in reader.stories:
            self._add_file(f"the file {story}", story)
            self.files[str(story)] = story

    def _follow(self, function: types.FunctionType) -> None:
        """Note the global names that a function uses."""
        space = function.__globals__
        self._import([space.get("__name__") or ""])
        used = _Used(function.__code__)
        for name in used.names:
            if name in space:
                self._add_global(space, name, used.attributes)
        for name, level in used.imports:
            self._import([absolute(name, level, space.get("__package__") or "")])

    def _add_global(self, space: Namespace, name: str, attributes: Sequence[str]) -> None:
        value, key = space[name], f"{name} in {self._label(space)}"
        if isinstance(value, types.ModuleType):
            self._import([value.__name__])
            if not is_library(
                value.__file__ if hasattr(value, "__file__") else None, value.__name__
            ):
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
        """Return how a namespace is called, however the file in it was started."""
        if space is self._home or _file_in(space) == self._home_file is not None:
            return Path(self._home_file).name if self._home_file else "this session"
        return str(space.get("__name__") or "a namespace without a name")

    # --- files -----------------------------------------------------------------------

    def _import(self, names: Iterable[str]) -> None:
        self._imported += names

    def _follow_imports(self) -> None:
        if self._home_file and Path(self._home_file).suffix == ".py":
            package = self._home.get("__package__") or ""
            self._import(imports(Path(self._home_file).read_bytes(), package))
        libraries = []
        for name, file in imported(self._imported, known=self._home_file):
            if file is None:
                libraries.append(name.partition(".")[0])
            else:
                self._add_file(f"the file of {name}", file)
                self.files[name] = file
        self.versions |= versions_of(each for each in dict.fromkeys(libraries) if each != "x402sim")

    def _add_file(self, name: str, file: Path) -> None:
        """Note a file of Python by what it says, without its comments."""
        tree = ast.parse(file.read_bytes())
        self.digests[name] = hashlib.sha256(ast.dump(tree).encode()).hexdigest()[:32]


class _Used:
    """The names that code uses, also inside: global ones, attributes, and what it imports."""

    def __init__(self, code: types.CodeType) -> None:
        self.names: list[str] = []
        self.attributes: list[str] = []
        self.imports: list[tuple[str, int]] = []
        self._read(code)
        self.names = list(dict.fromkeys(self.names))
        self.attributes = list(dict.fromkeys(self.attributes))

    def _read(self, code: types.CodeType) -> None:
        constants: list[Any] = []
        for each in dis.get_instructions(code):
            if each.opname == "IMPORT_NAME":
                level = constants[-2] if len(constants) > 1 else 0
                self.imports.append((each.argval, level if isinstance(level, int) else 0))
            elif "GLOBAL" in each.opname or each.opname == "LOAD_NAME":
                self.names.append(each.argval)
            elif "ATTR" in each.opname or "METHOD" in each.opname:
                self.attributes.append(each.argval)
            constants.append(each.argval)
        for constant in code.co_consts:
            if isinstance(constant, types.CodeType):
                self._read(constant)


def _has_content(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018 - it raises if the name has no value yet
    except ValueError:
        return False
    return True


def _file_in(space: Namespace) -> str | None:
    file = space.get("__file__")
    return str(Path(file).resolve()) if isinstance(file, str) and Path(file).is_file() else None
