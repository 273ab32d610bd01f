"""The campaign: worlds of a few cycles each. A cycle is load, a kill or several, a restart, an audit."""

import random
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from tests.crash.audit import PAID, are_refunded, audit, is_quiet
from tests.crash.deployment import PAYERS, Command, Deployment, deployed
from tests.crash.kills import (
    UNDER_LOAD,
    Phase,
    first_phases,
    kill_again,
    kill_first_start,
    kill_in_start,
    kill_resumed,
    kill_under_load,
    wait_for,
)
from tests.crash.load import Payer
from tests.crash.memory import Memory

CYCLES_OF_A_WORLD = 10
FAULTS: tuple[dict[str, Any], ...] = (
    {"victim": "facilitator", "does": "lose answer", "path": "/settle", "times": 2},
    {
        "victim": "facilitator",
        "does": "delay answer",
        "path": "/settle",
        "seconds": 0.1,
        "times": 4,
    },
)


IN_A_START = {
    Phase.START: kill_in_start,
    Phase.AGAIN: kill_again,
    Phase.RESUMED: kill_resumed,
}


@dataclass(slots=True)
class Figures:
    """What a campaign did, by name, and what it found."""

    did: Counter[str] = field(default_factory=Counter)
    violations: list[str] = field(default_factory=list)


def run_campaign(command: Command, *, cycles: int, seed: int) -> Figures:
    """Run so many cycles; raises `AssertionError` if one of them does no work."""
    figures = Figures()
    while (done := figures.did["cycles"]) < cycles:
        luck = random.Random(f"{seed} {command.value} {done}")
        with tempfile.TemporaryDirectory(prefix="x402sim-crash-") as folder:
            _run_world(command, Path(folder), min(CYCLES_OF_A_WORLD, cycles - done), luck, figures)
    return figures


def _run_world(
    command: Command, folder: Path, cycles: int, luck: random.Random, figures: Figures
) -> None:
    """Run the cycles of one world, then let everything in it come to its end."""
    memories = [Memory() for _ in range(PAYERS)]
    confirmed, known = set[str](), set[str]()
    with deployed(command, folder) as deployment:
        for phase in first_phases(command):
            if luck.random() < 0.7:
                figures.did[_killed(phase)] += 1
                kill_first_start(deployment, phase)
        deployment.spawn()
        deployment.await_ready()
        paid = 0
        for _ in range(cycles):
            figures.did["cycles"] += 1
            _load_and_kill(deployment, memories, luck, figures)
            _restart(deployment, luck, figures)
            found = audit(deployment, memories, confirmed, is_over=False)
            _note(figures, found.violations, known)
            figures.did["access only by sending again"] += found.resent
            assert found.did[PAID] > paid, f"cycle {figures.did['cycles']} paid nothing"
            paid = found.did[PAID]
        _come_to_an_end(deployment, memories, figures)
        found = audit(deployment, memories, confirmed, is_over=True)
        _note(figures, found.violations, known)
    figures.did += found.did + Counter(starts=deployment.restarts)


def _killed(phase: Phase) -> str:
    return f"killed {phase.value}"


def _note(figures: Figures, violations: list[str], known: set[str]) -> None:
    """Note what was not known to be wrong in this world."""
    figures.violations += [
        f"cycle {figures.did['cycles']}: {each}" for each in violations if each not in known
    ]
    known.update(violations)


def _load_and_kill(
    deployment: Deployment, memories: list[Memory], luck: random.Random, figures: Figures
) -> None:
    """Let the payers work until there are some new receipts, then kill."""
    phase, enough = luck.choice(UNDER_LOAD), _receipts(memories) + luck.randint(8, 40)
    if luck.random() < 0.4:
        deployment.world.sim("faults", **luck.choice(FAULTS))
    problems: list[BaseException] = []
    acts: list[Callable[[], object]] = [
        Payer(deployment, number, memory, random.Random(luck.random())).act
        for number, memory in enumerate(memories)
    ]
    if deployment.command is Command.SERVE and luck.random() < 0.4:
        acts.append(lambda: deployment.world.sim("indexer/run"))
    threads = [threading.Thread(target=_act_until_killed, args=(act, problems)) for act in acts]
    for thread in threads:
        thread.start()
    try:
        wait_for(lambda: _receipts(memories) >= enough or problems, f"{enough} receipts")
        figures.did[_killed(phase)] += 1
        kill_under_load(deployment, phase, luck)
    finally:
        if deployment.running is not None:
            deployment.kill()
        for thread in threads:
            thread.join()
    if problems:
        raise problems[0]


def _act_until_killed(act: Callable[[], object], problems: list[BaseException]) -> None:
    try:
        while True:
            act()
    except httpx.TransportError:
        return
    except BaseException as problem:  # noqa: BLE001 - raised in the main thread
        problems.append(problem)


def _receipts(memories: list[Memory]) -> int:
    return sum(a.receipt is not None for memory in memories for a in memory.attempts)


def _restart(deployment: Deployment, luck: random.Random, figures: Figures) -> None:
    """Start it again; some starts are killed, once or twice in a row."""
    mines_first = luck.random() < 0.5
    if deployment.command is Command.SERVICE:
        deployment.world.sim("faults/clear")
        if mines_first:
            deployment.world.sim("mining", automine=True)
    while luck.random() < 0.35:
        phase, kill = luck.choice(list(IN_A_START.items()))
        figures.did[_killed(phase)] += 1
        kill(deployment, luck)
    deployment.spawn()
    deployment.await_ready()
    if deployment.command is Command.SERVICE:
        deployment.world.sim("mining", automine=True)


def _come_to_an_end(deployment: Deployment, memories: list[Memory], figures: Figures) -> None:
    """Let sessions expire and be refunded, then let every open header's window pass."""
    deployment.world.sim("faults/clear")
    time.sleep(2.1)  # the longest of the short sessions
    _bring_to_rest(deployment, figures, lambda: are_refunded(deployment, memories))
    is_whole = deployment.command is Command.SERVE
    deployment.world.sim("clock/advance", seconds=4000 if is_whole else 400)
    _bring_to_rest(deployment, figures, lambda: is_quiet(deployment, memories))


def _bring_to_rest(deployment: Deployment, figures: Figures, is_done: Callable[[], bool]) -> None:
    """Run the background work, which runs at once when a service starts, and wait for its end."""
    if deployment.command is Command.SERVICE:
        figures.did[_killed(Phase.IDLE)] += 1
        deployment.kill()
        deployment.spawn()
        deployment.await_ready()
    else:
        deployment.world.sim("clock/advance", seconds=0)
    wait_for(is_done, "it comes to rest", 0.1)
