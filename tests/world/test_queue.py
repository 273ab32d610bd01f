"""Parts that serve so many requests at a time: what theory says of them, and what meets a queue."""

import asyncio
import heapq
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.world.playing import play
from x402sim import Fault, LiveWorld, LocalServer, Run, Settings, World, events
from x402sim.backends import ExplorerSettings, Exponential, FacilitatorSettings
from x402sim.clock import Clock
from x402sim.durations import ServiceTime
from x402sim.http import web
from x402sim.journal import Journal
from x402sim.policies import PayerPolicy
from x402sim.population import Buy, Every, Poisson
from x402sim.report import frames, plots
from x402sim.rng import Rng
from x402sim.world.loop import VirtualLoop, run_virtual
from x402sim.world.strike import Queue

MEAN_S = 1.2


# --- what theory says ---------------------------------------------------------------------


def erlang_c(servers: int, offered: float) -> float:
    """Return the probability that an arrival waits in M/M/c, at so many erlangs."""
    waiting = offered**servers / math.factorial(servers) * servers / (servers - offered)
    return waiting / (sum(offered**k / math.factorial(k) for k in range(servers)) + waiting)


def simulated(servers: int, load: float, times: ServiceTime, requests: int, **limits: Any) -> Any:
    """Return the frame of Poisson arrivals at a part that does nothing but take its time."""
    journal, settings = Journal(), FacilitatorSettings(
        servers=servers, service_time_s=times, **limits
    )  # fmt: skip

    async def main() -> None:
        loop, rng = asyncio.get_running_loop(), Rng(1)
        assert isinstance(loop, VirtualLoop)
        clock, arrivals = Clock(lambda: loop.now_s), rng.stream("arrivals")
        numbers = iter(range(1, requests + 1))
        queue = Queue("facilitator", settings, (), clock, journal, rng.stream("times"), numbers)
        app, at_s = queue.before(web.error(200, "done")), 0.0
        scope = {"type": "http", "method": "GET", "path": "/settle", "headers": []}
        tasks = []
        for _ in range(requests):
            at_s += arrivals.expovariate(load * servers / MEAN_S)
            await clock.sleep_until(at_s)
            tasks.append(asyncio.create_task(app(scope, _receive, _send)))  # type: ignore[arg-type]
        await asyncio.gather(*tasks)

    run_virtual(main)
    return frames.queues(journal)


async def _receive() -> dict[str, Any]:
    return {"type": "http.request", "body": b""}


async def _send(_: Any) -> None:
    return None


def mean_over_cycles(values: Any, begins: Any) -> tuple[float, float]:
    """Return a mean and its standard error, from busy cycles, which are independent of each other."""
    cycle = np.cumsum(begins) - 1
    sums, sizes = np.bincount(cycle, values), np.bincount(cycle)
    mean = sums.sum() / sizes.sum()
    spread = np.sqrt(np.sum((sums - mean * sizes) ** 2))
    return mean, spread / sizes.sum()


def assert_first_in_first_out(queues: Any, servers: int) -> None:
    """Each request begins as soon as it has arrived and a server is free of those before it."""
    free_s = [0.0] * servers
    columns = ("arrived_s", "started_s", "ended_s")
    for arrived_s, started_s, ended_s in zip(*(queues[name] for name in columns), strict=True):
        at_s = max(arrived_s, heapq.heappop(free_s))
        assert started_s == pytest.approx(at_s, abs=1e-9)
        heapq.heappush(free_s, ended_s)


