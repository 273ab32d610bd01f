"""The request of `pay`, `doctor` and `demo`, and the purchase: paid as the 402 demands, each step
reported.

`Outcome` holds the known facts of the payment: the signed authorization, a receipt's or the chain's
confirmation, and the time until which the authorization can be used.

No answer widens a signature: tokens, chains and decimals come from our table or the user's file,
and the time from this machine. The payer trusts only a world that the user has started and names
(`--world`). A main network's money is paid only if the user names the network.

Unfinished signed payments may be kept in a folder (`payer.stored`), a file for each purchase (by
method, URL and body).
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import httpx
import typer

from x402sim.clock import Clock, SkewedClock, real_now, stopwatch
from x402sim.commands.common import Step
from x402sim.http.bounded import Limits, bound, to_no_url
from x402sim.payer import mistakes
from x402sim.payer.auth import DEADLINE_S, PaymentAuth
from x402sim.payer.core import PAYMENT_ID_HEADER, SESSION_ID_HEADER, PaymentFailed
from x402sim.payer.diagnosis import Picked, pick
from x402sim.payer.flow import Flow, FlowAuth, Send, origin_of, send
from x402sim.payer.purchases import Unfinished, body_key, nonce_question
from x402sim.payer.session import SessionAuth
from x402sim.payer.signing import CLOCKS_AGREE_S, Allowed
from x402sim.payer.stored import Bought, Record, Stored
from x402sim.payer.tools import ToolTransport, tool_request
from x402sim.payer.wallet import Wallet
from x402sim.protocol import mcp
from x402sim.protocol.abi import authorization_state, nonce_bitmap
from x402sim.protocol.crypto import checksum, to_hex
from x402sim.protocol.findings import is_paid, is_pending
from x402sim.protocol.messages import BadMessage, decode
from x402sim.protocol.money import to_base, to_decimal
from x402sim.protocol.networks import NETWORKS, TESTNET, Network, network_named
from x402sim.protocol.permit2 import PERMIT2
from x402sim.protocol.phrase import KNOWN, keys_of
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
from x402sim.serving.control.messages import Account, WorldInfo, network_of
from x402sim.serving.listen import LOOPBACK
from x402sim.text.words import as_given, moment, near_url, readable
from x402sim.version import VERSION

Address = Annotated[
    str,
    typer.Argument(
        metavar="URL",
        envvar="X402SIM_URL",
        help="URL of the request, with http:// or https://.",
    ),
]
Method = Annotated[
    str | None,
    typer.Option(
        "--method",
        "-X",
        metavar="METHOD",
        envvar="X402SIM_METHOD",
        help="HTTP method. [default: GET, or POST with --data]",
    ),
]
Data = Annotated[
    str | None,
    typer.Option(
        "--data",
        "-d",
        metavar="TEXT",
        envvar="X402SIM_BODY",
        help="Body, or @FILE; JSON gets its Content-Type.",
    ),
]
Headers = Annotated[
    list[str] | None,
    typer.Option("--header", "-H", help="Header 'Name: value'; repeatable.", metavar="HEADER"),
]


def client() -> httpx.Client:
    """Return a client for any URL and for MCP tools; it honours SSL_CERT_FILE and uses no proxy."""
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
    """Return the request of the options; raises `ValueError`."""
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL as wrong:
        raise ValueError(f"{as_given(url)} is no URL: {wrong}") from wrong
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise ValueError(f"{as_given(url)} is no URL with http:// or https://{near_url(url)}")
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
    sent.setdefault("user-agent", f"x402sim/{VERSION}")
    if tool is not None:
        try:
            given = {} if arguments is None else decode(arguments.encode(), dict[str, Any])
        except BadMessage as wrong:
            raise ValueError(f"--arguments {arguments!r}: wanted a JSON object: {wrong}") from wrong
        return tool_request(parsed, tool, given, sent)
    verb = (method or ("POST" if data is not None else "GET")).upper()
    return httpx.Request(verb, parsed, headers=sent, content=data)


@dataclass(frozen=True, slots=True)
class _Unpaid(FlowAuth):
    """Authentication of an unpaid request, which adds only a deadline."""

    limits: Limits

    def exchange(self, request: httpx.Request) -> Flow:
        return (yield from send(Send(request)))


class _Kept(httpx.SyncByteStream):
    """A body that keeps the part received, in case the rest never comes."""

    def __init__(self, inner: Any) -> None:
        self._inner, self.read = inner, bytearray()

    def __iter__(self) -> Iterator[bytes]:
        for chunk in self._inner:
            self.read += chunk
            yield chunk

    def close(self) -> None:
        self._inner.close()


def answer_to(
    http: httpx.Client,
    request: httpx.Request,
    auth: FlowAuth | None = None,
    *,
    deadline_s: float = DEADLINE_S,
) -> httpx.Response:
    """Return the answer to a request, read within limits; raises `httpx.HTTPError`, and the errors
    of the authentication.

    The deadline, of the head and once more of the body, is `deadline_s`, or with `auth` its own.
    The extension `read` of the answer has what came of a body that breaks off.
    """
    auth = auth or _Unpaid(Limits(deadline_s=deadline_s))
    try:
        response = http.send(request, auth=auth, stream=True)
    except (httpx.InvalidURL, UnicodeError) as wrong:
        raise to_no_url(wrong) from wrong
    try:
        if not response.is_stream_consumed:
            bound(response, auth.limits, stopwatch())
            response.stream = kept = _Kept(response.stream)
            response.extensions["read"] = kept.read
            response.read()
    finally:
        response.close()
    return response


def no_answer(url: httpx.URL, error: Exception) -> str:
    """Return the advice for a server that does not answer."""
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


# --- kept purchases ------------------------------------------------------------------------


def kept_in(folder: Path, request: httpx.Request) -> Stored:
    """Return the purchase of a request in a folder: the purchase of this method, URL and body."""
    key = "\0".join((request.method, str(request.url), body_key(request)))
    return Stored(folder, "pay", key, "--state-dir")


def bought_in(kept: Stored, since_s: float) -> Bought | None:
    """Return an answer that was not printed, or that another process bought since a time."""
    bought = kept.record.bought
    is_new = bought is not None and since_s <= bought.at_s <= real_now()
    return bought if bought and (is_new or not bought.printed) else None


def note_printed(kept: Stored) -> None:
    """Note that the answer is printed; raises `PaymentFailed`."""
    bought = kept.record.bought
    if bought is not None and not bought.printed:
        bought.printed = True
        kept.write(lambda: kept.record)


# --- the purchase -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Outcome:
    """The known facts of the last payment."""

    sent: mistakes.Draft
    """The signed payment."""
    transaction: str = ""
    """The transaction of a receipt that confirms the payment; "" without one."""
    pending: str = ""
    """The transaction of a "pending" receipt."""
    receipt: str = ""
    """The text of any other receipt."""
    settled: str = ""
    """The amount of a receipt, in base units: in `upto`, what was used."""
    is_used: bool | None = None
    """Whether the chain has used the authorization; None if unknown."""

    @property
    def is_confirmed(self) -> bool:
        """Whether a receipt or the chain confirms the payment."""
        return bool(self.transaction) or self.is_used is True

    def described(self) -> str:
        """Return the known facts of the payment, in words."""
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
        """Return where to find out whether the payment was made."""
        sent = self.sent
        asks = "the token"
        if sent.payment_id:
            asks = f"GET /api/payments/{sent.payment_id}, or the token"
        state = f"authorizationState({checksum(sent.auth.from_)}, {to_hex(sent.auth.nonce)})"
        again = "paying again before then may pay twice. To see whether it was used"
        if sent.by_permit2:
            return f"{again}, ask {nonce_question(sent.auth)}"
        return f"{again}, ask {asks}: {state}"

    def data(self) -> dict[str, Any]:
        """Return the JSON object: amounts in base units and decimals, times in Unix seconds."""
        auth, network = self.sent.auth, self.sent.named
        settled = data_of(amount_in(self.settled, network)) if self.settled else None
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
            **({"permit2": True, "settled": settled} if self.sent.by_permit2 else {}),
        }


def receipts_in(response: httpx.Response) -> list[dict[str, Any]]:
    """Return the receipts in an answer, of any dialect: in its headers, and in its body."""
    found = [_in_header(response, RESPONSE_HEADERS[each]) for each in VERSIONS]
    body = body_of(response)
    return [each for each in (*found, body if "txHash" in body else {}) if "success" in each]


def refusal_in(response: httpx.Response) -> Fact:
    """Return an answer's refusal in words: status, error, reason and `final`."""
    body, words = body_of(response), []
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


