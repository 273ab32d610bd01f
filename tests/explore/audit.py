"""The auditor: judges a finished run by the ledger and by what the services answer.

Written apart from the service's code: it reads the chain's logs, the journal, what came to the
doors of the services, and asks over HTTP; never reads a database. Each law is an equality for one
order, and a service is excused by an event about the order.

The ledger says what stands in the end; the journal says when an authorization was visible in a
block, when it was presented, and which service sent it to the facilitator; a door says what a
service answered, also if the answer was lost on its way.
"""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import get_args

import httpx
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tests.explore.case import Act, Lie, Service
from tests.explore.steps import Key, Order, Presented, Scene
from tests.money import (
    Law,
    Ledger,
    Place,
    Use,
    Violation,
    access_is_paid,
    is_resolved,
    money_is_signed,
    names_what_paid,
    receipt_stays,
    refunds_are_the_rest,
    served_once,
    session_is_right,
)
from x402sim import events
from x402sim.clock import Clock
from x402sim.http.web import CONNECTION
from x402sim.journal import Journal
from x402sim.protocol.messages import BadMessage
from x402sim.protocol.refusals import Refusal, RequestError
from x402sim.protocol.routes import MARKET, QUOTE, SESSIONS
from x402sim.protocol.x402 import PAYMENT_HEADERS, read_payment
from x402sim.service.state import Service as Running
from x402sim.story.payer import Answer, Payer

# --- the evidence -------------------------------------------------------------------------

_SERVICES = get_args(Service)


class Times:
    """When things happened, in Unix milliseconds, as a journal tells."""

    def __init__(self, journal: Journal) -> None:
        self.sent_ms: dict[int, int] = {}
        """When the request of each exchange was sent."""
        self.ended_ms: dict[int, int] = {}
        """When its answer arrived; without an answer, nothing."""
        self.visible = defaultdict[str, list[tuple[int, bool]]](list)
        """When each authorization became used in a block (True), or unused again (False)."""
        self.canceled = set[str]()
        """The authorizations that were cancelled in a block, even if that was undone."""
        self.settled_by = defaultdict[str, set[str]](set)
        """The services that sent each authorization to the facilitator's settle."""
        self.named = defaultdict[str, list[tuple[int, str]]](list)
        """When a transaction was said to have used it: by the chain, or a facilitator."""
        self.naming = set[int]()
        """The exchanges whose answer names a payment id: what is served for its id does not."""
        used_by, settling = defaultdict[str, list[str]](list), dict[int, str]()
        for entry in journal:
            at_ms = entry.at_ms
            match entry.event:
                case events.RequestSent(exchange=exchange) as sent:
                    self.sent_ms[exchange] = at_ms
                    is_settle = sent.actor in _SERVICES and sent.path.endswith("/settle")
                    if is_settle and sent.authorization:
                        settling[exchange] = sent.authorization
                        self.settled_by[sent.authorization].add(sent.actor)
                case events.AnswerReceived(exchange=exchange) as answer:
                    self.ended_ms[exchange] = at_ms
                    if answer.payment_id is not None:
                        self.naming.add(exchange)
                    if exchange in settling and answer.tx_hash:
                        self.named[settling[exchange]].append((at_ms, answer.tx_hash))
                case events.AuthorizationConsumed(authorization=nonce) as used:
                    used_by[used.tx_hash].append(nonce)
                    self.visible[nonce].append((at_ms, True))
                    if used.use == "canceled":
                        self.canceled.add(nonce)
                    else:
                        self.named[nonce].append((at_ms, used.tx_hash))
                case events.TransactionUndone(tx_hash=tx_hash):
                    for nonce in used_by.pop(tx_hash, ()):
                        self.visible[nonce].append((at_ms, False))

    def first_used_ms(self, nonce: str) -> float:
        """Return when an authorization was first used in a block; infinite if never."""
        return min((at_ms for at_ms, used in self.visible[nonce] if used), default=1e18)

    def first_named_ms(self, nonce: str) -> int:
        """Return when it was first said to have paid, true or not; infinite if never."""
        return min((at_ms for at_ms, _ in self.named[nonce]), default=1 << 62)

    def is_used_at(self, nonce: str, at_ms: int) -> bool:
        """Tell whether an authorization was used in a block before this millisecond."""
        before = [used for changed_ms, used in self.visible[nonce] if changed_ms < at_ms]
        return bool(before) and before[-1]

    def was_unused_during(self, nonce: str, exchange: int, *, is_kept: bool) -> bool:
        """Tell whether an authorization was unused at any moment of an exchange, or, for a kept
        authorization, at any later moment, such as after a reorganisation."""
        since = self.sent_ms[exchange]
        until = 1 << 60 if is_kept else self.ended_ms.get(exchange, 1 << 60)
        if not self.is_used_at(nonce, since):
            return True
        changes = self.visible[nonce]
        return any(not used for at_ms, used in changes if since <= at_ms <= until)

    def was_undone(self, nonce: str) -> bool:
        return any(not used for _, used in self.visible[nonce])