@pytest.mark.parametrize(("servers", "times", "load", "requests"), [
    (1, Exponential(mean_s=MEAN_S), 0.5, 2000), (1, Exponential(mean_s=MEAN_S), 0.8, 6000),
    (2, Exponential(mean_s=MEAN_S), 0.5, 2000), (1, MEAN_S, 0.8, 6000),
], ids=["M/M/1", "M/M/1, busy", "M/M/2", "M/D/1, busy"])  # fmt: skip
def test_the_mean_wait_is_that_of_theory(
    servers: int, times: Any, load: float, requests: int
) -> None:
    queues = simulated(servers, load, times, requests)
    assert_first_in_first_out(queues, servers)
    waited, begins = queues["waited_s"].to_numpy(), (queues["ahead"] == 0).to_numpy(dtype=bool)
    busy_s, every_s = queues["service_s"].mean(), np.diff(queues["arrived_s"]).mean()
    assert busy_s == pytest.approx(MEAN_S, rel=4 / math.sqrt(requests))
    assert every_s == pytest.approx(MEAN_S / load / servers, rel=4 / math.sqrt(requests))
    offered = busy_s / every_s  # theory at the rates that the sample has
    theory_s = erlang_c(servers, offered) * busy_s / (servers - offered)
    if times == MEAN_S:  # Pollaczek-Khinchine: half of M/M/1's, as the times do not vary
        theory_s /= 2
    mean_s, error_s = mean_over_cycles(waited, begins)
    assert error_s < 0.2 * theory_s, "else this shows nothing"
    assert abs(mean_s - theory_s) < 3 * error_s, (mean_s, theory_s, error_s)
    share, error = mean_over_cycles((queues["ahead"] >= servers).to_numpy(dtype=float), begins)
    assert abs(share - erlang_c(servers, offered)) < 3 * error, "who waits at all"


def test_with_a_queue_of_no_length_as_many_are_refused_as_erlang_b_says() -> None:
    servers, offered = 2, 1.6
    queues = simulated(servers, offered / servers, Exponential(mean_s=MEAN_S), 4000, queue_length=0)
    terms = [offered**k / math.factorial(k) for k in range(servers + 1)]
    is_refused = (queues["outcome"] == "refused").to_numpy(dtype=float)
    share, error = mean_over_cycles(is_refused, (queues["ahead"] == 0).to_numpy(dtype=bool))
    assert abs(share - terms[-1] / sum(terms)) < 3 * error
    assert not queues["waited_s"].any()


# --- in a world ----------------------------------------------------------------------------


async def thirty(world: LiveWorld) -> None:
    await world.population(30, arrivals=Poisson(per_s=2), behaviour=Buy())


SETTLE: dict[str, Any] = {"servers": 2, "service_time_s": {"/settle": Exponential(mean_s=1)}}


def test_the_plot_has_the_number_of_requests_over_time() -> None:
    run = play(thirty, facilitator=FacilitatorSettings(**SETTLE))
    ax = plots.queue(run, labels={"facilitator": "the facilitator"})
    (line,) = (each for each in ax.lines if len(each.get_xdata()) > 5)
    assert line.get_label() == "the facilitator"
    assert max(line.get_ydata()) == run.queues["ahead"].max() + 1  # type: ignore[arg-type]
    assert line.get_ydata()[-1] == 0  # type: ignore[index]
    assert "queue" in plots.figures(run.journal)
    nothing = plots.queue(play(thirty))
    assert "no part has servers" in [text.get_text() for text in nothing.texts]


def test_who_came_first_is_served_first_and_never_more_than_there_are_servers() -> None:
    run = play(thirty, facilitator=FacilitatorSettings(**SETTLE))
    queues = run.queues
    assert len(queues) == 30, "verify takes no server"
    assert set(queues["part"]) == {"facilitator"}
    assert set(queues["outcome"]) == {"served"}
    assert queues["waited_s"].max() > 1
    assert_first_in_first_out(queues, servers=2)
    inside = [
        ((queues["arrived_s"] < a) & (queues["ended_s"] > a)).sum() for a in queues["arrived_s"]
    ]
    assert queues["ahead"].to_list() == inside
    assert run.orders["served"].all()


