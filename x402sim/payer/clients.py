"""What the public clients of the x402 standard do with a 402, as they are installed.

A row of `CLIENTS` is one client with its defaults, as it was tried in November 2026: npm `x402` 1.2
and `@x402/core` 2.27, and `x402` 2.25 for Python. They differ in what they cannot read, in the
tokens that they know, and in what they spend at most.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from urllib.parse import urlsplit

from x402sim.protocol.chains import Family, chain_id_of, family_of
from x402sim.protocol.crypto import parse_address
from x402sim.protocol.money import parse_base, to_base, to_decimal
from x402sim.protocol.networks import NETWORKS, Network
from x402sim.protocol.supported import SCHEME
from x402sim.protocol.ways import Dialect, Way

Reads = Callable[[Way], str]
"""Returns why an offer cannot be read; "" if it can."""


@dataclass(frozen=True, slots=True)
class Client:
    """One client: what it reads, and what it pays by default."""

    name: str
    dialect: Dialect
    unreadable: Reads
    """Why it cannot read an offer: one such offer ends the payment, whatever stands beside it."""
    networks: frozenset[str] | None
    """The names that it knows; None for every chain of EVM."""
    most: str
    """The most tokens that it pays."""
    remedy: str
    """How its user allows more."""
    is_python: bool = False
    has_controls: bool = True
    """Whether it leaves out offers of other tokens than its defaults, and those above its cap.

    One without them takes an offer of USDC, or else the first, and then looks at the cap.
    """
    lacks: frozenset[int] = frozenset()
    """The chains of `DEFAULT_TOKENS` whose tokens it does not know."""

    def takes(self, way: Way) -> str:
        """Return why it leaves an offer out that it can read; "" if it may take it."""
        scheme, name = way.said.get("scheme"), way.said.get("network")
        if scheme != SCHEME:
            return f"scheme {str(scheme)[:40]!r} is not registered"
        is_known = name in self.networks if self.networks else family_of(name) is Family.EVM
        if not is_known:
            return f"network {str(name)[:40]!r} is not registered"
        if not self.has_controls:
            return ""
        is_default = default_decimals(way) is not None
        if not is_default or chain_id_of(name) in self.lacks:
            return f"the token is none of its default ones; {self.remedy}"
        return self.too_much(way)

    def too_much(self, way: Way) -> str:
        """Return that an offer asks for more than it pays at a time; "" if it does not."""
        found = default_decimals(way)
        decimals = 6 if found is None else found
        try:
            amount = parse_base(str(way.amount))
        except ValueError:
            return ""  # what is wrong with it is told
        if amount <= to_base(self.most, decimals):
            return ""
        asked = to_decimal(amount, decimals)
        return f"it asks for {asked}, more than {self.most} at a time; {self.remedy}"

    def as_read(self, way: Way) -> Way:
        """Return an offer as this client understands it."""
        said = dict(way.said)
        seconds = said.get("maxTimeoutSeconds")
        if self.is_python:
            seconds = _numbered(way).said.get("maxTimeoutSeconds")
        if isinstance(seconds, float) and seconds.is_integer():
            seconds = int(seconds)
        said["maxTimeoutSeconds"] = seconds
        own = next((each for each in NETWORKS.values() if _is_token_of(way, each)), None)
        if self.is_python and own is not None and "name" not in way.extra:
            said["extra"] = {**way.extra, "name": own.token_name, "version": own.token_version}
        return replace(way, said=said)


def _is_token_of(way: Way, network: Network) -> bool:
    said = way.said
    names = (network.name, network.caip2)
    return said.get("network") in names and default_decimals(way) is not None


# --- the tokens that they know --------------------------------------------------------------

_USDC = {
    1: "0xA0b86991c6218b36c1d19D4a2e9Eb0cE3606eB48",
    50: "0xfA2958CB79b0491CC627c1557F441eF849Ca8eb1",
    51: "0xb5AB69F7bBada22B28e79C8FFAECe55eF1c771D4",
    137: "0x3c499c542cEF5E3811e1192ce70d8cC03d5c3359",
    143: "0x754704Bc059F8C67012fEd69BC8A327a5aafb603",
    1328: "0x4fCF1784B31630811181f670Aea7A7bEF803eaED",
    1329: "0xe15fC38F6D8c56aF07bbCBe3BAf5708A2Bf42392",
    5042: "0x3600000000000000000000000000000000000000",
    8453: "0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913",
    10143: "0x534b2f3A21130d7a60830c2Df862319e593943A3",
    36900: "0x9cb8142aEBBcdc60AF7c97Af897A67A8f3CA71C2",
    42161: "0xaf88d065e77c8cC2239327C5EDb3A432268e5831",
    42220: "0xcebA9300f2b948710d2653dD7B07f33A8B32118C",
    43114: "0xB97EF9Ef8734C71904D8002F8b6Bc66Dd9c48a6E",
    84532: "0x036CbD53842c5426634e7929541eC2318f3dCF7e",
    181228: "0x401eCb1D350407f13ba348573E5630B83638E30D",
    190415: "0x401eCb1D350407f13ba348573E5630B83638E30D",
    421614: "0x75faf114eafb1BDbe2F0316DF893fd58CE46AA4d",
    5042002: "0x3600000000000000000000000000000000000000",
    11142220: "0x01C5C0122039549AD1493B8220cABEdD739BC44E",
}
"""USDC, or what is bridged for it, by chain id."""
_USDT = {
    14: "0xe7cd86e13AC4309349F30B3435a9d337750fC82D",
    988: "0x779Ded0c9e1022225f8E0630b35a9b54bE713736",
    2201: "0x78Cf24370174180738C5B8E352B6D14c83a6c9A9",
    42220: "0x48065fbBE25f71C9282ddf5e1cD6D6A887483D5e",
}
"""USDT, by chain id."""
_OTHERS = (
    (4326, "0xFAfDdbb3FC7688494971a79cc65DCa3EF82079E7", 18),
    (31611, "0x118917a40FAF1CD7a13dB0Ef56C86De7973Ac503", 18),
    (31612, "0xdD468A1DDc392dcdbEf6db6e34E89AA338F9F186", 18),
    (38833, "0xA5b8BF902b2844dA17d4506cc827F7F1681735E7", 6),
    (42220, "0xD2ab3C9A02DBBAB236BfEC45D1d755DF4267F771", 6),
    (72344, "0x33ad9e4BD16B69B5BFdED37D8B5D9fF9aba014Fb", 6),
    (723487, "0x33ad9e4BD16B69B5BFdED37D8B5D9fF9aba014Fb", 6),
)
"""Other dollars, with their decimals; all but the one on chain 42220 are paid by permit2."""
_PLAIN = [(chain, asset, 6) for tokens in (_USDC, _USDT) for chain, asset in tokens.items()]
DEFAULT_TOKENS: Mapping[tuple[int, bytes], int] = {
    (chain_id, parse_address(asset)): decimals for chain_id, asset, decimals in (*_PLAIN, *_OTHERS)
}
"""The tokens that clients with spending controls pay by default, with their decimals."""


def default_decimals(way: Way) -> int | None:
    """Return the decimals of a default token; None if the offer names another."""
    chain_id, asset = chain_id_of(way.said.get("network")), way.said.get("asset")
    try:
        address = parse_address(asset) if isinstance(asset, str) else b""
    except ValueError:
        return None
    return DEFAULT_TOKENS.get((chain_id or 0, address))


# --- what they read -------------------------------------------------------------------------

_NPM_V1 = frozenset(
    {
        *("abstract", "abstract-testnet", "base", "base-sepolia", "avalanche", "avalanche-fuji"),
        *("iotex", "sei", "sei-testnet", "polygon", "polygon-amoy", "peaq", "story", "educhain"),
        *("skale-base-sepolia", "solana", "solana-devnet"),
    }
)
_SOLANA = frozenset({"solana", "solana-devnet"})
"""Names that npm's clients can read, and pay with another wallet."""
_PYTHON_V1 = (_NPM_V1 - _SOLANA) | {
    *("megaeth", "monad", "monad-testnet", "stable", "stable-testnet", "celo"),
}
_ACCOUNT = re.compile(r"0x[0-9a-fA-F]{40}|[1-9A-HJ-NP-Za-km-z]{32,44}")
"""An address of EVM, or of Solana."""