@dataclass(slots=True, kw_only=True)
class Sight:
    """One request at the door of a service, and the service's answer.

    `status` is None without an answer; `is_cut`: a crash came before the answer was done.
    """

    secret: bytes
    """Which service it was: its own secret, for a service does not know its name."""
    path: str
    payment_id: str | None
    session_id: str | None
    nonce: str | None
    status: int | None = None
    answered_ms: int = 0
    is_done: bool = False
    is_written: bool = True
    """Whether the answer left to a client that was there, as the service could see."""
    method: str = "POST"
    is_cut: bool = False


@dataclass(slots=True)
class Door:
    """Who came to the services of a world, seen from the inside of the wire."""

    clock: Clock = field(default_factory=Clock)
    """The true time of the world, once it runs."""
    seen: list[Sight] = field(default_factory=list)

    def before(self, service: Running, app: ASGIApp) -> ASGIApp:
        """Return the application of a service behind this door."""
        return lambda scope, receive, send: self._let_in(service, app, scope, receive, send)

    async def _let_in(
        self, service: Running, app: ASGIApp, scope: Scope, receive: Receive, send: Send
    ) -> None:
        headers = httpx.Headers(scope["headers"])
        sight = Sight(
            secret=service.env.secret,
            path=scope["path"],
            payment_id=headers.get("x-payment-id"),
            session_id=headers.get("x-session-id"),
            nonce=_nonce(headers),
            method=scope["method"],
        )
        self.seen.append(sight)

        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start":
                sight.status, sight.answered_ms = message["status"], self.clock.now_ms()
            await send(message)

        try:
            await app(scope, receive, answer)
        except asyncio.CancelledError:
            sight.is_cut = True
            raise
        finally:
            sight.is_done = True
            sight.is_written = scope[CONNECTION].is_answered()


def _nonce(headers: httpx.Headers) -> str | None:
    """Return the nonce of a payment in one step."""
    for version, name in PAYMENT_HEADERS.items():
        if name in headers:
            try:
                return read_payment(version, headers[name]).signed.authorization.nonce.hex()
            except BadMessage:
                return None
    return None


# --- what is asked at the end: no faults, no third parties, every header expired, every session ended

LATE_S = 1_300.0
"""Time for a session that opened during the audit: 600 s at most, and its refund."""


@dataclass(frozen=True, slots=True)
class Granted:
    """A service's final answers about a payment id."""

    key: Key
    access: bool
    """Whether X-Payment-Id is accepted, before the header was presented again."""
    access_after: bool
    """Whether it is accepted after that."""
    elsewhere: bool
    """Whether the payment id, or the header, is accepted for another resource."""
    record: dict[str, object]
    """Its status before the header was presented again, and its tx_hash after."""
    session: dict[str, object]


async def ask_everything(scene: Scene) -> dict[Key, Granted]:
    """Ask each service about each payment id: access, the header again, the record.

    A session that opens only now gets the time to end, and to be refunded.
    """
    found: dict[Key, Granted] = {}
    for each in scene.book.presented:
        if each.key not in found:
            found[each.key] = await _ask_about(scene, each)
    late = [each for each in found.values() if each.session and not each.access]
    if late:
        await scene.world.clock.sleep(LATE_S)
    for granted in late:
        payer = scene.at(scene.book.at(granted.key)[0].signed.payer, granted.key[0])
        view = await payer.session(str(granted.session["sessionId"]))
        found[granted.key] = replace(granted, session=view)
    return found


