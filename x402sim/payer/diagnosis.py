"""Examines the answer to an unpaid request: what its 402 offers, who could pay it, what stops them.

Each kind of payer reads the answer and signs, as it would to pay; nothing is sent.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import httpx

from x402sim.payer.errors import PaymentFailed
from x402sim.payer.reading import is_header_value
from x402sim.payer.standard import choose, read_required, sign
from x402sim.payer.wallet import Wallet
from x402sim.protocol.findings import Finding, of_way
from x402sim.protocol.messages import (
    BadMessage,
    PaymentRequired,
    PaymentRequirements,
    decode,
    encode,
)
from x402sim.protocol.networks import BASE_SEPOLIA, Network
from x402sim.protocol.ways import Dialect, Way, object_in, ways_in
from x402sim.protocol.x402 import REQUIRED_HEADER, from_base64

ABSENT = (404, 405, 410, 501)
"""The answers of a path that is not there."""
_LOCAL = ("127.0.0.1", "localhost", "::1")


@dataclass(frozen=True, slots=True)
class PayerKind:
    """A kind of payer: which version it pays in, and whether it can pay; else why not."""

    name: str
    can_pay: bool
    why: str


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What an answer offers, what is wrong with it, and who could pay."""

    ways: tuple[Way, ...]
    findings: tuple[Finding, ...]
    payers: tuple[PayerKind, ...]

    @property
    def can_be_paid(self) -> bool:
        """Whether anybody could pay."""
        return any(payer.can_pay for payer in self.payers)


_KINDS: dict[str, Dialect | None] = {
    "payer in two steps": Dialect.TWO_STEPS,
    "client of x402 v1": Dialect.V1,
    "client of x402 v2": Dialect.V2,
    "httpx, PaymentAuth": None,
}


def examine(
    request: httpx.Request,
    response: httpx.Response,
    known: Mapping[str, Network],
    *,
    pay_status: int | None = None,
    now_s: int,
) -> Diagnosis:
    """Return the diagnosis of an answer that was read.

    `pay_status` is what POST /api/pay answers to an empty object, if that was asked.
    """
    found = list(_of_answer(request, response))
    ways = ways_in(response.headers, response.content) if response.status_code == 402 else []
    by_way = [list(of_way(way, known, str(request.url))) for way in ways]
    for way, own in zip(ways, by_way, strict=True):
        if way.dialect is not Dialect.TWO_STEPS:
            own += _of_sdks(way, known)
            continue
        own += [_PAYWALL] if way.is_paywall else []
        if pay_status in ABSENT:
            do = "Settle payments there, or offer payment in one step only."
            own.append(Finding("POST /api/pay", str(pay_status), "an endpoint that settles", do))
    described = [way.own_network() for way in ways if way.network(known) is None]
    networks = {**known, **{each.name: each for each in described if each is not None}}
    case = _Case(request, response, networks, list(zip(ways, by_way, strict=True)), now_s)
    payers = tuple(_able(name, dialect, case) for name, dialect in _KINDS.items())
    return Diagnosis(tuple(ways), (*found, *_merged(by_way)), payers)


def _merged(by_way: list[list[Finding]]) -> Iterator[Finding]:
    """Yield the findings of all ways to pay, equal ones once, with the numbers of the offers."""
    numbers: dict[Finding, list[str]] = defaultdict(list)
    for number, findings in enumerate(by_way, 1):
        for each in findings:
            numbers[each].append(str(number))
    for finding, of in numbers.items():
        offers = f"offer{'s' * (len(of) > 1)} {', '.join(of)}"
        yield replace(finding, about=f"{finding.about} of {offers}")


# --- who could pay -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Case:
    """An answer, its ways to pay with what is wrong with each, and their networks."""

    request: httpx.Request
    response: httpx.Response
    networks: Mapping[str, Network]
    ways: list[tuple[Way, list[Finding]]]
    now_s: int


def _able(name: str, dialect: Dialect | None, case: _Case) -> PayerKind:
    """Return whether a kind of payer reads the 402 and signs, and why not."""
    mine = [
        (number, way, findings)
        for number, (way, findings) in enumerate(case.ways, 1)
        if dialect in (None, way.dialect)
    ]
    whys = [] if mine else [f"the 402 offers nothing in {dialect.value}" if dialect else "no offer"]
    for number, way, findings in mine:
        stopping = [each.about for each in findings if each.stops]
        network = way.network(case.networks) or way.own_network()
        if way.is_paywall and dialect is None:
            stopping.append("offered as the public Cronos paywall does")
        if stopping or network is None:
            whys.append(f"offer {number}: {', '.join(stopping) or 'network'}")
            continue
        try:
            _sign(case, way if dialect else None, network)
        except (PaymentFailed, ValueError) as error:
            whys.append(str(error))
            continue
        return PayerKind(name, True, f"offer {number}")
    return PayerKind(name, False, "; ".join(dict.fromkeys(whys)))


def _sign(case: _Case, way: Way | None, network: Network) -> None:
    """Read a 402 and sign it, as a payer does; raises `PaymentFailed` and `ValueError`.

    Our payers do not speak as the Cronos paywall does: of such a way, its terms are signed.
    """
    wallet = Wallet.create()
    if way is not None and way.is_paywall:
        terms = decode(encode(way.said), PaymentRequirements)
        wallet.payment_header(terms, case.now_s, network=network)
        return
    version = way.dialect.version if way else None
    required = read_required(case.request, case.response, network, version)
    if isinstance(required, PaymentRequired):
        wallet.payment_header(required.payment_requirements, case.now_s, network=network)
    else:
        offer = choose(required, network)
        sign(offer, wallet, network, case.now_s, offer.accepted.max_timeout_seconds)


