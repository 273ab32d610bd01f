"""`conformance campaign`: judges every version in the table of recipes, and keeps the verdicts."""

import asyncio
from asyncio.subprocess import DEVNULL, PIPE
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from x402sim.clock import stopwatch
from x402sim.commands.common import as_misuse
from x402sim.suite import published
from x402sim.suite.report.results import Outcome
from x402sim.suite.sdk import Recipe, recipes
from x402sim.suite.site import SUBJECTS
from x402sim.suite.subject import subject as subject_of
from x402sim.text.program import start
from x402sim.text.words import counted, unknown

HELP = """Judge each version in the table of recipes, and keep each verdict.

Example: x402sim conformance campaign --keep verdicts.json --only facilitator
"""
NO_VERDICT = 2
FEW = 0.02
"""The part of a verdict's ids that may be inconclusive: playing it again costs minutes."""


def campaign(
    keep: Annotated[
        Path,
        typer.Option(
            metavar="FILE",
            help="File of verdicts; a version with one by all of today's demands is left out.",
        ),
    ],
    only: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Judge this subject, or this package, only; repeatable."),
    ] = None,
    at_once: Annotated[
        int, typer.Option(min=1, metavar="N", help="Judge this many versions side by side.")
    ] = 2,
    at_most: Annotated[
        float, typer.Option(metavar="SECONDS", help="End a judgement that takes longer.")
    ] = 600,
) -> None:
    """Judge the versions, and tell the progress on stderr."""
    with as_misuse(ValueError, OSError):
        todo = [each for each in listed(only or []) if record(keep, *each) is None]
    tell(f"{counted(len(todo), 'version')} to judge, {at_once} at once")
    elapsed = stopwatch()
    missing = asyncio.run(_judge_all(todo, keep, at_once, at_most))
    kept = counted(len(todo) - len(missing), "verdict")
    tell(f"{kept} kept in {keep}, in {elapsed() / 60:.0f} min")
    if missing:
        tell(f"no verdict on {', '.join(missing)}")
        raise typer.Exit(NO_VERDICT)


async def _judge_all(
    todo: list[tuple[Recipe, str]], keep: Path, at_once: int, at_most: float
) -> list[str]:
    """Judge the versions, and keep each verdict; return the names of the versions without one."""
    elapsed, places, done, missing = stopwatch(), asyncio.Semaphore(at_once), count(1), list[str]()

    async def judge(recipe: Recipe, version: str) -> None:
        async with places:
            since = stopwatch()
            verdict, why = await judged(recipe, version, at_most)
        name = f"{recipe.subject} {recipe.name} {version}"
        if verdict:
            published.keep(keep, verdict, subject_of(recipe.subject).cases())
        else:
            missing.append(name)
        place = next(done)
        left_min = elapsed() / place * (len(todo) - place) / 60
        tell(f"{place} of {len(todo)}: {name} ({since():.0f} s), about {left_min:.0f} min left")
        tell(f"  {told(verdict) if verdict else f'no verdict: {why}'}")

    async with asyncio.TaskGroup() as group:
        for each in todo:
            group.create_task(judge(*each))
    return missing


def listed(only: list[str]) -> list[tuple[Recipe, str]]:
    """Return each recipe with each of its versions; raises `ValueError` for an unknown name.

    The subjects are mixed evenly: a facilitator's cases wait while a payer's compute.
    """
    every = {subject: recipes(subject) for subject in SUBJECTS}
    known = {
        name for found in every.values() for each in found for name in (each.subject, each.package)
    }
    for name in only:
        if name not in known:
            raise ValueError(f"--only: {unknown('subject or package', name, sorted(known))}")
    placed = list[tuple[float, Recipe, str]]()
    for found in every.values():
        wanted = [each for each in found if not only or {each.subject, each.package} & {*only}]
        versions = [(each, version) for each in wanted for version in each.versions]
        placed += ((n / len(versions), *each) for n, each in enumerate(versions))
    return [(recipe, version) for _, recipe, version in sorted(placed, key=lambda it: it[0])]


def record(keep: Path, recipe: Recipe, version: str) -> published.Record | None:
    """Return the verdict on a version in a file; None without one by all of today's demands."""
    battery = published.battery_of(subject_of(recipe.subject).cases())[0]
    names = (recipe.name, version, battery)
    found = published.read(keep).of(recipe.subject)
    of_today = (
        each for each in found if (each.implementation, each.version, each.battery) == names
    )
    return next(of_today, None)


async def judged(
    recipe: Recipe, version: str, at_most: float
) -> tuple[published.Record | None, str]:
    """Judge a version in a process of its own; return the verdict, or why there is none.

    A verdict with many inconclusive ids is made once more.
    """
    verdict, why = await _judged(recipe, version, at_most)
    if verdict and is_open(verdict):
        verdict, why = await _judged(recipe, version, at_most)
    return verdict, why


async def _judged(
    recipe: Recipe, version: str, at_most: float
) -> tuple[published.Record | None, str]:
    sdk = recipe.example.replace("VERSION", version)
    with TemporaryDirectory() as folder:
        keep = Path(folder) / "verdicts.json"
        words = ("conformance", recipe.subject, "--sdk", sdk, "--keep", str(keep))
        judge = await asyncio.create_subprocess_exec(*start(), *words, stdout=DEVNULL, stderr=PIPE)
        try:
            async with asyncio.timeout(at_most):
                error = (await judge.communicate())[1].decode(errors="replace")
        except TimeoutError:
            return None, f"it took longer than {at_most:g} s"
        finally:
            if judge.returncode is None:
                judge.terminate()
                await judge.wait()
        lines = error.strip().splitlines() or ["it printed no error"]
        return record(keep, recipe, version), lines[-1]


def is_open(verdict: published.Record) -> bool:
    """Tell whether several ids of a verdict are inconclusive; most are so if the control fails."""
    open_ids, ids = verdict.counts.get(Outcome.INCONCLUSIVE, 0), sum(verdict.counts.values())
    return ids * FEW < open_ids < ids / 2


def told(verdict: published.Record) -> str:
    """Return a verdict in a line."""
    musts = sum(level == "MUST" for level in (each.level for each in verdict.failures.values()))
    outcomes = ", ".join(f"{number} {outcome}" for outcome, number in verdict.counts.items())
    return f"{outcomes}; {musts} MUST fail; lost {', '.join(verdict.lost) or 'nothing'}"


def tell(text: str) -> None:
    """Print a line to stderr."""
    typer.echo(text, err=True)
