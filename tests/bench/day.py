"""A simulated day: many payers, one service, one process.

Each payer sends requests at random times (a Poisson process). Every third one uses sessions,
the others pay for each request. Every link has latency; the indexer, the sweeps and the miner
run in the background; the invariants are checked after every event.
"""

import asyncio

from tests.bench.rounds import spent_s
from x402sim import World, events
from x402sim.durations import DurationSpec
from x402sim.payer.auth import PaymentAuth
from x402sim.payer.session import SessionAuth
from x402sim.protocol.routes import QUOTE
from x402sim.report.run import Run
from x402sim.world.live import LiveWorld
from x402sim.world.payer import ORDER

PAYERS = 200
PAUSE_S = 7200
"""The mean time between two requests of one payer."""
SPENDING_CAP = "100.00"
SESSION_SPEND, SESSION_S = "0.05", 21_600
LATENCY: dict[str, DurationSpec] = {
    "service": (0.04, 0.4),
    "facilitator": (0.08, 0.4),
    "explorer": (0.06, 0.4),
    "rpc": (0.03, 0.4),
}
"""Median seconds of one message in one direction, and the sigma of their lognormal distribution."""


def a_payment(hours: float) -> float:
    """Simulate so many hours; return the CPU seconds of all, for each payment."""
    runs: list[Run] = []
    took_s = spent_s(lambda: runs.append(simulate(PAYERS, hours)))
    return took_s / sum(1 for _ in runs[0].journal.of(events.PaymentSettled))


def simulate(payers: int, hours: float) -> Run:
    """Simulate so many hours; every check must hold."""

    async def day(world: LiveWorld) -> None:
        ends_s = world.clock.now() + hours * 3600
        await asyncio.gather(*(_payer(world, number, ends_s) for number in range(payers)))
        await world.clock.sleep_until(ends_s)

    run = World(seed=1, latency=LATENCY).play(day)
    assert run.outcome == "passed", f"a check of the simulated day failed: {run.reason}"
    return run


async def _payer(world: LiveWorld, number: int, ends_s: float) -> None:
    """Request quotes until the day is over."""
    rng = world.rng(f"payer {number}")
    someone = await world.payer(f"payer {number}", balance=SPENDING_CAP)
    auth: PaymentAuth | SessionAuth
    if number % 3:
        auth = PaymentAuth(someone.wallet, max_total=SPENDING_CAP, reuse=False, clock=world.clock)
    else:
        auth = SessionAuth(
            someone.wallet,
            deposit=SESSION_SPEND,
            duration=SESSION_S,
            max_sessions=1000,
            clock=world.clock,
        )
    while (next_s := world.clock.now() + rng.expovariate(1 / PAUSE_S)) < ends_s:
        await world.clock.sleep_until(next_s)
        answer = await someone.http.post(QUOTE, json=ORDER, auth=auth)
        assert answer.status_code == 200, answer.text
