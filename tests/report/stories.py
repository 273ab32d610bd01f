"""Runs to report on: each a few seconds of real protocol, played once per test session."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import cache, wraps
from typing import Any

from msgspec import structs

from x402sim import Fault, LiveWorld, Run, World
from x402sim.chain.base import LogFilter
from x402sim.events import AnswerReceived, End, Event, RequestSent
from x402sim.journal import Journal
from x402sim.protocol import abi
from x402sim.protocol.crypto import ZERO_ADDRESS, to_hex

LATENCY = {"service": (0.04, 0.4), "facilitator": (0.12, 0.5), "explorer": 0.05, "rpc": [0.01]}
Story = Callable[[LiveWorld], Awaitable[None]]
NASTY = 'al<b>ice & "$x$"'


async def replayed(world: LiveWorld) -> None:
    """Two payers, one good payment, two refusals, one payment id nobody pays for."""
    alice = await world.payer("alice", balance="1.00")
    mallory = await world.payer("mallory")
    first = await alice.ask()
    header = alice.sign(first)
    world.expect((await alice.pay(first, header)).status, 200, "4.1/receipt")
    second = await alice.ask()
    again = await alice.pay(second, header)
    world.expect(again.error, "Nonce already used", "7/nonce-already-used")
    stolen = await mallory.pay(await mallory.ask(), header)
    world.expect(stolen.error, "Nonce already used", "7/nonce-already-used")
    await alice.ask()


async def lost(world: LiveWorld) -> None:
    """The answer of the facilitator is lost, then that of the service; paid once all the same."""
    alice = await world.payer("alice", balance="1.00")
    await world.fault(Fault(victim="facilitator", does="lose answer", path="/settle"))
    await world.fault(Fault(victim="rpc", does="answer", skip=2, status=503))
    required = await alice.ask()
    header = alice.sign(required)
    await alice.pay(required, header)
    await world.advance(2)
    await world.fault(Fault(victim="service", does="lose answer", path="/api/pay"))
    await alice.pay(required, header)
    world.expect((await alice.pay(required, header)).status, 409, "7/payment-already-settled")


async def pending(world: LiveWorld) -> None:
    """The facilitator's answer is lost, and the story ends before anyone finds out."""
    alice = await world.payer("alice", balance="1.00")
    await world.fault(Fault(victim="facilitator", does="lose request", path="/settle"))
    await alice.buy()
    poor = await world.payer("poor")
    await poor.buy()


async def sessions(world: LiveWorld) -> None:
    """Two sessions: one is refunded in part, one is spent to the end."""
    alice = await world.payer("alice", balance="1.00")
    bob = await world.payer("bob", balance="1.00")
    first = (await alice.open_session("0.10", 600)).body["sessionId"]
    second = (await bob.open_session("0.02", 900)).body["sessionId"]
    for _ in range(3):
        await world.advance(60)
        await alice.ask(session_id=first)
        await bob.ask(session_id=second)
    await world.advance(900)
    world.expect(await alice.balance(), 970_000, "3/expiry-refund")


async def indexed(world: LiveWorld) -> None:
    """More payments than one batch, an explorer that lags, one run that finds nothing."""
    payers = [await world.payer(f"payer {n}", balance="5.00") for n in range(6)]
    await world.explorer_lag(400)

    async def shop(number: int) -> None:
        for _ in range(20):
            await world.clock.sleep(10 + number)
            await payers[number].buy()

    await asyncio.gather(*(shop(number) for number in range(6)))
    await world.advance(1200)
    world.expect((await world.run_indexer())["backlog"], 0, "1/indexer")


async def reorganised(world: LiveWorld) -> None:
    """A payment and a plain transfer are undone; only the transfer is mined again."""
    alice = await world.payer("alice", balance="1.00")
    eve = await world.payer("eve", balance="0.50")
    paid = await alice.buy()
    await eve.transfer(alice.address, "0.25")
    await world.reorg(2, [paid.body["txHash"]])


