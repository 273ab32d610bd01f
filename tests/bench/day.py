"""A simulated day: many payers, one service, one process.

Each payer sends requests at random times (a Poisson process). Every third one uses sessions,
the others pay for each request. Every link has latency; the indexer, the sweeps and the miner
run in the background; the invariants are checked after every event.
"""

import asyncio
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from x402sim import events
from x402sim.payer.auth import PaymentAuth
from x402sim.payer.session import SessionAuth
from x402sim.report.reading import SERVICES, Reading
from x402sim.world.story.live import LiveWorld
from x402sim.world.story.payer_client import ORDER, QUOTE
from x402sim.world.story.world import World
from x402sim.world.transport.latency import LatencySpec

SEED = 1
PAUSE_S = 7200
"""The mean time between two requests of one payer."""
SPENDING_CAP = "100.00"
SESSION_SPEND, SESSION_S = "0.05", 21_600
LATENCY: dict[str, LatencySpec] = {
    "service": (0.04, 0.4),
    "facilitator": (0.08, 0.4),
    "explorer": (0.06, 0.4),
    "rpc": (0.03, 0.4),
}
"""Median seconds of one message in one direction, and the sigma of their lognormal distribution."""


@dataclass(frozen=True, slots=True)
class Day:
    """What happened, and how long it took, in virtual and in real seconds."""

    payers: int
    virtual_s: float
    real_s: float
    events: int
    requests: int
    payments: int
    sessions: int
    debits: int
    journal_sha256: str

    def lines(self) -> Iterator[str]:
        """Yield what to print."""
        speed_up, hours = self.virtual_s / self.real_s, self.virtual_s / 3600
        yield f"{self.payers:,} payers, {hours:.3g} h simulated, one process"
        yield f"  real time         {self.real_s:.1f} s: {speed_up:,.0f} times real time"
        yield f"  requests          {self.requests:,} by payers, {self.payments:,} payments"
        yield f"  sessions          {self.sessions:,}, debited {self.debits:,} times"
        yield f"  journal           {self.events:,} events"
        yield f"journal sha256 {self.journal_sha256}"


def simulate(payers: int, hours: float) -> Day:
    """Simulate this many hours; every check must hold."""

    async def day(world: LiveWorld) -> None:
        ends_s = world.clock.now() + hours * 3600
        await asyncio.gather(*(_payer(world, number, ends_s) for number in range(payers)))
        await world.clock.sleep_until(ends_s)

    run = World(seed=SEED, latency=LATENCY).play(day)
    assert run.outcome == "passed", f"a check of the simulated day failed: {run.reason}"
    assert run.real_s is not None
    entries = list(run.journal)
    counted = Counter(type(entry.event) for entry in entries)
    return Day(
        payers=payers,
        virtual_s=(entries[-1].at_ms - entries[0].at_ms) / 1000,
        real_s=run.real_s,
        events=len(entries),
        requests=sum(each.caller not in SERVICES for each in Reading(run.journal).exchanges),
        payments=counted[events.PaymentSettled],
        sessions=counted[events.SessionOpened],
        debits=counted[events.SessionDebited],
        journal_sha256=run.sha256,
    )


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
            max_spend=SESSION_SPEND,
            duration=SESSION_S,
            max_sessions=1000,
            clock=world.clock,
        )
    http = world.client(someone, auth)
    while (next_s := world.clock.now() + rng.expovariate(1 / PAUSE_S)) < ends_s:
        await world.clock.sleep_until(next_s)
        answer = await http.post(QUOTE, json=ORDER)
        assert answer.status_code == 200, answer.text
