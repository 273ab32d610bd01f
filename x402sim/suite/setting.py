"""What a run of the suite has to work with: the target, money, and sight of the world."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from http.cookiejar import DefaultCookiePolicy
from typing import Any

import httpx

from x402sim.clock import Clock
from x402sim.payer.wallet import Wallet
from x402sim.protocol.crypto import Address
from x402sim.rng import Rng
from x402sim.suite.target import Target


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Where the target is, and what the suite may use to judge it.

    `control` reaches /_sim of the world the target lives in, `rpc` a node of its chain.
    `advance` turns the target's clock, where that is possible. `budget_base` bounds what
    the `payer` signs for in all; a world's own money is not counted.
    """

    target: Target
    http: httpx.AsyncClient
    clock: Clock
    rng: Rng
    control: httpx.AsyncClient | None = None
    rpc: httpx.AsyncClient | None = None
    payer: Wallet | None = None
    budget_base: int = 0
    pay_to: Address | None = None
    advance: Callable[[float], Awaitable[None]] | None = None
    allow_mainnet: bool = False
    rerun: str = ""
    """The command that repeats the run, without --requirement."""

    def __post_init__(self) -> None:
        """Let no cookie of the target come into a later request, which would be no stranger's."""
        self.http.cookies.jar.set_policy(DefaultCookiePolicy(allowed_domains=[]))

    def missing(self, need: str) -> bool:
        """Tell whether a need of a check is not there."""
        target = self.target
        there = {
            "money": self.payer is not None or self.control is not None,
            "chain": self.rpc is not None or self.control is not None,
            "world": self.control is not None,
            "clock": self.advance is not None,
            "sessions": target.sessions.exists,
            "agents": target.agents.exists,
            "llms": target.llms.exists,
            "record": bool(target.record.path),
            "session view": bool(target.sessions.view),
        }
        return not there[need]


@dataclass(slots=True)
class Ledger:
    """What has been signed for with the payer's own money, and what has been learned."""

    signed_base: int = 0
    body: dict[str, Any] | None = None
    """The body of a protected request that the target serves."""
    payers: int = 0
    controls: dict[str, str | None] = field(default_factory=dict)
    """Each control that was tried: None if it was accepted, else why not."""
