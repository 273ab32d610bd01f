"""What a program is made of: files of the user's own, libraries and their versions.

A sweep compares these when it is resumed, and a bundle carries them. Nothing is imported for it.
"""

import ast
import hashlib
import importlib.util
import platform
import re
import site
import sys
import sysconfig
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, requires, version
from itertools import accumulate
from pathlib import Path

from x402sim.version import VERSION

PACKAGE = Path(__file__).resolve().parents[1]
"""The folder of x402sim."""
_SHIPPED = ("scenarios/", "conformance/")
"""Folders that a wheel has inside the package, and a checkout beside it."""
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
"""Modules that Python runs at its start, and that whoever installed it may keep anywhere."""
_CODE_OF_OURS = ("*.py", "*.toml", "*.json")
_NAME, _EXTRA = re.compile(r"[\w.-]+"), re.compile(r"\bextra == ['\"](\w+)['\"]")
_EXTRAS_THAT_COUNT = ("report", "sweep")


@cache
def is_library(file: str | None, name: str) -> bool:
    """Tell whether a module is of Python, of an installed package or of x402sim.

    What is in `__main__` is the user's, whoever started it: a notebook's is not the file's.
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
    """Yield the modules of these names, and what those of the user's own import anywhere.

    Each is its name and its file, which is None of a library's. `known` is a file to leave out.
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
    """Return the names of the modules that a file imports anywhere, with their packages."""
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
    """Return the whole name of a module that is imported relative to a package."""
    if not level:
        return name
    base = package.rsplit(".", level - 1)[0] if level > 1 else package
    return f"{base}.{name}" if name else base


def _file_of(name: str) -> str | None:
    """Return the file of a module; None if it has none, or is not there."""
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
    """Return the versions of Python and of x402sim, whose code may change without a new one."""
    return {
        "Python": platform.python_version(),
        "implementation of Python": platform.python_implementation(),
        "x402sim": VERSION,
        "code of x402sim": _ours(),
    }


def versions_of(names: Iterable[str]) -> dict[str, str]:
    """Return the versions of those libraries among these that are installed under their names."""
    found = {}
    for name in names:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue  # of the standard library, or a module by another name than its package
    return found


@cache
def required() -> Mapping[str, str]:
    """Return the versions of what x402sim itself requires to play, and to make frames."""
    try:
        lines = requires("x402sim") or []
    except PackageNotFoundError:  # it is one file
        return {}
    found = ["numpy"]  # pandas requires it
    for line in lines:
        name, extra = _NAME.match(line), _EXTRA.search(line)
        if name and (extra is None or extra[1] in _EXTRAS_THAT_COUNT):
            found.append(name[0])
    return versions_of(sorted(found))


@cache
def _ours() -> str:
    """Return a short digest of x402sim's own code: a checkout changes without a new version."""
    found = hashlib.sha256()
    for folder in (PACKAGE, SCENARIOS):
        for pattern in _CODE_OF_OURS:
            for file in sorted(folder.rglob(pattern)):
                name = file.relative_to(folder).as_posix()
                if not name.startswith(_SHIPPED):
                    found.update(name.encode() + file.read_bytes())
    return found.hexdigest()[:8]