def body_of(response: httpx.Response) -> dict[str, Any]:
    """Return the JSON object in an answer; empty without JSON, or before the body was read."""
    return object_in(response.content if response.is_stream_consumed else b"") or {}


def _in_header(response: httpx.Response, name: str) -> dict[str, Any]:
    return json_in(response.headers.get(name), dict[str, Any]) or {}


ASK_S = 5.0
"""Seconds for a local server to answer with its time and accounts."""


@dataclass(frozen=True, slots=True)
class Local:
    """The trusted facts of this machine and of the user's world."""

    allowed: Allowed
    rpc: str = ""
    """The URL of its chains' JSON-RPC, by the name of a network; "" without such a server."""
    hint: str = ""
    """The server's claims that a payer does not believe, and the option to believe them."""

    def hinted(self, problem: str) -> str:
        """Return a problem, with the hint if there is one."""
        return f"{problem.removesuffix('.')}. {self.hint}" if self.hint else problem


def world_at(
    http: httpx.Client, world: str, known: Mapping[str, Network], *, own_key: bool
) -> Local:
    """Return the claims of the user's own world; raises `ValueError` if the URL is no world.

    The world's clock is believed, and the token, unless the user's own key pays: then decimals and
    chain come from our table or the user's file. A token of our table keeps the decimals.
    """
    root = world.rstrip("/").removesuffix("/_sim")
    try:
        who, keys = _described(http, root)
        own, now_s = network_of(who), who.now / 1000
    except (httpx.HTTPError, httpx.InvalidURL, ValueError, OverflowError) as wrong:
        raise ValueError(f"--world {world} is not the control API of `serve`: {wrong}") from wrong
    clock = SkewedClock(Clock())
    clock.skew_s = now_s - Clock().now()
    rpc = f"{root}/rpc"
    if own_key:
        return Local(Allowed(known, [], clock), rpc)
    tokens = {(each.chain_id, each.asset): each for each in NETWORKS.values()}
    network = tokens.get((own.chain_id, own.asset), own)
    known = {**known, network.name: network}
    return Local(Allowed(known, keys, clock, frozenset({network.name})), rpc)


