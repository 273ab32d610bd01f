"""The steps of `pay`: one request, paid as its 402 asks, each exchange told as it ends."""

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import httpx

from x402sim.clock import Clock, SkewedClock
from x402sim.commands.asking import answer_to
from x402sim.commands.steps import Step
from x402sim.http.bounded import Limits
from x402sim.payer.auth import DEADLINE_S, PaymentAuth
from x402sim.payer.core import PAYMENT_ID, SESSION_ID
from x402sim.payer.errors import PaymentFailed
from x402sim.payer.flow import PROOFS, FlowAuth
from x402sim.payer.guard import origin_of
from x402sim.payer.mistakes import Draft, Mistake, draft_of, paid_in, request_of
from x402sim.payer.reading import UNKNOWN
from x402sim.payer.session import SessionAuth
from x402sim.payer.wallet import Wallet
from x402sim.payer.watched import Watched, copy_of
from x402sim.protocol.crypto import checksum, to_hex
from x402sim.protocol.eip3009 import Authorization
from x402sim.protocol.findings import in_units
from x402sim.protocol.messages import decode
from x402sim.protocol.money import to_base, to_decimal
from x402sim.protocol.networks import TESTNET, Network
from x402sim.protocol.phrase import KNOWN, keys_of
from x402sim.protocol.refusals import Refusal, is_final
from x402sim.protocol.ways import Dialect, Way, object_in, ways_in
from x402sim.protocol.x402 import (
    PAYMENT_HEADERS,
    REQUIRED_HEADER,
    RESPONSE_HEADERS,
    VERSIONS,
    json_in,
)
from x402sim.text.times import distance, moment, readable
from x402sim.world.control.messages import Account, Who, network_of
from x402sim.world.server.listen import LOOPBACK

ASK_S = 5.0
"""How long a local server may take to tell its time and its accounts."""
_LATER = re.compile(r"\.? (Repeat the request|Nothing more was signed)")
"""Where advice begins that is for a payer that goes on; a command ends."""


@dataclass(frozen=True, slots=True)
class Local:
    """What a local server of x402sim tells: the networks that are known, its accounts and clock."""

    known: Mapping[str, Network]
    keys: list[str]
    clock: Clock


def local_server(http: httpx.Client, url: httpx.URL, known: Mapping[str, Network]) -> Local:
    """Ask a server on this machine for its world; without one, the accounts of anvil and now."""

    def asked(what: str) -> bytes:
        path = f"{origin_of(url)}/_sim/{what}"
        return answer_to(http, http.build_request("GET", path, timeout=ASK_S)).content

    if url.host in LOOPBACK:
        with suppress(httpx.HTTPError, ValueError):  # it is no server of ours
            who: Who = decode(asked("who"), Who)
            accounts: list[Account] = decode(asked("accounts"), list[Account])
            clock, own = SkewedClock(Clock()), network_of(who)
            clock.skew_s = who.now / 1000 - Clock().now()
            networks = {**known, own.name: known.get(own.name, own)}
            return Local(networks, [each.private_key for each in accounts], clock)
    return Local(known, [to_hex(key) for key in keys_of(KNOWN, 10)], Clock())


