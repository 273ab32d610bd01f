"""No hostile answer makes a reader grow, wait, or raise what it does not document.

Every reader of answers, in a process of its own, meets habits of `hostile_peer`.
"""

import asyncio
import gzip
import inspect
import resource
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, replace
from multiprocessing import get_context
from typing import Any

import httpx
import pytest

from tests.bounded.hostile_peer import HABITS, Server, serving
from tests.strategies import requirements
from x402sim import PaymentAuth, PaymentFailed, SessionAuth, Settings, Wallet, World
from x402sim.clock import stopwatch
from x402sim.http.bounded import MIB, AnswerTooLarge, Limits, bound
from x402sim.http.exchange import OverClient, Transport
from x402sim.protocol.header import present
from x402sim.service.environment import Environment
from x402sim.service.upstream.calls import OutcomeUnknown, Unavailable
from x402sim.serving.control.client import JOURNAL_ANSWER_BYTES, ControlClient
from x402sim.story.stages import open_stage
from x402sim.suite.service.control_api import ChainView, ControlApi
from x402sim.suite.service.options import Options
from x402sim.suite.service.probe import Probe
from x402sim.suite.service.sending import reach
from x402sim.suite.service.setting import Setting
from x402sim.suite.service.target import ProtectedEndpoint, Target
from x402sim.suite.verdict import Inconclusive, NotReady
from x402sim.world.world import Deployment

DEADLINE_S = 0.25
GRACE_S = 6.0
"""A busy machine, and what is decoded before the limit is reached."""
GROWTH_MIB = 50.0
JOURNAL_GROWTH_MIB = 2 * JOURNAL_ANSWER_BYTES / MIB + GROWTH_MIB
LARGEST = "suite journal"
"""The reader of what may be large: it is the last, because a process keeps its peak."""
RETURNS = ("story", "payer 402 sync", "payer 402 async")
"""The readers that return an answer read within the limits: a 402 without an offer is the caller's.
"""

# --- the readers --------------------------------------------------------------------------

KEY = b"k" * 32
Reader = Callable[[str, float], Any]


def service(url: str, deadline_s: float) -> tuple[httpx.AsyncClient, Environment]:
    settings = Settings(
        verify_timeout_s=deadline_s, settle_timeout_s=deadline_s, explorer_timeout_s=deadline_s
    )
    setup = Environment(
        private_key=KEY, facilitator_url=url, explorer_url=url, rpc_url=url, settings=settings
    )
    return httpx.AsyncClient(timeout=None), setup


def _upstream(call: Callable[[Transport, Environment], Any]) -> Reader:
    async def read(url: str, deadline_s: float) -> None:
        http, setup = service(url + "/200", deadline_s)
        async with http:
            await call(OverClient(http), setup)

    return read


def payer(url: str, deadline_s: float) -> PaymentAuth:
    habit = url.rpartition("/")[2]
    return PaymentAuth(Wallet(KEY), pay_path=f"/{habit}/200", deadline_s=deadline_s)


def session(url: str, deadline_s: float) -> SessionAuth:
    create = f"/{url.rpartition('/')[2]}/402"
    return SessionAuth(Wallet(KEY), create_path=create, deadline_s=deadline_s)


def honest(url: str) -> str:
    """An honest 402 of the same server."""
    return url.rpartition("/")[0] + "/pays/x"


def _sync(make: Callable[[str, float], httpx.Auth], place: Callable[[str], str]) -> Reader:
    def read(url: str, deadline_s: float) -> None:
        httpx.get(place(url), auth=make(url, deadline_s), timeout=60, follow_redirects=True)

    return read


def _async(make: Callable[[str, float], httpx.Auth], place: Callable[[str], str]) -> Reader:
    async def read(url: str, deadline_s: float) -> None:
        async with httpx.AsyncClient(
            timeout=60, auth=make(url, deadline_s), follow_redirects=True
        ) as http:
            await http.get(place(url))

    return read


def _suite(place: str, ask: Callable[[Setting, str], Any]) -> Reader:
    """Let the suite ask what has the habit as this option: `rpc_url`, `world_url`, or none."""

    async def read(url: str, deadline_s: float) -> None:
        root, _, habit = url.rpartition("/")
        there = {place: url + "/200"} if place else {}
        async with reach(Options(base_url=root, timeout_s=deadline_s, **there)) as setting:
            await ask(setting, habit)

    return read


async def _target(setting: Setting, habit: str) -> None:
    """Ask the target for everything that a check may ask."""
    target = Target(protected=ProtectedEndpoint(path=f"/{habit}/402", method="GET"))
    probe = Probe(replace(setting, options=replace(setting.options, target=target)))
    answer = await probe.ask()
    _ = answer.summary, answer.has_content
    await probe.buy()