def local_server(http: httpx.Client, url: httpx.URL, known: Mapping[str, Network]) -> Local:
    """Return the trusted facts of a server at a URL: the accounts, for a world on this machine.

    Without a world, the accounts are anvil's. A server that names a key knows the key already, so a
    lie costs nothing; the server sets none of the other limits of a signature.
    """
    found = Local(Allowed(known, [to_hex(key) for key in keys_of(KNOWN, 10)], Clock()))
    if url.host not in LOOPBACK:
        return found
    root, differs = origin_of(url), ""
    try:
        who, keys = _described(http, root)
        ahead_s = who.now / 1000 - Clock().now()
    except (httpx.HTTPError, ValueError, OverflowError):  # the server is no x402sim
        return found
    if abs(ahead_s) > CLOCKS_AGREE_S:
        differs = f"its clock is {abs(ahead_s):.0f} s {'ahead' if ahead_s > 0 else 'behind'}"
    elif who.network not in known:
        differs = f"its network is {who.network[:80]!r}"
    hint = f"The server says that {differs}, which a payer does not believe by itself: if you have "
    hint += f"started it, add --world {root}"
    allowed = Allowed(known, keys, Clock())
    return Local(allowed, rpc=f"{root}/rpc", hint=hint if differs else "")


def _described(http: httpx.Client, root: str) -> tuple[WorldInfo, list[str]]:
    """Return a world's description and account keys; raises `ValueError` if the URL is no world."""

    def fetched(what: str) -> bytes:
        request = http.build_request("GET", f"{root}/_sim/{what}", timeout=ASK_S)
        return answer_to(http, request, deadline_s=ASK_S).content

    who: WorldInfo = decode(fetched("who"), WorldInfo)
    accounts: list[Account] = decode(fetched("accounts"), list[Account])
    return who, [each.private_key for each in accounts]


