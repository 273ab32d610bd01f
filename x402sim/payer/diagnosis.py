"""Examines the answer to an unpaid request: what its 402 offers, who could pay it, what stops them.

Each kind of payer reads the answer and signs, as it would to pay; nothing is sent.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import httpx

from x402sim.payer.clients import CLIENTS, Client, default_decimals
from x402sim.payer.errors import PaymentFailed
from x402sim.payer.pick import pick, stopping
from x402sim.payer.reading import is_header_value, read_offer
from x402sim.payer.wallet import Wallet
from x402sim.protocol.envelopes import Enclosed, of_copies
from x402sim.protocol.findings import IN_THE_BODY, Finding, of_way
from x402sim.protocol.foreign import CHALLENGE, foreign_in
from x402sim.protocol.messages import BadMessage, PaymentRequirements, decode, encode
from x402sim.protocol.money import to_base, to_decimal
from x402sim.protocol.networks import Network
from x402sim.protocol.supported import PAYMENT_FLOW
from x402sim.protocol.ways import Dialect, Way, object_in, ways_in, ways_of
from x402sim.protocol.x402 import REQUIRED_HEADER, from_base64, json_in

ABSENT = (404, 405, 410, 501)
"""The answers of a path that is not there."""
_LOCAL = ("127.0.0.1", "localhost", "::1")


@dataclass(frozen=True, slots=True)
class PayerKind:
    """A kind of payer with its defaults: which offer it pays, and if none, why not."""

    name: str
    can_pay: bool
    why: str
    offer: int | None = None
    """The number of the offer that it pays, from 1."""


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


MAX_AMOUNT = "0.10"
"""The most that `PaymentAuth` pays at a time unless it is told otherwise, in tokens."""


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
            continue
        own += [_PAYWALL] if way.is_paywall else []
        if pay_status in ABSENT:
            do = "Settle payments there, or offer payment in one step only."
            own.append(Finding("POST /api/pay", str(pay_status), "an endpoint that settles", do))
    described = [way.own_network() for way in ways if way.network(known) is None]
    networks = {**known, **{each.name: each for each in described if each is not None}}
    case = _Case(request, response, networks, list(zip(ways, by_way, strict=True)), now_s)
    payers = (_two_steps(case), *(_client(each, case) for each in CLIENTS), _payment_auth(case))
    return Diagnosis(tuple(ways), (*found, *_merged(by_way)), payers)


def _merged(by_way: list[list[Finding]]) -> Iterator[Finding]:
    """Yield the findings of all ways to pay, equal ones once, with the numbers of the offers."""
    numbers: dict[Finding, list[int]] = defaultdict(list)
    for number, findings in enumerate(by_way, 1):
        for each in findings:
            numbers[each].append(number)
    for finding, of in numbers.items():
        offers = f"offer{'s' * (len(of) > 1)} {', '.join(map(str, of))}"
        yield replace(finding, about=f"{finding.about} of {offers}", offers=tuple(of))


# --- who could pay -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Case:
    """An answer, its ways to pay with what is wrong with each, and their networks."""

    request: httpx.Request
    response: httpx.Response
    networks: Mapping[str, Network]
    ways: list[tuple[Way, list[Finding]]]
    now_s: int

    def of(self, dialect: Dialect) -> list[tuple[int, Way, list[Finding]]]:
        """Return the ways to pay of a dialect, with their numbers, where its payers look.

        In version 2 that is the header, whatever the body says.
        """
        header = self.response.headers.get(REQUIRED_HEADER)
        told = list(ways_of(json_in(header, dict[str, Any]) or {}))
        return [
            (number, way, findings)
            for number, (way, findings) in enumerate(self.ways, 1)
            if way.dialect is dialect and (dialect is not Dialect.V2 or way in told)
        ]


def _no(name: str, whys: list[str], dialect: Dialect | None) -> PayerKind:
    none = f"the 402 offers nothing in {dialect.value}" if dialect else "no offer"
    return PayerKind(name, False, "; ".join(dict.fromkeys(whys)) or none)


def _two_steps(case: _Case) -> PayerKind:
    """Return whether a payer in two steps reads the 402 and signs, and why not."""
    name, whys = "payer in two steps", []
    for number, way, findings in case.of(Dialect.TWO_STEPS):
        reasons = [each.about for each in stopping(iter(findings))]
        network = way.network(case.networks)
        if reasons or network is None:
            whys.append(f"offer {number}: {', '.join(reasons) or 'network'}")
            continue
        try:
            _sign(case, way, network)
        except (PaymentFailed, ValueError) as error:
            whys.append(f"offer {number}: {error}")
            continue
        return PayerKind(name, True, f"offer {number}", number)
    return _no(name, whys, Dialect.TWO_STEPS)


def _sign(case: _Case, way: Way, network: Network) -> None:
    """Read a 402 in two steps and sign it, as a payer does; raises `PaymentFailed`, `ValueError`.

    Our payers do not speak as the Cronos paywall does: of such a way, its terms are signed.
    """
    wallet = Wallet.create()
    if way.is_paywall:
        terms = decode(encode(way.said), PaymentRequirements)
    else:
        terms = read_offer(case.request, case.response, network).payment_requirements
    wallet.payment_header(terms, case.now_s, network=network)


def _client(client: Client, case: _Case) -> PayerKind:
    """Return whether a public client pays the 402 as it is installed, and why not.

    It takes one offer; if that is wrong, it fails, whatever stands beside it.
    """
    mine, whys = case.of(client.dialect), []
    unread = [number for number, (way, _) in enumerate(case.ways, 1) if way.dialect is Dialect.V2]
    if client.dialect is Dialect.V2 and unread and not mine:
        why = f"offer {unread[0]}: in the body, and it reads the header {REQUIRED_HEADER} only"
        return PayerKind(client.name, False, why)
    for number, way, _ in mine:
        if why := client.unreadable(way):
            refuses = "it refuses all for " if len(mine) > 1 else ""
            return PayerKind(client.name, False, f"{refuses}offer {number}: {why}")
    taken = []
    for number, way, _ in mine:
        if why := client.takes(way):
            whys.append(f"offer {number}: {why}")
        else:
            taken.append((number, client.as_read(way)))
    if not taken:
        return _no(client.name, whys, client.dialect)
    number, way = min(taken, key=lambda each: _first(client, each[1]))
    found = list(of_way(way, case.networks, str(case.request.url)))
    wrong = ", ".join(each.about for each in found if each.stops)
    skipped = ", ".join(each.about for each in found if each.skipped)
    why = wrong or client.too_much(way) or (skipped and f"{skipped}, not looked at here")
    takes = "it takes " if why and len(mine) > 1 else ""
    return PayerKind(client.name, not why, f"{takes}offer {number}{why and ': '}{why}", number)


def _first(client: Client, way: Way) -> bool:
    """Tell whether a client takes other offers before this one."""
    if not client.has_controls:
        return default_decimals(way) is None
    return way.extra.get(PAYMENT_FLOW) == "upfront"


def _payment_auth(case: _Case) -> PayerKind:
    """Return whether `PaymentAuth(network=...)` pays the 402 with its defaults, and why not."""
    name = "httpx, PaymentAuth"
    by_dialect = (case.of(each) for each in (Dialect.TWO_STEPS, Dialect.V2, Dialect.V1))
    mine = next((each for each in by_dialect if each), [])
    for number, _, findings in mine:
        if any(each.about.startswith("POST ") for each in findings):
            return PayerKind(name, False, f"offer {number}: POST /api/pay")
    picked = pick(
        case.request,
        case.response,
        [(number, way) for number, way, _ in mine],
        case.networks,
        _over_default,
    )
    if picked.number is not None:
        return PayerKind(name, True, f"offer {picked.number}", picked.number)
    return _no(name, [str(each) for each in picked.rejected], None)


def _over_default(amount_base: int, network: Network) -> str:
    if amount_base <= to_base(MAX_AMOUNT, network.decimals):
        return ""
    asked = to_decimal(amount_base, network.decimals)
    return f"it asks for {asked}, more than its max_amount {MAX_AMOUNT}"


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
    if header is not None:
        yield from _of_header(header)
    if body is None and header is None:
        kind = response.headers.get("content-type", "no Content-Type")
        seen = f"{kind}: {response.content[:60].decode('utf-8', 'replace')!r}"
        do = "Answer the requirements as JSON, or in the header PAYMENT-REQUIRED."
        yield Finding("body", seen, "a JSON object with payment requirements", do)
    if body is not None:
        yield from _of_body(body, header)
        if (said := json_in(header, dict[str, Any])) is not None and body.get("x402Version") == 2:
            yield from of_copies([Enclosed(REQUIRED_HEADER, said), Enclosed("the body", body)])
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
        yield IN_THE_BODY
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
        do = "If payers shall pay it, name the terms as the dialect does that they speak."
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


_PAYWALL = Finding(
    "extra",
    "a paymentId, and no name and version of the token",
    "paymentId and paymentRequirements in the body, or the token's domain in `extra`",
    "The public Cronos paywall offers two steps like this, and Cronos' clients pay it. For "
    "PaymentAuth and `pay`, answer a body of section 2.2; for x402 clients, add name and version.",
    stops=False,
)
