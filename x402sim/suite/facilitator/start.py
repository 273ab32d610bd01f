"""How a facilitator is started: a command, an application of Python; or it runs already, at a URL.

The environment of a command is documented in the guide, "Judging facilitators". Inherited keys of
wallets and URLs of nodes are taken out of it, as they are of a payer's.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import urlsplit

import httpx
from starlette.types import ASGIApp

from x402sim.protocol.networks import Network
from x402sim.suite.started import (
    START_S,
    Running,
    RunsAlready,
    Startable,
    command,
    until_it_answers,
    variables,
)
from x402sim.suite.subjects import instead
from x402sim.suite.verdict import NotReady
from x402sim.suite.waiting import STARTING, silent
from x402sim.world.server.local import certificates

DEFAULT_URL = "http://127.0.0.1:{port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """What a facilitator is given: its port, its node, and the key of the account that pays gas."""

    port: int
    rpc_url: str
    private_key: str = field(repr=False)
    address: str
    network: Network

    def environment(self) -> dict[str, str]:
        """Return the variables that a command gets."""
        return {
            "PORT": str(self.port),
            **dict.fromkeys(("RPC_URL", "EVM_RPC_URL", "X402SIM_RPC_URL"), self.rpc_url),
            **dict.fromkeys(
                ("X402SIM_PRIVATE_KEY", "PRIVATE_KEY", "EVM_PRIVATE_KEY"), self.private_key
            ),
            "X402SIM_CHAIN_ID": str(self.network.chain_id),
            **variables(self.network),
        }


Facilitator = Startable[Given]
"""A facilitator that can be started."""
SUPPORTED = ("/supported", "/v2/x402/supported")
"""Where a facilitator says what it settles."""


async def answers(url: str) -> bool:
    """Tell whether a facilitator says what it supports."""
    async with httpx.AsyncClient(trust_env=False, timeout=5, verify=certificates()) as http:
        for path in SUPPORTED:
            with suppress(httpx.HTTPError):
                if (await http.get(url + path)).status_code == 200:
                    return True
    return False


@dataclass(frozen=True, slots=True)
class Command:
    """A facilitator that is a command; `url` is where it listens, with {port} for its port.

    A URL with a port of its own is a fixed port: then one runs at a time.
    """

    words: tuple[str, ...]
    url: str = DEFAULT_URL
    shown: str = ""
    wait_s: float = START_S

    @property
    def most_at_once(self) -> int | None:
        """One, at a fixed port."""
        return None if "{port}" in self.url else 1

    @asynccontextmanager
    async def start(self, given: Given, folder: Path) -> AsyncIterator[Running]:
        """Start it, in a group of processes of its own, until it answers; raises `NotReady`."""
        if self.most_at_once:
            given = replace(given, port=urlsplit(self.url).port or 80)
        url = self.url.replace("{port}", str(given.port))
        async with command(self.words, given.environment(), folder, url) as running:
            await until_it_answers(
                running,
                lambda: answers(url),
                self.wait_s,
                f"GET {url}/supported is not 200",
                "Judge your facilitator",
                " (a payer, which ends, is judged by x402sim conformance payer -- COMMAND)",
            )
            yield running


Make = Callable[[Given], ASGIApp]


@dataclass(frozen=True, slots=True)
class AtUrl(RunsAlready):
    """A facilitator that runs already; its owner has told it which node it uses."""

    @asynccontextmanager
    async def start(self, given: Given, folder: Path) -> AsyncIterator[Running]:
        """Wait until it answers; raises `NotReady` for what is no facilitator."""
        yield await self.once(lambda: _why_not(self.url))


async def _why_not(url: str) -> str:
    """Return why nobody answers at a URL yet, "" if a facilitator does; raises `NotReady`."""
    async with httpx.AsyncClient(trust_env=False, timeout=5, verify=certificates()) as http:
        try:
            seen = [await http.get(url + path) for path in SUPPORTED]
            if any(each.status_code == 200 and "kinds" in each.text for each in seen):
                return ""
            itself = await http.get(url)
        except httpx.HTTPError as error:
            return silent(error)
    if itself.status_code == 402:
        why = f"it asks for a payment, so it is a service: {instead('service')} {url}"
        raise NotReady(f"{url}: {why}")
    answer = f"GET /supported is {seen[0].status_code}"
    if seen[0].status_code in STARTING:
        return answer
    raise NotReady(
        f"{url}: {answer} and lists no kinds, so it is no facilitator. The path of its API belongs "
        "to the URL, without /supported"
    )