@dataclass(slots=True)
class Purchase:
    """One request, paid within `max_amount` tokens; `tell` gets each step as it ends."""

    http: httpx.Client
    wallet: Wallet
    local: Local
    tell: Callable[[Step], None]
    max_amount: str
    steps: int | None = None
    """In one step or in two; None as the 402 offers."""
    session: bool = False
    network: Network = TESTNET
    right: Draft | None = None
    """The last payment, before a mistake was made in it."""
    sent: Draft | None = None
    answer: httpx.Response | None = None
    """What was answered to it; None if nothing was."""
    last: httpx.Request | None = None
    mistake: Mistake | None = None

    def __post_init__(self) -> None:
        """Raise `ValueError` for an amount that is none on any network."""
        try:
            to_base(self.max_amount, 36)  # no token has more decimals
        except ValueError as wrong:
            raise ValueError(f"--max {self.max_amount}: {wrong}") from wrong

    def buy(
        self,
        request: httpx.Request,
        mistake: Mistake | None = None,
        used: Authorization | None = None,
    ) -> httpx.Response:
        """Return the last answer to a request, read; raises `PaymentFailed` and `httpx.HTTPError`.

        The request itself stays as it is. With a mistake, that is the answer to the wrong payment;
        of a replay, `used` is sent again.
        """
        self.mistake, self.right, self.sent, self.answer = mistake, None, None, None

        def change(request: httpx.Request) -> httpx.Request:
            draft = self.right = self._draft(request)
            assert mistake is not None
            if draft.dialect not in mistake.dialects:
                name, only = draft.dialect.value, ", ".join(d.value for d in mistake.dialects)
                problem = f"cannot be done in {name}, only in {only}"
                raise PaymentFailed(f"--wrong {mistake.name} {problem}")
            self.sent = mistake.change(replace(draft, auth=used or draft.auth))
            return request_of(self.sent, request)

        flow = Watched(
            choose=self._choose,
            sends=self._sends,
            seen=self._seen,
            limits=Limits(deadline_s=DEADLINE_S),
            change=change if mistake else None,
        )
        return answer_to(self.http, copy_of(request), flow)

    # --- who pays ------------------------------------------------------------------------

    def _choose(self, response: httpx.Response) -> FlowAuth:
        """Return the payer that pays what a 402 offers; raises `PaymentFailed`."""
        steps, ways = self.steps, ways_in(response.headers, response.content)
        if steps is not None and ways:
            offered = _dialects(ways)
            ways = [way for way in ways if (way.dialect is Dialect.TWO_STEPS) == (steps == 2)]
            if not ways:
                raise PaymentFailed(f"--steps {steps}: the 402 offers only {offered}; leave it out")
        network = self._network_of(ways)
        # without --steps, PaymentAuth chooses the version
        version = max(way.dialect.version or 1 for way in ways) if steps == 1 else None
        try:
            clock = self.local.clock
            spend = to_decimal(to_base(self.max_amount, network.decimals), network.decimals)
            if self.session:
                return SessionAuth(self.wallet, deposit=spend, network=network, clock=clock)
            return PaymentAuth(
                self.wallet,
                max_amount=spend,
                max_total=spend,
                network=network,
                version=version,
                clock=clock,
                deadline_s=DEADLINE_S,
            )
        except ValueError as wrong:
            raise PaymentFailed(f"--max {self.max_amount}: {wrong}") from wrong

    def _network_of(self, ways: list[Way]) -> Network:
        if not ways:
            raise PaymentFailed("the 402 has no payment requirements; `doctor URL` looks closer")
        if all(way.is_paywall for way in ways):
            raise PaymentFailed(
                "the 402 offers two steps as the public Cronos paywall does, with the payment id "
                "in `extra` of `accepts`; `pay` does not speak that, Cronos' clients do"
            )
        for way in ways:
            if found := way.network(self.local.known):
                self.network = found
                return found
        named = ", ".join(dict.fromkeys(repr(way.said.get("network"))[:80] for way in ways))
        raise PaymentFailed(
            f"the 402 asks for a payment on {named}; known are {', '.join(self.local.known)}. "
            "Describe the network and its token in a file: --network-file"
        )

    # --- what is told --------------------------------------------------------------------

    def _draft(self, request: httpx.Request) -> Draft:
        return draft_of(request, self.wallet, self.network, self.local.clock.now_s())

    def _sends(self, request: httpx.Request) -> None:
        """Tell what was signed, before it is sent."""
        self.last = request
        if paid_in(request) is None:
            return
        self.sent = self.sent or self._draft(request)
        auth, now_s = self.sent.auth, self.local.clock.now_s()
        facts = {
            "amount": in_units(str(auth.value), self.network),
            "from": checksum(auth.from_),
            "to": checksum(auth.to),
            "valid": f"{distance(auth.valid_after - now_s)} to {moment(auth.valid_before, now_s)}",
            "nonce": to_hex(auth.nonce),
        }
        self.tell(Step("Signed an EIP-3009 authorization, off-chain", True, facts))

    def _seen(self, request: httpx.Request, response: httpx.Response) -> None:
        status = f"{response.status_code}"
        facts: dict[str, Any] = {"answer": said(response) if response.is_error else status}
        name = f"{request.method} {request.url.path}"
        if (dialect := paid_in(request)) is not None:
            self.answer = response
            if self.mistake is not None:  # the explanation has the rest
                facts["answer"] = status
            facts |= _receipt(response)
            sent_in = f", {PAYMENT_HEADERS[dialect.version]}" if dialect.version else ""
            mark = "" if self.mistake is None or response.is_success else "refused"
            self.tell(Step(f"Paid: {name}{sent_in}", response.is_success, facts, mark))
            return
        shown = next((each for each in (PAYMENT_ID, SESSION_ID) if each in request.headers), None)
        if shown is None and response.status_code == 402:
            facts |= self._offer(response)
            self.tell(Step(f"Asked: {name}", True, facts))
        else:
            title = f"Repeated with {shown}: {name}" if shown else f"Asked: {name}"
            if shown == SESSION_ID:
                facts["session id"] = request.headers[SESSION_ID]
            self.tell(Step(title, response.is_success, facts))

    def _offer(self, response: httpx.Response) -> dict[str, Any]:
        """Return what a 402 asks for: its first way to pay that can be understood."""
        ways = ways_in(response.headers, response.content)
        if not ways:
            return {}
        network = next((found for way in ways if (found := way.network(self.local.known))), None)
        facts = {
            "price": in_units(ways[0].amount, network),
            "pay to": ways[0].said.get("payTo"),
            "network": ways[0].said.get("network"),
            "payable in": _dialects(ways),
        }
        return facts | ({"payment id": each} if (each := ways[0].payment_id) else {})