def test_the_same_seed_is_the_same_journal_also_over_tcp_and_from_a_file(tmp_path: Any) -> None:
    facilitator = FacilitatorSettings(**SETTLE)
    here, again = (play(thirty, facilitator=facilitator) for _ in range(2))
    assert here.journal.ndjson() == again.journal.ndjson()
    over_tcp = play(thirty, on="tcp", facilitator=facilitator)
    assert over_tcp.queues.equals(here.queues)
    here.journal.save(tmp_path / "run.ndjson")
    loaded = Run.load(tmp_path / "run.ndjson")
    assert loaded.queues.equals(here.queues)


class At:
    """Arrivals of one's own: a visit at each of these seconds."""

    is_random = False

    def __init__(self, *seconds: float) -> None:
        self.seconds = seconds

    def moments(self, start_s: float, rng: Any) -> Iterator[float]:
        return (start_s + each for each in self.seconds)


def test_a_server_is_busy_until_the_block_comes() -> None:
    async def two(world: LiveWorld) -> None:
        await world.population(2, arrivals=At(0.0, 0.0), behaviour=Buy())

    one_by_one = FacilitatorSettings(servers=1, service_time_s={"/settle": 0})
    queues = play(two, facilitator=one_by_one, block_time_s=10).queues
    assert queues["service_s"].iloc[1] == 10
    assert queues["waited_s"].iloc[1] == queues["service_s"].iloc[0] > 0


def test_of_a_market_each_facilitator_has_a_queue_of_its_own_for_all_services() -> None:
    slow = FacilitatorSettings(servers=1, service_time_s={"/settle": 1})
    shops = {"a": Settings(facilitator="slow"), "b": Settings(facilitator="slow")}
    world = World(service=shops, facilitator={"fast": FacilitatorSettings(), "slow": slow})

    async def both(world: LiveWorld) -> None:
        alice = await world.payer("alice", balance="1.00")
        await asyncio.gather(*(alice.at(shop).fetch() for shop in shops))

    queues = world.play(both).raise_for_failure().queues
    assert queues["part"].to_list() == ["slow", "slow"]
    assert queues["waited_s"].to_list() == [0, 1]


# --- who does not wait for the end ------------------------------------------------------------


def test_a_client_that_gives_up_stays_in_the_queue_and_is_served() -> None:
    async def three(world: LiveWorld) -> None:
        await world.population(3, arrivals=Every(0.1), behaviour=Buy())
        await world.advance(60)

    slow = FacilitatorSettings(servers=1, service_time_s={"/settle": 10})
    run = play(three, facilitator=slow, service=Settings(settle_timeout_s=15))
    queues = run.queues
    assert queues["outcome"].to_list() == ["served", "left", "left"]
    assert queues["ended_s"].round(1).to_list() == [10, 20, 30]
    assert run.orders["charged"].all(), "the money moved, although nobody waited for the answer"


def test_a_service_serves_in_its_turn_who_has_given_up(virtual: str) -> None:
    async def three(world: LiveWorld) -> None:
        policy = PayerPolicy(timeout_s=1.5)
        await world.population(3, arrivals=At(0, 0.1, 0.2), policy=policy)
        await world.advance(10)

    queues = play(three, virtual, service=Settings(servers=1, service_time_s=1)).queues
    assert queues["outcome"].to_list() == ["served", *["left"] * 4], (
        "the first pays, and asks again"
    )
    assert queues["ended_s"].to_list() == [1, 2, 3, 4, 5]


def test_what_still_waits_when_the_journal_ends_is_open() -> None:
    async def hasty(world: LiveWorld) -> None:
        policy = PayerPolicy(timeout_s=1)
        await world.population(3, arrivals=Every(0.1), behaviour=Buy(), policy=policy)

    run = play(hasty, facilitator=FacilitatorSettings(servers=1, service_time_s={"/settle": 10}))
    queues = run.queues
    assert queues["outcome"].to_list() == ["open"] * 3
    assert queues["started_s"].isna().to_list() == [False, True, True]
    *_, last = run.journal
    assert isinstance(last.event, events.End), "and no request ends after it"


