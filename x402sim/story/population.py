"""A population of payers: arrivals (Poisson or regular), behaviour, and their visits.

Each visit runs a behaviour in a separate task: to buy, or to open and use a session.
"""

import itertools
import math
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from x402sim.durations import DurationSpec, duration_of
from x402sim.payer.core import PaymentFailed
from x402sim.payer.policies import Choose
from x402sim.rng import Stream, is_untouched, later
from x402sim.story.payer import Payer
from x402sim.story.stages import Stage
from x402sim.tasks import together
from x402sim.text.arguments import AboveZero, explained


class Arrivals(Protocol):
    """When visits begin; write your own with these two methods."""

    is_random: bool
    """Whether each visit is of a payer drawn at random; if not, payers come in turn."""

    def moments(self, start_s: float, rng: Stream) -> Iterator[float]:
        """Yield the beginnings of visits in Unix seconds, in order; `start_s` is now."""
        ...


@explained
@dataclass(frozen=True, slots=True, kw_only=True)
class Poisson:
    """Visits at random: `per_s` a second on average, for the whole population."""

    per_s: AboveZero
    is_random = True

    def moments(self, start_s: float, rng: Stream) -> Iterator[float]:
        """Yield moments whose intervals are exponential."""
        at_s = start_s
        while True:
            at_s += rng.expovariate(self.per_s)
            yield at_s


@explained
@dataclass(frozen=True, slots=True)
class Every:
    """A visit every `seconds`, the first one at once."""

    seconds: AboveZero
    is_random = False

    def moments(self, start_s: float, rng: Stream) -> Iterator[float]:
        """Yield the moments of a fixed interval; draws nothing."""
        return (start_s + number * self.seconds for number in itertools.count())


# --- what they do ------------------------------------------------------------------------

Behaviour = Callable[[Payer, Stream], Awaitable[object]]
"""One visit of a payer; the stream is the payer's own, and goes on from visit to visit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Buy:
    """Get a quote as the payer's policy says, `times` times: by default pay for it and be served.

    times
        Quotes of one visit; default 1.
    wait
        Seconds between two orders: whatever a latency can be, such as a number, (median, sigma) of
        a lognormal, or a list of measured seconds; default 0.
    at
        The name of the service, or a rule to choose a service for each order, such as `cheapest`;
        default None, the world's first.
    """

    times: int = 1
    wait: DurationSpec = 0.0
    at: str | Choose | None = None

    def __post_init__(self) -> None:
        duration_of(self.wait)

    async def __call__(self, payer: Payer, rng: Stream) -> None:
        """Visit once; each order is tried as the payer's policy says.

        Raises `SpendingCapExceeded` beyond the policy's budget, which gives up the visit.
        """
        wait = duration_of(self.wait)
        for number in range(self.times):
            if number:
                await payer.clock.sleep(wait(rng))
            await (await _sent_to(payer, self.at)).fetch()


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """Open a session and send paid requests; the rest of the deposit is refunded at the end.

    A visit ends with the session, if all requests are not sent before. A payer that opens
    another instead is `Buy(times=...)` with a sessions policy of yours.

    deposit
        Tokens; default "0.10".
    requests
        The most requests of one visit, default 10; requests beyond the deposit are refused.
    wait
        Seconds before each request but the first, as in `Buy`; default 0.
    duration
        Seconds from its opening until the session ends; default 3600. The last visit may be over
        long before that: `await world.advance(duration + 60)` lets the session be refunded.
    at
        The name of the service, or a rule to choose a service for each visit, such as `cheapest`;
        default None, the world's first.
    """

    deposit: str = "0.10"
    requests: int = 10
    wait: DurationSpec = 0.0
    duration: int = 3600
    at: str | Choose | None = None

    def __post_init__(self) -> None:
        duration_of(self.wait)

    async def __call__(self, payer: Payer, rng: Stream) -> None:
        """Visit once; raises `PaymentFailed` if the request for a session gets no 402."""
        wait, clock = duration_of(self.wait), payer.clock
        there = await _sent_to(payer, self.at)
        opened = (await there.open_session(self.deposit, self.duration)).body
        session_id, ends_ms = opened.get("sessionId"), opened.get("expiresAt", math.inf)
        if session_id is None:
            return
        for number in range(self.requests):
            if number:
                await clock.sleep(wait(rng))
            if clock.now_ms() >= ends_ms:
                return
            await there.ask(session_id=session_id)


async def _sent_to(payer: Payer, at: str | Choose | None) -> Payer:
    """Return a payer at a service, by name or by a rule; None leaves the payer there."""
    if at is None or isinstance(at, str):
        return payer if at is None else payer.at(at)
    return await payer.choose(at)


# --- how it is played --------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Population:
    """The population of a scenario, when all its visits are over.

    `payers` are all; `visits` counts the visits that began; `given_up` counts the visits ended by
    `PaymentFailed`, such as for a lost answer, or by `SpendingCapExceeded`.
    """

    payers: list[Payer]
    visits: int
    given_up: int


async def play_population(
    stage: Stage,
    name: str,
    join: Callable[[str], Awaitable[Payer]],
    *,
    count: int,
    arrivals: Arrivals,
    behaviour: Behaviour,
    until_s: float | None,
) -> Population:
    """Play every visit of a population; return after the last visit.

    A visit that raises `PaymentFailed` is given up; any other exception is raised, with a note that
    names the payer.
    """
    start_s = stage.clock.now()
    moments = arrivals.moments(start_s, stage.stream(f"arrivals of {name}"))
    payers = [await join(f"{name} {number}") for number in range(1, count + 1)]
    streams: dict[str, Stream] = {}
    present = Counter[str]()
    visitors: Iterable[Payer] = payers if until_s is None else itertools.cycle(payers)
    if arrivals.is_random and until_s is not None:
        visitors = map(stage.stream(f"visitors of {name}").choice, itertools.repeat(payers))
    visits = given_up = 0

    async def visit(payer: Payer) -> None:
        nonlocal given_up
        name = payer.name
        present[name] += 1
        if name not in streams:
            streams[name] = later(partial(stage.stream, f"behaviour of {name}"))
        try:
            await behaviour(payer, streams[name])
        except PaymentFailed:
            given_up += 1
        except Exception as error:
            error.add_note(f"in a visit of {payer.name}")
            raise
        present[name] -= 1
        if present[name] == 0:  # drop what a later visit makes again, the same
            del present[name]
            payer.leave()
            if is_untouched(streams[name]):
                del streams[name]

    async with together() as begin:
        for at_s, payer in zip(moments, visitors, strict=False):
            if until_s is not None and at_s >= start_s + until_s:
                break
            await stage.clock.sleep_until(at_s)
            visits += 1
            begin(visit(payer), f"a visit of {payer.name}")
    return Population(payers=payers, visits=visits, given_up=given_up)
