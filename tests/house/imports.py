"""The files of the package as syntax trees, and the circles among their imports."""

import ast
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import grimp


@cache
def parsed(file: Path) -> ast.Module:
    """Return the syntax tree of a file, read once a process."""
    return ast.parse(file.read_text(encoding="utf-8"))


def circle(package: str) -> list[str]:
    """Return modules of a package that import each other in a circle; empty if none do.

    Every import counts: at the top, in a function, and under `TYPE_CHECKING`. What Python runs
    besides, the `__init__` of each package on the way, does not.
    """
    found = grimp.build_graph(package, cache_dir=None)
    try:
        imports = {each: found.find_modules_directly_imported_by(each) for each in found.modules}
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        modules: list[str] = error.args[1]
        return modules
    return []
