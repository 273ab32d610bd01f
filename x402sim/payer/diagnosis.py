"""Diagnosis of a 402: offers, defects, and which public clients can pay.

Each payer is simulated up to its signature; nothing is sent. A row of `CLIENTS` describes one
public client of the x402 standard with its defaults, as tried in November 2026: npm `x402` 1.2 and
`@x402/core` 2.27, and `x402` 2.25 for Python. Clients differ in the offers they can read, in known
tokens, and in spending caps.
"""

import re
import shlex
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlsplit

import httpx

from x402sim.payer.auth import PaymentAuth
from x402sim.payer.core import PaymentFailed
from x402sim.payer.reading import is_header_value
from x402sim.payer.signing import Rejected, StandardOffer, choose, read_offer
from x402sim.payer.standard import read_as, read_required
from x402sim.payer.wallet import Wallet
from x402sim.protocol.crypto import checksum, parse_address
from x402sim.protocol.envelopes import Enclosed, of_copies
from x402sim.protocol.findings import IN_THE_BODY, Finding, of_declaration, of_way
from x402sim.protocol.messages import (
    BadMessage,
    PaymentRequired,
    PaymentRequirements,
    decode,
    encode,
)
from x402sim.protocol.money import parse_base, to_base, to_decimal
from x402sim.protocol.networks import NETWORKS, Family, Network, chain_id_of, family_of
from x402sim.protocol.permit2 import PERMIT2
from x402sim.protocol.permit2_payments import SPONSORED_PERMIT, pays_by_permit2
from x402sim.protocol.ways import (
    ASK_FOR_JSON,
    CHALLENGE,
    Dialect,
    Way,
    foreign_in,
    object_in,
    page_of,
    ways_in,
    ways_of,
)
from x402sim.protocol.x402 import (
    PAYMENT_FLOW,
    REQUIRED_HEADER,
    SCHEME,
    RequiredV2,
    RequirementsV2,
    from_base64,
    json_in,
    version_in,
)


@dataclass(frozen=True, slots=True)
class Client:
    """One public client: the name, the readable offers, and the offers paid by default."""

    name: str
    dialect: Dialect
    unreadable: Callable[[Way], str]
    """Why an offer is unreadable, else ""; one ends the payment, even beside good offers."""
    networks: frozenset[str] | None
    """The network names that the client knows; None for every EVM chain."""
    most: str
    """The client's cap for one payment, in tokens."""
    remedy: str
    """How a user of the client raises the cap."""
    is_python: bool = False
    has_controls: bool = True
    """Whether the client has spending controls: it skips unknown tokens, and offers above its cap.

    A client without them takes the offer in USDC, or else the first, and then compares the cap.
    """
    lacks: frozenset[int] = frozenset()
    """The chains of `DEFAULT_TOKENS` whose tokens the client does not know."""

    def why_skipped(self, way: Way) -> str:
        """Return why the client skips a readable offer; "" if the client may take the offer."""
        scheme, name = way.fields.get("scheme"), way.fields.get("network")
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
        return self.why_too_much(way)

    def why_too_much(self, way: Way) -> str:
        """Return a sentence if an offer is above the client's cap; else ""."""
        found = default_decimals(way)
        decimals = 6 if found is None else found
        try:
            amount = parse_base(str(way.amount))
        except ValueError:
            return ""  # another finding reports the bad amount
        if amount <= to_base(self.most, decimals):
            return ""
        required = to_decimal(amount, decimals)
        return f"it asks for {required}, more than {self.most} at a time; {self.remedy}"

    def as_read(self, way: Way) -> Way:
        """Return an offer in this client's understanding."""
        fields = dict(way.fields)
        seconds = fields.get("maxTimeoutSeconds")
        if self.is_python:
            seconds = _with_whole_seconds(way).fields.get("maxTimeoutSeconds")
        if isinstance(seconds, float) and seconds.is_integer():
            seconds = int(seconds)
        fields["maxTimeoutSeconds"] = seconds
        name, is_default = way.fields.get("network"), default_decimals(way) is not None
        named = [each for each in NETWORKS.values() if name in (each.name, each.caip2)]
        if self.is_python and named and is_default and "name" not in way.extra:
            own = named[0]
            fields["extra"] = {**way.extra, "name": own.token_name, "version": own.token_version}
        return replace(way, fields=fields)


