"""The setting of a run: options, connections to the target and the world, and the turn to act.

One check acts at a time; during its waits, other checks act.

Checks that need a restart share a restart, when all others are over and each is ready. The owner's
command ends the target, starts the target again, and returns while the target runs on. `Overlaps`
knows which checks ran beside a check, and may have disturbed the check.
"""

import asyncio
from asyncio.subprocess import DEVNULL
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from http.cookiejar import DefaultCookiePolicy
from typing import Any, Protocol

import httpx

from x402sim.clock import Clock
from x402sim.protocol.networks import MAINNET, Network
from x402sim.rng import Rng
from x402sim.serving.control.client import ControlClient
from x402sim.spec.needs import Need
from x402sim.suite import redact
from x402sim.suite.service.options import Options
from x402sim.suite.service.target import Target
from x402sim.suite.subject import until_url_answers
from x402sim.suite.verdict import Show


@dataclass(slots=True)
class Pace:
    """The rate of a run: the requests sent, and the time of the next request."""

    rate: float | None = None
    requests: int = 0
    free_at_s: float = 0.0

    async def turn(self, clock: Clock) -> None:
        """Return when the next request may be sent."""
        while (wait_s := self.free_at_s - clock.now()) > 0:
            await clock.sleep(wait_s)
        if self.rate is not None:
            self.free_at_s = clock.now() + 1 / self.rate
        self.requests += 1

    def hold(self, clock: Clock, seconds: float) -> None:
        """Send nothing for some seconds."""
        self.free_at_s = max(self.free_at_s, clock.now() + seconds)


class Acting(Protocol):
    """A case, as `Overlaps` sees it."""

    @property
    def id(self) -> str:
        """The id of the case."""

    @property
    def disturbs(self) -> bool:
        """Whether the case disturbs the target's background."""


@dataclass(slots=True)
class Overlaps:
    """Which other cases may have disturbed a case, while the case waited, or before.

    Traces of a case in the target's background (payments to resolve, refunds to repeat) last beyond
    the case, until the target was seen to have `recovered`.
    """

    near: dict[Acting, dict[Acting, None]] = field(default_factory=dict)
    """The cases near each case that has begun, in their order."""
    unrecovered: dict[Acting, None] = field(default_factory=dict)
    """The cases that have disturbed the target since it was last seen to run as usual."""
    _waiting: dict[Acting, None] = field(default_factory=dict)
    """The waiting cases, beside which others act."""

    @contextmanager
    def joined(self, case: Acting, *, waits: bool) -> Iterator[None]:
        """Let a case act from now on, to the end of the block."""
        self.near[case] = dict.fromkeys((*self.unrecovered, *(self._waiting if waits else ())))
        for other in self._waiting:
            self.near[other][case] = None
        if waits:
            self._waiting[case] = None
        if case.disturbs:
            self.unrecovered[case] = None
        try:
            yield
        finally:
            self._waiting.pop(case, None)

    def recovered(self) -> None:
        """Note that the target's background runs again, apart from faults in progress."""
        self.unrecovered = dict.fromkeys(each for each in self._waiting if each.disturbs)

    def faults(self, case: Acting) -> set[Acting]:
        """Return the cases whose faults were near a case."""
        return {each for each in self.near[case] if each.disturbs}

    def ran_beside(self, case: Acting) -> list[str]:
        """Return the other ids near a case; ids with a case that has disturbed the target first."""
        disturbers = {each.id for each in self.near if each.disturbs}
        ids = dict.fromkeys(each.id for each in self.near[case] if each.id != case.id)
        return sorted(ids, key=lambda check_id: check_id not in disturbers)


class RestartFailed(Exception):
    """The target was not restarted, or has not answered since."""