def test_with_a_full_queue_one_more_is_answered_503(virtual: str) -> None:
    async def three(world: LiveWorld) -> None:
        payers = [await world.payer(f"payer {n}", balance="1.00") for n in range(3)]
        answers = await asyncio.gather(*(payer.ask() for payer in payers))
        assert sorted(each.status for each in answers) == [402, 402, 503]

    queues = play(
        three, virtual, service=Settings(servers=1, service_time_s=1, queue_length=1)
    ).queues
    assert queues["outcome"].to_list() == ["served", "served", "refused"]
    assert queues["ended_s"].to_list() == [1, 2, 0]


def test_a_fault_is_before_the_queue_and_after_it(virtual: str) -> None:
    """A lost request never queues, and who holds back an answer keeps no server."""

    async def one_by_one(world: LiveWorld) -> None:
        does: Any
        for does in ("lose request", "delay answer", "lose answer", "duplicate"):
            seconds: dict[str, Any] = {"seconds": 7} if "delay" in does else {}
            await world.fault(Fault(victim="service", does=does, **seconds))
            payer = await world.payer(does, balance="1.00")
            assert (await payer.ask()).status == (None if "lose" in does else 402)

    queues = play(one_by_one, virtual, service=Settings(servers=1, service_time_s=1)).queues
    assert queues["outcome"].to_list() == ["served", "left", "left", "served"]
    assert queues["service_s"].to_list() == [1] * 4
    assert queues["arrived_s"].to_list() == [0, 8, 9, 10]


def test_a_crash_of_the_service_loses_its_queue_and_the_next_one_goes_on(virtual: str) -> None:
    async def crashed(world: LiveWorld) -> None:
        payers = [await world.payer(f"payer {n}", balance="1.00") for n in range(3)]
        asked = [asyncio.create_task(payer.ask()) for payer in payers]
        await world.advance(1.5)
        await world.crash()
        assert [each.status for each in await asyncio.gather(*asked)] == [402, None, None]
        assert (await payers[0].ask()).status == 402

    queues = play(crashed, virtual, service=Settings(servers=1, service_time_s=1)).queues
    assert queues["outcome"].to_list() == ["served", "lost", "lost", "served"]
    assert queues["ended_s"].to_list()[:3] == [1, 1.5, 1.5]
    assert queues["ahead"].to_list() == [0, 1, 2, 0]
    assert queues["waited_s"].iloc[3] == 0


# --- mistakes --------------------------------------------------------------------------------


@pytest.mark.parametrize(("given", "says"), [
    ({"servers": 0}, "servers: expected a whole number above 0 or None, got 0"),
    ({"service_time_s": 1.2}, "service_time_s: .* give `servers`, such as servers=1"),
    ({"queue_length": 3}, "queue_length: .* give `servers`, such as servers=1"),
    ({"servers": 1, "queue_length": -1}, "queue_length: expected a whole number from 0 or None"),
    ({"servers": 1, "service_time_s": -1}, "service_time_s: a duration is seconds, .*not -1"),
    ({"servers": 1, "service_time_s": {}}, 'expected a time by path, such as {"/settle": 1.2}, got {}'),
    ({"servers": 1, "service_time_s": {"/settle": "1"}}, "service_time_s of '/settle': a duration"),
])  # fmt: skip
@pytest.mark.parametrize("kind", [FacilitatorSettings, ExplorerSettings, Settings])
def test_a_mistake_says_what_to_do(kind: Any, given: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        kind(**given)


@pytest.mark.parametrize(("option", "kind", "path", "meant"), [
    ("facilitator", FacilitatorSettings, "/setle", "/settle"),
    ("service", Settings, "/api/pai", "/api/pay"),
])  # fmt: skip
def test_an_unknown_path_is_refused_as_a_faults_is(
    option: str, kind: Any, path: str, meant: str
) -> None:
    world = World(**{option: kind(servers=1, service_time_s={path: 1})})
    says = rf"^service_time_s: unknown path of {option} '{path}'; did you mean '.*{meant}'"
    with pytest.raises(ValueError, match=says):
        world.play(thirty)
    with pytest.raises(ValueError, match=says), LocalServer(world):
        pass
