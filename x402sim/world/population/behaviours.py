"""What does a payer do on one visit? It buys, or it opens a session and uses it."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from x402sim.payer.shops import Choose
from x402sim.rng import Stream
from x402sim.world.story.payer import Payer
from x402sim.world.transport.latency import LatencySpec, latency_of

Behaviour = Callable[[Payer, Stream], Awaitable[object]]
"""One visit of a payer; the stream is the payer's own, and goes on from visit to visit."""
ASKED = 402
PAID = (200, 409)
"""The answers to a payment that say it is paid: a receipt, or "already settled"."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Buy:
    """Request a quote, pay for it, and request it again with the payment id; `times` times.

    at
        The name of the service, or a rule that chooses one for each order, such as `cheapest`.
    wait
        Seconds between two orders: whatever a latency can be, such as a number, (median, sigma) of
        a lognormal, or a list of measured seconds.
    """

    times: int = 1
    wait: LatencySpec = 0.0
    at: str | Choose | None = None

    def __post_init__(self) -> None:
        _require("times", self.times)
        latency_of(self.wait)

    async def __call__(self, payer: Payer, rng: Stream) -> None:
        """Visit once; an order whose 402 or receipt does not arrive is given up."""
        wait = latency_of(self.wait)
        for number in range(self.times):
            if number:
                await payer.world.clock.sleep(wait(rng))
            shop = await payer.sent_to(self.at)
            required = await shop.ask()
            if required.status != ASKED:
                continue
            paid = await shop.pay(required)
            if paid.status in PAID:
                await shop.ask(payment_id=required.payment_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """Open a session and send requests that it pays for; what is left is refunded at its end.

    deposit
        Tokens, such as "0.10".
    requests
        Requests of one visit; those that the deposit does not cover are refused.
    wait
        Seconds before each request but the first, as in `Buy`.
    duration_s
        Seconds from its opening until the session ends.
    """

    deposit: str = "0.10"
    requests: int = 10
    wait: LatencySpec = 0.0
    duration_s: int = 3600

    def __post_init__(self) -> None:
        _require("requests", self.requests)
        latency_of(self.wait)

    async def __call__(self, payer: Payer, rng: Stream) -> None:
        """Visit once; raises `PaymentFailed` if the request for a session gets no 402."""
        wait = latency_of(self.wait)
        opened = await payer.open_session(self.deposit, self.duration_s)
        session_id = opened.body.get("sessionId")
        if session_id is None:
            return
        for number in range(self.requests):
            if number:
                await payer.world.clock.sleep(wait(rng))
            await payer.ask(session_id=session_id)


def _require(name: str, count: int) -> None:
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise ValueError(f"{name}: expected a whole number of 1 or more, got {count!r}")
