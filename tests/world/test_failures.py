"""Failures are loud: they are raised on demand, with file and line, and can be played again."""

import asyncio
import contextlib
import re
import signal
import threading
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.world.playing import quote
from x402sim import Fault, Journal, LiveWorld, Run, Settings, World
from x402sim.events import End, NoAnswer, StoryRaised
from x402sim.policies import PayerPolicy, ServicePolicy
from x402sim.population import Every
from x402sim.report.run import RunFailed

HERE = Path(__file__).name


async def grouped(world: LiveWorld) -> None:
    async def inner() -> None:
        try:
            {}["nothing"]
        except KeyError as error:
            raise ValueError("two things went wrong") from error

    async def other() -> None:
        raise OSError("and a third")

    async with asyncio.TaskGroup() as group:
        group.create_task(inner())
        group.create_task(other())


def trace(run: Run) -> tuple[str, ...]:
    (raised,) = run.journal.events(StoryRaised)
    return raised.trace


def test_a_run_raises_its_failure_and_returns_itself_otherwise() -> None:
    async def wrong(world: LiveWorld) -> None:
        for n in range(7):
            world.expect(n, 0, "4.1/receipt")

    run = World(seed=1).play(quote)
    assert run.raise_for_failure() is run
    with pytest.raises(RunFailed) as caught:
        World(seed=3).play(wrong).raise_for_failure()
    assert caught.value.run.outcome == "failed"
    first, *checks, more, again = str(caught.value).split("\n  ")
    assert first == "'wrong' failed with seed 3: 6 of 7 checks did not hold"
    assert checks == [f"4.1/receipt: expected 0, got {n}" for n in range(1, 6)]
    assert more == "and 1 more failed checks"
    assert again == "play it again: World(seed=3).play(wrong)", "it has no file of its own"


def test_a_group_tells_every_error_in_it_with_file_and_line() -> None:
    run = World().play(grouped)
    assert (
        "2 sub-exceptions): ValueError: two things went wrong; OSError: and a third" in run.reason
    )
    assert [re.sub(rf"^( *){HERE}:[0-9]+ ", r"\1", line) for line in trace(run)] == [
        "in grouped: async with asyncio.TaskGroup() as group:",
        "error 1 of 2: ValueError: two things went wrong",
        '  in inner: {}["nothing"]',
        '  in inner: raise ValueError("two things went wrong") from error',
        "error 2 of 2: OSError: and a third",
        '  in other: raise OSError("and a third")',
    ]
    text = run.journal.ndjson().decode()
    for path in (str(Path(__file__).parents[2]), str(Path.home()), "site-packages"):
        assert path not in text


async def broken_visit(payer: Any, rng: Any) -> None:
    await payer.buy()
    {}["nothing"]


def test_an_error_in_a_visit_is_told_by_the_users_line_first_and_without_our_frames() -> None:
    async def story(world: LiveWorld) -> None:
        await world.population(3, arrivals=Every(1), behaviour=broken_visit)

    run = World(seed=1).play(story)
    assert run.reason == "KeyError: 'nothing' (in a visit of payer 1)"
    head, *frames, again = str(RunFailed(run)).split("\n  ")
    line = broken_visit.__code__.co_firstlineno + 2
    assert head == f"'story' failed with seed 1: {run.reason}, at {HERE}:{line}"
    assert [re.sub(r":\d+ ", ": ", frame) for frame in frames] == [
        f"{HERE}: in story: await world.population(3, arrivals=Every(1), behaviour=broken_visit)",
        f'{HERE}: in broken_visit: {{}}["nothing"]',
    ]
    assert again.startswith("play it again")


def test_the_frames_after_the_users_last_one_say_what_refused() -> None:
    async def story(world: LiveWorld) -> None:
        await world.advance(-1)

    first, *others = trace(World().play(story))
    assert re.fullmatch(rf"{HERE}:\d+ in story: await world.advance\(-1\)", first)
    assert others
    assert all(line.startswith("x402sim/story/live.py:") for line in others)


def test_a_plain_function_is_no_story() -> None:
    def notasync(world: LiveWorld) -> None: ...

    run = World().play(notasync)  # type: ignore[arg-type]
    line = notasync.__code__.co_firstlineno
    assert run.reason == (
        f"TypeError: notasync ({HERE}:{line}) is no story, since it returned None: "
        "write `async def notasync(world)`"
    )
    assert trace(run) == ()
    assert run.place == ""
    assert World().play(lambda world: forgetful(world)).reason.startswith("ForgottenAwait")


