"""`pay`: one request to any URL, paid as its 402 asks, each exchange printed as it ends.

`Purchase` pays, and `Outcome` is what is known of the payment, and no more: signed, seen to be
paid, and how long it is usable. `demo` pays in the same way; `doctor` takes the same request.
"""

import json
import os
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

import httpx
import typer

from x402sim.clock import Clock, SkewedClock
from x402sim.commands.common import (
    NOT_ALL_HELD,
    AsJson,
    Misuse,
    NetworkFile,
    as_misuse,
    completing,
    within,
)
from x402sim.commands.kept import Kept
from x402sim.commands.steps import Step, print_facts, print_step
from x402sim.http.bounded import Limits, bound
from x402sim.payer.auth import DEADLINE_S, PaymentAuth
from x402sim.payer.core import PAYMENT_ID, SESSION_ID, PaymentFailed
from x402sim.payer.flow import PROOFS, FlowAuth, origin_of
from x402sim.payer.mistakes import (
    MISTAKES,
    Draft,
    Mistake,
    ObservedAuth,
    copy_of,
    draft_of,
    paid_in,
    request_of,
)
from x402sim.payer.pick import Picked, pick
from x402sim.payer.purchases import Unfinished
from x402sim.payer.reading import UNKNOWN
from x402sim.payer.session import SessionAuth
from x402sim.payer.tools import ToolTransport, tool_request
from x402sim.payer.wallet import Wallet
from x402sim.protocol import mcp
from x402sim.protocol.abi import authorization_state
from x402sim.protocol.crypto import checksum, to_hex
from x402sim.protocol.eip3009 import Authorization
from x402sim.protocol.findings import is_paid, is_pending
from x402sim.protocol.messages import BadMessage, decode
from x402sim.protocol.money import to_base, to_decimal
from x402sim.protocol.networks import TESTNET, Network, known_networks, network_named
from x402sim.protocol.phrase import KNOWN, keys_of
from x402sim.protocol.refusals import Refusal, is_final
from x402sim.protocol.values import Fact, amount_in, amount_of, answer, data_of, window
from x402sim.protocol.ways import Dialect, Way, foreign_in, object_in, ways_in
from x402sim.protocol.x402 import (
    PAYMENT_HEADERS,
    REQUIRED_HEADER,
    RESPONSE_HEADERS,
    VERSIONS,
    Version,
    json_in,
)
from x402sim.text.printable import printable, printable_lines
from x402sim.text.suggest import near_url, unknown
from x402sim.text.times import moment, readable
from x402sim.version import VERSION
from x402sim.world.control.messages import Account, WorldInfo, network_of
from x402sim.world.server.origins import LOOPBACK

Url = Annotated[str, typer.Argument(help="URL of the request, with http:// or https://.")]
PaidUrl = Annotated[
    str,
    typer.Argument(help="URL of the request, with http:// or https://.", envvar="X402SIM_URL"),
]
Method = Annotated[
    str | None,
    typer.Option("--method", "-X", help="HTTP method. [default: GET, or POST with --data]"),
]
Data = Annotated[
    str | None,
    typer.Option(
        "--data", "-d", help="Body, or @FILE; JSON gets its Content-Type.", metavar="TEXT"
    ),
]
Headers = Annotated[
    list[str] | None,
    typer.Option("--header", "-H", help="Header 'Name: value'; repeatable.", metavar="HEADER"),
]


def client() -> httpx.Client:
    """Return a client for any URL, and for tools of MCP: SSL_CERT_FILE counts, and no proxy."""
    carrier = httpx.HTTPTransport(verify=httpx.create_ssl_context(), trust_env=False)
    return httpx.Client(transport=ToolTransport(carrier), trust_env=False, timeout=30)


