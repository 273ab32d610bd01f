"""Plays cases of servers against the toy shop, in one room of this process, whose shop is changed."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

from tests.suite.cases import names, with_ids
from tests.suite_server.shop import Shop, shop
from x402sim.suite.case import by_play
from x402sim.suite.dialect import Dialect
from x402sim.suite.row import RoomCase, RoomKind
from x402sim.suite.server.room import Given, ServerRoom
from x402sim.suite.server.subject import ServerJudge, all_cases, item_in
from x402sim.suite.started import App
from x402sim.suite.verdict import Found, Violation

METERED = {"/weather": "0.004", "/tides?used=nothing": "0", "/tides?used=more": "0.02"}
"""Requests for what a shop sells `upto`, and the tokens that each uses."""
ITEMS = tuple(map(item_in, ("/weather", "/forecast?city=Paris", 'POST /report {"title": "a"}')))


@dataclass
class Bench:
    """A room of each kind, with shops; `found` tells what cases find of their defects."""

    shops: list[Shop] = field(default_factory=list)
    patience_s: float = 12
    rooms: dict[RoomKind, ServerRoom] = field(default_factory=dict)
    defects: frozenset[str] = frozenset()
    habits: frozenset[str] = frozenset()
    counts: ClassVar[bool] = False

    def __post_init__(self) -> None:
        self.judge = ServerJudge(
            subject=App(self.make),
            items=(*ITEMS, item_in("/tides")),
            handlers={
                "failing": item_in("/forecast?city=fail"),
                "slow": item_in("/forecast?city=slow"),
                "streaming": item_in("/stream"),
                "redirecting": item_in("/forecast?city=moved"),
            }
            | ({"counter": item_in("/count")} if self.counts else {}),
            metered=tuple(replace(item_in(target), used=used) for target, used in METERED.items()),
            shares=True,
            jobs=1,
            patience_s=self.patience_s,
        )

    def make(self, given: Given) -> Shop:
        self.shops.append(shop(given, self.defects, self.habits))
        return self.shops[-1]

    async def found(
        self, cases: Iterable[RoomCase], defects: Iterable[str] = (), habits: Iterable[str] = ()
    ) -> dict[str, Found]:
        self.defects, self.habits = frozenset(defects), frozenset(habits)
        for toy in self.shops:
            toy.defects, toy.habits = self.defects, self.habits
        for room in self.rooms.values():
            room.goods.clear()
        found: dict[str, Found] = {}
        for group in by_play(cases):
            if (kind := group[0].kind) not in self.rooms:
                self.rooms[kind] = await self.judge.room(kind)
            played = await self.judge.played(group, self.rooms[kind])
            assert not played.unclear, (group[0].name, played.unclear)
            found |= {case.name: each for case, each in played.found.items()}
        return found


class Counting(Bench):
    """A judge of shops that sell the same each time, and count handlers' runs at a path."""

    counts = True

    async def found(
        self, cases: Iterable[RoomCase], defects: Iterable[str] = (), habits: Iterable[str] = ()
    ) -> dict[str, Found]:
        return await Bench.found(self, cases, defects, {*habits, "sells the same each time"})


ROOMS, PLAYS = 6, 6
"""How many rooms play side by side, as most plays wait for something, and what each plays at a time."""


def run(
    bench: type[Bench], asked: Sequence[tuple[Iterable[RoomCase], str, str]]
) -> list[dict[str, Found]]:
    """Play cases of each of some shops: cases, defects, habits, with commas between them."""
    left = list(enumerate(asked))
    found: dict[int, dict[str, Found]] = {}

    async def one() -> None:
        own = bench()
        try:
            while left:
                place, (cases, defects, habits) = left.pop(0)
                found[place] = await own.found(cases, _names(defects), _names(habits))
        finally:
            await own.judge.close()

    async def everything() -> None:
        await asyncio.gather(*(one() for _ in range(min(ROOMS, len(asked)))))

    asyncio.run(everything())
    return [found[place] for place in range(len(asked))]


def _names(text: str) -> list[str]:
    return [each.strip() for each in text.split(",") if each.strip()]


def missed(bench: type[Bench], defects: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the defects that are not caught, each with the ids that should.

    A `silent/` id catches one by an observation, which is no violation.
    """
    found = run(bench, [(cases(ids), defect, "") for defect, ids in defects.items()])
    missed = {
        defect: [
            each
            for each in names(ids)
            if not isinstance(seen[each], str if each.startswith("silent/") else Violation)
        ]
        for (defect, ids), seen in zip(defects.items(), found, strict=True)
    }
    return {defect: ids for defect, ids in missed.items() if ids}


def broken(
    bench: type[Bench], every: list[RoomCase], habits: Mapping[str, str]
) -> dict[str, dict[str, Found]]:
    """Return what honest shops break: a plain one, and one for each habit.

    `habits` has the beginnings of the ids to play, and the ends, after a "-", of ids to leave out.
    """
    plays = by_play([case for case in every if not case.dialect.by_permit2])
    chunks = [plays[at : at + PLAYS] for at in range(0, len(plays), PLAYS)]
    asked = [([case for group in each for case in group], "", "") for each in chunks]
    for habit, prefixes in habits.items():
        version = "v1" if habit.endswith("version 1") else "v2"
        sold = next((each for each in ("upto", "permit2") if f"sells {each}" in habit), version)
        dialects = (sold, Dialect.MCP)
        words = prefixes.split()
        ends = tuple(word for word in words if word.startswith("-"))
        begins = tuple(word for word in words if word not in ends)
        ours = [case for case in every if case.dialect in dialects]
        about = [each for each in ours if each.id.startswith(begins) and not each.id.endswith(ends)]
        asked.append((about, "", habit))
    wrong: dict[str, dict[str, Found]] = {}
    for (_, _, habit), seen in zip(asked, run(bench, asked), strict=True):
        broken = {each: found for each, found in seen.items() if isinstance(found, Violation)}
        wrong.setdefault(habit, {}).update(broken)
    return {habit: broken for habit, broken in wrong.items() if broken}


def cases(ids: str) -> list[RoomCase]:
    """Return the cases that a text names: "server/many/again [v2 v1]"."""
    return with_ids(all_cases(), ids)
