"""The graph of imports among the files of a package, and the circles in it.

Every import counts: at the top, in a function, and under `TYPE_CHECKING`. What Python runs
besides, the `__init__` of each package on the way, does not.
"""

import ast
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Import:
    """One file needs names of another; both are named as modules."""

    by: str
    of: str
    names: tuple[str, ...]
    line: int

    def __str__(self) -> str:
        return f"{self.by}:{self.line} imports {', '.join(self.names)} from {self.of}"


@cache
def parsed(file: Path) -> ast.Module:
    """Return the syntax tree of a file, read once a process."""
    return ast.parse(file.read_text(encoding="utf-8"))


Graph = Mapping[str, Mapping[str, Import]]
"""module -> the modules it imports -> where it does so first."""


def graph(package: Path) -> Graph:
    """Return the imports among the files of a package, which is a folder."""
    files = {module_name(file, package.parent): file for file in sorted(package.rglob("*.py"))}
    found: dict[str, dict[str, Import]] = {name: {} for name in files}
    for name, file in files.items():
        is_package = file.name == "__init__.py"
        for each in imports(name, is_package, parsed(file), files):
            if each.of != name:
                found[name].setdefault(each.of, each)
    return found


def module_name(file: Path, root: Path) -> str:
    parts = file.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(
    name: str, is_package: bool, tree: ast.Module, modules: Mapping[str, Path]
) -> Iterator[Import]:
    """Yield the imports of one file that lead to one of `modules`."""
    for node in ast.walk(tree):
        match node:
            case ast.Import():
                for alias in node.names:
                    if alias.name in modules:
                        yield Import(name, alias.name, (alias.name,), node.lineno)
            case ast.ImportFrom():
                source = absolute(name, is_package, node)
                for alias in node.names:
                    inner = f"{source}.{alias.name}"
                    of = inner if inner in modules else source
                    if of in modules:
                        yield Import(name, of, (alias.name,), node.lineno)
            case _:
                pass


def absolute(name: str, is_package: bool, node: ast.ImportFrom) -> str:
    """Return what a `from` names, with its dots resolved."""
    if node.level == 0:
        return node.module or ""
    outer = name.split(".")
    outer = outer[: len(outer) - node.level + is_package]
    return ".".join([*outer, *([node.module] if node.module else [])])


def circles(found: Graph) -> list[list[Import]]:
    """Return a shortest circle through each module that is in one; the shortest first."""
    seen: dict[frozenset[str], list[Import]] = {}
    for module in found:
        if way := shortest_way_back(found, module):
            seen.setdefault(frozenset(each.by for each in way), way)
    return sorted(seen.values(), key=len)


def shortest_way_back(found: Graph, start: str) -> list[Import]:
    """Return the imports that lead from a module to itself; empty if none do."""
    came: dict[str, Import] = {}
    queue = deque([start])
    while queue:
        here = queue.popleft()
        for there, how in found[here].items():
            if there not in came:
                came[there] = how
                queue.append(there)
            if there == start:
                return walked(came, start)
    return []


def walked(came: Mapping[str, Import], start: str) -> list[Import]:
    way = [came[start]]
    while way[0].by != start:
        way.insert(0, came[way[0].by])
    return way


def described(circle: list[Import]) -> str:
    return "\n".join(f"  {each}" for each in circle)
