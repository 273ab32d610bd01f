"""A population: who comes when, what they do, and that a seed decides all of it."""

from collections import Counter
from itertools import pairwise

import pytest

from tests.world.playing import play
from x402sim import Fault, LiveWorld, Payer, Settings, World
from x402sim.events import Note
from x402sim.population import Buy, Every, Poisson, Session
from x402sim.rng import Stream


def came(n: int, seed: int = 0, **options: object) -> list[tuple[float, Note]]:
    """Return when each visit happened, and its note."""

    async def story(world: LiveWorld) -> None:
        async def visit(payer: Payer, rng: Stream) -> None:
            world.note(payer.name, drawn=rng.random())

        await world.population(n, behaviour=visit, balance=None, **options)

    run = play(story, seed=seed)
    start_ms = next(iter(run.journal)).at_ms
    return [((entry.at_ms - start_ms) / 1000, entry.event) for entry in run.journal.of(Note)]


def visits(n: int, **options: object) -> list[tuple[float, str]]:
    return [(at_s, note.name) for at_s, note in came(n, **options)]


# --- when they come ------------------------------------------------------------------


def test_without_an_end_each_payer_comes_once_in_turn():
    assert visits(3, arrivals=Every(10)) == [(0, "payer 1"), (10, "payer 2"), (20, "payer 3")]
    assert [name for _, name in visits(3, arrivals=Poisson(per_s=1))] == [
        "payer 1", "payer 2", "payer 3",
    ]  # fmt: skip


def test_until_an_end_visits_go_on_in_turn_and_none_begins_at_it():
    seen = visits(2, arrivals=Every(10), until_s=30, name="bot")
    assert seen == [(0, "bot 1"), (10, "bot 2"), (20, "bot 1")]


def test_poisson_visits_are_of_payers_drawn_at_random():
    seen = visits(4, arrivals=Poisson(per_s=0.5), until_s=2000)
    counts = Counter(name for _, name in seen)
    assert len(seen) == pytest.approx(1000, abs=4 * 1000**0.5)
    assert min(counts.values()) > 180
    assert max(counts.values()) < 330
    waits = [after - before for (before, _), (after, _) in pairwise(seen)]
    mean = sum(waits) / len(waits)
    deviation = (sum((wait - mean) ** 2 for wait in waits) / len(waits)) ** 0.5
    assert deviation / mean == pytest.approx(1, abs=0.15), "of an exponential both are equal"


def test_a_seed_decides_when_they_come_and_what_they_draw():
    first, again, other = (came(5, n, arrivals=Poisson(per_s=1), until_s=20) for n in (1, 1, 2))
    assert first == again != other


def test_visits_overlap_and_the_story_goes_on_after_the_last_one():
    ended = []

    async def long(payer: Payer, _: Stream) -> None:
        await payer.clock.sleep(100)
        ended.append(payer.name)

    async def story(world: LiveWorld) -> None:
        begun_s = world.clock.now()
        group = await world.population(3, arrivals=Every(1), behaviour=long)
        assert world.clock.now() - begun_s == 102
        assert (group.visits, group.given_up, len(group.payers)) == (3, 0, 3)

    play(story)
    assert ended == ["payer 1", "payer 2", "payer 3"]


# --- what they do --------------------------------------------------------------------


def test_buying_pays_and_is_served_each_time():
    async def story(world: LiveWorld) -> None:
        await world.population(4, arrivals=Every(60), behaviour=Buy(times=3, wait=5))

    table = play(story).orders
    assert len(table) == 12
    assert table[["charged", "granted", "served"]].all(axis=None)
    one = table[table["payer"] == "payer 2"]["t_s"] - 60
    assert list(one) == [0, 5, 10]


def test_a_visit_ends_with_its_session_and_may_be_at_another_service():
    async def story(world: LiveWorld) -> None:
        behaviour = Session(requests=10, wait=25, duration=60, at="second")
        await world.population(2, arrivals=Every(5), behaviour=behaviour)
        await world.advance(120)

    services = {"first": Settings(), "second": Settings()}
    table = play(story, service=services).orders
    assert set(table["service"]) == {"second"}
    requests = table[table["way"] == "session"]
    assert list(requests["t_s"]) == [0, 5, 25, 30, 50, 55]
    assert table["served"].all(), "nobody asks once the session has ended"


def test_a_visit_that_gets_no_402_is_given_up_and_any_other_error_is_loud():
    async def lost(world: LiveWorld) -> None:
        await world.fault(Fault(victim="service", does="lose request", times=2))
        group = await world.population(5, arrivals=Every(60), behaviour=Session(requests=1))
        assert (group.visits, group.given_up) == (5, 2)

    play(lost)

    async def broken(payer: Payer, _: Stream) -> None:
        if payer.name == "payer 2":
            raise ZeroDivisionError("by mistake")

    async def wrong(world: LiveWorld) -> None:
        with pytest.raises(ExceptionGroup) as raised:
            await world.population(3, arrivals=Every(1), behaviour=broken)
        (error,) = raised.value.exceptions
        assert error.__notes__ == ["in a visit of payer 2"]

    play(wrong)


async def draws(payer: Payer, rng: Stream) -> None:
    if rng.random() < 0.5:
        await Buy()(payer, rng)


@pytest.mark.parametrize("latency", [None, {"service": (0.4, 0.4)}])
@pytest.mark.parametrize("behaviour", [Buy(), draws, Session(requests=2)])
def test_who_has_left_comes_back_as_if_it_had_stayed(latency, behaviour, monkeypatch) -> None:
    """Visits overlap, too: what a payer draws from is not begun anew."""

    async def story(world: LiveWorld) -> None:
        await world.population(3, arrivals=Every(0.3), behaviour=behaviour, until_s=6)

    def played() -> bytes:
        return World(seed=4, latency=latency).play(story).journal.ndjson()

    left = played()
    monkeypatch.setattr(Payer, "leave", lambda _: None)
    assert played() == left