@dataclass(slots=True)
class Purchase:
    """One request, paid within `max_amount` tokens; `tell` gets each step as it ends.

    Raises `ValueError` for an amount that is invalid on every network.
    """

    http: httpx.Client
    wallet: Wallet
    local: Local
    request: httpx.Request
    tell: Callable[[Step], None]
    max_amount: str
    steps: int | None = None
    """1 or 2; None: as the 402 offers."""
    session: bool = False
    kept: Stored | None = None
    """Where unfinished payments are kept, held by this process; None: nowhere."""
    mistake: mistakes.Mistake | None = None
    """The mistake in the payment; `buy` then returns the answer to the wrong payment."""
    permit2: bool = False
    """Whether offers by Permit2 are paid, too."""
    used: mistakes.Draft | None = None
    """The payment whose authorization a replay sends again."""

    network: Network = field(default=TESTNET, init=False)
    picked: Picked | None = field(default=None, init=False)
    """The paid offer, and the reasons against earlier offers."""
    right: mistakes.Draft | None = field(default=None, init=False)
    """The payment without the mistake."""
    sent: mistakes.Draft | None = field(default=None, init=False)
    answer: httpx.Response | None = field(default=None, init=False)
    """The answer to the payment; None if none came."""
    receipts: list[dict[str, Any]] = field(default_factory=list, init=False)
    """The receipts in answers to the payment, of any dialect."""
    last: httpx.Request | None = field(default=None, init=False)
    """The newest request."""
    newest: httpx.Response | None = field(default=None, init=False)
    """The newest answer."""
    resumed: Unfinished = field(default_factory=Unfinished, init=False)
    """Payments that an earlier start signed for this purchase and did not finish."""
    _payer: PaymentAuth | None = field(default=None, init=False)
    _shown: Way | None = field(default=None, init=False)
    """The offer of the newest 402 that was shown to the user."""

    def __post_init__(self) -> None:
        try:
            to_base(self.max_amount, 36)  # no token has more decimals
        except ValueError as wrong:
            raise ValueError(f"--max {self.max_amount}: {wrong}") from wrong

    def buy(self) -> httpx.Response:
        """Return the last answer, read; raises `PaymentFailed` and `httpx.HTTPError`.

        The request itself stays unchanged. With a mistake, the answer is to the wrong payment.
        """
        if self.kept is not None and self.mistake is None:
            self._resume(self.kept.record)
        flow = mistakes.ObservedAuth(
            choose=self._choose,
            on_request=self._sends,
            on_answer=self._answered,
            limits=Limits(deadline_s=DEADLINE_S),
            change=None if self.mistake is None else partial(self._changed, self.mistake),
        )
        answer = None
        try:
            answer = answer_to(self.http, mistakes.copy_of(self.request), flow)
        finally:
            try:
                self._keep(answer)
            except PaymentFailed as wrong:  # the file still has the payment, as it was sent
                self.tell(Step("Wrote down the answer", False, {"problem": wrong.why}))
        return answer

    def _changed(self, mistake: mistakes.Mistake, request: httpx.Request) -> httpx.Request:
        draft = self.right = self._draft(request)
        if draft.dialect not in mistake.dialects:
            name, only = draft.dialect.value, ", ".join(d.value for d in mistake.dialects)
            raise PaymentFailed(f"--wrong {mistake.name} cannot be done in {name}, only in {only}")
        if self.used is not None:
            if draft.named != self.used.named:
                raise PaymentFailed(
                    f"the first 402 asked for a payment on {self.used.named.name}, and the "
                    f"second one on {draft.named.name}; nothing more was signed"
                )
            draft = replace(draft, auth=self.used.auth)
        self.sent = mistake.change(draft)
        return mistakes.request_of(self.sent, request)

    def _resume(self, found: Record) -> None:
        """Resume the unfinished payments of an earlier start; raises `PaymentFailed`."""
        if not found.unfinished.payments:
            return
        try:
            self.network = network_named(found.network, self.local.allowed.known)
        except ValueError as wrong:
            raise PaymentFailed(str(wrong)) from wrong
        if why := self.local.allowed.why_not(self.network, self.wallet):
            raise PaymentFailed(f"an earlier start has signed for it: {why}")
        self.resumed = found.unfinished
        last = self.resumed.payments[-1]
        self.sent = mistakes.Draft(
            next(each for each in Dialect if each.version == last.version),
            last.auth,
            *(self.wallet, self.network, self.network),
            str(self.request.url),
            last.proof.get(PAYMENT_ID_HEADER, "") if last.version is None else "",
            self.local.allowed.clock.now_s(),
            by_permit2=last.by_permit2,
        )

    def _keep(self, answer: httpx.Response | None = None) -> None:
        """Write down unfinished signed payments, or the paid answer.

        A redirect is not followed, so the payment stays. Raises `PaymentFailed` if writing fails.
        """
        if self.kept is None or self._payer is None or (answer and answer.is_redirect):
            return
        unfinished, bought = self._payer.unfinished(self.request), None
        if answer is not None and answer.is_success and self.sent is not None:
            payment = self.outcome.data()
            bought = Bought(
                at_s=real_now(),
                status=answer.status_code,
                body=answer.content,
                payment=payment,
                printed=False,
            )
        record = Record(
            url=str(self.request.url),
            network=self.network.name,
            unfinished=unfinished,
            bought=bought,
        )
        self.kept.write(lambda: record)

    @property
    def outcome(self) -> Outcome:
        """The outcome of the signed payment, according to the receipts."""
        assert self.sent is not None
        paid = next(filter(is_paid, self.receipts), {})
        pending = next(filter(is_pending, self.receipts), {})
        transaction = paid.get("transaction", paid.get("txHash", ""))
        receipt = ""
        for each in self.receipts:
            why = each.get("errorReason") or "it failed"
            receipt = f"the receipt says that {str(why)[:100]}"
            if each.get("success") is True:
                receipt = "the receipt names no hash of a transaction"
                if each.get("amount") == "0":
                    receipt = "the receipt says that nothing was used"
        return Outcome(
            self.sent,
            transaction=str(transaction),
            pending=str(pending.get("transaction", "")),
            receipt=receipt,
            settled=str(paid.get("amount", "")),
        )

    def ask_chain(self) -> Outcome:
        """Return the facts of the payment; without a receipt, ask the chain, too.

        Only the chain of a local server is known, and trusted for play money only: about real money
        a shop on this machine could claim anything.
        """
        found = self.outcome
        is_play = self.local.allowed.is_play(self.network, self.wallet)
        if found.is_confirmed or not (self.local.rpc and is_play):
            return found
        auth, named = found.sent.auth, found.sent.named
        at, data, nonce = named.asset, authorization_state(auth.from_, auth.nonce), 0
        if found.sent.by_permit2:
            nonce = int.from_bytes(auth.nonce)
            at, data = PERMIT2, nonce_bitmap(auth.from_, nonce)
        call = {"to": to_hex(at), "data": to_hex(data)}
        call_ = {"jsonrpc": "2.0", "id": 1, "method": "eth_call", "params": [call, "latest"]}
        with suppress(httpx.HTTPError, ValueError):  # the outcome then stays unknown
            url = f"{self.local.rpc}/{named.name}"
            request = self.http.build_request("POST", url, json=call_, timeout=ASK_S)
            read = object_in(answer_to(self.http, request, deadline_s=ASK_S).content) or {}
            word = int(str(read.get("result")), 16)
            return replace(found, is_used=bool(word >> (nonce & 255) & 1))
        return found

    # --- the payer -----------------------------------------------------------------------

    def _choose(self, response: httpx.Response) -> FlowAuth:
        """Return the payer of the first payable offer of a 402; raises `PaymentFailed`."""
        if self.resumed.payments:  # whatever the 402 asks now, resumed payments come first
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
        picked = self._pick(response, ways)
        if picked.way is None or picked.network is None:
            raise self._unpayable([way for _, way in ways], picked)
        self.network, self.picked = picked.network, picked
        try:
            if self.session:
                deposit = self._spend()
                clock = self.local.allowed.clock_for(self.network, self.wallet)
                return SessionAuth(self.wallet, deposit=deposit, network=self.network, clock=clock)
            return self._single(picked.way.dialect.version)
        except ValueError as wrong:
            why = str(wrong).removeprefix("deposit: ")  # the deposit is --max
            raise PaymentFailed(f"--max {self.max_amount}: {why}") from wrong

    def _spend(self) -> str:
        decimals = self.network.decimals
        return to_decimal(to_base(self.max_amount, decimals), decimals)

    def _single(self, version: Version | None) -> PaymentAuth:
        self._payer = PaymentAuth(
            self.wallet,
            max_amount=self._spend(),
            max_total=self._spend(),
            network=self.network,
            version=version,
            clock=self.local.allowed.clock_for(self.network, self.wallet),
            deadline_s=DEADLINE_S,
            permit2=self.permit2,
        )
        if self.resumed.payments:
            self._payer.resume(self.request, self.resumed)
        return self._payer

    def _pick(self, response: httpx.Response, ways: list[tuple[int, Way]]) -> Picked:
        known = self.local.allowed.known
        return pick(response.request, response, ways, known, self._forbidden, permit2=self.permit2)

    def _is_wanted(self, way: Way) -> bool:
        return self.steps is None or (way.dialect is Dialect.TWO_STEPS) == (self.steps == 2)

    def _forbidden(self, amount_base: int, network: Network) -> str:
        if why := self.local.allowed.why_not(network, self.wallet):
            return why
        most = to_base(self.max_amount, network.decimals)
        if amount_base <= most or self.session:
            return ""
        price = f"{to_decimal(amount_base, network.decimals)} {network.token_symbol}"
        return f"the 402 asks for {price}; --max allows {self.max_amount}: raise it to pay"

    def _unpayable(self, ways: list[Way], picked: Picked) -> PaymentFailed:
        """Return the error for a 402 without a payable offer, with the reasons."""
        if all(way.is_paywall for way in ways):
            return PaymentFailed(
                "the 402 offers two steps as the public Cronos paywall does, with the payment id "
                "in `extra` of `accepts`; `pay` does not speak that, Cronos' clients do"
            )
        if all(way.network(self.local.allowed.known) is None for way in ways):
            named = ", ".join(dict.fromkeys(repr(way.fields.get("network"))[:80] for way in ways))
            known = ", ".join(self.local.allowed.known)
            return PaymentFailed(
                f"the 402 asks for a payment on {named}; known are {known}. "
                "Describe the network and its token in a file: --network-file"
            )
        offers: dict[str, list[str]] = {}
        for each in picked.rejected:
            offers.setdefault(each.why, []).append(each.offered)
        if len(offers) == 1:
            return PaymentFailed(*offers)
        return PaymentFailed("; ".join(f"{', '.join(of)}: {why}" for why, of in offers.items()))

    # --- printing ---------------------------------------------------------------------------

    def _paid_in(self, request: httpx.Request) -> Dialect | None:
        """Return the dialect of a paying request; None for an unpaid one, or the user's own."""
        own = self.request
        is_own = (request.url, request.headers, request.content) == (
            own.url,
            own.headers,
            own.content,
        )
        return None if is_own else mistakes.paid_in(request)

    def _draft(self, request: httpx.Request) -> mistakes.Draft:
        """Return the signed payment; raises `PaymentFailed` unless it is as shown to the user."""
        now_s = self.local.allowed.clock.now_s()
        try:
            draft = mistakes.draft_of(request, self.wallet, self.network, now_s)
        except BadMessage as wrong:
            self._payer = None  # so the payment is not kept, either
            raise PaymentFailed(
                f"the payment repeats parts of the 402 that cannot be read: {wrong}; nothing was "
                "sent. `doctor URL` shows the 402"
            ) from wrong
        way = self._shown
        if any(draft.auth == each.auth for each in self.resumed.payments):
            return draft
        if way is not None and not self.local.allowed.is_as_shown(draft.auth, self.network, way):
            self._payer = None  # so the payment is not kept, either
            raise PaymentFailed(
                "the 402 contradicts itself: its body and its header offer different prices "
                "or payees; nothing was sent. `doctor URL` shows both"
            )
        return draft

    def _sends(self, request: httpx.Request) -> None:
        self.last, draft = request, self.sent
        pays = self._paid_in(request) is not None
        if pays and (draft is None or self.mistake is None):
            draft = self._draft(request)
        if self.mistake is None:
            self._keep()
        if not pays or draft is None:
            return
        self.sent = draft
        auth, now_s = self.sent.auth, self.local.allowed.clock.now_s()
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
        if self.sent.by_permit2:
            title = "Signed a message of Permit2, off-chain: the amount at most"
        if any(auth == each.auth for each in self.resumed.payments):
            title = "Resumed the authorization of an earlier start"
        self.tell(Step(title, True, facts))

    def _answered(self, request: httpx.Request, response: httpx.Response) -> None:
        self.newest, status = response, answer(response.status_code)
        facts: dict[str, Any] = {"answer": refusal_in(response) if response.is_error else status}
        name, is_tool = f"{request.method} {request.url.path}", mcp.TOOL in request.headers
        if is_tool:
            name = f"tool {decode(request.content, mcp.Call).name} at {request.url.path}"
        if (dialect := self._paid_in(request)) is not None:
            self.answer = response
            if self.mistake is not None:  # the explanation at the end has the rest
                facts["answer"] = status
            found = receipts_in(response)
            self.receipts += found
            outcome = self.outcome
            if transaction := outcome.transaction or outcome.pending:
                facts["transaction"] = transaction
            if outcome.settled:
                facts["settled"] = amount_in(outcome.settled, self.network)
            if response.is_success and not outcome.is_confirmed:
                facts["receipt"] = "pending" if outcome.pending else "none: not seen to be paid"
            sent_in = f", {PAYMENT_HEADERS[dialect.version]}" if dialect.version else ""
            if is_tool:
                sent_in = f', _meta["{mcp.PAYMENT}"]'
            mark = "" if self.mistake is None or response.is_success else "refused"
            is_paid_or_wrong = outcome.is_confirmed or self.mistake is not None
            title = "Paid" if is_paid_or_wrong else "Sent to be paid"
            self.tell(Step(f"{title}: {name}{sent_in}", response.is_success, facts, mark))
            return
        shown = next(
            (each for each in (PAYMENT_ID_HEADER, SESSION_ID_HEADER) if each in request.headers),
            None,
        )
        if shown is None and response.status_code == 402:
            facts |= self._offer(response)
            self.tell(Step(f"Asked: {name}", True, facts))
        else:
            title = f"Repeated with {shown}: {name}" if shown else f"Asked: {name}"
            if shown == SESSION_ID_HEADER:
                facts["session id"] = request.headers[SESSION_ID_HEADER]
            self.tell(Step(title, response.is_success, facts))

    def _offer(self, response: httpx.Response) -> dict[str, Any]:
        """Return the facts of the offer to pay; else of an offer on a known network."""
        ways, known = ways_in(response.headers, response.content), self.local.allowed.known
        if not ways:
            return {}
        numbered = [(n, way) for n, way in enumerate(ways, 1) if self._is_wanted(way)]
        picked = self._pick(response, numbered).way
        way = picked or next((each for each in ways if each.network(known)), ways[0])
        self._shown = way
        facts = {
            "price": amount_of(way, known),
            "pay to": way.fields.get("payTo"),
            "network": way.fields.get("network"),
            "payable in": list(dict.fromkeys(each.dialect.value for each in ways)),
        }
        return facts | ({"payment id": way.payment_id} if way.payment_id else {})
