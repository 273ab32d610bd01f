"""Records the exchanges of a proxy in a journal: each request and answer, and each payment in full.

Every exchange is `request sent`, and `answer received` or `no answer`. An exchange about a payment
is also a note "exchange", which the page reads, and a note "finding" for each defect, by the rules
of `decode` and `doctor`. Payments of real money are recorded only with `allow_mainnet`, and without
anything spendable (`watch.messages`).
"""

import asyncio
import itertools
import traceback
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import partial, wraps
from typing import Any, Generic, TypeVar
from urllib.parse import unquote

from msgspec import structs

from x402sim import events
from x402sim.chain.base import ChainError
from x402sim.chain.node.evm_chain import EvmChain
from x402sim.clock import Clock
from x402sim.http.exchange import Headers, Request, Response, Url
from x402sim.journal import Journal
from x402sim.protocol.crypto import Hash, checksum, from_hex, parse_address
from x402sim.protocol.findings import Finding
from x402sim.protocol.messages import encode
from x402sim.protocol.money import base_in, to_decimal
from x402sim.protocol.networks import Network
from x402sim.protocol.permit2_payments import UPTO
from x402sim.protocol.ways import Way, network_called
from x402sim.rng import Rng
from x402sim.serving.log import Form, LogLine, short
from x402sim.serving.page import exchange_of
from x402sim.serving.requests import LoggedRequest
from x402sim.text.words import moment, printable
from x402sim.watch.messages import (
    IDS,
    Half,
    Messages,
    digest,
    findings_of,
    findings_of_402,
    hidden_body,
    hidden_headers,
    hidden_text,
    is_test,
    messages_of,
    networks_in,
    without_secrets,
)
from x402sim.watch.proxy import Exchange
from x402sim.world.faults import Fault, Faults, fields_of
from x402sim.world.link import answer_event, request_event
from x402sim.world.running_world import receipt_events

MOST_KEPT = 4096
"""How many of the newest orders, and of the newest 402s, are remembered."""
RECEIPT_WITHIN_S = 60.0
_POLL_S = 1.0
_MOST_QUERY = 200
"""Characters of a query that are recorded of real money."""
HIDDEN = (
    "a payment on a main network, or on one that is not known: --allow-mainnet records it, without "
    "its signature"
)
K = TypeVar("K")
V = TypeVar("V")
R = TypeVar("R")
T = TypeVar("T", bound=events.ExchangeEvent | events.PaymentSettled)


class _Newest(OrderedDict[K, V], Generic[K, V]):
    """A dict with room for `MOST_KEPT` entries: a new entry replaces the oldest."""

    def __setitem__(self, key: K, value: V) -> None:
        super().__setitem__(key, value)
        self.move_to_end(key)
        if len(self) > MOST_KEPT:
            self.popitem(last=False)


@dataclass(slots=True)
class _Order:
    """The offer to a client at one URL, and the state of its payment."""

    lane: str
    ways: list[Way]
    nonce: str | None = None
    unserved: tuple[str, str] | None = None
    """Nonce and transaction hash of a payment that was settled and not yet served."""
    open_until: tuple[str, int] | None = None
    """Nonce of a payment with an unknown outcome, and its validBefore in Unix seconds."""


@dataclass(frozen=True, slots=True)
class Seen:
    """An exchange that has ended, for a log; `payer` is the signer's address, or None."""

    exchange: Exchange
    messages: Messages
    findings: tuple[Finding, ...]
    payer: str | None
    is_hidden: bool


def _guarded(
    work: Callable[["Recorder", Exchange], R],
) -> Callable[["Recorder", Exchange], R | None]:
    """Wrap an observer: an exception in it is recorded, and the traffic goes on."""

    def observe(recorder: "Recorder", exchange: Exchange) -> R | None:
        try:
            return work(recorder, exchange)
        except Exception:  # noqa: BLE001 - our defect must not stop other people's traffic
            recorder.not_recorded(exchange, traceback.format_exc(limit=-3))
            return None

    return wraps(work)(observe)