def _types(way: Way, *more: str) -> str:
    """Return which field of an offer is not of its type."""
    for name in ("scheme", "network", "asset", "payTo", way.amount_name, *more):
        if not isinstance(way.said.get(name), str):
            return f"{name} is no text"
    seconds = way.said.get("maxTimeoutSeconds")
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or seconds % 1:
        return "maxTimeoutSeconds is no whole number"
    if "extra" in way.said and not isinstance(way.said["extra"], dict):
        return "extra is no object"
    return ""


def _by_npm_v1(way: Way) -> str:
    if wrong := _types(way, "resource", "description", "mimeType"):
        return wrong
    said = way.said
    if said["scheme"] != SCHEME:
        return f"scheme {said['scheme'][:40]!r} is not in its list"
    if said["network"] not in _NPM_V1:
        return f"network {said['network'][:40]!r} is not in its list"
    if not re.fullmatch(r"-?[0-9]+", said["maxAmountRequired"]):
        return "maxAmountRequired is no whole number"
    if not _is_url(said["resource"]):
        return "resource is no URL"
    if not _ACCOUNT.fullmatch(said["payTo"]):
        return "payTo is no address"
    return ""


def _is_url(text: str) -> bool:
    try:
        return bool(urlsplit(text).scheme)
    except ValueError:  # such as "http://["
        return False


def _by_python_v1(way: Way) -> str:
    said = {name: each for name, each in _numbered(way).said.items() if each is not None}
    return _types(replace(way, said=said), "resource")


def _by_python_v2(way: Way) -> str:
    return _types(_numbered(way))


def _numbered(way: Way) -> Way:
    """Return an offer whose window is a number, if it is the text of one."""
    seconds = way.said.get("maxTimeoutSeconds")
    if not isinstance(seconds, str) or not re.fullmatch(r"[0-9]{1,10}", seconds):
        return way
    return replace(way, said={**way.said, "maxTimeoutSeconds": int(seconds)})


def _anything(way: Way) -> str:
    """Read all: clients in JavaScript check nothing in version 2 until they sign."""
    return ""


CLIENTS: tuple[Client, ...] = (
    Client(
        "x402 v1, npm",
        Dialect.V1,
        _by_npm_v1,
        _NPM_V1 - _SOLANA,
        "0.10",
        "its maxValue allows more",
        has_controls=False,
    ),
    Client(
        "x402 v1, Python",
        Dialect.V1,
        _by_python_v1,
        _PYTHON_V1,
        "1.00",
        "set_spend_controls(False) allows it",
        is_python=True,
    ),
    Client(
        "x402 v2, npm",
        Dialect.V2,
        _anything,
        None,
        "1.00",
        "`spendControls: false` allows it",
        lacks=frozenset({5042, 10143, 5042002}),
    ),
    Client(
        "x402 v2, Python",
        Dialect.V2,
        _by_python_v2,
        None,
        "1.00",
        "set_spend_controls(False) allows it",
        is_python=True,
    ),
)