async def _journal(setting: Setting, _: str) -> None:
    world = ControlApi(replace(setting, control=ControlClient(setting.rpc)))
    try:
        await world.journal(0)
    finally:
        await world.get("who")


async def _story(url: str, deadline_s: float) -> None:
    """What `run --on URL` reads: the control API's description, then the service's answers."""
    world = World(on=Deployment(url + "/200", limits=Limits(deadline_s=deadline_s)))
    async with open_stage(world) as stage, stage.client("alice") as http:
        http.timeout = httpx.Timeout(deadline_s)
        await http.get("/x")


READERS: dict[str, Reader] = {
    "service verify": _upstream(
        lambda to, setup: setup.facilitator(to).verify(present("0x"), requirements())
    ),
    "service settle": _upstream(
        lambda to, setup: setup.facilitator(to).settle(present("0x"), requirements())
    ),
    "service explorer": _upstream(
        lambda to, setup: setup.explorer(to).transaction("0x" + "1" * 64)
    ),
    "service rpc": _upstream(
        lambda to, setup: setup.rpc(to).nonce_state(Wallet(KEY).address_bytes, bytes(32))
    ),
    "payer 402 sync": _sync(payer, lambda url: url + "/402"),
    "payer 402 async": _async(payer, lambda url: url + "/402"),
    "payer settlement sync": _sync(payer, honest),
    "payer settlement async": _async(payer, honest),
    "session sync": _sync(session, honest),
    "session async": _async(session, honest),
    "story": _story,
    "suite target": _suite("", _target),
    "suite chain": _suite("rpc_url", lambda at, _: ChainView(at).call("eth_blockNumber")),
    "suite world": _suite("world_url", lambda *_: asyncio.sleep(0)),  # it was asked already
    "suite journal": _suite("rpc_url", _journal),
}
DOCUMENTED = (Unavailable, OutcomeUnknown, PaymentFailed, httpx.HTTPError, Inconclusive,
              NotReady, ConnectionError)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Told:
    """A reader's meeting with a habit: the error, the duration, and the peak of memory so far."""

    reader: str
    habit: str
    raised: str
    seconds: float
    peak_mib: float


def read(url: str, pairs: Sequence[tuple[str, str]]) -> tuple[float, list[Told]]:
    """Return the peak of memory at first, and what became of each pair of a reader and a habit.

    An undocumented error of a reader ends the process.
    """
    start_mib = peak_mib()
    return start_mib, [meet(reader, url, habit) for reader, habit in pairs]


def meet(reader: str, url: str, habit: str) -> Told:
    elapsed, raised = stopwatch(), "nothing"
    try:
        done = READERS[reader](f"{url}/{habit}", DEADLINE_S)
        if inspect.isawaitable(done):
            asyncio.run(done)  # type: ignore[arg-type]
    except DOCUMENTED as error:
        raised = f"{type(error).__name__}: {error}"[:300]
    return Told(reader, habit, raised, elapsed(), peak_mib())


def peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


# --- the tests ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def peer() -> Iterator[Server]:
    with serving() as server:
        yield server


@pytest.mark.parametrize("size", [1000, 1001])
def test_a_body_is_measured_as_decoded(size: int) -> None:
    sent = httpx.ByteStream(gzip.compress(b"x" * size))
    answer = httpx.Response(200, headers={"Content-Encoding": "gzip"}, stream=sent)
    bound(answer, Limits(max_answer_bytes=1000))
    with pytest.raises(AnswerTooLarge) if size > 1000 else nullcontext():
        assert len(answer.read()) == size


@pytest.mark.thorough
@pytest.mark.parametrize("reader", READERS)
def test_every_reader_meets_every_habit(reader: str, peer: Server) -> None:
    campaign([(reader, habit) for habit in HABITS], peer)


def campaign(pairs: Sequence[tuple[str, str]], peer: Server) -> None:
    """Let readers read habits' answers, pair by pair, in another process."""
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        start_mib, told = pool.submit(read, peer.url, pairs).result()
    assert [each for each in told if each.seconds > _allowed_s(each)] == []
    for each in told:
        most = JOURNAL_GROWTH_MIB if each.reader == LARGEST else GROWTH_MIB
        assert each.peak_mib - start_mib < most, each
        assert each.raised != "nothing" or each.reader in RETURNS, each


def _allowed_s(told: Told) -> float:
    """Two exchanges for a world: it is asked for its description first."""
    return (2 if told.reader in ("story", LARGEST) else 1) * DEADLINE_S + GRACE_S
