"""What is measured, and in which order? Returns the numbers as one JSON object."""

import platform
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from os import cpu_count
from typing import Any

from x402sim.bench import day, lifecycle, long, served, signatures, sweeping
from x402sim.bench.lifecycle import Transport
from x402sim.bench.recording import Recorder
from x402sim.bench.rounds import ROUNDS, Pace, Work, race
from x402sim.protocol.crypto import keccak256, portable_keccak

PARTS = ("lifecycles", "served", "day", "long", "sweep")
DEFAULT = PARTS[:3]
"""The parts that take less than a minute together."""
RAW, OURS, JOURNAL = "raw signatures", "protocol.crypto", "journal"
Tell = Callable[[str, float], None]
"""Called with what is being measured, and the share that is done, from 0 to 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How much to measure: seconds for each comparison, the day's payers and hours, the payments
    of the long run, and the points of the sweep.
    """

    seconds: float = 10.0
    payers: int = 1000
    hours: float = 24.0
    payments: int = 100_000
    points: int = 4000


def measure(size: Size, parts: Collection[str] = PARTS, tell: Tell = lambda *_: None) -> Any:
    """Measure and return all numbers as one JSON object; `parts` are names of `PARTS`.

    Raises `AssertionError` if the transports have different totals, and `RuntimeError` if a
    check of the simulated day fails.
    """
    measured: dict[str, Any] = {"machine": machine()}
    wanted = [name for name in PARTS if name in parts]
    for number, name in enumerate(wanted):

        def tell_part(share: float, name: str = name, number: int = number) -> None:
            tell(f"measuring {name}", (number + share) / len(wanted))

        tell_part(0)
        measured[name] = _MEASURES[name](size, tell_part)
    return measured


def machine() -> dict[str, Any]:
    """Return the facts about the machine that the numbers depend on."""
    return {
        "python": platform.python_version(),
        "implementation": sys.implementation.name,
        "system": f"{platform.system()} {platform.machine()}",
        "cpus": cpu_count(),
        "keccak": "pycryptodome" if keccak256 is portable_keccak else "tiny-keccak",
    }


def _lifecycles(size: Size, tell: Callable[[float], None]) -> dict[str, Any]:
    totals, recorder = lifecycle.same_totals(), Recorder()
    with _worlds() as worlds:
        works: dict[str, Work] = {RAW: signatures.raw, OURS: signatures.ours}
        works |= {name: world.work for name, world in worlds.items()}
        works[JOURNAL] = recorder.work
        paces = race(works, size.seconds, lambda over: tell(over / ROUNDS))
    journal = paces.pop(JOURNAL)
    return {
        "outcome": {"earned_base": totals.earned_base, "transfers": totals.transfers},
        "paces": _against(paces, RAW),
        "journal": {
            "events": len(recorder.events),
            "us": 1e6 / journal.per_s,
            "share": {name: paces[name].ratio(journal) for name in lifecycle.TRANSPORTS},
        },
    }


@contextmanager
def _worlds() -> Iterator[Mapping[str, Transport]]:
    worlds = {name: transport() for name, transport in lifecycle.TRANSPORTS.items()}
    try:
        yield worlds
    finally:
        for world in worlds.values():
            world.close()


def _served(size: Size, tell: Callable[[float], None]) -> dict[str, Any]:
    with served.askers() as askers:
        works = {name: asker.work for name, asker in askers.items()}
        paces = race(works, size.seconds, lambda over: tell(over / ROUNDS))
    return {"paces": _against(paces, served.BARE)}


def _against(paces: Mapping[str, Pace], limit: str) -> list[dict[str, Any]]:
    return [
        {
            "name": pace.name,
            "per_s": pace.per_s,
            "us": 1e6 / pace.per_s,
            "ratio": pace.ratio(paces[limit]),
            "rounds_per_s": pace.rates,
        }
        for pace in paces.values()
    ]


def _day(size: Size, tell: Callable[[float], None]) -> dict[str, Any]:
    lived = day.simulate(size.payers, size.hours, lambda hour: tell(hour / size.hours))
    return {name: getattr(lived, name) for name in lived.__dataclass_fields__} | {
        "speed_up": lived.speed_up
    }


def _long(size: Size, tell: Callable[[float], None]) -> dict[str, Any]:
    ran = long.simulate(size.payments, tell)
    return {name: getattr(ran, name) for name in ran.__dataclass_fields__} | {"growth": ran.growth}


def _sweep(size: Size, tell: Callable[[float], None]) -> dict[str, Any]:
    swept = sweeping.measure(size.points, tell)
    return {name: getattr(swept, name) for name in swept.__dataclass_fields__} | {
        "ratio": swept.ratio
    }


_MEASURES: dict[str, Callable[[Size, Callable[[float], None]], dict[str, Any]]] = {
    "lifecycles": _lifecycles,
    "served": _served,
    "day": _day,
    "long": _long,
    "sweep": _sweep,
}
