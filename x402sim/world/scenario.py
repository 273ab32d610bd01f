"""Scenarios: the decorator, the files, and the clauses to cite."""

import inspect
import re
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from x402sim.chain.ledger.frame import CLAUSES as TOKEN_CLAUSES
from x402sim.protocol.permit2_payments import UPTO_CLAUSES
from x402sim.spec.needs import Need, parse_needs
from x402sim.text.words import unknown


class NoScenario(ValueError):
    """No scenario has this name, or a file holds none; the text says what is possible."""


ScenarioFunction = Callable[[Any], Awaitable[None]]
"""A coroutine function of one argument, the live world."""
_FILE = re.compile(r"(.+\.py)(?::(.*))?")


@dataclass(frozen=True, slots=True)
class Scenario:
    """One scenario: the function, the covered clauses, and the needs.

    `description` is the docstring, on one line; `function` plays the scenario.
    """

    name: str
    title: str
    covers: tuple[str, ...]
    description: str
    needs: tuple[Need, ...]
    function: ScenarioFunction


def scenario(*, title: str, covers: str, needs: str = "") -> Callable[[ScenarioFunction], Scenario]:
    """Make a scenario of `async def name(world)`, described by the docstring, or the file's.

    `covers` are clauses, and `needs` names of `Need`, separated by commas. Raises `ValueError` if
    one of them is unknown.
    """

    def make(function: ScenarioFunction) -> Scenario:
        name: str = function.__name__
        cited = tuple(map(str.strip, covers.split(",")))
        try:
            for clause in cited:
                require_clause(clause, f"scenario {name}")
            wanted = parse_needs(needs, f"scenario {name}")
        except ValueError as wrong:
            raise NoScenario(str(wrong)) from None
        # The module's own globals: while threads load a file, sys.modules may have another's.
        text = inspect.getdoc(function) or _globals(function).get("__doc__") or ""
        return Scenario(name, title, cited, " ".join(text.split()), wanted, function)

    return make


def _globals(function: ScenarioFunction) -> dict[str, Any]:
    found: dict[str, Any] = getattr(inspect.unwrap(function), "__globals__", {})
    return found


def scenario_of(given: Scenario | ScenarioFunction) -> Scenario:
    """Return a scenario as it is; of a plain coroutine function, one without clauses and needs."""
    if isinstance(given, Scenario):
        return given
    name = getattr(given, "__name__", "story")
    return Scenario(name, name.replace("_", " "), (), "", (), given)


def file_of(scenario: Scenario) -> str:
    """Return the path of a scenario's file; empty if it is no function."""
    code = getattr(inspect.unwrap(scenario.function), "__code__", None)
    return code.co_filename if code else ""


def source_of(scenario: Scenario) -> str:
    """Return the text by which `find`, in the folder of the file, finds the scenario again.

    It is empty if the scenario is not at the top level of a file.
    """
    file, name = Path(file_of(scenario)), getattr(inspect.unwrap(scenario.function), "__name__", "")
    if not file.is_file():
        return ""
    if file.resolve() == _folder() / f"{scenario.name}.py":
        return scenario.name
    if name not in _globals(scenario.function):
        return ""
    return f"{file.name}:{name}"


def _folder() -> Path:
    """Return the folder of the shipped scenarios: in the package, or beside it in a checkout."""
    package = Path(__file__).resolve().parents[1]
    folders = (package / "scenarios", package.parent / "scenarios")
    return next(folder for folder in folders if folder.is_dir())


def shipped_names() -> list[str]:
    """Return the names of the scenarios shipped with x402sim, sorted; none is loaded."""
    return sorted(file.stem for file in _folder().glob("*.py"))


def shipped() -> list[Scenario]:
    """Return the scenarios shipped with x402sim, sorted by name."""
    return [load(_folder() / f"{name}.py") for name in shipped_names()]


def load_module(file: Path) -> ModuleType:
    """Run a Python file as a new module; return the module, or raise the file's exception."""
    if file.suffix != ".py":
        raise ValueError(f"{file} is no Python file")
    module = ModuleType(f"x402sim_scenario_{file.stem}")
    module.__file__ = str(file)
    sys.modules[module.__name__] = module
    # Compiled anew: cached bytecode may be older than the last edit, by less than a second.
    # Not optimized: a scenario keeps docstring and asserts under python -OO, too.
    code = compile(file.read_bytes(), str(file), "exec", optimize=0)
    exec(code, vars(module))  # noqa: S102 - a scenario is code
    return module


def load(file: Path, function: str | None = None) -> Scenario:
    """Return the scenario of a Python file, or the file's function with the given name.

    Raises `ValueError` unless the file has exactly one scenario, or the function.
    """
    names = vars(load_module(file))
    functions = [name for name, value in names.items() if _is_own(value, names["__name__"])]
    if function is not None:
        if not callable(names.get(function)) and not isinstance(names.get(function), Scenario):
            raise NoScenario(f"{file}: {unknown('function', function, functions)}")
        return scenario_of(names[function])
    found = [value for value in names.values() if isinstance(value, Scenario)]
    if len(found) != 1:
        raise NoScenario(
            f"{file} has {len(found)} scenarios; a file has exactly one, or name a function: "
            f"{', '.join(f'{file}:{name}' for name in functions[:5] or ['FUNCTION'])}"
        )
    return found[0]


def _is_own(value: object, module: str) -> bool:
    function = value.function if isinstance(value, Scenario) else value
    return inspect.iscoroutinefunction(function) and function.__module__ == module


def find(name: str) -> Scenario:
    """Return the scenario of a name, "FILE.py" or "FILE.py:function".

    Raises `NoScenario`, which suggests the nearest name, and the file's exceptions.
    """
    known = shipped_names()
    if name in known:
        return load(_folder() / f"{name}.py")
    file = _FILE.fullmatch(name)
    if file is None:
        possible = "`x402sim list` shows all names; or give a .py file"
        raise NoScenario(unknown("scenario", name, known, possible=possible))
    if not Path(file[1]).is_file():
        raise NoScenario(f"no such file: {file[1]}")
    return load(Path(file[1]), file[2])


# --- clauses: the specification's, and the token's own rules ---------------------------------


@cache
def _clause_ids() -> tuple[str, ...]:
    from x402sim.spec.clauses import CLAUSES  # the book is long, and few worlds cite it

    return tuple(dict.fromkeys((*(each.id for each in CLAUSES), *TOKEN_CLAUSES, *UPTO_CLAUSES)))


def require_clause(clause: str, where: str) -> None:
    """Raise `ValueError` that begins with `where` for an unknown clause.

    The text lists the clauses of the same section, or all if the section is unknown.
    """
    known = _clause_ids()
    if clause in known:
        return
    section = clause.partition("/")[0] + "/"
    near = [each for each in known if each.startswith(section)]
    raise ValueError(f"{where}: {unknown('clause', clause, near or known)}")
