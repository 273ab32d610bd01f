"""When faults strike: outages at random and by a schedule, the same for all who ask."""

import json
import math
from itertools import pairwise

import httpx
import msgspec
import pytest

from x402sim import Fault, LiveWorld, LocalServer, Run, World
from x402sim.backends import Outages, Schedule
from x402sim.population import Buy, Poisson
from x402sim.rng import Rng
from x402sim.world.faults import Faults, When, value_of

DOWN = {"victim": "facilitator", "does": "refuse"}


def struck_at(faults: Faults, clock: list[float], moments: list[float]) -> list[bool]:
    found = []
    for clock[0] in moments:
        found.append(faults.next_for("facilitator", "/settle", b"") is not None)
    return found


def faults_of(when: When, **more: object) -> tuple[Faults, list[float]]:
    clock = [0.0]
    faults = Faults(Rng(1), lambda: clock[0])
    faults.add(Fault(**DOWN, when=when, **more))
    return faults, clock


# --- the periods themselves ---------------------------------------------------------------


def test_a_schedule_strikes_from_its_first_second_until_before_its_last() -> None:
    faults, clock = faults_of(Schedule([(600, 660), (7200, 7260)]))
    moments = [0, 599.999, 600, 659.999, 660, 7199, 7200, 7259, 7260, 1e6]
    wanted = [False, False, True, True, False, False, True, True, False, False]
    assert struck_at(faults, clock, moments) == wanted


def test_an_outage_is_up_first_and_available_for_its_share_of_a_long_time() -> None:
    when, hour = Outages(mtbf_s=300, mttr_s=100), 3600.0
    share = []
    for seed in range(40):
        down, now = 0.0, 0.0
        for from_s, until_s in when.periods_from(0.0, Rng(seed).stream("x")):
            assert from_s > now, "up first"
            if from_s > 20 * hour:
                break
            down, now = down + min(until_s, 20 * hour) - from_s, until_s
        share.append(1 - down / (20 * hour))
    mean = sum(share) / len(share)
    spread = math.sqrt(sum((each - mean) ** 2 for each in share) / len(share) / len(share))
    # the expected share of the first T seconds is A + (1 - A) (1 - exp(-T (l + m))) / (T (l + m))
    expected = 0.75 + 0.25 / (20 * hour * (1 / 300 + 1 / 100))
    assert abs(mean - expected) < 4 * spread
    assert when.availability == 0.75