async def _ask_about(scene: Scene, first: Presented) -> Granted:
    service, payment_id = first.key
    payer = scene.at(first.signed.payer, service)
    before = await scene.show(payer, first.order)
    status = (await payer.payment(payment_id)).get("status")
    elsewhere = await _present_again(scene, first.key, payer, is_paid=_is_granted(before))
    after = before if _is_granted(before) else await scene.show(payer, first.order)
    record = await payer.payment(payment_id)
    session: dict[str, object] = after.body if "sessionId" in after.body else {}
    if session:
        session = await payer.session(str(session["sessionId"]))
    other = await payer.send("GET", MARKET, headers={"X-Payment-Id": payment_id})
    return Granted(
        first.key,
        _is_granted(before),
        _is_granted(after),
        elsewhere or _is_granted(other),
        {"tx_hash": record.get("tx_hash"), "status": status},
        session,
    )


async def _present_again(scene: Scene, key: Key, payer: Payer, *, is_paid: bool) -> bool:
    """Present every header for a payment id again; one in one step also if that is served.

    Tell whether one was accepted for another resource.
    """
    elsewhere = False
    for each in scene.book.at(key):
        if not (is_paid and each.in_two_steps):
            each.late.append(await each.order.pay(payer, each.signed))
            is_paid = is_paid or _is_granted(each.late[-1])
        if not each.in_two_steps:
            proof = each.order.proof(each.signed, scene.world.network)
            other = await payer.send("GET", MARKET, headers=proof)
            elsewhere = elsewhere or _is_granted(other)
    return elsewhere


def _is_granted(answer: Answer) -> bool:
    return answer.status in (200, 201)


# --- the audit ----------------------------------------------------------------------------

PRICE_BASE = 10_000
CLOCK_S = 60
"""The greatest error of a service's clock, in seconds, with which every law holds."""
_FOR_SALE, _NEVER = (QUOTE, MARKET, SESSIONS), 1 << 62
_NOT_ACCEPTED = (
    "nothing was sent to the facilitator",
    "an earlier payment header may still settle",
    "another payment of its 402 may still settle",
    "ask for a new payment id",
    RequestError.IDENTIFIER_TAKEN.meaning,
)
"""A service's reasons against a header: the node is silent, the header is the second or one of too many
for a payment id, or another payment has the name."""
_UNSOLD = ("HEAD", "OPTIONS")
_ANOTHER_ID = "it pays for another payment id"
_SETTLED = Refusal.ALREADY_SETTLED.text


