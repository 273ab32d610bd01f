"""The environment of one service: its keys, URLs and network, and its settings (2.8).

Clauses: 2.8/settings.
"""

import hashlib
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal, TypeVar
from urllib.parse import urlsplit

from x402sim.http.bounded import Limits
from x402sim.http.exchange import Transport
from x402sim.protocol.crypto import Address, PrivateKey, parse_address, parse_key
from x402sim.protocol.money import MAX_STORED, to_base
from x402sim.protocol.networks import TESTNET, Network, network_named
from x402sim.rng import Rng
from x402sim.service.goods import Shop
from x402sim.service.settings import Settings
from x402sim.service.upstream.chain import ExplorerClient, RpcClient
from x402sim.service.upstream.facilitator import FacilitatorClient
from x402sim.service.upstream.standard import StandardFacilitator
from x402sim.service.upstream.upto import UptoFacilitator
from x402sim.text.words import as_given

Read = TypeVar("Read")
_ORIGIN = re.compile(r"([a-z+.-]+://)?[^/?#]*")
"""What a URL may show: paths and queries hold keys."""


@dataclass(frozen=True, kw_only=True)
class Environment:
    """What one service runs on: keys, URLs, network and settings.

    Raises `ValueError` for a price that the network's token cannot pay.
    """

    private_key: bytes = field(repr=False)
    """The server wallet's key: it receives payments and pays refunds."""
    facilitator_url: str
    explorer_url: str
    """Empty without an explorer; then the node is asked for transactions."""
    rpc_url: str
    dialect: Literal["cronos", "standard"] = "cronos"
    """What the facilitator speaks: Cronos' dialect, or version 2 of the x402 standard."""
    network: Network = TESTNET
    recipient: Address | None = None
    """The payee, by default the server wallet, which always receives deposits."""
    secret: bytes = field(default_factory=lambda: Rng().secret("ids"), repr=False)
    """The key that seals payment and session ids. It is random, and never derived from the private
    key: whoever reads that key could then forge payment ids with any price."""
    settings: Settings = field(default_factory=Settings)

    def __post_init__(self) -> None:
        if self.quote_price_base > MAX_STORED:
            raise ValueError(f"quote_price: {self.settings.quote_price} is too much to store")
        _ = self.shop

    @cached_property
    def shop(self) -> Shop:
        """The goods of the user, at prices of the network's token."""
        return Shop(self.settings.sells, self.network.decimals)

    @cached_property
    def quote_price_base(self) -> int:
        """The price of a quote in base units of the network's token (8/quote-price)."""
        try:
            return to_base(self.settings.quote_price, self.network.decimals)
        except ValueError as wrong:
            raise ValueError(f"quote_price on {self.network.name}: {wrong}") from None

    @cached_property
    def key(self) -> PrivateKey:
        """The server wallet's key, ready to sign."""
        return PrivateKey(self.private_key)

    @cached_property
    def wallet(self) -> Address:
        """The server wallet's address."""
        return self.key.address

    @cached_property
    def id_secret(self) -> bytes:
        """The 32 bytes that seal payment ids and session ids."""
        return hashlib.sha256(b"x402sim ids" + self.secret).digest()

    def facilitator(self, to: Transport) -> FacilitatorClient | StandardFacilitator:
        """Return the client of the facilitator."""
        url, limits = self.facilitator_url, self._limits
        if self.dialect == "standard":
            return StandardFacilitator(to, url, self.network, **limits)
        return FacilitatorClient(to, url, **limits)

    def upto(self, to: Transport) -> UptoFacilitator:
        """Return the client of the facilitator for payments in `upto`."""
        return UptoFacilitator(to, self.facilitator_url, **self._limits)

    @property
    def _limits(self) -> dict[str, Limits]:
        verify_s, settle_s = self.settings.verify_timeout_s, self.settings.settle_timeout_s
        return {"verify": Limits(deadline_s=verify_s), "settle": Limits(deadline_s=settle_s)}

    def explorer(self, to: Transport) -> ExplorerClient | RpcClient:
        """Return the client of the chain explorer, or of the node if there is no explorer."""
        if not self.explorer_url:
            return self.rpc(to)
        limits = Limits(deadline_s=self.settings.explorer_timeout_s)
        return ExplorerClient(to, self.explorer_url, self.network.asset, limits)

    def rpc(self, to: Transport) -> RpcClient:
        """Return the client of the node."""
        limits = Limits(deadline_s=self.settings.explorer_timeout_s)
        return RpcClient(to, self.rpc_url, self.network.asset, limits)

    @property
    def pay_to(self) -> Address:
        """The merchant address of the requirements (2.1/pay-to)."""
        return self.recipient or self.wallet