# --- a story that nothing wakes ---------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"block_time_s": 5}, {"on": "tcp"}], ids=str)
def test_a_story_that_nothing_wakes_is_stopped_at_once(options: dict[str, Any]) -> None:
    async def stuck(world: LiveWorld) -> None:
        alice = await world.payer("alice", balance="1.00")
        await alice.buy()
        await world.crash()
        await world.advance(50)
        await asyncio.Event().wait()

    run = World(latency={"service": 0.1}, **options).play(stuck)
    assert run.outcome == "failed"
    assert run.reason.startswith("Deadlock: nothing can wake the story, which did nothing since ")
    assert "blocks, sweeps and the indexer" in run.reason
    assert any(f"{HERE}:" in line and "await asyncio.Event().wait()" in line for line in trace(run))
    first, *_, last = run.journal
    assert last.at_ms - first.at_ms < 1_000_000


def test_whoever_waits_for_something_that_comes_is_left_alone() -> None:
    """For hours, in each of the ways in which a story can wait."""

    async def patient(world: LiveWorld) -> None:
        async def later() -> None:
            await asyncio.sleep(7200)
            rung.set()

        rung = asyncio.Event()
        task = asyncio.create_task(later())
        await rung.wait()
        await task
        await world.advance(7200)
        await world.clock.sleep(7200)
        loop = asyncio.get_running_loop()
        called: asyncio.Future[None] = loop.create_future()
        loop.call_later(7200, called.set_result, None)
        await called
        async with asyncio.timeout(7200):
            await asyncio.to_thread(lambda: None)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(7200):
                await asyncio.Event().wait()

    for options in {}, {"block_time_s": 7.0, "on": "tcp"}:
        World(**options).play(patient).raise_for_failure()


# --- a forgotten await ------------------------------------------------------------------


async def forgetful(world: LiveWorld) -> None:
    alice = await world.payer("alice", balance="1.00")
    world.fault(Fault(victim="facilitator", does="lose answer", path="settle"))
    await alice.buy()


@pytest.mark.parametrize(
    "misuse",
    [
        lambda world: world.payer("alice").buy(),
        lambda world: world.payer("alice") + 1,
        lambda world: world.payer("alice")[0],
        lambda world: len(world.payer("alice")),
    ],
)
def test_an_error_that_follows_from_a_forgotten_await_says_so(
    misuse: Any, recwarn: pytest.WarningsRecorder
) -> None:
    async def story(world: LiveWorld) -> None:
        misuse(world)

    run = World().play(story)
    where = rf"( \({HERE}:\d+\))?"  # an AttributeError keeps it until it is handled
    told = rf"\(coroutine 'LiveWorld.payer' was never awaited{where}: write `await`\)$"
    assert re.search(told, run.reason)
    assert not recwarn.list


def test_warnings_of_the_story_are_shown_and_the_filters_are_as_they_were() -> None:
    async def story(world: LiveWorld) -> None:
        warnings.warn("the story's own", stacklevel=1)

    before = list(warnings.filters), warnings.showwarning
    with pytest.warns(UserWarning, match="the story's own"):
        World().play(story)
    assert (list(warnings.filters), warnings.showwarning) == before


def test_a_forgotten_await_is_found_after_others_restored_a_story_s_filters() -> None:
    """Of two blocks that overlap in two threads, the later end restores what the other one had set."""
    outer, goes_on, ends = warnings.catch_warnings(), threading.Event(), threading.Event()

    async def waiting(world: LiveWorld) -> None:
        goes_on.set()
        await asyncio.to_thread(ends.wait)

    with warnings.catch_warnings(), ThreadPoolExecutor(1) as threads:
        playing = threads.submit(World().play, waiting)
        goes_on.wait()
        with outer:
            ends.set()
            assert playing.result().outcome == "passed"
        shown = warnings.showwarning
        for _ in range(2):
            assert "ForgottenAwait" in World().play(forgetful).reason
        with pytest.warns(UserWarning, match="from outside"):  # noqa: PT031 - it resets what shows
            warnings.showwarning = shown
            warnings.warn("from outside", stacklevel=1)


# --- what the simulated service logs ------------------------------------------------------


async def broken_node(world: LiveWorld) -> None:
    await (await world.payer("alice", balance="1.00")).buy()
    await world.fault(Fault(victim="rpc", does="refuse", times=None))
    await world.fault(Fault(victim="explorer", does="refuse", times=None))
    await world.advance(1200)