def request_to(
    url: str,
    method: str | None,
    data: str | None,
    headers: list[str] | None,
    tool: str | None = None,
    arguments: str | None = None,
) -> httpx.Request:
    """Return the request that the options describe; raises `ValueError`."""
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL as wrong:
        raise ValueError(f"{url!r} is no URL: {wrong}") from wrong
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise ValueError(f"{url!r} is no URL with http:// or https://{near_url(url)}")
    if data is not None and data.startswith("@"):
        file = data[1:]
        try:
            data = Path(file).read_text("utf-8")
        except OSError as error:
            raise ValueError(f"--data @{file}: cannot read the file: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise ValueError(f"--data @{file}: a text in UTF-8 is wanted") from error
    sent: dict[str, str] = {}
    if data is not None and data.lstrip()[:1] in ("{", "["):
        sent["content-type"] = "application/json"
    for each in headers or ():
        name, colon, value = each.partition(":")
        if not colon or not name.strip():
            raise ValueError(f"--header {each!r}: wanted 'Name: value'")
        sent[name.strip().lower()] = value.strip()
    if tool is not None:
        return _call(parsed, tool, arguments, sent)
    verb = (method or ("POST" if data is not None else "GET")).upper()
    sent.setdefault("user-agent", f"x402sim/{VERSION}")
    return httpx.Request(verb, parsed, headers=sent, content=data)


def _call(
    url: httpx.URL, tool: str, arguments: str | None, headers: dict[str, str]
) -> httpx.Request:
    """Return the call of a tool; raises `ValueError`."""
    try:
        given = {} if arguments is None else decode(arguments.encode(), dict[str, Any])
    except BadMessage as wrong:
        raise ValueError(f"--arguments {arguments!r}: wanted a JSON object: {wrong}") from wrong
    headers.setdefault("user-agent", f"x402sim/{VERSION}")
    return tool_request(url, tool, given, headers)


def answer_to(
    http: httpx.Client, request: httpx.Request, auth: httpx.Auth | None = None
) -> httpx.Response:
    """Return the answer to a request, read within limits; raises `httpx.HTTPError`, and what the
    authentication raises.
    """
    response = http.send(request, auth=auth, stream=True)
    try:
        if not response.is_stream_consumed:
            bound(response, Limits())
            response.read()
    finally:
        response.close()
    return response


def no_answer(url: httpx.URL, error: Exception) -> str:
    """Return what to do if a server does not answer."""
    if isinstance(error, httpx.LocalProtocolError | httpx.InvalidURL):
        return f"the request cannot be sent: {error}; correct the URL, --method or --header"
    todo = ""
    if "WRONG_VERSION_NUMBER" in str(error):
        return f"no answer from {url}: it does not speak TLS; give the URL with http://"
    if "CERTIFICATE_VERIFY_FAILED" in str(error):
        todo = "; to trust its authority, set SSL_CERT_FILE to a file with its certificate"
    elif url.host in LOOPBACK and isinstance(error, httpx.ConnectError):
        todo = "; start it, for example with `x402sim serve`"
    return f"no answer from {url}: {str(error) or type(error).__name__}{todo}"


def instead(answer: httpx.Response) -> str:
    """Return what to do about an answer that is no 402."""
    status, there = answer.status_code, answer.headers.get("location")
    if there and 300 <= status < 400:
        return f"the server answered {status} and redirects to {there}: give that URL"
    if status == 405:
        allowed = answer.headers.get("allow", "another method")
        do = "give it with --method, and a body with --data if it wants one"
        return f"the server answered 405; it allows {allowed}: {do}"
    if answer.is_success:
        return f"the server answered {status} without asking for a payment; give a paid URL"
    return f"the server answered {status}, not 402: correct the URL, --method, --data or --header"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What is known of the last payment."""

    sent: Draft
    """What was signed."""
    transaction: str = ""
    """The transaction of a receipt that says that it was paid; "" if there was none."""
    pending: str = ""
    """The transaction of a receipt that says that it may still be paid."""
    receipt: str = ""
    """What is to say of any other receipt."""
    is_used: bool | None = None
    """What the chain says of the authorization; None if it is not known."""

    @property
    def is_confirmed(self) -> bool:
        """Whether a receipt or the chain says that it was paid."""
        return bool(self.transaction) or self.is_used is True

    def described(self) -> str:
        """Return what is known of the payment, in words."""
        if self.transaction:
            return f"paid (transaction {self.transaction})"
        if self.is_used:
            return "paid (the chain has used its authorization)"
        sent, receipt = self.sent, self.receipt or "no receipt came"
        if self.pending:
            receipt = f"the receipt says that transaction {self.pending} is not mined yet"
        if self.is_used is False:
            receipt += ", and the chain has not used it"
        until = moment(sent.auth.valid_before, sent.now_s)
        return f"signed, not seen to be paid: {receipt}; it can be used until {until}"

    def question(self) -> str:
        """Return whom to ask whether the payment was made."""
        sent = self.sent
        asks = "the token"
        if sent.payment_id:
            asks = f"GET /api/payments/{sent.payment_id}, or the token"
        state = f"authorizationState({checksum(sent.auth.from_)}, {to_hex(sent.auth.nonce)})"
        return f"whoever pays again before may pay twice. Whether it was used, ask {asks}: {state}"

    def data(self) -> dict[str, Any]:
        """Return it for JSON: amounts in base units and decimals, times in Unix seconds."""
        auth, network = self.sent.auth, self.sent.named
        return {
            "signed": True,
            "seen_paid": self.is_confirmed,
            "used_on_chain": self.is_used,
            "transaction": self.transaction or self.pending or None,
            "pending": bool(self.pending),
            "network": network.name,
            "chain_id": network.chain_id,
            "amount": data_of(amount_in(str(auth.value), network)),
            "from": checksum(auth.from_),
            "to": checksum(auth.to),
            "nonce": to_hex(auth.nonce),
            "valid_after": auth.valid_after,
            "valid_before": auth.valid_before,
        }


def outcome_of(sent: Draft, receipts: list[dict[str, Any]]) -> Outcome:
    """Return what is known of a payment by the receipts that were answered to it."""
    paid = next((each for each in receipts if is_paid(each)), {})
    pending = next((each for each in receipts if is_pending(each)), {})
    transaction = paid.get("transaction", paid.get("txHash", ""))
    receipt = ""
    for each in receipts:
        why = each.get("errorReason") or "it failed"
        receipt = f"the receipt says that {str(why)[:100]}"
        if each.get("success") is True:
            receipt = "the receipt names no hash of a transaction"
    return Outcome(sent, str(transaction), str(pending.get("transaction", "")), receipt)


def receipts_in(response: httpx.Response) -> list[dict[str, Any]]:
    """Return the receipts in an answer, of any dialect: in its headers, and in its body."""
    found = [_in_header(response, RESPONSE_HEADERS[each]) for each in VERSIONS]
    body = _body(response)
    return [each for each in (*found, body if "txHash" in body else {}) if "success" in each]


def refusal_in(response: httpx.Response) -> Fact:
    """Return what an answer says of a refusal: its status, error, reason and `final`."""
    body, words = _body(response), []
    if body.get("isError") is True and isinstance(told := mcp.text_in(body), dict):  # of a tool
        body = told
    read = response.content if response.is_stream_consumed else b""
    words += [body.get("error"), body.get("reason")]
    for name in (REQUIRED_HEADER, *RESPONSE_HEADERS.values()):
        header = _in_header(response, name)
        words += [header.get(each) for each in ("error", "errorReason", "errorMessage")]
    texts = dict.fromkeys(each[:400] for each in words if isinstance(each, str) and each)
    final = f" (final: {str(body['final']).lower()})" if "final" in body else ""
    kept = [each for each in texts if not any(each in other and each != other for other in texts)]
    text = ": ".join(kept) or repr(read[:200].decode("utf-8", "replace")) * bool(read)
    return answer(response.status_code, f"{readable(text)}{final}".strip())


def _body(response: httpx.Response) -> dict[str, Any]:
    """Return the JSON object of an answer; an empty one for any other, and for one not read."""
    return object_in(response.content if response.is_stream_consumed else b"") or {}


def _in_header(response: httpx.Response, name: str) -> dict[str, Any]:
    return json_in(response.headers.get(name), dict[str, Any]) or {}


def failure(
    failed: PaymentFailed | httpx.HTTPError,
    outcome: Outcome,
    answer: httpx.Response | None,
    last: httpx.Request | None,
) -> str:
    """Return why a signed payment failed, and what to do: a new call would sign another one.

    `answer` is that to the payment, if one came, and `last` the last request.
    """
    why = failed.why if isinstance(failed, PaymentFailed) else str(failed)
    if answer is not None and answer.is_success:
        return f"{why}{_goods(failed, last)}"
    body = {} if answer is None else _body(answer)
    error, final = str(body.get("error")), body.get("final")
    if answer is not None and is_final(error, final if isinstance(final, bool) else None):
        refusal = Refusal.named(error)
        remedy = refusal.row.remedy if refusal else ""
        return why if remedy in why else f"{why}. {remedy}"
    if isinstance(failed, httpx.HTTPError):
        why = f"{UNKNOWN}: {why.rstrip('.')}"
    sent, goods, known = outcome.sent, "", outcome.described()
    if sent.payment_id:
        goods = f"the request with -H '{PAYMENT_ID}: {sent.payment_id}' gets the goods"
    if outcome.is_confirmed:
        why = why.removeprefix(f"{UNKNOWN}: ")
        return f"{why.rstrip('.')}. It is {known}{'; ' * bool(goods)}{goods}"
    goods = f". If it was, {goods}" * bool(goods)
    return f"{why}. The authorization is {known}; {outcome.question()}{goods}"


def _goods(failed: Exception, last: httpx.Request | None) -> str:
    """Return how to get what was paid for, if the last request was not answered."""
    if last is None or not isinstance(failed, httpx.HTTPError) or not (proof := proof_in(last)):
        return ""
    return f" It was paid: {last.method} {last.url.path} with {proof} gets what was paid for"


def in_vain(outcome: Outcome, answer: httpx.Response) -> str:
    """Return what to do about an error that answers a request with a payment."""
    proof, status = proof_in(answer.request), answer.status_code
    if outcome.is_confirmed:
        again = f"; correct the request, and send it with {proof}: that is paid for"
        return f"paid, and the server answered {status}{again * bool(proof)}"
    again = f". The request with {proof} sends the same payment again" * bool(proof)
    return f"the server answered {status}; {outcome.described()}; {outcome.question()}{again}"


def proof_in(request: httpx.Request) -> str:
    """Return the option that sends the proof of a request again; "" without one, as for tools."""
    headers = request.headers
    if mcp.TOOL in headers:
        return ""
    return next((f"-H '{name}: {headers[name]}'" for name in PROOFS if name in headers), "")


ASK_S = 5.0
"""How long a local server may take to tell its time and its accounts."""


@dataclass(frozen=True, slots=True)
class Local:
    """What a local server of x402sim tells: the networks that are known, its accounts and clock."""

    known: Mapping[str, Network]
    keys: list[str]
    clock: Clock
    rpc: str = ""
    """The URL of its chains' JSON-RPC, by the name of a network; "" if there is no such server."""


def local_server(http: httpx.Client, url: httpx.URL, known: Mapping[str, Network]) -> Local:
    """Ask a server on this machine for its world; without one, the accounts of anvil and now."""

    def fetched(what: str) -> bytes:
        path = f"{origin_of(url)}/_sim/{what}"
        return answer_to(http, http.build_request("GET", path, timeout=ASK_S)).content

    if url.host in LOOPBACK:
        with suppress(httpx.HTTPError, ValueError):  # it is no server of ours
            who: WorldInfo = decode(fetched("who"), WorldInfo)
            accounts: list[Account] = decode(fetched("accounts"), list[Account])
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
    kept: Kept | None = None
    """Where unfinished payments are written down; None for nowhere."""
    resumed: Unfinished = field(default_factory=Unfinished)
    """What an earlier start has signed for it and not finished."""
    _asked: httpx.Request | None = None
    _payer: PaymentAuth | None = None

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
        self._asked, self._payer, self.resumed = request, None, Unfinished()
        if self.kept is not None and mistake is None:
            self._resume(self.kept, request)

        def change(request: httpx.Request) -> httpx.Request:
            draft = self.right = self._draft(request)
            assert mistake is not None
            if draft.dialect not in mistake.dialects:
                name, only = draft.dialect.value, ", ".join(d.value for d in mistake.dialects)
                problem = f"cannot be done in {name}, only in {only}"
                raise PaymentFailed(f"--wrong {mistake.name} {problem}")
            self.sent = mistake.change(replace(draft, auth=used or draft.auth))
            return request_of(self.sent, request)

        flow = ObservedAuth(
            choose=self._choose,
            on_request=self._sends,
            on_answer=self._answered,
            limits=Limits(deadline_s=DEADLINE_S),
            change=change if mistake else None,
        )
        try:
            return answer_to(self.http, copy_of(request), flow)
        finally:
            self._keep()

    def _resume(self, kept: Kept, request: httpx.Request) -> None:
        """Take up what an earlier start has signed and not finished; raises `PaymentFailed`."""
        try:
            found = kept.read(request)
            if found is None:
                return
            self.network = network_named(found.network, self.local.known)
        except ValueError as wrong:
            raise PaymentFailed(str(wrong)) from wrong
        self.resumed = found.unfinished
        last = self.resumed.payments[-1]
        self.sent = Draft(
            next(each for each in Dialect if each.version == last.version),
            last.auth,
            *(self.wallet, self.network, self.network),
            str(request.url),
            last.proof.get(PAYMENT_ID, "") if last.version is None else "",
            self.local.clock.now_s(),
        )

    def _keep(self) -> None:
        """Write down what is signed and not finished; raises `PaymentFailed` if that fails."""
        if self.kept is None or self._payer is None or self._asked is None:
            return
        unfinished = self._payer.unfinished(self._asked)
        try:
            self.kept.write(self._asked, self.network, unfinished)
        except OSError as error:
            raise PaymentFailed(f"--state-dir: cannot write {self.kept.folder}: {error}") from error

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
        if found.is_confirmed or not self.local.rpc:
            return found
        auth, named = found.sent.auth, found.sent.named
        data = authorization_state(auth.from_, auth.nonce)
        call = {"to": to_hex(named.asset), "data": to_hex(data)}
        call_ = {"jsonrpc": "2.0", "id": 1, "method": "eth_call", "params": [call, "latest"]}
        with suppress(httpx.HTTPError, ValueError):  # then it is not known
            url = f"{self.local.rpc}/{named.name}"
            request = self.http.build_request("POST", url, json=call_, timeout=ASK_S)
            read = object_in(answer_to(self.http, request).content) or {}
            return replace(found, is_used=int(str(read.get("result")), 16) == 1)
        return found

    # --- who pays ------------------------------------------------------------------------

    def _choose(self, response: httpx.Response) -> FlowAuth:
        """Return the payer that pays the first offer of a 402 that it can pay.

        Raises `PaymentFailed`.
        """
        if self.resumed.payments:  # whatever it asks now, that comes first
            return self._single(self.resumed.payments[-1].version)
        other = foreign_in(response.headers, response.content)
        if other is not None:
            none = "the 402 has no payment requirements; `doctor URL` looks closer. "
            facts = ", ".join(f"{name} {value}" for name, value in other.facts.items())
            quoted = f"It says: {facts[:400]}. " if facts else ""
            raise PaymentFailed(f"{none}It is {other.name}. {quoted}{other.do}")
        ways = list(enumerate(ways_in(response.headers, response.content), 1))
        if not ways:
            raise PaymentFailed("the 402 has no payment requirements; `doctor URL` looks closer")
        if self.steps is not None:
            offered = ", ".join(dict.fromkeys(way.dialect.value for _, way in ways))
            only = f"--steps {self.steps}: the 402 offers only"
            ways = [(number, way) for number, way in ways if self._is_wanted(way)]
            if not ways:
                raise PaymentFailed(f"{only} {offered}; leave it out")
        picked = pick(response.request, response, ways, self.local.known, self._over_cap)
        if picked.way is None or picked.network is None:
            raise self._unpayable([way for _, way in ways], picked)
        self.network, self.picked = picked.network, picked
        try:
            if self.session:
                clock, deposit = self.local.clock, self._spend()
                return SessionAuth(self.wallet, deposit=deposit, network=self.network, clock=clock)
            return self._single(picked.way.dialect.version)
        except ValueError as wrong:
            raise PaymentFailed(f"--max {self.max_amount}: {wrong}") from wrong

    def _spend(self) -> str:
        decimals = self.network.decimals
        return to_decimal(to_base(self.max_amount, decimals), decimals)

    def _single(self, version: Version | None) -> PaymentAuth:
        """Return the payer of one purchase, with what is not finished of it."""
        self._payer = PaymentAuth(
            self.wallet,
            max_amount=self._spend(),
            max_total=self._spend(),
            network=self.network,
            version=version,
            clock=self.local.clock,
            deadline_s=DEADLINE_S,
        )
        if self.resumed.payments and self._asked is not None:
            self._payer.resume(self._asked, self.resumed)
        return self._payer

    def _is_wanted(self, way: Way) -> bool:
        """Tell whether --steps allows a way to pay."""
        return self.steps is None or (way.dialect is Dialect.TWO_STEPS) == (self.steps == 2)

    def _over_cap(self, amount_base: int, network: Network) -> str:
        most = to_base(self.max_amount, network.decimals)
        if amount_base <= most or self.session:
            return ""
        price = f"{to_decimal(amount_base, network.decimals)} {network.token_symbol}"
        return f"the 402 asks for {price}; --max allows {self.max_amount}. Raise --max to pay it."

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

    # --- what is printed --------------------------------------------------------------------

    def _draft(self, request: httpx.Request) -> Draft:
        return draft_of(request, self.wallet, self.network, self.local.clock.now_s())

    def _sends(self, request: httpx.Request) -> None:
        """Tell what was signed, before it is sent."""
        self.last = request
        if self.mistake is None:
            self._keep()
        if paid_in(request) is None:
            return
        if self.sent is None or self.mistake is None:
            self.sent = self._draft(request)
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
        title = "Signed an EIP-3009 authorization, off-chain"
        if any(auth == each.auth for each in self.resumed.payments):
            title = "Took up the authorization of an earlier start"
        self.tell(Step(title, True, facts))

    def _answered(self, request: httpx.Request, response: httpx.Response) -> None:
        status = answer(response.status_code)
        facts: dict[str, Any] = {"answer": refusal_in(response) if response.is_error else status}
        name, tool = f"{request.method} {request.url.path}", request.headers.get(mcp.TOOL)
        if tool is not None:
            name = f"tool {tool} at {request.url.path}"
        if (dialect := paid_in(request)) is not None:
            self.answer = response
            if self.mistake is not None:  # the explanation has the rest
                facts["answer"] = status
            found = receipts_in(response)
            self.receipts += found
            outcome = self.outcome
            if transaction := outcome.transaction or outcome.pending:
                facts["transaction"] = transaction
            if response.is_success and not outcome.is_confirmed:
                facts["receipt"] = "pending" if outcome.pending else "none: not seen to be paid"
            sent_in = f", {PAYMENT_HEADERS[dialect.version]}" if dialect.version else ""
            if tool is not None:
                sent_in = f', _meta["{mcp.PAYMENT}"]'
            mark = "" if self.mistake is None or response.is_success else "refused"
            title = (
                "Paid" if outcome.is_confirmed or self.mistake is not None else "Sent to be paid"
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


WRONG = " or ".join(", ".join(MISTAKES).rsplit(", ", 1))
VARIABLES = ("X402SIM_KEY", "X402SIM_PRIVATE_KEY")
Key = Annotated[
    str | None,
    typer.Option(help="Private key of the payer, 0x-hex.", envvar=[*VARIABLES], metavar="HEX"),
]
PaidMethod = Annotated[
    str | None,
    typer.Option(
        "--method",
        "-X",
        help="HTTP method. [default: GET, or POST with --data]",
        envvar="X402SIM_METHOD",
    ),
]
PaidData = Annotated[
    str | None,
    typer.Option(
        "--data",
        "-d",
        help="Body, or @FILE; JSON gets its Content-Type.",
        metavar="TEXT",
        envvar="X402SIM_BODY",
    ),
]
Only = Annotated[
    str | None,
    typer.Option(
        "--network",
        help="Pay on this network only: its name, or eip155:ID.",
        metavar="NAME",
        envvar="X402SIM_NETWORK",
    ),
]
StateDir = Annotated[
    Path | None,
    typer.Option(
        help="Keep unfinished payments in this folder: the same command, started again, sends "
        "the same authorization again and signs no other.",
        metavar="DIR",
        envvar="X402SIM_STATE_DIR",
    ),
]
AccountNumber = Annotated[
    int,
    typer.Option(
        "--account",
        help="Account of the local server that pays, by number.",
        parser=within(0),
        metavar="N",
    ),
]
Most = Annotated[
    str,
    typer.Option(
        "--max",
        help="Pay at most so many tokens.",
        metavar="AMOUNT",
        envvar="X402SIM_MAX_AMOUNT",
    ),
]
Tool = Annotated[
    str | None,
    typer.Option(
        help="Tool to call at the URL of an MCP server, by streamable HTTP.",
        metavar="NAME",
        envvar="X402SIM_TOOL",
    ),
]
Arguments = Annotated[
    str | None,
    typer.Option(
        help="Arguments of --tool, a JSON object. [default: {}]",
        metavar="JSON",
        envvar="X402SIM_ARGUMENTS",
    ),
]
Steps = Annotated[
    int | None,
    typer.Option(
        help="1: the request itself pays, in X-PAYMENT or PAYMENT-SIGNATURE. 2: POST /api/pay, "
        "then the request again. [default: 2 if the 402 offers it, else 1]",
        parser=within(1, 2),
        metavar="N",
    ),
]
Session = Annotated[
    bool, typer.Option("--session", help="Open a session, deposit --max, and pay from it.")
]
Wrong = Annotated[
    str | None,
    typer.Option(
        help=f"Make one mistake, and explain the answer: {WRONG}.",
        metavar="MISTAKE",
        autocompletion=completing(lambda: MISTAKES),
    ),
]


@dataclass(slots=True)
class _Printer:
    """The steps so far, printed to stderr at once, unless all is printed as JSON at the end."""

    as_json: bool
    steps: list[Step] = field(default_factory=list)

    def __call__(self, step: Step) -> None:
        self.steps.append(step)
        if not self.as_json:
            print_step(len(self.steps), step, err=True)


def pay(
    url: PaidUrl,
    method: PaidMethod = None,
    data: PaidData = None,
    header: Headers = None,
    tool: Tool = None,
    arguments: Arguments = None,
    key: Key = None,
    account: AccountNumber = 0,
    most: Most = "0.10",
    steps: Steps = None,
    session: Session = False,
    wrong: Wrong = None,
    network: Only = None,
    network_file: NetworkFile = None,
    state_dir: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """Pay for a request, or a tool: a curl that answers a 402."""
    printer = _Printer(as_json)
    with client() as http:
        with as_misuse():
            if wrong is not None and session:
                raise ValueError("--wrong and --session: give one of them")
            if wrong not in (None, *MISTAKES):
                raise ValueError(unknown("mistake", str(wrong), MISTAKES))
            if session and steps == 1:
                raise ValueError("--session and --steps 1: a deposit takes two steps; omit --steps")
            if session and state_dir is not None:
                raise ValueError("--session and --state-dir: a session is not kept; omit one")
            if tool is not None:
                method, data = _without_task(method, data)
                if session or steps == 2:
                    raise ValueError("--tool: a tool is paid in one step; omit --session, --steps")
            elif arguments is not None:
                raise ValueError("--arguments: they are a tool's; name it with --tool")
            request = request_to(url, method, data, header, tool, arguments)
            local = local_server(http, request.url, known_networks(network_file))
            if network is not None:
                local = replace(local, known=_only(local.known, network))
            wallet = _wallet(key, account, local)
            purchase = Purchase(http, wallet, local, printer, most, steps, session)
            purchase.kept = None if state_dir is None else Kept(state_dir)
        if wrong is not None:
            _go_wrong(purchase, request, MISTAKES[wrong], printer)
        else:
            answer = _bought(purchase, request, printer)
            outcome = purchase.ask_chain()
            problem = "" if answer.is_success else in_vain(outcome, answer)
            _end(printer, problem, answer, outcome, ok=not problem)
            if problem:
                raise typer.Exit(NOT_ALL_HELD)


def _bought(
    purchase: Purchase, request: httpx.Request, printer: _Printer, **wrong: Any
) -> httpx.Response:
    """Return the answer to a request; exits if nothing was signed, or if it was in vain."""
    try:
        answer = purchase.buy(request, **wrong)
    except (PaymentFailed, httpx.HTTPError) as failed:
        if purchase.sent is not None:
            outcome = purchase.ask_chain()
            why = failure(failed, outcome, purchase.answer, purchase.last)
            _end(printer, f"not served: {why}", outcome=outcome)
            raise typer.Exit(NOT_ALL_HELD) from failed
        if isinstance(failed, PaymentFailed):
            problem = f"nothing was paid: {failed}".replace("max_amount", "--max")
            raise Misuse(problem) from failed
        raise Misuse(no_answer(request.url, failed)) from failed
    if purchase.sent is None:
        if purchase.kept is not None and answer.is_success:  # what is free is bought, too
            _end(printer, "", answer, ok=True)
            raise typer.Exit
        _end(printer, "", answer)
        raise Misuse(f"nothing was paid: {instead(answer)}")
    return answer


def _end(
    printer: _Printer,
    problem: str,
    answer: httpx.Response | None = None,
    outcome: Outcome | None = None,
    *,
    ok: bool = False,
) -> None:
    """Print the body (on a terminal, escaped), and what is known of the payment; or all as JSON."""
    if printer.as_json:
        payment = None if outcome is None else outcome.data()
        _print_json(printer, ok=ok, problem=problem, answer=answer, payment=payment)
        return
    if answer is not None:
        content = answer.content
        if sys.stdout.isatty():
            typer.echo(printable_lines(content.decode("utf-8", "replace")))
        else:
            typer.echo(content, nl=not content.endswith(b"\n"))
    if problem:
        typer.echo(f"x402sim: {printable(problem)}", err=True)
    elif outcome is not None:
        typer.echo(f"x402sim: served, and {printable(outcome.described())}", err=True)


# --- the options -------------------------------------------------------------------------


def _without_task(method: str | None, data: str | None) -> tuple[None, None]:
    """Leave out what a task in the environment says of a tool once more; raises `ValueError`."""
    told = os.environ.get("X402SIM_METHOD"), os.environ.get("X402SIM_BODY")
    if any(given not in (None, known) for given, known in zip((method, data), told, strict=True)):
        raise ValueError("--tool: it has --arguments; omit --method and --data")
    return None, None


def _only(known: Mapping[str, Network], name: str) -> dict[str, Network]:
    """Return the one network of a name, or of a CAIP-2 name; raises `ValueError`."""
    found = {each: network for each, network in known.items() if name in (each, network.caip2)}
    if not found:
        raise ValueError(f"--network {unknown('network', name, known)}")
    return found


def _wallet(key: str | None, account: int, local: Local) -> Wallet:
    """Return who pays; raises `ValueError`."""
    if key is None and account >= len(local.keys):
        raise ValueError(
            f"--account {account}: there are {len(local.keys)}, from 0 to {len(local.keys) - 1}; "
            "`serve --accounts N` funds more"
        )
    try:
        return Wallet(local.keys[account] if key is None else key)
    except ValueError as wrong:
        source = next((each for each in VARIABLES if os.environ.get(each) == key), "--key")
        number = f"; account {key} of a local server is --account {key}"
        raise ValueError(f"{source}: {wrong}{number if (key or '').isdigit() else ''}") from wrong


# --- the outcome -------------------------------------------------------------------------


def _go_wrong(
    purchase: Purchase, request: httpx.Request, mistake: Mistake, printer: _Printer
) -> None:
    """Make a mistake, and explain the answer; exits with 1 if the server does not refuse it."""
    used = None
    if mistake.name == "replay":
        _bought(purchase, request, printer)
        assert purchase.sent is not None
        used = purchase.sent.auth
    answer = _bought(purchase, request, printer, mistake=mistake, used=used)
    right, sent = purchase.right, purchase.sent
    assert right is not None
    assert sent is not None
    ok = 400 <= answer.status_code < 500
    facts = {
        "mistake": f"the payer {mistake.does}",
        "sent": mistake.shows(sent),
        "wanted": mistake.shows(right),
        "server said": refusal_in(answer),
        "do": mistake.remedy if ok else f"At the server: refuse it. {mistake.remedy}",
    }
    if printer.as_json:
        _print_json(printer, ok=ok, wrong={"name": mistake.name, **data_of(facts)}, answer=answer)
    else:
        did = "took it" if answer.is_success else "failed on it"
        typer.echo("Refused, as it should be." if ok else f"Not refused: the server {did}.")
        print_facts(facts)
    if not ok:
        raise typer.Exit(NOT_ALL_HELD)


def _print_json(
    printer: _Printer, *, ok: bool, answer: httpx.Response | None = None, **more: Any
) -> None:
    steps = [
        {"title": step.title, "ok": step.ok, "mark": step.mark, "facts": data_of(step.facts)}
        for step in printer.steps
    ]
    found: dict[str, Any] = {"ok": ok, "steps": steps}
    if answer is not None:
        try:
            body = decode(answer.content, Any)
        except BadMessage:
            body = answer.content.decode("utf-8", "replace")
        found |= {"status": answer.status_code, "body": body}
    typer.echo(json.dumps(found | {name: each for name, each in more.items() if each}, indent=2))