# --- the answer as a whole ---------------------------------------------------------------


def _of_answer(request: httpx.Request, response: httpx.Response) -> Iterator[Finding]:
    if response.status_code != 402:
        yield _no_402(response)
        return
    header, body = response.headers.get(REQUIRED_HEADER), object_in(response.content)
    if header is not None:
        yield from _of_header(header)
    if body is None and header is None:
        kind = response.headers.get("content-type", "no Content-Type")
        seen = f"{kind}: {response.content[:60].decode('utf-8', 'replace')!r}"
        do = "Answer the requirements as JSON, or in the header PAYMENT-REQUIRED."
        yield Finding("body", seen, "a JSON object with payment requirements", do)
    if body is not None:
        yield from _of_body(body, header)
    if request.url.scheme == "http" and request.url.host not in _LOCAL:
        do = "Serve it with TLS: who reads a proof of payment on its way can use it."
        yield Finding("URL", f"http to {request.url.host}", "https", do, stops=False)


def _no_402(response: httpx.Response) -> Finding:
    status, there = response.status_code, response.headers.get("location")
    match status:
        case 401 | 403 | 407:
            do = "Give credentials: --header 'Name: value'."
        case 405:
            allowed = response.headers.get("allow", "POST")
            do = f"Give another method, --method {allowed}, and --data if it wants a body."
        case _ if there and 300 <= status < 400:
            do = f"Give the URL that it redirects to: {there}"
        case _ if response.is_success:
            do = "Give the URL of a protected endpoint; if it is one, it serves without payment."
        case _:
            do = "Give the URL of a protected endpoint, and --method, --data as it expects them."
    body = response.content[:60].decode("utf-8", "replace")
    return Finding("status", f"{status} {body!r}", "402 Payment Required", do)


def _of_header(header: str) -> Iterator[Finding]:
    try:
        said = object_in(from_base64(header))
    except BadMessage as wrong:
        yield Finding(REQUIRED_HEADER, str(wrong), "base64 of JSON", "Encode it as base64.")
        return
    if said is None or said.get("x402Version") != 2:
        seen = "no JSON object" if said is None else f"x402Version {said.get('x402Version')!r}"
        do = "Put the requirements of version 2 there; those of version 1 belong into the body."
        yield Finding(REQUIRED_HEADER, seen, "a JSON object with x402Version 2", do)


def _of_body(body: Mapping[str, Any], header: str | None) -> Iterator[Finding]:
    version, listed = body.get("x402Version"), body.get("accepts")
    if version == 2 and header is None:
        do = "Send the same object as base64 in that header: clients of version 2 read no body."
        yield Finding(f"header {REQUIRED_HEADER}", "none, version 2 in the body", "it", do)
    if isinstance(listed, list) and version not in (1, 2):
        seen = f"x402Version {version!r}" if "x402Version" in body else "no x402Version"
        do = "Add it: clients choose their version by it."
        yield Finding("body", seen, "x402Version 1", do)
    if listed == []:
        yield Finding("accepts", "an empty list", "a way to pay", "List at least one.")
    wanted = body.get("paymentRequirements")
    if isinstance(wanted, dict):
        yield from _of_two_steps(body, wanted)
    elif not isinstance(listed, list) and header is None:
        names = ", ".join(map(repr, list(body)[:6])) or "no fields"
        do = "Name them as the dialect does that your payers speak."
        yield Finding("body", f"JSON with {names}", "accepts, or paymentRequirements", do)


def _of_two_steps(body: Mapping[str, Any], wanted: Mapping[str, Any]) -> Iterator[Finding]:
    payment_id, network = body.get("paymentId"), body.get("network")
    if not isinstance(payment_id, str) or not is_header_value(payment_id):
        seen = repr(payment_id)[:80] if "paymentId" in body else "nothing"
        do = "Answer one with each 402: the payer settles it, and shows it in X-Payment-Id."
        yield Finding("paymentId", seen, "1 to 256 visible characters", do)
    if network != wanted.get("network"):
        do = "Name the same network beside the requirements and in them."
        yield Finding("network", repr(network)[:80], repr(wanted.get("network"))[:80], do, False)
    missing = [each for each in ("error", "message") if not isinstance(body.get(each), str)]
    if missing:
        do = "Add them: the body of a 402 in two steps has both."
        yield Finding("body", f"no {' and no '.join(missing)}", "error and message", do)


def _of_sdks(way: Way, known: Mapping[str, Network]) -> Iterator[Finding]:
    """Yield that the public SDKs do not know a token, unless they do, or we do not know it."""
    network = way.network(known)
    if network is None or network == BASE_SEPOLIA:
        return
    do = (
        "In their clients of version 2, allow it: set_spend_controls(False) in Python, "
        "`spendControls: false` in JavaScript. Those of version 1 have a fixed list of networks."
    )
    wanted = f"a token that the public SDKs know, such as USDC on {BASE_SEPOLIA.name}"
    yield Finding("network", f"{network.token_symbol} on {network.name}", wanted, do, stops=False)


_PAYWALL = Finding(
    "extra",
    "a paymentId, and no name and version of the token",
    "paymentId and paymentRequirements in the body, or the token's domain in `extra`",
    "The public Cronos paywall offers two steps like this, and Cronos' clients pay it. For "
    "PaymentAuth and `pay`, answer a body of section 2.2; for x402 clients, add name and version.",
    stops=False,
)
