"""The setting of a run: its options, and the connections to the target and its world."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from http.cookiejar import DefaultCookiePolicy
from typing import Any

import httpx

from x402sim.clock import Clock
from x402sim.protocol.networks import MAINNET, Network
from x402sim.rng import Rng
from x402sim.spec.needs import Need
from x402sim.suite import redact
from x402sim.suite.service.options import Options
from x402sim.suite.service.scheduler import Pace, Scheduler
from x402sim.suite.service.target import Target
from x402sim.world.control.client import ControlClient


@dataclass(slots=True, kw_only=True)
class Setting:
    """A run: its options, what reaches the target and its world, and what its checks share.

    `control` reaches the control API (/_sim) of the target's world, `rpc` a node of its
    chain. `advance` advances the target's clock, and `restart` ends and starts the
    target, where that is possible; it raises `RestartFailed`.
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
    """Tells the user what the run waits for."""

    # what its checks share

    signed_base: int = 0
    """The amount that the payer's own key has signed for, in base units."""
    body: dict[str, Any] | None = None
    """An accepted body of a protected request."""
    wallets_drawn: int = 0
    baselines: dict[str, str | None] = field(default_factory=dict)
    """Each baseline that was tried: None if it was accepted, else why not."""
    offers: list[tuple[float, Any]] = field(default_factory=list)
    """The 402s that came with refusals, and when: each can be paid, and none was used yet."""
    known_ids: set[str] = field(default_factory=set)
    """The payment ids of all 402s so far."""
    paid_ids: set[str] = field(default_factory=set)
    """Those that were paid."""
    scheduler: Scheduler = field(default_factory=Scheduler)
    """Lets one check act at a time."""
    pace: Pace = field(init=False)
    skip: dict[str, str] = field(init=False)
    """The cases that are not run, by their `name`, and why: the user's, and others."""
    lasting_faults: set[str] = field(default_factory=set)
    """The texts of the faults that checks which wait have injected (`ControlApi`)."""
    has_refunded: bool = False
    """Whether a refund of this run has come: later ones show that the background runs."""
    has_answered: bool = False
    """Whether the target has answered a request of this run."""
    stopped: str = ""
    """When and after which request the target stopped answering; empty while it answers."""
    stops: set[tuple[str, str, bytes]] = field(default_factory=set)
    """The last requests before a stop that did not stop the target again: method, URL, body."""
    last: Any = None
    """The last request that reached the target (`sending.Last`)."""
    malformed: dict[str, Any] = field(default_factory=dict)
    """What came of the bad requests, by their group (`suite.service.inputs`)."""

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
    ) -> Callable[[], str]:
        """Return what renders an exchange for a report; only a world's payer is play."""
        is_play = self.control is not None
        return partial(redact.exchange, request, response, broken, is_play=is_play)

    def is_real_money(self, network: Network) -> bool:
        """Tell whether a network's money may be real, and nobody has allowed to pay with it.

        On a chain of the user's own, a world's money is not.
        """
        is_play = network.is_test or (self.control is not None and network != MAINNET)
        return not is_play and not self.options.allow_mainnet

    def missing(self, need: Need) -> bool:
        """Tell whether this setting lacks what a check needs."""
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