async def failing(world: LiveWorld) -> None:
    """Two checks do not hold, one does, and then the story breaks; names are nasty."""
    alice = await world.payer(NASTY, balance="0.005")
    bob = await world.payer("bob", balance="1.00")
    await bob.buy()
    refused, _ = await asyncio.gather(alice.buy(), bob.buy())
    world.expect(refused.status, 200, "4.1/receipt", about=refused)
    world.expect(refused.error, "<script>alert(1)</script>", "5/nonce-once", about=refused)
    world.expect(1, 1, "5/nonce-once")
    raise RuntimeError("the <i>story</i> broke")


async def meddled(world: LiveWorld) -> None:
    """Everything that a story can do to the world, once."""
    alice = await world.payer("alice", balance="1.00")
    paid = await alice.buy()
    await world.skew("facilitator", -30)
    await world.explorer_lag(90)
    await world.fault(Fault(victim="explorer", does="delay answer", seconds=2, times=None))
    await world.crash()
    await world.reorg(1, [paid.body["txHash"]])
    await world.force_revert(2)
    await world.mining(False)
    await world.drop_waiting()
    await world.mining(True)
    await alice.cancel(alice.sign(await alice.ask()))
    world.note("something else", colour="green")


STORIES = (replayed, lost, pending, sessions, indexed, reorganised, meddled, failing)
NAMES = [story.__name__ for story in STORIES]


class Truth:
    """What the ledger and the database say at the end of a story, whatever the journal says."""

    async def look(self, world: LiveWorld) -> None:
        chain, store = world.stage.parts.chain, world.stage.parts.service.store
        self.payments = dict(store.execute("SELECT payment_id, status FROM payments"))
        self.sessions = list(store.execute("SELECT session_id, deposited, released FROM sessions"))
        mined = "SELECT payment_id, tx_hash FROM payments WHERE block_number IS NOT NULL"
        self.blocks = dict(store.execute(mined))
        self.debits = store.one("SELECT count(*), sum(amount) FROM debits")
        self.merchant = await world.balance(world.merchant)
        seller, zero = abi.word(bytes.fromhex(world.merchant[2:])), abi.word(ZERO_ADDRESS)
        every = await chain.logs(LogFilter(0, 2**63, (), ((abi.TRANSFER_EVENT,),)))
        self.logs = [(to_hex(log.tx_hash), int.from_bytes(log.data)) for log in every]
        self.paid = {to_hex(log.tx_hash) for log in every if log.topics[2] == seller}
        self.returned = {to_hex(log.tx_hash) for log in every if log.topics[1] == seller}
        moved = {log.tx_hash for log in every if log.topics[1] != zero}
        self.gas = sum([(await chain.receipt(tx)).gas_used for tx in moved])


def play_story(story: Story, **wanted: Any) -> tuple[Run, Truth]:
    """Play a story; return its run, and the truth."""
    truth = Truth()

    @wraps(story)
    async def looked_at(world: LiveWorld) -> None:
        try:
            await story(world)
        finally:
            await truth.look(world)

    return World(**{"latency": LATENCY} | wanted).play(looked_at), truth


@cache
def played(name: str) -> tuple[Run, Truth]:
    """Play a story of this module; return its run, and the truth."""
    run, truth = play_story(STORIES[NAMES.index(name)], seed=1)
    return run.partial, truth


def run(name: str) -> Run:
    """Return the run of a story of this module."""
    return played(name)[0]


def skipped(scenario: str = "elsewhere", **more: str) -> Run:
    """Return a run that was skipped: it begins and ends."""
    begin = next(iter(run("replayed").journal)).event
    begin = structs.replace(begin, scenario=scenario, title=scenario)
    end = {"outcome": "skipped", "reason": "no <clock> there"} | more
    return Run(journal=journal_of(begin, End(**end)), on="https://example.org")


def journal_of(*happened: Event, took_ms: int = 0) -> Journal:
    """Return a journal of these events, so many milliseconds after one another."""
    journal = Journal()
    for number, event in enumerate(happened):
        journal.record(number * took_ms, event)
    return journal


def exchange(
    number: int = 1, *, actor: str = "a", to: str = "service", path: str = "/x", **answer: Any
) -> tuple[Event, Event]:
    both = {"actor": actor, "exchange": number, "to": to}
    answered = AnswerReceived(**both, **{"status": 200} | answer)
    return RequestSent(**both, method="GET", path=path), answered