@dataclass
class Audit:
    """The evidence of one run, and the conclusions."""

    scene: Scene
    ledger: Ledger
    times: Times
    door: Door
    granted: dict[Key, Granted]
    counts: Counter[str] = field(default_factory=Counter)
    """How many authorizations came to what."""

    def violations(self) -> list[Violation]:
        return [
            *self._payments(),
            *self._names_once(),
            *self._ids(),
            *self._receipts(),
            *self._doors(),
            *self._sessions(),
            *self._refunds(),
            *self._signed(),
        ]

    # --- what is known -------------------------------------------------------------------

    def _use(self, each: Presented) -> Use | None:
        """Return the use of an authorization that stands and pays what was asked for."""
        use = self.ledger.use(each.signed.nonce)
        if use is None or use.canceled:
            return None
        return use if each.transfer in [one.moved for one in use.transfers] else None

    @cached_property
    def _names(self) -> dict[bytes, Service]:
        """The services by their secrets."""
        return {secret: name for name, secret in self.scene.secrets().items()}

    @cached_property
    def _deposits(self) -> dict[Key, Key]:
        """The payment id of each session that is known."""
        views = ((key, granted.session) for key, granted in self.granted.items())
        last = {(key[0], str(view["sessionId"])): key for key, view in views if view}
        return self.scene.book.sessions | last

    @cached_property
    def _given(self) -> Counter[Key]:
        """How often each session was served, by its payment id: what left the door."""
        return Counter(
            self._deposits[place]
            for sight in self.door.seen
            if sight.status == 200
            and sight.is_written
            and (place := self._session_at(sight)) in self._deposits
        )

    def _session_at(self, sight: Sight) -> Key:
        return self._names[sight.secret], sight.session_id or ""

    @cached_property
    def _skew_s(self) -> float:
        acts = (step for step in self.scene.case.steps if isinstance(step, Act))
        given = (step.given for step in acts if step.does == "skew")
        return max((abs(float(s)) for actor, s in given if actor == "service"), default=0)

    # --- one authorization ---------------------------------------------------------------

    def _payments(self) -> Iterator[Violation]:
        for nonce, shown in self.scene.book.authorizations().items():
            fitting = [each for each in shown if each.fits]
            served = [each for each in shown if self._is_served(each)]
            yield from self._paid_once(nonce, served)
            yield from self._served_once(nonce, shown)
            if not fitting or not (use := self._use(fitting[0])):
                continue
            if served:
                self.counts["served"] += 1
            else:
                yield from self._not_served(nonce, use, fitting)

    def _is_served(self, each: Presented) -> bool:
        """Tell whether an order was served for this authorization."""
        granted = self.granted[each.key]
        if self._served_by_header(each):
            return True
        if not granted.access_after or not each.order.is_named:
            return False
        if not self._has_rivals(each):
            return True
        use = self.ledger.use(each.signed.nonce)
        return use is not None and granted.record.get("tx_hash") == use.tx_hash

    def _served_by_header(self, each: Presented) -> int:
        """Return how often a payment in one step was answered 200, and not for its payment id."""
        served = {one.exchange for one in (*each.answers, *each.late) if one.status == 200}
        if each.order.way == "X-PAYMENT and id":
            served &= self.times.naming
        return 0 if each.in_two_steps else len(served)

    def _has_receipt(self, each: Presented) -> bool:
        """Tell whether the payer was told that this authorization, and no other, has paid.

        Content served for a payment id paid by another authorization proves nothing.
        """
        is_served_otherwise = each.order.way == "X-PAYMENT and id" and self._has_rivals(each)
        return each.has_receipt and not (
            is_served_otherwise
            and self.times.naming.isdisjoint(answer.exchange for answer in each.answers)
        )

    def _has_rivals(self, each: Presented) -> bool:
        return any(other.signed != each.signed for other in self.scene.book.at(each.key))

    def _not_served(self, nonce: str, use: Use, fitting: list[Presented]) -> Iterator[Violation]:
        """Judge a transfer that gives no access: whose fault is it?"""
        where = ", ".join(" of ".join(reversed(each.key)) for each in fitting)
        said = "; ".join(
            f"{each.key[0]}: {answer.status} {answer.error} {answer.reason[:80]}"
            for each in fitting
            for answer in (*each.answers, *each.late)
        )
        how = f"{use.tx_hash} paid for {where}, and bought nothing ({said})"
        if nonce in self.times.canceled:
            self.counts["paid after a reorganisation undid its cancellation"] += 1
        elif self._is_lost(nonce, fitting):
            self.counts["served, and lost on the wire"] += 1
        elif (  # such a service cannot know whether a header is valid, or what came first
            nonce in self.scene.book.submitted
            and self._skew_s > CLOCK_S
            and not any(self._has_receipt(each) for each in fitting)
        ):
            self.counts["not served: the service's clock was wrong"] += 1
        elif all(self._was_too_late(each) for each in fitting):
            self.counts["presented only after its end, to a chain whose clock is behind"] += 1
        elif any(self._was_known(nonce, each) for each in fitting):
            is_again = any(self.granted[each.key].access_after for each in fitting)
            is_theirs = nonce in self.scene.book.submitted
            if is_again and is_theirs and not any(self._has_charged(each) for each in fitting):
                self.counts["submitted beside another header that paid"] += 1
                return
            yield Violation(Law.CHARGED_ONCE if is_again else Law.PAID_IS_SERVED, how)
        elif any(self._was_refused_before(nonce, each) for each in fitting):
            yield Violation(Law.FINAL_IS_FINAL, how)
        else:
            self.counts["submitted before presented"] += 1

    def _is_lost(self, nonce: str, fitting: list[Presented]) -> bool:
        """Tell whether the answer 200 was lost, and no payment id is this payment's alone."""
        return all(
            not each.order.is_named or self._has_rivals(each) or self._pays_another(each)
            for each in fitting
        ) and any(sight.nonce == nonce and sight.status == 200 for sight in self.door.seen)

    def _pays_another(self, each: Presented) -> bool:
        """Tell whether a service called a header payment for another payment id, and has seen the
        header for a payment id not called over."""
        reasons = [answer.reason for answer in each.answers]
        return any(said == _ANOTHER_ID or _SETTLED in said for said in reasons) and any(
            other.signed == each.signed and other.key != each.key
            for other in self.scene.book.presented
            if other.order.service == each.order.service
            and not any(map(other.is_final, other.answers[:1]))
        )

    def _was_too_late(self, each: Presented) -> bool:
        """Tell whether a header was presented only after its validBefore, and never settled."""
        end_ms = each.signed.authorization.valid_before * 1000
        is_sent = each.order.service in self.times.settled_by.get(each.signed.nonce, ())
        return (
            not is_sent
            and not self._has_receipt(each)
            and all(self.times.sent_ms[answer.exchange] >= end_ms for answer in each.answers)
        )

    def _was_known(self, nonce: str, each: Presented) -> bool:
        """Tell whether a service knew of an authorization before it was used on the chain.

        The service had the authorization settled, gave a receipt, or called the unused
        authorization perhaps paid.
        """
        return self._has_charged(each) or any(
            answer.body.get("final") is False
            and not any(text in answer.reason for text in _NOT_ACCEPTED)
            and not self.times.is_used_at(nonce, self.times.ended_ms[answer.exchange])
            for answer in each.answers
        )

    def _has_charged(self, each: Presented) -> bool:
        """Tell whether a service had an authorization settled, or gave a receipt for it."""
        settled_by = self.times.settled_by.get(each.signed.nonce, ())
        return each.order.service in settled_by or self._has_receipt(each)

    def _was_refused_before(self, nonce: str, each: Presented) -> bool:
        """Tell whether a final refusal came before the authorization was used on the chain.

        A refusal for the sake of another payment id tells nothing of the other's outcome.
        """
        used_ms, pays_another = self.times.first_used_ms(nonce), self._pays_another(each)
        return any(
            each.is_final(answer)
            and self.times.ended_ms[answer.exchange] < used_ms
            and not (pays_another and answer.reason == _ANOTHER_ID)
            for answer in each.answers
        )

    def _paid_once(self, nonce: str, served: list[Presented]) -> Iterator[Violation]:
        """One transfer pays once; at two deployments only if both had it before a block."""
        keys = {each.key for each in served if self.granted[each.key].access_after}
        services = {each.order.service for each in served}
        if max(len(keys), len(services)) < 2:
            return
        in_time = {
            each.order.service
            for each in served
            for answer in each.answers
            if self.times.was_unused_during(
                nonce, answer.exchange, is_kept=answer.body.get("final") is False
            )
        }
        if in_time == services and len({key[0] for key in keys}) == len(keys):
            self.counts["raced"] += 1
        else:
            how = f"authorization {nonce[:12]} pays for {sorted(keys)} at {sorted(services)}"
            yield Violation(Law.ONE_TRANSFER_PAYS_ONCE, how)

    def _served_once(self, nonce: str, shown: list[Presented]) -> Iterator[Violation]:
        """A payment in one step: answered 200 once; once more for each crash in an answer."""
        for service in {each.order.service for each in shown if not each.in_two_steps}:
            given = [
                sight
                for sight in self.door.seen
                if (sight.nonce, self._names[sight.secret]) == (nonce, service)
                and sight.status == 200
            ]
            received = sum(  # what its payer has named is given again: one answer, not two
                min(self._served_by_header(each), 1 if each.order.name is not None else 99)
                for each in shown
                if each.order.service == service
            )
            cut = sum(sight.is_cut for sight in given)
            yield from served_once(nonce[:12], received, most=1 + cut)
            if not given and len(shown) == 1 and self._is_served(shown[0]):
                how = f"{nonce[:12]} paid {service}, which answered 200 to no request with it"
                yield Violation(Law.SERVED_ONCE, how)

    def _names_once(self) -> Iterator[Violation]:
        """A name is bound to its payment until that has ended, and five minutes at least.

        A payment may be settled without its name: in two steps, or in version 1.
        """
        held: dict[tuple[str, int], dict[str, Presented]] = defaultdict(dict)
        presented = self.scene.book.presented
        nameless = {
            (it.signed.nonce, it.order.service) for it in presented if it.order.name is None
        }
        for each in presented:
            nonce, service = each.signed.nonce, each.order.service
            is_settled = service in self.times.settled_by.get(nonce, ()) and self._use(each)
            is_bound = each.order.name is not None and (nonce, service) not in nameless
            if is_bound and is_settled:
                held[service, each.order.name].setdefault(nonce, each)
        for (service, name), payments in held.items():
            for one, other in pairwise(payments.values()):
                began_ms = self.times.sent_ms[other.answers[0].exchange]
                ended_s = one.signed.authorization.valid_before - self._skew_s
                if not self._is_unsure([one, other]) and began_ms < ended_s * 1000:
                    how = f"{service} settled two payments that are both named {name}"
                    yield Violation(Law.ONE_NAME, how)

    # --- one payment id ------------------------------------------------------------------

    def _ids(self) -> Iterator[Violation]:
        for key, granted in self.granted.items():
            shown = self.scene.book.at(key)
            paid = {use.tx_hash for each in shown if (use := self._use(each))}
            recorded = granted.record.get("tx_hash")
            if granted.access_after:
                yield from access_is_paid(str(key), paid)
            if granted.access_after and paid:
                yield from names_what_paid(f"the record of {key}", recorded, paid)
            if granted.elsewhere:
                yield Violation(Law.ONLY_WHAT_WAS_BOUGHT, f"{key} opens another resource")
            yield from is_resolved(str(key), granted.record.get("status"))

    def _receipts(self) -> Iterator[Violation]:
        for each in self.scene.book.presented:
            yield from self._names_it(each)
            is_open = each.order.is_named and each.order.is_issued and self._is_alone(each)
            if not (is_open and self._has_receipt(each) and self._use(each)):
                continue
            if not self.granted[each.key].access:
                said = ", ".join(f"{one.status} {one.error}" for one in each.late)
                what = f"{each.key} (its header: {said})"
                yield from receipt_stays(what, has_access=False)
            elif refused := self._refused_meanwhile(each):
                how = f"{each.key} had a receipt and was paid; exchange {refused} was refused"
                yield Violation(Law.RECEIPT_STAYS, how)

    def _is_alone(self, each: Presented) -> bool:
        """Tell whether a header was shown to a service for one order, and in one way."""
        service, nonce = each.order.service, each.signed.nonce
        shown = [one for one in self.scene.book.presented if one.signed.nonce == nonce]
        return sum(one.order.service == service for one in shown) == 1

    def _names_it(self, each: Presented) -> Iterator[Violation]:
        """A receipt names what the chain, or a facilitator, said to have paid until then."""
        for answer in each.answers:
            said = self.times.named.get(each.signed.nonce, ())
            at_ms = self.times.ended_ms.get(answer.exchange, 0)
            known = {tx_hash for named_ms, tx_hash in said if named_ms <= at_ms}
            if "txHash" in answer.body:
                what = f"a receipt of {each.key}"
                yield from names_what_paid(what, answer.body["txHash"], known)

    def _refused_meanwhile(self, each: Presented) -> int | None:
        """Return a request with a payment id that was refused after a receipt, for no reason."""
        if self._is_unsure([each]):
            return None
        told_ms = min(
            self.times.ended_ms[answer.exchange]
            for answer in each.answers
            if answer.status == 200 and answer.body
        )
        for key, asked in self.scene.book.asked:
            is_after = self.times.sent_ms[asked.exchange] >= told_ms
            if key == each.key and is_after and asked.status == 402:
                return asked.exchange
        return None

    def _is_unsure(self, shown: list[Presented]) -> bool:
        """Tell whether the chain undid a payment, or somebody may have lied about it."""
        is_undone = any(self.times.was_undone(each.signed.nonce) for each in shown)
        return is_undone or any(isinstance(step, Lie) for step in self.scene.case.steps)

    # --- what left the doors -------------------------------------------------------------

    def _doors(self) -> Iterator[Violation]:
        for sight in self.door.seen:
            if not sight.is_done:
                yield Violation(Law.ANSWERED, f"a request for {sight.path} was never answered")
            if sight.method in _UNSOLD and sight.status not in (None, 402, 405, 503):
                how = f"{sight.method} {sight.path} was answered {sight.status}"
                yield Violation(Law.UNSOLD, how)
            if sight.status not in (200, 201) or sight.path not in _FOR_SALE:
                continue
            first_ms = min(map(self.times.first_named_ms, self._paying(sight)), default=_NEVER)
            if first_ms > sight.answered_ms:
                proof = sight.payment_id or sight.session_id or sight.nonce
                how = f"{sight.path} was served for {proof} at {sight.answered_ms} ms"
                yield Violation(Law.SERVED_AFTER_PAID, how)

    def _paying(self, sight: Sight) -> Iterator[str]:
        """Yield the authorizations that may have paid for what was served."""
        if sight.nonce:
            yield sight.nonce
        service = self._names[sight.secret]
        key = self._deposits.get((service, sight.session_id or ""))
        keys = {(service, sight.payment_id), key}
        yield from (each.signed.nonce for each in self.scene.book.presented if each.key in keys)

    # --- sessions ------------------------------------------------------------------------

    def _sessions(self) -> Iterator[Violation]:
        for key, granted in self.granted.items():
            if not (view := granted.session):
                continue
            session_id, order = str(view["sessionId"]), self.scene.book.at(key)[0].order
            served = self._given[key] * PRICE_BASE
            yield from session_is_right(session_id, view, order.asked[1], (served, served))
            yield from self._serves(key, order, int(str(view["expiresAt"])))

    def _serves(self, key: Key, order: Order, expires_ms: int) -> Iterator[Violation]:
        """A request that a session can pay is served, unless its deposit was undone."""
        if self._is_unsure(self.scene.book.at(key)):
            return
        left_base, end_ms = order.asked[1], expires_ms - self._skew_s * 1000
        for sight in self.door.seen:
            if self._deposits.get(self._session_at(sight)) != key or sight.method in _UNSOLD:
                continue
            if sight.status == 200:
                left_base -= PRICE_BASE * sight.is_written
            elif sight.status == 402 and left_base >= PRICE_BASE and sight.answered_ms < end_ms:
                yield Violation(Law.SESSION_SERVES, f"{key} has {left_base} left and was refused")

    def _refunds(self) -> Iterator[Violation]:
        """Compare each server wallet's debts to each payer with the transfers."""
        owed, undone, sent = (defaultdict[Place, Counter[int]](Counter) for _ in range(3))
        held: Counter[str] = Counter()
        wallets, paid_by, raced = set[str](), set[str](), set[Place]()
        for key, granted in self.granted.items():
            shown = self.scene.book.at(key)
            wallet, deposited = shown[0].order.asked
            wallets.add(wallet)
            if not shown[0].order.is_deposit:
                continue
            each = next((one for one in shown if self._use(one)), shown[0])
            place, rest = (wallet, each.transfer[0]), deposited - self._given[key] * PRICE_BASE
            use = self._use(each)
            if use and granted.session:
                raced |= {place} if use.tx_hash in paid_by else set()
                paid_by.add(use.tx_hash)
            (owed if use and granted.session else undone)[place][rest] += rest > 0
        for sender, to, amount_base, _ in self.ledger.transfers:
            held.update({to: amount_base})
            held.subtract({sender: amount_base})
            if sender in wallets:
                sent[sender, to][amount_base] += 1
        for place in sorted(owed.keys() | sent.keys()):
            mine, theirs = owed[place], sent[place]
            extra, missing = theirs - mine, mine - theirs
            if place in raced:  # two sessions for one deposit, and the money of one
                self.counts["refunds of a deposit that raced"] += 1
            elif extra and not missing and extra <= undone[place]:
                self.counts["refunded, then the deposit was undone"] += 1
            elif missing and not extra and (undone or raced) and held[place[0]] < min(missing):
                self.counts["not refunded: the wallet paid for a deposit that was undone"] += 1
            else:
                yield from refunds_are_the_rest(place, mine, theirs)

    def _signed(self) -> Iterator[Violation]:
        book = self.scene.book
        nonces = [each.nonce for headers in book.signed.values() for each in headers]
        used = {use.tx_hash for nonce in nonces for use in self.ledger.uses.get(nonce, ())}
        payers = {each.address.lower() for each in self.scene.payers}
        yield from money_is_signed(self.ledger.transfers, payers, used)