def _dialects(ways: list[Way]) -> str:
    return ", ".join(dict.fromkeys(way.dialect.value for way in ways))


def said(response: httpx.Response) -> str:
    """Return what an answer says of a refusal: its status, error, reason and `final`."""
    read, body, words = _read(response), _body(response), []
    words += [body.get("error"), body.get("reason")]
    for name in (REQUIRED_HEADER, *RESPONSE_HEADERS.values()):
        told = _in_header(response, name)
        words += [told.get(each) for each in ("error", "errorReason", "errorMessage")]
    texts = dict.fromkeys(each[:400] for each in words if isinstance(each, str) and each)
    final = f" (final: {str(body['final']).lower()})" if "final" in body else ""
    kept = [each for each in texts if not any(each in other and each != other for other in texts)]
    told_all = ": ".join(kept) or repr(read[:200].decode("utf-8", "replace")) * bool(read)
    return f"{response.status_code} {readable(told_all)}{final}".strip()


def _read(response: httpx.Response) -> bytes:
    return response.content if response.is_stream_consumed else b""


def _body(response: httpx.Response) -> dict[str, Any]:
    """Return the JSON object of an answer; an empty one for any other, and for one not read."""
    return object_in(_read(response)) or {}


def _in_header(response: httpx.Response, name: str) -> dict[str, Any]:
    return json_in(response.headers.get(name), dict[str, Any]) or {}


def _receipt(response: httpx.Response) -> dict[str, Any]:
    """Return the transaction that an answer names."""
    hashes = [_body(response).get("txHash")]
    hashes += [_in_header(response, RESPONSE_HEADERS[each]).get("transaction") for each in VERSIONS]
    found = next((each for each in hashes if isinstance(each, str) and each), None)
    return {"transaction": found} if found else {}


def failure(failed: PaymentFailed | httpx.HTTPError, purchase: Purchase) -> str:
    """Return why a signed payment failed, and what to do: a new call would sign another one."""
    why = _LATER.split(str(failed))[0]
    sent, answer = purchase.sent, purchase.answer
    assert sent is not None
    if answer is not None and answer.is_success:
        return f"{why}{_goods(failed, purchase.last)}"
    body = {} if answer is None else _body(answer)
    error, final = str(body.get("error")), body.get("final")
    if answer is not None and is_final(error, final if isinstance(final, bool) else None):
        refusal = Refusal.named(error)
        remedy = refusal.row.remedy if refusal else ""
        return why if remedy in why else f"{why}. {remedy}"
    if isinstance(failed, httpx.HTTPError):
        why = f"{UNKNOWN}: {why.rstrip('.')}"
    until = moment(sent.auth.valid_before, sent.now_s)
    asks = f"GET /api/payments/{sent.payment_id}, or the token" if sent.payment_id else "the token"
    goods = ""
    if sent.payment_id:
        goods = f". If it was, the request with -H '{PAYMENT_ID}: {sent.payment_id}' gets the goods"
    return (
        f"{why}. The authorization may be used until {until}; whoever pays again before may pay "
        f"twice. Whether it was used, ask {asks}: authorizationState("
        f"{checksum(sent.auth.from_)}, {to_hex(sent.auth.nonce)}){goods}"
    )


def _goods(failed: Exception, last: httpx.Request | None) -> str:
    """Return how to get what was paid for, if the last request was not answered."""
    if last is None or not isinstance(failed, httpx.HTTPError) or not (proof := proof_in(last)):
        return ""
    return f" It was paid: {last.method} {last.url.path} with {proof} gets what was paid for"


def proof_in(request: httpx.Request) -> str:
    """Return the option that sends the proof of a request again; "" if it has none."""
    headers = request.headers
    return next((f"-H '{name}: {headers[name]}'" for name in PROOFS if name in headers), "")