class Recorder:
    """Observes one or two proxies, and records the exchanges to one journal."""

    def __init__(
        self,
        journal: Journal,
        known: Mapping[str, Network],
        *,
        allow_mainnet: bool = False,
        faults: tuple[Fault, ...] = (),
        chain: EvmChain | None = None,
        log: Callable[[Seen], None] = lambda _: None,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`log` gets each exchange; `say` gets messages that belong to no exchange."""
        self._journal, self._known, self._log = journal, known, log
        self._say = say
        self.wrong = 0
        """Number of findings that are errors."""
        self._allow_mainnet, self._chain = allow_mainnet, chain
        self._clock = Clock()
        self.number = partial(next, itertools.count(1))
        """Counts the exchanges of all proxies."""
        self.faults = Faults(Rng(0), self._clock.now)
        self.faults.on_period.append(self._record)
        for fault in faults:
            self.faults.add(fault)
            self._record(events.FaultInjected(**fields_of(fault)))
        self._orders = _Newest[str, _Order]()
        self._paid = _Newest[str, str]()
        """By nonce: the settling transaction, as the service or the facilitator answered."""
        self._served = _Newest[str, bool]()
        """By nonce: a payment whose client got the goods. A refusal of the next use is right."""
        self._asked = _Newest[str, bool]()
        """By nonce, as the watched facilitator got it: whether the facilitator settled it."""
        self._followed = _Newest[str, bool]()
        self._examined = _Newest[bytes, tuple[Finding, ...]]()
        self.is_main: bool | None = None
        """Whether a main network was named; None before the first named network."""
        self._says_no_fault = False
        self._tasks = set[asyncio.Task[None]]()
        self._sent = dict[int, events.RequestSent]()  # the requests that wait for their answers
        self._struck = dict[int, int]()  # by exchange: the journal entry of its fault

    async def close(self) -> None:
        """Stop waiting for the chain, and end faults and their periods."""
        self.faults.clear()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _record(self, event: events.Event) -> None:
        self._journal.record(self._clock.now_ms(), event)

    # --- one exchange --------------------------------------------------------------------

    @_guarded
    def requested(self, exchange: Exchange) -> None:
        """Record a request."""
        found = messages_of(exchange)
        event = request_event(_caller(exchange), exchange.to, _request(found), exchange.number)
        if event.authorization is None and found.nonce is not None:  # in a facilitator's request
            event = structs.replace(event, authorization=found.nonce)
        self._sent[exchange.number] = event
        self._record(self._shown(event, found, self._hides(found)))

    @property
    def can_strike(self) -> bool:
        """Whether a fault may strike."""
        return not self.faults.is_empty

    @_guarded
    def fault(self, exchange: Exchange) -> Fault | None:
        """Return the fault that strikes a request: none once real money was named."""
        found = messages_of(exchange)
        if (is_main := self._is_main(found)) is not False:
            if is_main and not self._says_no_fault:
                self._says_no_fault = True
                self._say("faults are off: a message named a main network, or an unknown one")
            return None
        if found.is_unread:
            return None
        fault = self.faults.next_for(
            exchange.to,
            exchange.path,
            found.sent.body,
            query=exchange.query.encode("latin-1"),
            headers=exchange.headers,
        )
        if fault is not None:
            data = {"victim": exchange.to, "does": fault.does, "path": exchange.path}
            self._struck[exchange.number] = self._journal.length
            self._record(
                events.Note(name="fault struck", data={**data, "contains": fault.contains})
            )
        return fault

    @_guarded
    def ended(self, exchange: Exchange) -> None:
        """Record an answer, or a missing answer; of a payment, the whole exchange."""
        found = messages_of(exchange)
        is_hidden, seq = self._hides(found), self._journal.length
        sent = self._sent.pop(exchange.number, None)
        if sent is None:
            return  # `not_recorded` has reported the request
        end = self._end(exchange, found)
        self._record(self._shown(end, found, is_hidden))
        findings: tuple[Finding, ...] = ()
        payer = checksum(found.signed.authorization.from_) if found.signed else None
        if found.is_payment:
            payment_id = sent.payment_id
            if isinstance(end, events.AnswerReceived) and found.ways:
                payment_id = payment_id or end.payment_id
            order = self._order(exchange, found, payment_id)
            offers = order.ways if order else []
            began_s = int(exchange.began)  # judged by the time of its beginning
            findings = self._of_402(found, began_s)
            findings += tuple(findings_of(found, self._known, began_s, offers))
            findings += tuple(self._of_order(found, order, began_s))
            if found.settled and found.to == "service" and not is_hidden:
                self._settled(found, sent.payment_id)
            self._note(exchange, found, order, is_hidden, seq)
            for each in () if is_hidden else findings:
                self._find({"exchange": exchange.number}, each)
        self._journal.flush()
        self._log(Seen(exchange, found, findings, payer, is_hidden))

    def _find(self, of: dict[str, Any], finding: Finding) -> None:
        self.wrong += finding.stops
        data = {**of, **asdict(finding), "mark": finding.mark}
        self._record(events.Note(name="finding", data=data))

    def not_recorded(self, exchange: Exchange, why: str) -> None:
        """Record that a defect of this program kept an exchange from being recorded."""
        self._sent.pop(exchange.number, None)
        self._struck.pop(exchange.number, None)
        self._record(
            events.Note(name="not recorded", data={"exchange": exchange.number, "why": why})
        )
        self._say(f"exchange {exchange.number} is not recorded: {why}")

    def _end(self, exchange: Exchange, found: Messages) -> events.ExchangeEvent:
        caller, to = _caller(exchange), found.to
        if exchange.broke or found.status is None:
            why = events.clipped(exchange.broke or "no answer")
            return events.NoAnswer(actor=caller, exchange=exchange.number, to=to, reason=why)
        half = found.answered
        answer = Response(found.status, _lowered(half), half.body)
        event = answer_event(caller, to, answer, exchange.number)
        if found.is_paying and found.status >= 400 and found.refusal:
            event = structs.replace(event, error=events.clipped(found.refusal))
        return event

    # --- the exchanges of one order --------------------------------------------------------

    def _order(self, exchange: Exchange, found: Messages, payment_id: str | None) -> _Order | None:
        """Return the order of an exchange with the service.

        A payment id names the order. Without an id, a client's payment at a URL pays the last offer
        from the URL; but an offer that was paid otherwise is not that of an older payment.
        """
        if found.to == "facilitator":
            return None
        place = payment_id or f"{exchange.client} {found.method} {found.target}"
        order = self._orders.get(place)
        if found.is_paying:
            if order is not None and order.nonce not in (None, found.nonce):
                order = self._orders.get(found.nonce or "", order)
            if order is None:
                order = self._orders[place] = _Order(f"offer {exchange.number}", [])
            return order
        if not found.ways:
            return None
        # a repeated request for an unpaid offer is the same order
        is_same = order is not None and order.nonce is None
        lane = order.lane if order and is_same else f"offer {exchange.number}"
        before = order or _Order(lane, [])
        order = _Order(lane, found.ways, unserved=before.unserved, open_until=before.open_until)
        self._orders[place] = order
        return order

    def _of_order(self, found: Messages, order: _Order | None, began_s: int) -> list[Finding]:
        nonce = found.nonce
        if nonce is None:
            return []
        if found.settled:
            self._paid[nonce] = found.tx_hash or "?"
        if found.to == "facilitator":
            self._asked[nonce] = self._asked.get(nonce, False) or found.settled
        if order is None:
            return []
        tx_hash, findings = self._paid.get(nonce), list(self._of_facilitator(found, nonce, order))
        if tx_hash is not None and order.unserved is not None and order.unserved[0] != nonce:
            seen = (
                f"a second payment: {order.unserved[1]} was settled and not served, then {tx_hash}"
            )
            do = (
                "A payer sends the same payment again before signing another. A shop answers a "
                "repeated payment with the paid goods."
            )
            findings.append(Finding("order", seen, "one payment for one answer", do))
        elif order.open_until is not None and order.open_until[0] != nonce:
            until_s = order.open_until[1]
            seen = f"a second authorization; the first can be used until {moment(until_s, began_s)}"
            wanted = "the first one again, as its outcome is not known"
            do = "Send the same payment again: both may be charged."
            second = Finding("order", seen, wanted, do, stops=False)
            findings += [second] if began_s < until_s else []
        order.nonce = nonce
        self._orders[nonce] = order
        is_answered = found.status is not None and found.status < 500 and not found.is_broken
        if is_answered and not found.is_open:
            order.open_until = None
        elif found.signed is not None:
            order.open_until = nonce, found.signed.authorization.valid_before
        if found.is_delivered:
            order.unserved, self._served[nonce] = None, True
        elif tx_hash is not None and nonce not in self._served:
            order.unserved = nonce, tx_hash
        return findings

    def _of_facilitator(self, found: Messages, nonce: str, order: _Order) -> Iterator[Finding]:
        """Yield findings where an answer contradicts the facilitator's settlement."""
        tx_hash, is_ok = self._paid.get(nonce), found.is_delivered
        is_known = nonce in self._served or bool(found.settled and found.status)
        if tx_hash is not None and not is_ok and not is_known:
            said = "no whole answer" if found.is_broken else str(found.status)
            seen = f"{said}, and the payment was settled, transaction {tx_hash}"
            do = "Serve what was paid for when the same payment comes again, or refund it."
            yield Finding("answer", seen, "what was paid for", do, stops=not found.is_broken)
        is_one_step = b'"paymentHeader"' not in found.sent.body
        if is_ok and is_one_step and self._asked and not self._asked.get(nonce, False):
            seen = f"{found.status}, and the facilitator has not settled this payment"
            do = "Serve what is settled; a receipt that no facilitator gave proves nothing."
            # Without its 402, the payment may have been settled before the recording began.
            is_since = bool(order.ways)
            seen += "" if is_since else " since the recording began"
            wanted = "402, or a settlement before the answer"
            yield Finding("answer", seen, wanted, do, stops=is_since)

    def _of_402(self, found: Messages, now_s: int) -> tuple[Finding, ...]:
        """Return the findings of an offer; equal offers are examined once."""
        if found.status != 402 or found.is_paying or not found.ways:
            return ()
        key = encode(
            [found.target, [[way.dialect.value, _lasting(way.fields)] for way in found.ways]]
        )
        if key not in self._examined:
            self._examined[key] = tuple(findings_of_402(found, self._known, now_s))
        return self._examined[key]

    def _settled(self, found: Messages, payment_id: str | None) -> None:
        if found.signed is None:
            return
        auth, tx_hash = found.signed.authorization, found.tx_hash or ""
        event = events.PaymentSettled(
            payment_id=payment_id or auth.nonce.hex(),
            tx_hash=events.clipped(tx_hash),
            payer=checksum(auth.from_),
            amount_base=min(found.settled_base, (1 << 63) - 1),
            resource=events.clipped(found.resource),
        )
        self._record(self._shown(event, found, is_hidden=False))
        if not found.settled_base:
            return  # in `upto` nothing was used, without a transaction
        if self._chain is not None and tx_hash not in self._followed:
            self._followed[tx_hash] = True
            task = asyncio.get_running_loop().create_task(self._follow(tx_hash, found))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    # --- the chain -------------------------------------------------------------------------

    async def _follow(self, tx_hash: str, found: Messages) -> None:
        assert self._chain is not None
        assert found.signed is not None
        try:
            wanted = Hash(from_hex(tx_hash, 32))
            async with asyncio.timeout(RECEIPT_WITHIN_S):
                while (receipt := await self._chain.receipt(wanted)) is None:
                    await self._clock.sleep(_POLL_S)
                block = await self._chain.block(receipt.block_number)
            asset = found.signed.asset
            token = parse_address(asset) if asset else self._chain.token
        except (ValueError, ChainError, TimeoutError) as wrong:
            why = str(wrong) or f"not mined within {RECEIPT_WITHIN_S:g} s"
            self._no_transfer(found, f"{tx_hash}: {why}")
            return
        if block is None:
            return
        auth = found.signed.authorization
        seen = list(receipt_events("chain", token, block, receipt))
        for event in seen:
            self._record(event)
        self._journal.flush()
        nonces = [getattr(event, "authorization", None) for event in seen]
        if auth.nonce.hex() not in nonces:
            self._no_transfer(found, f"{tx_hash}, which does not use this authorization")

    def _no_transfer(self, found: Messages, seen: str) -> None:
        do = "Do not serve what is not paid: ask the facilitator and the chain what became of it."
        finding = Finding("transaction", seen, "a transaction that uses the authorization", do)
        self._find({"authorization": found.nonce}, finding)
        self._journal.flush()
        self._say(f"{finding.mark}: {finding.about}: {finding.seen}; wanted: {finding.wanted}")

    # --- real money ------------------------------------------------------------------------

    def _is_main(self, found: Messages) -> bool | None:
        """Note the networks of an exchange; tell whether it may move real money.

        None until some network was named. Once a main network was named, the answer stays True for
        messages without a network: a proof of payment may belong to it.
        """
        named = networks_in(found) if found.is_payment else set()
        if named:
            is_main = not all(is_test(name, self._known) for name in named)
            if found.to == "facilitator" and found.method == "GET":
                return self.is_main  # /supported lists networks, and pays on none
            self.is_main = bool(self.is_main) or is_main
            return is_main or self.is_main
        return self.is_main

    def _hides(self, found: Messages) -> bool:
        is_main = self._is_main(found)
        is_asked = found.to == "facilitator" and found.method == "POST"
        shows = found.is_paying or found.signed is not None or bool(found.ways)
        shows = shows or found.is_unread or any(name in found.sent.headers for name in IDS)
        carries = found.is_payment and (is_asked or shows)
        return carries and is_main is not False and not self._allow_mainnet

    def _may_be_main(self, found: Messages) -> bool:
        """Tell whether an exchange may contain a proof of a payment of real money."""
        return self.is_main is not False or found.is_unread

    def _shown(self, event: T, found: Messages, is_hidden: bool) -> T:
        """Return an event with proofs of real payments replaced by digests, or dropped."""
        if not self._may_be_main(found):
            return event
        change = (lambda _: None) if is_hidden else digest
        ids = {
            name: change(value)
            for name in ("payment_id", "session_id")
            if (value := getattr(event, name, None))
        }
        if is_hidden and getattr(event, "authorization", None):
            ids["authorization"] = None
        texts = {
            name: hidden_text(found, value)
            for name in ("path", "error", "resource")
            if (value := getattr(event, name, None))
        }
        return structs.replace(event, **texts, **ids)

    def _note(
        self, exchange: Exchange, found: Messages, order: _Order | None, is_hidden: bool, seq: int
    ) -> None:
        sent, answered, target = found.sent, found.answered, found.target
        may_be_main = self._may_be_main(found)
        halves: list[tuple[Headers, bytes]] = [
            (list(each.headers.raw), each.body) for each in (sent, answered)
        ]
        if is_hidden:
            halves = [([], b""), ([], b"")]
        elif may_be_main:
            cut = (sent.is_cut or sent.is_sealed, answered.is_cut or answered.is_sealed)
            halves = [
                (
                    [(name, without_secrets(found, value)) for name, value in hidden_headers(head)],
                    without_secrets(found, hidden_body(body, is_cut=is_cut)),
                )
                for (head, body), is_cut in zip(halves, cut, strict=True)
            ]
        path, _, query = (hidden_text(found, target) if may_be_main else target).partition("?")
        if may_be_main:  # a query may contain a payment
            query = "" if is_hidden else query[:_MOST_QUERY]
        struck = filter(None, [self._struck.pop(exchange.number, None)])
        request = LoggedRequest(
            found.method,
            f"/facilitator{path}" if found.to == "facilitator" else path,
            query.encode("latin-1", "replace"),
            exchange.client,
            halves[0][0],
            exchange.began,
            exchange.began,
            exchange.ended,
            None if exchange.broke else found.status,
            halves[1][0],
            halves[0][1],
            halves[1][1],
            entries=(*struck, *range(seq, self._journal.length)),
        )
        data = exchange_of(exchange.number, request)
        if not found.tool:  # as it was sent, and not escaped again
            data["target"] = data["path"].removeprefix("/facilitator" * (found.to == "facilitator"))
        for half, is_cut in (("sent", sent.is_cut), ("answered", answered.is_cut)):
            data[half]["cut"] |= is_cut
        if order is not None:
            data["lane"] = order.lane
        if found.signed is not None and not is_hidden:
            data["authorization"] = found.nonce
            data["payer"] = checksum(found.signed.authorization.from_)
        more = {
            "broke": exchange.broke,
            "hidden": HIDDEN if is_hidden else "",
            "endpoint": exchange.path if found.tool else "",
        }
        for name, said in more.items():
            if said:
                data[name] = said
        self._record(events.Note(name="exchange", data=data))


_VOLATILE = frozenset({"paymentId", "nonce", "expiresAt"})


def _caller(exchange: Exchange) -> str:
    return "service" if exchange.to == "facilitator" else exchange.client


def _request(found: Messages) -> Request:
    path, _, query = found.target.partition("?")
    coding = "utf-8" if found.tool else "latin-1"  # HTTP passes bytes; a tool has any name
    url = Url(
        text=found.url,
        scheme="http",
        host="",
        port=None,
        netloc=b"",
        path=unquote(path),
        raw_path=path.encode(coding, "replace"),
        query=query.encode(coding, "replace"),
    )
    return Request(found.method, url, _lowered(found.sent), found.sent.body)


def _lowered(half: Half) -> Headers:
    return [(name.lower(), value) for name, value in half.headers.raw]


def _lasting(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return an offer without the fields that are new in each 402."""
    extra = fields.get("extra")
    kept = {name: each for name, each in fields.items() if name not in _VOLATILE}
    if isinstance(extra, dict):
        kept["extra"] = {name: each for name, each in extra.items() if name not in _VOLATILE}
    return kept


# --- the log ----------------------------------------------------------------------------


def line_of(seen: Seen, form: Form, known: Mapping[str, Network]) -> LogLine | None:
    """Return a log line for an exchange with a payment or a failure, or for any if verbose."""
    exchange, found = seen.exchange, seen.messages
    if not (found.is_payment or exchange.broke or form.is_verbose):
        return None
    return LogLine(
        time=form.time_of(exchange.ended),
        who=short(seen.payer) if seen.payer and not seen.is_hidden else exchange.client,
        method=found.method,
        path=f"/facilitator{found.target}" if found.to == "facilitator" else found.target,
        status=None if exchange.broke else found.status,
        ms=(exchange.ended - exchange.began) * 1000,
        error=exchange.broke or None,
        notes=[HIDDEN] if seen.is_hidden else _notes(seen, known),
    )


def _notes(seen: Seen, known: Mapping[str, Network]) -> list[str]:
    found, notes = seen.messages, list[str]()
    if not found.is_paying:
        offers = (
            f"offers {_money(way.amount, way.fields.get('network'), known)} "
            f"to {short(str(way.fields.get('payTo')))}"
            for way in found.ways
        )
        notes += list(dict.fromkeys(offers))[:5]
    if found.signed is not None:
        auth = found.signed.authorization
        amount = _money(str(auth.value), found.signed.network, known)
        most = "at most " * (found.signed.scheme == UPTO)
        notes.append(f"signed {most}{amount} to {short(checksum(auth.to))}")
    if found.settled:
        used = ""
        if found.signed is not None and found.signed.scheme == UPTO:
            used = f" {_money(str(found.settled_base), found.signed.network, known)}"
        notes.append(f"settled{used}, transaction {short(str(found.tx_hash))}")
    elif found.signed is not None and found.refusal:
        what = "it is not known whether it was paid" if found.is_open else "refused"
        notes.append(f"{what}: {found.refusal}")
    elif found.to == "facilitator" and found.is_valid:
        notes.append("valid")
    struck = seen.exchange.struck
    if struck is not None and not seen.exchange.broke:
        notes.append(f'fault: "{struck.does}"')
    return notes + [
        f"{each.mark}: {each.about}: {each.seen}; wanted: {each.wanted}. {each.do}"
        for each in seen.findings
    ]


def _money(base: Any, name: Any, known: Mapping[str, Network]) -> str:
    network = network_called(name, known)
    amount = base_in(str(base))
    if network is None or amount is None:
        return f"{printable(str(base))[:40]} base units on {printable(str(name))[:40]}"
    return f"{to_decimal(amount, network.decimals)} {network.token_symbol} on {network.name}"