# --- tokens known to clients -----------------------------------------------------------------

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
"""USDC, or its bridged form, by chain id."""
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
"""Other dollar tokens, with decimals; only the token on chain 42220 is not paid by permit2."""
_PLAIN = [(chain, asset, 6) for tokens in (_USDC, _USDT) for chain, asset in tokens.items()]
DEFAULT_TOKENS: Mapping[tuple[int, bytes], int] = {
    (chain_id, parse_address(asset)): decimals for chain_id, asset, decimals in (*_PLAIN, *_OTHERS)
}
"""The tokens that clients with spending controls pay by default, with their decimals."""


def default_decimals(way: Way) -> int | None:
    """Return the decimals of a default token; None for another token."""
    chain_id, asset = chain_id_of(way.fields.get("network")), way.fields.get("asset")
    try:
        address = parse_address(asset) if isinstance(asset, str) else b""
    except ValueError:
        return None
    return DEFAULT_TOKENS.get((chain_id or 0, address))


# --- offers that clients can read ------------------------------------------------------

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


def _wrong_type(way: Way, *more: str) -> str:
    for name in ("scheme", "network", "asset", "payTo", way.amount_name, *more):
        if not isinstance(way.fields.get(name), str):
            return f"{name} is no text"
    seconds = way.fields.get("maxTimeoutSeconds")
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or seconds % 1:
        return "maxTimeoutSeconds is no whole number"
    if "extra" in way.fields and not isinstance(way.fields["extra"], dict):
        return "extra is no object"
    return ""


def _by_npm_v1(way: Way) -> str:
    if wrong := _wrong_type(way, "resource", "description", "mimeType"):
        return wrong
    fields = way.fields
    if fields["scheme"] != SCHEME:
        return f"scheme {fields['scheme'][:40]!r} is not in its list"
    if fields["network"] not in _NPM_V1:
        return f"network {fields['network'][:40]!r} is not in its list"
    if not re.fullmatch(r"-?[0-9]+", fields["maxAmountRequired"]):
        return "maxAmountRequired is no whole number"
    try:
        is_url = bool(urlsplit(fields["resource"]).scheme)
    except ValueError:  # such as "http://["
        is_url = False
    if not is_url:
        return "resource is no URL"
    if not _ACCOUNT.fullmatch(fields["payTo"]):
        return "payTo is no address"
    return ""


def _by_python_v1(way: Way) -> str:
    fields = {
        name: each for name, each in _with_whole_seconds(way).fields.items() if each is not None
    }
    return _wrong_type(replace(way, fields=fields), "resource")


def _with_whole_seconds(way: Way) -> Way:
    """Return an offer with maxTimeoutSeconds as a number, if the offer has it as text."""
    seconds = way.fields.get("maxTimeoutSeconds")
    if not isinstance(seconds, str) or not re.fullmatch(r"[0-9]{1,10}", seconds):
        return way
    return replace(way, fields={**way.fields, "maxTimeoutSeconds": int(seconds)})


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
        lambda _: "",  # in version 2, clients in JavaScript check nothing until they sign
        None,
        "1.00",
        "`spendControls: false` allows it",
        lacks=frozenset({5042, 10143, 5042002}),
    ),
    Client(
        "x402 v2, Python",
        Dialect.V2,
        lambda way: _wrong_type(_with_whole_seconds(way)),
        None,
        "1.00",
        "set_spend_controls(False) allows it",
        is_python=True,
    ),
)


ABSENT = (404, 405, 410, 501)
"""The statuses of a missing path."""
_LOCAL = ("127.0.0.1", "localhost", "::1")