class Scheduler:
    """Lets one check of a run act at a time; without `share`, checks run one by one."""

    def __init__(self) -> None:
        self.turn = asyncio.Lock()
        """The lock of the acting check."""
        events = [asyncio.Event() for _ in range(4)]
        self.rest_is_over, self._may_restart, self._first_is_over, self._waits_are_over = events
        for event in events:
            event.set()
        self.prepared, self.ready = asyncio.Semaphore(0), asyncio.Semaphore(0)
        """Released by each check that has prepared for the restart, is ready for it, or is over."""
        self.overlaps = Overlaps()
        self._restarted: asyncio.Future[None] | None = None
        """The shared restart, once it has begun."""

    async def waiting(self, event: Coroutine[Any, Any, object]) -> None:
        """Release the turn until an event has happened, and take the turn again."""
        self.turn.release()
        try:
            await event
        finally:
            await self.turn.acquire()

    @asynccontextmanager
    async def first(self) -> AsyncIterator[None]:
        """Act before all checks that `wait_for_the_first`; for the first act of a check only."""
        self._first_is_over.clear()
        try:
            yield
        finally:
            self._first_is_over.set()

    async def wait_for_the_first(self) -> None:
        """Release the turn for every other check, and wait for the check that acts `first`."""
        await self.waiting(asyncio.sleep(0))  # noqa: TID251 - no time passes; the others begin
        await self.waiting(self._first_is_over.wait())

    async def wait_for_the_rest(self) -> None:
        """Release the turn until all checks without a wait are over."""
        await self.waiting(self.rest_is_over.wait())

    async def wait_for_the_restart(self) -> None:
        """Release the turn until only checks with a restart are left: the check then acts shortly
        before the restart."""
        self.prepared.release()
        await self.waiting(self._waits_are_over.wait())

    async def restart(self, restart: Callable[[], Awaitable[None]]) -> None:
        """Restart the target, or take part in the shared restart; raises `RestartFailed`."""
        self.is_ready()
        await self.waiting(self._may_restart.wait())
        self._restarted = self._restarted or asyncio.ensure_future(restart())
        await self._restarted

    def share(self) -> None:
        """Begin a run: the rest is not over, and one restart serves all."""
        self.rest_is_over.clear()
        self._may_restart.clear()
        self._waits_are_over.clear()

    def is_ready(self) -> None:
        """Say that a check is ready for the restart, or over."""
        self.prepared.release()
        self.ready.release()

    def alone(self) -> None:
        """Let the next check act without any other: the restart is its own."""
        self._restarted = None

    async def when_prepared(self, checks: int) -> None:
        """Wait until this many checks wait only for the restart, or are over."""
        for _ in range(checks):
            await self.prepared.acquire()

    async def when_ready(self, checks: int) -> None:
        """Wait until this many checks are ready for the restart, or over; then restart. All others
        are over."""
        self._waits_are_over.set()
        for _ in range(checks):
            await self.ready.acquire()
        self._may_restart.set()


def restarting(
    command: str, http: httpx.AsyncClient, deadline_s: float
) -> Callable[[], Awaitable[None]]:
    """Return a function that runs a shell command, and waits until the target answers again.

    Each may take `deadline_s` seconds in real time. The function raises `RestartFailed`.
    """

    async def restart() -> None:
        await _run(command, deadline_s)
        if problem := await until_url_answers(http, "/", deadline_s):
            raise RestartFailed(
                f"the target did not answer within {deadline_s:.0f} s after `{command}`: {problem}"
            )

    return restart


async def _run(command: str, deadline_s: float) -> None:
    """Run the command; no output is kept, because the target may inherit the pipes."""
    process = await asyncio.create_subprocess_shell(
        command, stdin=DEVNULL, stdout=DEVNULL, stderr=DEVNULL
    )
    try:
        code = await asyncio.wait_for(process.wait(), deadline_s)
    except TimeoutError:
        process.kill()
        await process.wait()
        raise RestartFailed(
            f"`{command}` did not end within {deadline_s:.0f} s; let it start the target in the "
            "background"
        ) from None
    if code != 0:
        raise RestartFailed(f"`{command}` ended with exit code {code}")


