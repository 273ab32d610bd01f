"""Plays a shipped scenario against this server, as `x402sim run NAME --on URL` does."""

import asyncio
import sys
from asyncio.subprocess import DEVNULL, PIPE
from typing import Any

import msgspec

from x402sim.http.web import Refused, bad_body
from x402sim.text.suggest import unknown
from x402sim.world.assembly.running_world import RunningWorld
from x402sim.world.story.scenario import shipped, shipped_names

LONGEST_S = 300


class Play(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The scenario to play."""

    scenario: str


def playable(world: RunningWorld) -> list[dict[str, Any]]:
    """Return the scenarios that ship: name, title, story, and the needs that this world lacks."""
    return [
        {
            "name": each.name,
            "title": each.title,
            "story": each.description,
            "takesTime": "clock" in each.needs,
            "lacks": [need.meaning for need in each.needs if need not in world.offers],
        }
        for each in shipped()
    ]


async def play(asked: Play, url: str) -> dict[str, Any]:
    """Play a scenario at this URL, in a process of its own; return what `run --json` prints of it.

    Raises `Refused`.
    """
    if asked.scenario not in (known := shipped_names()):
        raise bad_body(unknown("scenario", asked.scenario, known))
    command = (sys.executable, "-m", "x402sim", "run", asked.scenario, "--on", url, "--json")
    process = await asyncio.create_subprocess_exec(*command, stdout=PIPE, stderr=DEVNULL)
    try:
        async with asyncio.timeout(LONGEST_S):
            printed, _ = await process.communicate()
    except TimeoutError:
        raise Refused(504, "Too slow", f"it took longer than {LONGEST_S} s") from None
    finally:
        if process.returncode is None:
            process.kill()
    told = msgspec.json.decode(printed)
    (played,) = told["scenarios"]
    return {**played, "clockAheadSeconds": told["clock_ahead_s"]}