NEEDED = ("PRIVATE_KEY", "FACILITATOR_URL", "EXPLORER_URL", "RPC_URL")


def read_environment(
    env: Mapping[str, str], network: Network | None = None, facilitator: str | None = None
) -> Environment:
    """Return the environment named in section 2.8 from environment variables (2.8/settings).

    PRIVATE_KEY, FACILITATOR_URL, EXPLORER_URL and RPC_URL are needed; NETWORK,
    MERCHANT_ADDRESS, TOKEN_ADDRESS and FINAL_DEPTH (blocks, default 12) have defaults. A
    `network` given here replaces NETWORK, and a `facilitator` of the x402 standard replaces
    FACILITATOR_URL; then EXPLORER_URL is not needed. Raises `ValueError` naming the variable that
    is missing, empty or wrong.
    """
    is_standard = facilitator is not None
    optional = {"FACILITATOR_URL", "EXPLORER_URL"} if is_standard else set()
    if missing := [name for name in NEEDED if not env.get(name) and name not in optional]:
        raise ValueError(
            f"the environment variable{'s' * (len(missing) > 1)} {', '.join(missing)} "
            f"{'are' if len(missing) > 1 else 'is'} not set; `x402sim serve --no-service` prints "
            "those of a simulated world"
        )
    if network is None:
        network = _read(env, "NETWORK", network_named) if env.get("NETWORK") else TESTNET
    if env.get("TOKEN_ADDRESS"):
        network = replace(network, asset=_read(env, "TOKEN_ADDRESS", parse_address))
    depth = env.get("FINAL_DEPTH") or str(Settings.final_depth)
    if not (depth.isascii() and depth.isdigit()):
        raise ValueError(
            f"the environment variable FINAL_DEPTH is a number from 0, not {as_given(depth)}"
        )
    return Environment(
        private_key=_read(env, "PRIVATE_KEY", parse_key),
        facilitator_url=facilitator or _read(env, "FACILITATOR_URL", url_of),
        dialect="standard" if is_standard else "cronos",
        explorer_url=_read(env, "EXPLORER_URL", url_of) if env.get("EXPLORER_URL") else "",
        rpc_url=_read(env, "RPC_URL", url_of),
        network=network,
        recipient=_read(env, "MERCHANT_ADDRESS", parse_address)
        if env.get("MERCHANT_ADDRESS")
        else None,
        settings=Settings(final_depth=int(depth), phase=0),
    )


def _read(env: Mapping[str, str], name: str, parse: Callable[[str], Read]) -> Read:
    """Return a variable as `parse` reads it; raises `ValueError` that names it."""
    try:
        return parse(env[name])
    except ValueError as wrong:
        raise ValueError(f"the environment variable {name}: {wrong}") from None


def url_of(text: str) -> str:
    """Return the URL of a service; raises `ValueError` that shows no path and no password."""
    with suppress(ValueError):
        parts = urlsplit(text)
        if parts.scheme in ("http", "https") and parts.hostname and parts.port != 0:
            return text
    origin = _ORIGIN.match(text)
    got = "one with a user name" if "@" in text or origin is None else repr(origin[0][:50])
    raise ValueError(f"expected a URL such as http://127.0.0.1:4020, got {got}")