@dataclass(slots=True, kw_only=True)
class Setting:
    """A run: options, connections to the target and the world, and the checks' shared state.

    `control` reaches the control API (/_sim) of the target's world, `rpc` a node of the chain.
    `advance` advances the target's clock, and `restart` ends and starts the target, where possible;
    raises `RestartFailed`.
    """

    options: Options = field(default_factory=Options)
    http: httpx.AsyncClient
    clock: Clock = field(default_factory=Clock)
    rng: Rng = field(default_factory=Rng)
    control: ControlClient | None = None
    rpc: httpx.AsyncClient | None = None
    advance: Callable[[float], Awaitable[None]] | None = None
    restart: Callable[[], Awaitable[None]] | None = None
    tell: Callable[[str], None] = lambda text: None
    """Tells the user the reason for a wait."""

    # shared by the checks

    signed_base: int = 0
    """The amount that the payer's own key has signed for, in base units."""
    proofs: set[str] = field(default_factory=set)
    """The ids of payments and sessions in all answers so far."""
    signatures: set[str] = field(default_factory=set)
    """The spellings of the key's signatures, which a service may repeat in parts."""
    planned_base: int | None = None
    """The plan's limit of the key's signatures, at the prices of then; None without a plan."""
    main_network: str = ""
    """The only main network that the payer's own key signs for: the first in a 402."""
    body: dict[str, Any] | None = None
    """An accepted body of a protected request."""
    wallets_drawn: int = 0
    first_controls: dict[str, str | None] = field(default_factory=dict)
    """Each control that was tried: None if accepted, else the reason for the refusal."""
    last_controls: dict[str, str | None] = field(default_factory=dict)
    """The same, tried again after the checks."""
    offers: list[tuple[float, Any]] = field(default_factory=list)
    """The 402s that came with refusals, and their times: unused, each can be paid."""
    known_ids: set[str] = field(default_factory=set)
    """The payment ids of all 402s so far."""
    paid_ids: set[str] = field(default_factory=set)
    """The paid payment ids."""
    scheduler: Scheduler = field(default_factory=Scheduler)
    """Lets one check act at a time."""
    pace: Pace = field(init=False)
    skip: dict[str, str] = field(init=False)
    """The cases that do not run, by `name`, with the reason: the user's choice, or the budget."""
    lasting_faults: set[str] = field(default_factory=set)
    """The texts of the lasting faults of waiting checks (`ControlApi`)."""
    has_refunded: bool = False
    """Whether a refund of this run has come: a later refund shows that the background runs."""
    has_answered: bool = False
    """Whether the target has answered a request of this run."""
    stopped: str = ""
    """When and after which request the target stopped answering; empty while it answers."""
    stops: set[tuple[str, str, bytes]] = field(default_factory=set)
    """The last requests before a stop, if they did not stop the target again: method, URL, body."""
    last: Any = None
    """The last request to reach the target (`sending.Last`)."""
    malformed: dict[str, Any] = field(default_factory=dict)
    """The bad requests and their answers, by group (`suite.service.inputs`)."""

    def __post_init__(self) -> None:
        """Reject cookies, so that requests stay unauthenticated."""
        self.pace, self.skip = Pace(self.options.rate), dict(self.options.skip)
        self.http.cookies.jar.set_policy(DefaultCookiePolicy(allowed_domains=[]))

    @property
    def target(self) -> Target:
        """The target's differences from the specification."""
        return self.options.target

    @property
    def base_url(self) -> str:
        """The target's base URL, without a slash at its end."""
        return str(self.http.base_url).rstrip("/")

    def showing(
        self, request: httpx.Request, response: httpx.Response | None, broken: str = ""
    ) -> Show:
        """Return a function that makes an exchange for a report; a world's payer is play."""
        is_play = self.control is not None
        return partial(redact.exchange, request, response, broken, is_play=is_play)

    def is_real_money(self, network: Network) -> bool:
        """Tell whether a network's money may be real, and payments with it are not allowed.

        On a chain of the user's own, a world's money is not real.
        """
        is_play = network.is_test or (self.control is not None and network != MAINNET)
        return not is_play and not self.options.allow_mainnet

    def missing(self, need: Need) -> bool:
        """Tell whether this setting lacks a need of a check."""
        target = self.target
        there = {
            Need.FUNDS: self.options.payer is not None or self.control is not None,
            Need.OBSERVE_CHAIN: self.rpc is not None or self.control is not None,
            Need.WORLD: self.control is not None,
            Need.CLOCK: self.advance is not None,
            Need.RESTART: self.restart is not None or self.advance is not None,
            Need.SESSIONS: target.sessions.exists,
            Need.AGENTS: target.agents.exists,
            Need.LLMS: target.llms.exists,
            Need.RECORD: bool(target.record.path),
            Need.SESSION_VIEW: bool(target.sessions.view),
        }
        return not there[need]