def test_with_periods_a_fault_strikes_without_limit_unless_times_are_given() -> None:
    once, always = Fault(**DOWN), Fault(**DOWN, when=Schedule([(0, 60)]))
    assert [value_of(each, "times") for each in (once, always)] == [1, None]
    later = msgspec.structs.replace(once, when=Schedule([(0, 60)]))
    assert value_of(later, "times") is None, "a fault that gets periods is no longer struck once"
    assert "times" not in repr(always)
    faults, clock = faults_of(Schedule([(0, 60), (100, 160)]), times=2)
    assert struck_at(faults, clock, [1.0, 2.0, 3.0, 101.0]) == [True, True, False, False]
    faults, clock = faults_of(Schedule([(0, 60)]))
    assert struck_at(faults, clock, [1.0, 2.0, 3.0]) == [True] * 3


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Schedule([(60, 10)]), r"pairs of seconds in order, such as .*got \[\(60, 10\)\]"),
        (lambda: Schedule([(0, 10), (5, 20)]), "in order"),
        (lambda: Schedule([(-1, 10)]), "in order"),
        (lambda: Schedule([]), "in order"),
        (lambda: Schedule(600), "pairs"),
        (lambda: Schedule([(0, math.inf)]), "pairs"),
        (lambda: Schedule([(0, math.nan)]), "pairs"),
        (lambda: Outages(mtbf_s=0, mttr_s=1), "mtbf_s and mttr_s are above 0"),
        (lambda: Fault(**DOWN, when={"kind": "outages", "mtbf_s": 1}), "when of a fault.*mttr_s"),
        (lambda: Fault(**DOWN, when=[(600, 660)]), "when of a fault"),
        (lambda: Fault(**DOWN, when={"kind": "never"}), "when of a fault.*never"),
    ],
)
def test_what_is_no_period_is_explained(make, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


# --- in a world ---------------------------------------------------------------------------


def run_of(when: When, per_s: float = 0.01, seed: int = 1, more: bool = False) -> Run:
    async def story(world: LiveWorld) -> None:
        if more:  # what else goes wrong elsewhere does not change the periods
            down = Outages(mtbf_s=100, mttr_s=10)
            await world.fault(Fault(victim="explorer", does="refuse", when=down))
            await world.fault(Fault(victim="service", does="lose answer", probability=0.1, times=5))
        await world.fault(Fault(victim="facilitator", does="refuse", path="/settle", when=when))
        await world.population(5, arrivals=Poisson(per_s=per_s), behaviour=Buy(), until_s=1500.0)
        await world.advance(200)

    return World(seed=seed).play(story).raise_for_failure()


def test_the_frame_has_every_period_also_those_in_which_nobody_asked() -> None:
    run = run_of(Schedule([(600, 660), (1000, 1200), (1550, 1560), (1600, 90000)]), per_s=0.03)
    rows = run.outages
    assert rows["victim"].unique().tolist() == ["facilitator"]
    assert rows["path"].unique().tolist() == ["/settle"]
    first, *_, last = run.journal.since(0)
    end_s = (last.at_ms - first.at_ms) / 1000
    assert rows["from_s"].tolist() == [600, 1000, 1550, 1600]
    assert rows["until_s"].tolist() == [660, 1200, 1560, end_s], "the last ends with the scenario"
    refused = run.latency[(run.latency["to"] == "facilitator") & run.latency["status"].isna()]
    counted = [
        refused["sent_s"].between(row.from_s, row.until_s, inclusive="left").sum()
        for row in rows.itertuples()
    ]
    assert rows["struck"].tolist() == counted
    assert counted[1] > 0
    assert counted[2:] == [0, 0]
    assert rows.attrs["units"] == {"from_s": "s", "until_s": "s"}


def test_the_same_seed_has_the_same_periods_whoever_asks_and_whatever_else_fails() -> None:
    when = Outages(mtbf_s=120, mttr_s=40)

    def periods(run: Run) -> list[tuple[float, float]]:
        found = run.outages[run.outages["victim"] == "facilitator"]
        kept = found[found["until_s"] < 1500]
        return list(zip(kept["from_s"], kept["until_s"], strict=True))

    first = run_of(when)
    assert first.sha256 == run_of(when).sha256
    assert periods(first) == periods(run_of(when, per_s=0.05)) == periods(run_of(when, more=True))
    assert periods(first) != periods(run_of(when, seed=2))
    assert all(before[1] <= after[0] for before, after in pairwise(periods(first)))
    shorter = run_of(Outages(mtbf_s=120, mttr_s=20)).outages
    ups = [
        frame["from_s"].to_numpy()[:3] - [0, *frame["until_s"].to_numpy()[:2]]
        for frame in (first.outages, shorter)
    ]
    assert ups[0] == pytest.approx(ups[1], abs=0.002), "a repair takes less time, no more"


def test_a_story_that_breaks_off_still_has_its_periods_before_its_end() -> None:
    async def story(world: LiveWorld) -> None:
        await world.fault(Fault(**DOWN, when=Schedule([(0, 1000)])))
        await world.advance(10)
        raise ValueError("enough")

    run = World(seed=1).play(story)
    assert run.partial.outages["until_s"].tolist() == [10]
    assert type(run.journal.since(0)[-1].event).__name__ == "End"


def test_a_server_takes_periods_and_shows_them() -> None:
    fault = {"victim": "service", "does": "refuse", "path": "/api/pay"}
    when = {"kind": "schedule", "periods": [[0, 60]]}
    with LocalServer() as server, httpx.Client(base_url=server.control_url) as http:
        assert http.post("/faults", json={**fault, "when": when}).status_code == 200
        (shown,) = http.get("/faults").json()
        assert shown["when"] == when
        for _ in range(2):
            with pytest.raises(httpx.TransportError):
                httpx.post(server.url + "/api/pay", json={})
        server.advance(61)
        assert httpx.post(server.url + "/api/pay", json={}).status_code == 400
        server.fault(Fault(**fault, when=Outages(mtbf_s=60, mttr_s=60)))
        wrong = http.post("/faults", json={**fault, "when": {"kind": "never"}})
        assert wrong.status_code == 400
        document = http.get("/openapi.json").json()
        schemas = document["components"]["schemas"]
        assert schemas["Outages"]["required"] == ["kind", "mtbf_s", "mttr_s"]
        lines = http.get("/journal").text.splitlines()
        told = [json.loads(line) for line in lines if "fault period ended" in line]
        assert [(each["until_ms"] - each["from_ms"], each["struck"]) for each in told] == [
            (60000, 2)
        ]
        injected = [json.loads(line) for line in lines if '"fault injected"' in line]
        assert [(each["times"], each["when"]["kind"]) for each in injected] == [
            (None, "schedule"), (None, "outages"),
        ]  # fmt: skip