def test_a_fault_of_the_story_is_in_the_journal_and_not_on_stderr(
    virtual: str, caplog: pytest.LogCaptureFixture
) -> None:
    run = World(on=virtual).play(broken_node)
    assert {each.to for each in run.journal.events(NoAnswer)} >= {"explorer"}
    assert caplog.records == []


# --- an exception in the user's own code: the run fails, and the user's line is told first -----


def boom(*_: Any) -> Any:
    raise LookupError("boom")


LINE = f"{HERE}:{boom.__code__.co_firstlineno + 1}"


@dataclass
class Raises:
    """Has the methods of every policy, and raises in each."""

    counts_served = True
    is_random = False
    verifies = claims_before = serves = of = intervals = moments = boom

    async def resolve(self, payment: Any) -> None:
        boom()

    def __hash__(self) -> int:
        return 1


class Ends:
    """Block times, and depths of reorganisations, that end."""

    drop = 1.0

    def intervals(self, stream: Any) -> Iterator[float]:
        yield 5.0

    def depths(self, stream: Any) -> Iterator[int]:
        yield 0


async def buys(world: LiveWorld) -> None:
    await quote(world)
    await world.advance(1000)


async def odd_fault(world: LiveWorld) -> None:
    await world.fault(boom)
    await buys(world)


async def visits(world: LiveWorld) -> None:
    await world.population(2, arrivals=Raises())


def policy(**choice: Any) -> dict[str, Any]:
    return {"service": Settings(policy=ServicePolicy(**choice))}


@pytest.mark.parametrize(
    ("story", "options"),
    [
        *((buys, policy(**{name: Raises()})) for name in ("verify", "claim", "serve")),
        (buys, {"service": Settings(reputation=Raises(), indexer_interval_s=10)}),
        (buys, {"latency": {"facilitator": boom}}),
        (buys, {"block_time_s": Raises()}),
        (odd_fault, {}),
        (visits, {}),
    ],
)
def test_an_exception_in_the_users_code_fails_the_run_with_its_line(
    story: Callable[[LiveWorld], Any], options: dict[str, Any], virtual: str
) -> None:
    run = World(on=virtual, **options).play(story)
    assert run.outcome == "failed"
    assert run.reason.startswith("LookupError: boom"), run.reason
    assert run.place == LINE


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"block_time_s": Ends()}, "block_time_s: the intervals of"),
        ({"block_time_s": 5, "reorgs": Ends()}, "reorgs: the depths of"),
    ],
)
def test_a_model_that_ends_fails_the_run(options: dict[str, Any], says: str) -> None:
    assert World(**options).play(buys).reason == f"ValueError: {says} Ends(...) have ended"


# --- what is in flight when a story ends ------------------------------------------------


SLOW = Fault(victim="facilitator", does="delay answer", path="/settle", seconds=30)


async def leaves_early(world: LiveWorld) -> None:
    """The payer gives up after two seconds; the service still waits for its facilitator."""
    alice = await world.payer("alice", balance="1.00", policy=PayerPolicy(timeout_s=2))
    await world.fault(SLOW)
    await alice.buy()
    running = {asyncio.create_task(alice.ask())}
    await asyncio.sleep(0)
    assert running


@pytest.mark.parametrize("in_file", [False, True])
def test_a_request_in_flight_at_the_end_is_no_failure_and_records_nothing(
    virtual: str, in_file: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    journal = tmp_path / "run.ndjson" if in_file else None
    run = World(seed=1, on=virtual, journal=journal).play(leaves_early)
    run.raise_for_failure()
    assert isinstance(list(run.journal)[-1].event, End)
    assert caplog.text == ""
    assert run.sha256 == World(seed=1).play(leaves_early).sha256


def test_ctrl_c_while_a_payment_settles_is_no_failure_of_the_service(
    virtual: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def interrupted(world: LiveWorld) -> None:
        alice = await world.payer("alice", balance="1.00")
        await world.fault(SLOW)
        asyncio.get_running_loop().call_later(5, signal.raise_signal, signal.SIGINT)
        await alice.buy()

    file = tmp_path / "run.ndjson"
    with pytest.raises(KeyboardInterrupt):
        World(seed=1, on=virtual, journal=file).play(interrupted)
    assert caplog.text == ""
    *_, last = Journal.load(file.read_bytes())
    assert last.event == End(outcome="failed", reason="interrupted")
