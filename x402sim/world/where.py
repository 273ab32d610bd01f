"""Where a world is played, as `World(on=...)` says: in this process, over TCP, or at a URL.

These are data; `x402sim.world.stages` opens the stage.
"""

from dataclasses import dataclass, field

import httpx

from x402sim.http.bounded import Limits
from x402sim.text.suggest import near_url, unknown

MAX_PORT = 65_535


@dataclass(frozen=True, slots=True)
class InProcess:
    """Play in this process, in virtual time where the chain allows it."""

    name = "in-process"


@dataclass(frozen=True, slots=True)
class Tcp:
    """Play over TCP on this machine, in virtual time."""

    name = "tcp"


@dataclass(frozen=True, slots=True)
class Deployment:
    """The service at `url`; raises `ValueError` for an invalid URL.

    `payer_key` is the private key of a funded payer, by default that in X402SIM_PAYER_KEY;
    it pays where the control API cannot fund payers, or where there is none.
    """

    url: str
    payer_key: str | None = field(default=None, repr=False)
    limits: Limits = field(default=Limits(deadline_s=120.0), repr=False)
    """The limits of the answers of service and facilitator; payers give up after 90 s."""

    def __post_init__(self) -> None:
        wanted = f"http://HOST:PORT, with a port up to {MAX_PORT}"
        try:
            url = httpx.URL(self.url)
        except httpx.InvalidURL as wrong:
            raise ValueError(f"a URL is {wanted}, not {self.url!r}: {wrong}") from None
        if url.scheme not in ("http", "https") or not url.host or (url.port or 0) > MAX_PORT:
            raise ValueError(f"a URL is {wanted}, not {self.url!r}")

    @property
    def name(self) -> str:
        """The URL."""
        return self.url


Where = InProcess | Tcp | Deployment


def parse_where(text: str) -> Where:
    """Return what `text` names: "in-process", "tcp", or the URL of a service.

    Raises `ValueError` that lists the possible names and suggests the nearest.
    """
    if text.startswith(("http://", "https://")):
        return Deployment(text)
    known: dict[str, Where] = {"in-process": InProcess(), "tcp": Tcp()}
    if text not in known:
        raise ValueError(unknown("stage", text, [*known, "http://HOST:PORT"]) + near_url(text))
    return known[text]
