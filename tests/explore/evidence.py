"""The evidence: what the ledger, the journal and the doors of the services prove.

The ledger says what stands in the end; the journal says when an authorization was visible in a
block, when it was presented, and which service sent it to the facilitator; a door says what a
service answered, also if the answer was lost on its way.
"""

import asyncio
from collections import defaultdict
from dataclasses import dataclass, field
from typing import get_args

import httpx
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tests.explore.case import Service
from x402sim import events
from x402sim.clock import Clock
from x402sim.http.web import CONNECTION
from x402sim.journal import Journal
from x402sim.protocol.messages import BadMessage
from x402sim.protocol.x402 import PAYMENT_HEADERS, read_payment
from x402sim.service.state import Service as Running

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
        """Tell whether an authorization was unused at any moment of an exchange, or, if the answer
        says that it is kept, at any later one, such as after a reorganisation."""
        since = self.sent_ms[exchange]
        until = 1 << 60 if is_kept else self.ended_ms.get(exchange, 1 << 60)
        if not self.is_used_at(nonce, since):
            return True
        changes = self.visible[nonce]
        return any(not used for at_ms, used in changes if since <= at_ms <= until)

    def was_undone(self, nonce: str) -> bool:
        """Tell whether the chain ever undid a use of an authorization."""
        return any(not used for _, used in self.visible[nonce])


@dataclass(slots=True, kw_only=True)
class Sight:
    """One request as it came to the door of a service, and what the service answered.

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