@dataclass(frozen=True, slots=True)
class PayerVerdict:
    """Whether a payer, with its defaults, can pay: which offer it takes, and if none, why not."""

    name: str
    can_pay: bool
    why: str
    offer: int | None = None
    """The number of the offer that the payer takes, from 1."""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The offers of an answer, the findings, and which payers could pay."""

    ways: tuple[Way, ...]
    findings: tuple[Finding, ...]
    payers: tuple[PayerVerdict, ...]

    @property
    def can_be_paid(self) -> bool:
        """Whether anybody could pay."""
        return any(payer.can_pay for payer in self.payers)


def examine(
    request: httpx.Request,
    response: httpx.Response,
    known: Mapping[str, Network],
    *,
    pay_status: int | None = None,
    now_s: int,
) -> Diagnosis:
    """Return the diagnosis of an answer whose body is read.

    `pay_status` is the status of POST /api/pay for an empty object, None if not requested.
    """
    found = list(_of_answer(request, response))
    ways = ways_in(response.headers, response.content) if response.status_code == 402 else []
    by_way = [list(of_way(way, known, str(request.url))) for way in ways]
    takes_permit2 = [way for way in ways if _by_permit2(way) is not None]
    for way, own in zip(ways, by_way, strict=True):
        own += [_allowance(response, way)] if way in takes_permit2 else []
        if way.dialect is not Dialect.TWO_STEPS:
            continue
        own += [_PAYWALL] if way.is_paywall else []
        if pay_status in ABSENT:
            do = "Settle payments there, or offer payment in one step only."
            own.append(Finding("POST /api/pay", str(pay_status), "an endpoint that settles", do))
    described = [way.own_network() for way in ways if way.network(known) is None]
    networks = {**known, **{each.name: each for each in described if each is not None}}
    if response.status_code == 402 and not ways and not found:
        found.append(_NO_WAY)
    case = _Case(request, response, networks, list(zip(ways, by_way, strict=True)), now_s)
    payers = [_two_steps(case), *(_client(each, case) for each in CLIENTS)]
    payers += [
        _payment_auth(case, permit2=each) for each in (False, True)[: 2 if takes_permit2 else 1]
    ]
    return Diagnosis(tuple(ways), (*found, *_merged(by_way)), tuple(payers))


def _merged(by_way: list[list[Finding]]) -> Iterator[Finding]:
    """Yield the findings of all ways to pay, equal ones once, with the numbers of the offers."""
    numbers: dict[Finding, list[int]] = defaultdict(list)
    for number, findings in enumerate(by_way, 1):
        for each in findings:
            numbers[each].append(number)
    for finding, of in numbers.items():
        offers = f"offer{'s' * (len(of) > 1)} {', '.join(map(str, of))}"
        yield replace(finding, about=f"{finding.about} of {offers}", offers=tuple(of))


# --- which payers could pay ----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Case:
    """An answer, its offers with the findings of each, and the known networks."""

    request: httpx.Request
    response: httpx.Response
    networks: Mapping[str, Network]
    ways: list[tuple[Way, list[Finding]]]
    now_s: int

    def of(self, dialect: Dialect) -> list[tuple[int, Way, list[Finding]]]:
        """Return the offers that payers of a dialect see, with their numbers and findings.

        In version 2 only the offers of the header count; version 2 clients ignore the body.
        """
        header = self.response.headers.get(REQUIRED_HEADER)
        in_header = list(ways_of(json_in(header, dict[str, Any]) or {}))
        return [
            (number, way, findings)
            for number, (way, findings) in enumerate(self.ways, 1)
            if way.dialect is dialect and (dialect is not Dialect.V2 or way in in_header)
        ]

    def number_of(self, chosen: PaymentRequired | StandardOffer) -> int | None:
        """Return the number of the offer that `PaymentAuth` has chosen. None for an offer behind
        the listed ones: `PaymentAuth` does not count the offers that it cannot read.
        """
        if isinstance(chosen, PaymentRequired):
            two_steps = self.of(Dialect.TWO_STEPS)
            return next(number for number, way, _ in two_steps if not way.is_paywall)
        accepted = chosen.accepted
        offers = self.of(Dialect.V2 if accepted.version == 2 else Dialect.V1)
        same = (n for n, way, _ in offers if read_as(dict(way.fields), type(accepted)) == accepted)
        return next(same, None)

    def why_unseen(self, client: Client) -> str:
        """Return why a client of version 1 ignores the offers; "" if the client reads them."""
        body = object_in(self.response.content) or {}
        if client.dialect is not Dialect.V1:
            return ""
        if not isinstance(body.get("accepts"), list):
            return "not in a list `accepts` of the body, and it reads nothing else"
        if client.is_python and body.get("x402Version") != 1:
            return "the body has no x402Version 1, by which it knows a 402"
        return ""


def _cannot_pay(name: str, reasons: list[str], dialect: Dialect | None) -> PayerVerdict:
    none = f"the 402 offers nothing in {dialect.value}" if dialect else "no offer"
    return PayerVerdict(name, False, "; ".join(dict.fromkeys(reasons)) or none)


def _two_steps(case: _Case) -> PayerVerdict:
    name, reasons = "payer in two steps", list[str]()
    for number, way, findings in case.of(Dialect.TWO_STEPS):
        found = [each.about for each in _blocking(findings)]
        network = way.network(case.networks)
        if found or network is None:
            reasons.append(f"offer {number}: {', '.join(found) or 'network'}")
            continue
        try:
            if way.is_paywall:  # a paywall's dialect differs from ours; only its terms are signed
                terms = decode(encode(way.fields), PaymentRequirements)
            else:
                terms = read_offer(case.request, case.response, network).payment_requirements
            Wallet.create().payment_header(terms, case.now_s, network=network)
        except (PaymentFailed, ValueError) as error:
            reasons.append(f"offer {number}: {error}")
            continue
        return PayerVerdict(name, True, f"offer {number}", number)
    return _cannot_pay(name, reasons, Dialect.TWO_STEPS)


def _client(client: Client, case: _Case) -> PayerVerdict:
    """Return whether a public client pays the 402 with its defaults, and why not.

    The client takes one offer; if paying that offer fails, it tries no other.
    """
    offers, reasons = case.of(client.dialect), []
    unread = [number for number, (way, _) in enumerate(case.ways, 1) if way.dialect is Dialect.V2]
    if client.dialect is Dialect.V2 and unread and not offers:
        why = f"offer {unread[0]}: in the body, and it reads the header {REQUIRED_HEADER} only"
        return PayerVerdict(client.name, False, why)
    if offers and (why := case.why_unseen(client)):
        return PayerVerdict(client.name, False, f"offer {offers[0][0]}: {why}")
    for number, way, _ in offers:
        if why := client.unreadable(way):
            refuses = "it refuses all for " if len(offers) > 1 else ""
            return PayerVerdict(client.name, False, f"{refuses}offer {number}: {why}")
    taken = []
    for number, way, _ in offers:
        if why := client.why_skipped(way):
            reasons.append(f"offer {number}: {why}")
        else:
            taken.append((number, client.as_read(way)))
    if not taken:
        return _cannot_pay(client.name, reasons, client.dialect)
    if client.has_controls:  # the client prefers offers without upfront settlement
        number, way = min(taken, key=lambda each: each[1].extra.get(PAYMENT_FLOW) == "upfront")
    else:
        number, way = min(taken, key=lambda each: default_decimals(each[1]) is None)
    found = list(of_way(way, case.networks, str(case.request.url)))
    wrong = ", ".join(each.about for each in found if each.stops)
    skipped = ", ".join(each.about for each in found if each.skipped)
    why = wrong or client.why_too_much(way) or (skipped and f"{skipped}, not looked at here")
    takes = "it takes " if why and len(offers) > 1 else ""
    return PayerVerdict(client.name, not why, f"{takes}offer {number}{why and ': '}{why}", number)


def _payment_auth(case: _Case, *, permit2: bool) -> PayerVerdict:
    """Return whether `PaymentAuth` pays with its defaults, by its own choice, and its own error.

    What it would sign may be unpayable all the same, such as in two steps without POST /api/pay.
    """
    name = "the same, permit2=True" if permit2 else "httpx, PaymentAuth"
    if not case.ways:
        return _cannot_pay(name, [], None)
    try:
        chosen = PaymentAuth(Wallet.create(), permit2=permit2).choose(case.request, case.response)
    except PaymentFailed as failed:
        return PayerVerdict(name, False, str(failed))
    number = case.number_of(chosen)
    if number is None:
        return PayerVerdict(name, True, "an offer behind those listed here")
    wrong = ", ".join(each.about for each in case.ways[number - 1][1] if each.stops)
    return PayerVerdict(name, not wrong, f"offer {number}{wrong and ': '}{wrong}", number)


# --- the offer for `pay` ---------------------------------------------------------------
#
# Offers are tried in the payer's order: two steps, then version 2, then version 1; in each group,
# offers that are settled before the server works come last, and offers by Permit2 at the very end.
# Nothing is signed.

_ORDER = (Dialect.TWO_STEPS, Dialect.V2, Dialect.V1)


@dataclass(frozen=True, slots=True)
class Picked:
    """The chosen offer, if any, and the offers rejected before it."""

    number: int | None
    way: Way | None
    network: Network | None
    rejected: tuple[Rejected, ...]


def pick(
    request: httpx.Request,
    response: httpx.Response,
    ways: Sequence[tuple[int, Way]],
    known: Mapping[str, Network],
    over_cap: Callable[[int, Network], str],
    *,
    permit2: bool,
) -> Picked:
    """Return the first of some numbered offers that can be paid, in the payer's order; with
    `permit2`, offers by Permit2 come last. `over_cap` returns why an amount in base units of a
    network's token is not paid; else "".
    """

    def place(numbered: tuple[int, Way]) -> tuple[bool, int, bool]:
        is_upfront = numbered[1].extra.get(PAYMENT_FLOW) == "upfront"
        is_by_permit2 = permit2 and _by_permit2(numbered[1]) is not None
        return is_by_permit2, _ORDER.index(numbered[1].dialect), is_upfront

    rejected: list[Rejected] = []
    for number, way in sorted(ways, key=place):
        network = way.network(known)
        why = _why_not(request, response, way, network, known, permit2=permit2)
        if not why and network is not None:
            try:
                why = over_cap(parse_base(str(way.amount)), network)
            except ValueError as wrong:
                why = str(wrong)
            if not why:
                return Picked(number, way, network, tuple(rejected))
        rejected.append(Rejected(f"offer {number}", why))
    return Picked(None, None, None, tuple(rejected))


def _by_permit2(way: Way) -> RequirementsV2 | None:
    """Return the requirements of an offer by Permit2; None for others, or for unreadable fields."""
    offered = read_as(dict(way.fields), RequirementsV2) if way.dialect is Dialect.V2 else None
    return offered if offered is not None and pays_by_permit2(offered) else None


def _allowance(response: httpx.Response, way: Way) -> Finding:
    """Return what a payer needs for an offer by Permit2 beside the signature."""
    fields = json_in(response.headers.get(REQUIRED_HEADER), dict[str, Any]) or {}
    extensions, permit2 = fields.get("extensions"), checksum(PERMIT2)
    wanted = f"each payer's approval of Permit2, {permit2}, or {SPONSORED_PERMIT}"
    if isinstance(extensions, dict) and SPONSORED_PERMIT in extensions:
        do = "Without an approval, sign a permit beside the payment: the facilitator sends it."
        return Finding("allowance", f"{SPONSORED_PERMIT} is offered", wanted, do, stops=False)
    do = f"Payers: approve({permit2}, {str(way.amount)[:40]}) at the token, never without limit. "
    do += "Without an approval the answer is 412."
    return Finding("allowance", "no sponsoring of gas is offered", wanted, do, stops=False)


def _why_not(
    request: httpx.Request,
    response: httpx.Response,
    way: Way,
    network: Network | None,
    known: Mapping[str, Network],
    *,
    permit2: bool,
) -> str:
    """Return why an offer cannot be paid, whatever the price; else ""."""
    if way.is_paywall:
        return "two steps as the public Cronos paywall offers them; Cronos' clients pay it"
    offered = _by_permit2(way)
    url = None if permit2 and offered is not None else str(request.url)
    if found := _blocking(of_way(way, known, url)):
        return ", ".join(
            f"{each.about} {each.seen[:60]} is not looked at"
            if each.skipped
            else f"{each.about} is {each.seen[:60]}"
            for each in found
        )
    if network is None:
        return f"network {str(way.fields.get('network'))[:80]!r} is not known; --network-file"
    if offered is not None and not permit2:
        return f"{offered.scheme} by Permit2, paid only if told to: permit2=True, or pay --permit2"
    try:
        required = read_required(request, response, network, way.dialect.version)
        if offered is not None:
            required = RequiredV2(x402_version=2, accepts=[offered])
        if not isinstance(required, PaymentRequired):
            choose(required, network, permit2=permit2)
    except PaymentFailed as failed:
        return str(failed)
    return ""


def _blocking(findings: Iterable[Finding]) -> list[Finding]:
    """Return the findings for which `PaymentAuth` does not pay, unexamined fields included."""
    return [each for each in findings if each.stops or each.skipped]


# --- the answer as a whole ---------------------------------------------------------------


def _of_answer(request: httpx.Request, response: httpx.Response) -> Iterator[Finding]:
    if response.status_code != 402:
        yield _no_402(response)
        return
    header, body = response.headers.get(REQUIRED_HEADER), object_in(response.content)
    other = foreign_in(response.headers, response.content)
    if other is not None and CHALLENGE in response.headers:
        wanted = "an offer of the x402 standard, or of two steps"
        yield Finding("WWW-Authenticate", other.name, wanted, other.do)
        return
    page = page_of(response.content.decode("utf-8", "replace"))
    if page:
        do = f"For programs, {ASK_FOR_JSON}."
        yield Finding("body", page, "JSON", do, stops=header is None)
    if header is not None:
        yield from _of_header(header)
    if body is None and header is None and not page:
        kind = response.headers.get("content-type", "no Content-Type")
        got = f"{kind}: {response.content[:60].decode('utf-8', 'replace')!r}"
        do = "Answer the requirements as JSON, or in the header PAYMENT-REQUIRED."
        yield Finding("body", got, "a JSON object with payment requirements", do)
    for fields in (json_in(header, dict[str, Any]), body if header is None else None):
        if fields is not None:
            yield from of_declaration(fields, version_in(fields.get("x402Version")))
    if body is not None:
        yield from _of_body(body, header)
        if (fields := json_in(header, dict[str, Any])) is not None and body.get("x402Version") == 2:
            yield from of_copies([Enclosed(REQUIRED_HEADER, fields), Enclosed("the body", body)])
    if request.url.scheme == "http" and request.url.host not in _LOCAL:
        do = "Serve it with TLS: anybody who reads a proof of payment on the way can use it."
        yield Finding("URL", f"http to {request.url.host}", "https", do, stops=False)


def _no_402(response: httpx.Response) -> Finding:
    status, there = response.status_code, response.headers.get("location")
    match status:
        case 401 | 403 | 407:
            do = "Give credentials: --header 'Name: value'."
        case 405:
            allowed = shlex.quote(response.headers.get("allow", "POST"))
            do = f"Give another method, --method {allowed}, and --data if it wants a body."
        case _ if there and 300 <= status < 400:
            do = f"Give the URL that it redirects to: {shlex.quote(there)}"
        case _ if response.is_success:
            do = "Give the URL of a protected endpoint; this URL serves without payment."
        case _:
            do = "Give the URL of a protected endpoint, and --method, --data as it expects them."
    body = response.content[:60].decode("utf-8", "replace")
    return Finding("status", f"{status} {body!r}", "402 Payment Required", do)


def _of_header(header: str) -> Iterator[Finding]:
    try:
        fields = object_in(from_base64(header))
    except BadMessage as wrong:
        yield Finding(REQUIRED_HEADER, str(wrong), "base64 of JSON", "Encode it as base64.")
        return
    if fields is None or fields.get("x402Version") != 2:
        got = "no JSON object" if fields is None else f"x402Version {fields.get('x402Version')!r}"
        do = "Put the requirements of version 2 there; those of version 1 belong into the body."
        yield Finding(REQUIRED_HEADER, got, "a JSON object with x402Version 2", do)


def _of_body(body: Mapping[str, Any], header: str | None) -> Iterator[Finding]:
    version, listed = body.get("x402Version"), body.get("accepts")
    if version == 2 and header is None:
        yield IN_THE_BODY
    if isinstance(listed, list) and version not in (1, 2):
        got = f"x402Version {version!r}" if "x402Version" in body else "no x402Version"
        do = "Add it: clients choose their version by it."
        yield Finding("body", got, "x402Version 1", do)
    if listed == []:
        yield _NO_WAY
    wanted = body.get("paymentRequirements")
    if isinstance(wanted, dict):
        payment_id, network = body.get("paymentId"), body.get("network")
        if not isinstance(payment_id, str) or not is_header_value(payment_id):
            got = repr(payment_id)[:80] if "paymentId" in body else "nothing"
            do = "Answer one with each 402: the payer settles it, and shows it in X-Payment-Id."
            yield Finding("paymentId", got, "1 to 256 visible characters", do)
        if network != wanted.get("network"):
            got, named = repr(network)[:80], repr(wanted.get("network"))[:80]
            do = "Name the same network beside the requirements and in them."
            yield Finding("network", got, named, do, stops=False)
        missing = [each for each in ("error", "message") if not isinstance(body.get(each), str)]
        if missing:
            do = "Add them: the body of a 402 in two steps has both."
            yield Finding("body", f"no {' and no '.join(missing)}", "error and message", do)
    elif not isinstance(listed, list) and header is None:
        names = ", ".join(map(repr, list(body)[:6])) or "no fields"
        do = "To be paid, name the terms in the words of a dialect that payers speak."
        yield Finding("body", f"JSON with {names}", "accepts, or paymentRequirements", do)


_NO_WAY = Finding("accepts", "an empty list", "a way to pay", "List at least one.")
_PAYWALL = Finding(
    "extra",
    "a paymentId, and no name and version of the token",
    "paymentId and paymentRequirements in the body, or the token's domain in `extra`",
    "The public Cronos paywall offers two steps like this, and Cronos' clients pay it. For "
    "PaymentAuth and `pay`, answer a body of section 2.2; for x402 clients, add name and version.",
    stops=False,
)
