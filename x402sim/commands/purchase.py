"""The steps of `pay`: one request, paid as its 402 asks, each exchange told as it ends."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import httpx

from x402sim.clock import Clock, SkewedClock
from x402sim.commands.asking import answer_to
from x402sim.commands.outcome import Outcome, outcome_of, receipts_in, said
from x402sim.commands.steps import Step
from x402sim.http.bounded import Limits
from x402sim.payer.auth import DEADLINE_S, PaymentAuth
from x402sim.payer.core import PAYMENT_ID, SESSION_ID, PaymentFailed
from x402sim.payer.flow import FlowAuth, origin_of
from x402sim.payer.mistakes import Draft, Mistake, Watched, copy_of, draft_of, paid_in, request_of
from x402sim.payer.pick import Picked, pick
from x402sim.payer.session import SessionAuth
from x402sim.payer.wallet import Wallet
from x402sim.protocol.abi import authorization_state
from x402sim.protocol.crypto import checksum, to_hex
from x402sim.protocol.eip3009 import Authorization
from x402sim.protocol.messages import decode
from x402sim.protocol.money import to_base, to_decimal
from x402sim.protocol.networks import TESTNET, Network
from x402sim.protocol.phrase import KNOWN, keys_of
from x402sim.protocol.values import amount_in, amount_of, answer, window
from x402sim.protocol.ways import Dialect, Foreign, Way, foreign_in, object_in, ways_in
from x402sim.protocol.x402 import (
    PAYMENT_HEADERS,
)
from x402sim.world.control.messages import Account, WorldInfo, network_of
from x402sim.world.server.listen import LOOPBACK

ASK_S = 5.0
"""How long a local server may take to tell its time and its accounts."""


@dataclass(frozen=True, slots=True)
class Local:
    """What a local server of x402sim tells: the networks that are known, its accounts and clock."""

    known: Mapping[str, Network]
    keys: list[str]
    clock: Clock
    rpc: str = ""
    """Where its chains are asked, by the name of a network; "" if there is no such server."""


def local_server(http: httpx.Client, url: httpx.URL, known: Mapping[str, Network]) -> Local:
    """Ask a server on this machine for its world; without one, the accounts of anvil and now."""

    def asked(what: str) -> bytes:
        path = f"{origin_of(url)}/_sim/{what}"
        return answer_to(http, http.build_request("GET", path, timeout=ASK_S)).content

    if url.host in LOOPBACK:
        with suppress(httpx.HTTPError, ValueError):  # it is no server of ours
            who: WorldInfo = decode(asked("who"), WorldInfo)
            accounts: list[Account] = decode(asked("accounts"), list[Account])
            clock, own = SkewedClock(Clock()), network_of(who)
            clock.skew_s = who.now / 1000 - Clock().now()
            networks = {**known, own.name: known.get(own.name, own)}
            rpc = f"{origin_of(url)}/rpc"
            return Local(networks, [each.private_key for each in accounts], clock, rpc)
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
    picked: Picked | None = None
    """The offer that is paid, and why not those before it."""
    receipts: list[dict[str, Any]] = field(default_factory=list)
    """What was answered to it, of any dialect."""

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
        self.receipts.clear()

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

    @property
    def outcome(self) -> Outcome:
        """What the receipts say of the payment that was signed."""
        assert self.sent is not None
        return outcome_of(self.sent, self.receipts)

    def ask_chain(self) -> Outcome:
        """Return what is known of the payment, by the chain too if no receipt says that it is paid.

        Only the chain of a local server is known.
        """
        found = self.outcome
        if found.is_seen_paid or not self.local.rpc:
            return found
        auth, named = found.sent.auth, found.sent.named
        data = authorization_state(auth.from_, auth.nonce)
        call = {"to": to_hex(named.asset), "data": to_hex(data)}
        asked = {"jsonrpc": "2.0", "id": 1, "method": "eth_call", "params": [call, "latest"]}
        with suppress(httpx.HTTPError, ValueError):  # then it is not known
            url = f"{self.local.rpc}/{named.name}"
            request = self.http.build_request("POST", url, json=asked, timeout=ASK_S)
            said = object_in(answer_to(self.http, request).content) or {}
            return replace(found, is_used=int(str(said.get("result")), 16) == 1)
        return found

    # --- who pays ------------------------------------------------------------------------

    def _choose(self, response: httpx.Response) -> FlowAuth:
        """Return the payer that pays the first offer of a 402 that it can pay.

        Raises `PaymentFailed`.
        """
        other = foreign_in(response.headers, response.content)
        if other is not None:
            none = "the 402 has no payment requirements; `doctor URL` looks closer. "
            raise PaymentFailed(f"{none}It is {other.name}. {_quoted(other)}{other.do}")
        ways = list(enumerate(ways_in(response.headers, response.content), 1))
        if not ways:
            raise PaymentFailed("the 402 has no payment requirements; `doctor URL` looks closer")
        if self.steps is not None:
            offered = _dialects([way for _, way in ways])
            only = f"--steps {self.steps}: the 402 offers only"
            ways = [(number, way) for number, way in ways if self._is_wanted(way)]
            if not ways:
                raise PaymentFailed(f"{only} {offered}; leave it out")
        picked = pick(response.request, response, ways, self.local.known, self._over_cap)
        if picked.way is None or picked.network is None:
            raise self._unpayable([way for _, way in ways], picked)
        self.network, self.picked = picked.network, picked
        try:
            clock, decimals = self.local.clock, self.network.decimals
            spend = to_decimal(to_base(self.max_amount, decimals), decimals)
            if self.session:
                return SessionAuth(self.wallet, deposit=spend, network=self.network, clock=clock)
            return PaymentAuth(
                self.wallet,
                max_amount=spend,
                max_total=spend,
                network=self.network,
                version=picked.way.dialect.version,
                clock=clock,
                deadline_s=DEADLINE_S,
            )
        except ValueError as wrong:
            raise PaymentFailed(f"--max {self.max_amount}: {wrong}") from wrong

    def _is_wanted(self, way: Way) -> bool:
        """Tell whether --steps allows a way to pay."""
        return self.steps is None or (way.dialect is Dialect.TWO_STEPS) == (self.steps == 2)

    def _over_cap(self, amount_base: int, network: Network) -> str:
        most = to_base(self.max_amount, network.decimals)
        if amount_base <= most or self.session:
            return ""
        asked = f"{to_decimal(amount_base, network.decimals)} {network.token_symbol}"
        return f"the 402 asks for {asked}; --max allows {self.max_amount}. Raise --max to pay it."

    def _unpayable(self, ways: list[Way], picked: Picked) -> PaymentFailed:
        """Return why no offer of a 402 is paid."""
        if all(way.is_paywall for way in ways):
            return PaymentFailed(
                "the 402 offers two steps as the public Cronos paywall does, with the payment id "
                "in `extra` of `accepts`; `pay` does not speak that, Cronos' clients do"
            )
        if all(way.network(self.local.known) is None for way in ways):
            named = ", ".join(dict.fromkeys(repr(way.fields.get("network"))[:80] for way in ways))
            return PaymentFailed(
                f"the 402 asks for a payment on {named}; known are {', '.join(self.local.known)}. "
                "Describe the network and its token in a file: --network-file"
            )
        whys = [each.why for each in picked.rejected]
        if len(whys) > 1:
            whys = [str(each) for each in picked.rejected]
        return PaymentFailed("; ".join(whys))

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
        facts: dict[str, Any] = {}
        if self.picked is not None and self.picked.rejected:
            facts["offer"] = self.picked.number
            facts["not taken"] = [str(each) for each in self.picked.rejected]
        facts |= {
            "amount": amount_in(str(auth.value), self.network),
            "from": checksum(auth.from_),
            "to": checksum(auth.to),
            "valid": window(auth.valid_after, auth.valid_before, now_s),
            "nonce": to_hex(auth.nonce),
        }
        self.tell(Step("Signed an EIP-3009 authorization, off-chain", True, facts))

    def _seen(self, request: httpx.Request, response: httpx.Response) -> None:
        status = answer(response.status_code)
        facts: dict[str, Any] = {"answer": said(response) if response.is_error else status}
        name = f"{request.method} {request.url.path}"
        if (dialect := paid_in(request)) is not None:
            self.answer = response
            if self.mistake is not None:  # the explanation has the rest
                facts["answer"] = status
            found = receipts_in(response)
            self.receipts += found
            outcome = self.outcome
            if seen := outcome.transaction or outcome.pending:
                facts["transaction"] = seen
            if response.is_success and not outcome.is_seen_paid:
                facts["receipt"] = "pending" if outcome.pending else "none: not seen to be paid"
            sent_in = f", {PAYMENT_HEADERS[dialect.version]}" if dialect.version else ""
            mark = "" if self.mistake is None or response.is_success else "refused"
            title = (
                "Paid" if outcome.is_seen_paid or self.mistake is not None else "Sent to be paid"
            )
            self.tell(Step(f"{title}: {name}{sent_in}", response.is_success, facts, mark))
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
        """Return what a 402 asks for: the way to pay that is taken, or else one that is known."""
        ways, known = ways_in(response.headers, response.content), self.local.known
        if not ways:
            return {}
        numbered = [(n, way) for n, way in enumerate(ways, 1) if self._is_wanted(way)]
        picked = pick(response.request, response, numbered, known, self._over_cap).way
        way = picked or next((each for each in ways if each.network(known)), ways[0])
        facts = {
            "price": amount_of(way, known),
            "pay to": way.fields.get("payTo"),
            "network": way.fields.get("network"),
            "payable in": list(dict.fromkeys(each.dialect.value for each in ways)),
        }
        return facts | ({"payment id": way.payment_id} if way.payment_id else {})


def _quoted(other: Foreign) -> str:
    """Return what a 402 of another protocol says, in one sentence."""
    said = ", ".join(f"{name} {value}" for name, value in other.facts.items())
    return f"It says: {said[:400]}. " if said else ""


def _dialects(ways: list[Way]) -> str:
    return ", ".join(dict.fromkeys(way.dialect.value for way in ways))
