"""What a payer does on one visit: it buys, or it opens a session and uses it."""

import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from x402sim.payer.shops import Choose
from x402sim.rng import Stream
from x402sim.text.arguments import WholeAboveZero, explained
from x402sim.world.story.payer import Payer
from x402sim.world.transport.latency import LatencySpec, latency_of

Behaviour = Callable[[Payer, Stream], Awaitable[object]]
"""One visit of a payer; the stream is the payer's own, and goes on from visit to visit."""


@explained
@dataclass(frozen=True, slots=True, kw_only=True)
class Buy:
    """Get a quote as the payer's policy says, `times` times: by default pay for it and be served.

    times
        Quotes of one visit; default 1.
    wait
        Seconds between two orders: whatever a latency can be, such as a number, (median, sigma) of
        a lognormal, or a list of measured seconds; default 0.
    at
        The name of the service, or a rule that chooses one for each order, such as `cheapest`;
        default None, the world's first.
    """

    times: WholeAboveZero = 1
    wait: LatencySpec = 0.0
    at: str | Choose | None = None

    def __post_init__(self) -> None:
        latency_of(self.wait)

    async def __call__(self, payer: Payer, rng: Stream) -> None:
        """Visit once; each order is tried as the payer's policy says.

        Raises `SpendingCapExceeded` beyond the policy's budget, which gives up the visit.
        """
        wait = latency_of(self.wait)
        for number in range(self.times):
            if number:
                await payer.clock.sleep(wait(rng))
            await (await _sent_to(payer, self.at)).fetch()


@explained
@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """Open a session and send requests that it pays for; what is left is refunded at its end.

    A visit ends with its session, if that ends before all requests are sent. A payer that opens
    another instead is `Buy(times=...)` with `PayerPolicy(sessions=OpenSessions(...))`.

    deposit
        Tokens; default "0.10".
    requests
        The most requests of one visit, default 10; those that the deposit does not cover are
        refused.
    wait
        Seconds before each request but the first, as in `Buy`; default 0.
    duration_s
        Seconds from its opening until the session ends; default 3600. The last visit may be over
        long before that: `await world.advance(duration_s + 60)` lets the session be refunded.
    at
        The name of the service, or a rule that chooses one for each visit, such as `cheapest`;
        default None, the world's first.
    """

    deposit: str = "0.10"
    requests: WholeAboveZero = 10
    wait: LatencySpec = 0.0
    duration_s: int = 3600
    at: str | Choose | None = None

    def __post_init__(self) -> None:
        latency_of(self.wait)

    async def __call__(self, payer: Payer, rng: Stream) -> None:
        """Visit once; raises `PaymentFailed` if the request for a session gets no 402."""
        wait, clock = latency_of(self.wait), payer.clock
        there = await _sent_to(payer, self.at)
        opened = (await there.open_session(self.deposit, self.duration_s)).body
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
    """Return a payer at the service of a name, or that a rule chooses; None leaves it."""
    if at is None or isinstance(at, str):
        return payer if at is None else payer.at(at)
    return await payer.choose(at)
