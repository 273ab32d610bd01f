"""A scenario: a story (a coroutine function) with its title, clauses and needs."""

import importlib.util
import inspect
import re
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, overload

from x402sim.spec.needs import Need, parse_needs
from x402sim.suggest import unknown
from x402sim.world.story.clause_ids import require_clause

Story = Callable[[Any], Awaitable[None]]
"""A coroutine function of one argument, the live world."""
_DOCSTRING = re.compile(
    r"(?P<title>[^\n]+)\n\nCovers: (?P<covers>.+?)\.\nStory: (?P<story>.+)", re.DOTALL
)


@dataclass(frozen=True, slots=True)
class Scenario:
    """One scenario: its story, the clauses that it covers, and its needs."""

    name: str
    title: str
    covers: tuple[str, ...]
    story: str
    needs: tuple[Need, ...]
    play: Story


@overload
def scenario(story: Story) -> Scenario: ...
@overload
def scenario(*, needs: str = "") -> Callable[[Story], Scenario]: ...
def scenario(story: Story | None = None, *, needs: str = "") -> Any:
    """Make a scenario of `async def name(world)`; `needs` are names of `Need`, comma-separated.

    Title, `Covers:` and `Story:` come from the docstring of its module, or of the function. Raises
    `ValueError` if one of them is missing, or a clause or a need is unknown.
    """
    if story is None:
        return lambda story: _make(story, needs)
    return _make(story, needs)


def _make(story: Story, needs: str) -> Scenario:
    name: str = story.__name__
    text = inspect.getdoc(story) or inspect.getdoc(inspect.getmodule(story)) or ""
    parsed = _DOCSTRING.fullmatch(text.strip())
    if parsed is None:
        shape = "TITLE\\n\\nCovers: CLAUSE, CLAUSE.\\nStory: TEXT"
        raise ValueError(f"scenario {name} needs a docstring of the form {shape}")
    covers = tuple(re.split(r",\s*", parsed["covers"].strip()))
    for clause in covers:
        require_clause(clause, f"scenario {name}")
    title, words = parsed["title"].rstrip("."), " ".join(parsed["story"].split())
    wanted = parse_needs(needs, f"scenario {name}")
    return Scenario(name, title, covers, words, wanted, story)


def shipped() -> list[Scenario]:
    """Return the scenarios shipped with x402sim, sorted by name."""
    package = Path(__file__).parents[2]
    folder = next(
        folder
        for folder in (package / "scenarios", package.parent / "scenarios")
        if folder.is_dir()
    )
    return [load(file) for file in sorted(folder.glob("*.py"))]


def load(file: Path) -> Scenario:
    """Return the scenario in a Python file; raises `ValueError` unless there is exactly one."""
    spec = importlib.util.spec_from_file_location(f"x402sim_scenario_{file.stem}", file)
    if spec is None or spec.loader is None:
        raise ValueError(f"{file} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # `scenario` reads the module's docstring there
    spec.loader.exec_module(module)
    found = [value for value in vars(module).values() if isinstance(value, Scenario)]
    if len(found) != 1:
        raise ValueError(f"{file} has {len(found)} scenarios; a file has exactly one")
    return found[0]


def find(names: list[str]) -> list[Scenario]:
    """Return the scenarios of these names or files; without any, all shipped ones.

    Raises `ValueError` that suggests the nearest name.
    """
    known = {each.name: each for each in shipped()}
    if not names:
        return list(known.values())
    found = []
    for name in names:
        if name in known:
            found.append(known[name])
        elif name.endswith(".py") and Path(name).is_file():
            found.append(load(Path(name)))
        else:
            raise ValueError(unknown("scenario", name, known))
    return found
