"""Records the requests of a server, for the log and for the page.

Both read the same record of a request. A context variable holds the running request: so an entry
of the journal is added to the record of the request that caused the entry.
"""

from collections.abc import Awaitable, Callable, Collection, Sequence
from contextvars import ContextVar
from functools import lru_cache
from itertools import chain

import msgspec
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from x402sim.clock import Clock, real_now
from x402sim.events import AnswerNotWritten, DebitUndone, Event
from x402sim.journal import Entry, Journal
from x402sim.protocol.routes import PAY
from x402sim.protocol.x402 import PROOFS

_UNWRITTEN = (AnswerNotWritten, DebitUndone)
"""The events of a begun answer that was not written, because the client had left."""
MAX_BODY = 64 * 1024
"""The bytes that are kept of a body."""
MAX_402_BODY = 256
"""The bytes that are kept of a 402 without a reason: enough for its payment id."""
Headers = Sequence[tuple[bytes, bytes]]
_current: ContextVar["LoggedRequest | None"] = ContextVar("the request that runs now", default=None)


class LoggedRequest(msgspec.Struct, gc=False):
    """A request, the answer, and the caused events.

    `began` and `ended` are real time; `at_s` is the world's time, recorded only if `is_whole`.

    A server keeps thousands. So a record refers to existing objects (headers, events), and makes
    few new objects, which would be out of the processor's cache when the log reads them. With
    `gc=False` the garbage collector skips the record: no cycle can lead back to a record.
    """

    method: str
    path: str
    query: bytes
    client: str
    headers: Headers
    at_s: float
    began: float
    ended: float = 0.0
    status: int | None = None
    """None if the connection was broken."""
    answer_headers: Headers = ()
    sent: bytes = b""
    """The body, if the request is a payment or `is_whole`."""
    answered: bytes = b""
    """The body of the answer, if it is an error or the request `is_whole`."""
    is_whole: bool = False
    """Whether both bodies and heads are kept, whatever the answer."""
    proofs: Headers = ()
    """The headers that pay, or prove a payment."""
    entries: tuple[int, ...] = ()
    """The numbers of the caused entries of the journal, if `is_whole`."""
    read: tuple[Event, ...] = ()
    """The caused events of the types a subscriber reads (`Requests.subscribe`)."""

    @property
    def size(self) -> int:
        """The bytes of the request and of the answer."""
        headers = (*self.headers, *self.answer_headers)
        texts = len(self.path) + len(self.query) + len(self.sent) + len(self.answered)
        return texts + sum(map(len, chain.from_iterable(headers)))


class Requests:
    """Reports the requests of an application to its subscribers."""

    def __init__(self, journal: Journal, clock: Clock) -> None:
        self._journal, self._now = journal, clock.now
        self._on_ended = list[Callable[[LoggedRequest], object]]()
        self._on_alone = list[Callable[[Entry], object]]()
        self.readers = 0
        """How many subscribers want whole requests now."""
        self._read = frozenset[type[Event]]()
        self._wants_bodies = self._wants_payments = False
        journal.listeners.append(self._on_entry)

    def subscribe(
        self,
        ended: Callable[[LoggedRequest], object],
        alone: Callable[[Entry], object],
        *,
        reads: Collection[type[Event]],
        wants_bodies: bool,
    ) -> None:
        """Call `ended` with each request at its end, and `alone` with entries outside of requests.

        `reads` are the types of events that are kept with a request.
        """
        self._on_ended.append(ended)
        self._on_alone.append(alone)
        self._read, self._wants_bodies = frozenset(reads), wants_bodies

    def subscribe_to_payments(self, ended: Callable[[LoggedRequest], object]) -> None:
        """Call `ended` with whole requests: payments, and all others while there are `readers`."""
        self._on_ended.append(ended)
        self._wants_payments = True

    def _on_entry(self, entry: Entry) -> None:
        request = _current.get()
        if request is not None and not request.ended:
            if request.is_whole:
                request.entries += (entry.seq,)
            if type(event := entry.event) in self._read:
                request.read += (event,)
            if type(event) in _UNWRITTEN:
                request.status = None
        else:
            for alone in self._on_alone:
                alone(entry)

    def around(self, app: ASGIApp) -> ASGIApp:
        """Return `app`, whose requests are recorded."""

        def recorded(scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
            if scope["type"] != "http":
                return app(scope, receive, send)
            proofs: tuple[tuple[bytes, bytes], ...] = ()
            for header in scope["headers"]:  # a generator would be a call more for each request
                if header[0] in PROOFS:
                    proofs += (header,)
            is_payment = self._wants_payments and (bool(proofs) or settles(scope["path"]))
            is_whole = is_payment or self._wants_bodies or self.readers > 0
            if is_whole or self._on_alone:
                return self._record(app, scope, receive, send, is_whole, proofs)
            return app(scope, receive, send)

        return recorded

    async def _record(
        self,
        app: ASGIApp,
        scope: Scope,
        receive: Receive,
        send: Send,
        is_whole: bool,
        proofs: Headers,
    ) -> None:
        path, client = scope["path"], scope.get("client")
        has_heads = is_whole or bool(proofs)
        request = LoggedRequest(
            scope["method"],
            path,
            scope["query_string"],
            client[0] if client else "?",
            scope["headers"] if has_heads else (),
            self._now() if is_whole else 0.0,
            real_now(),
            is_whole=is_whole,
            proofs=proofs,
        )
        is_kept = is_whole or settles(path)
        least = 0 if is_whole or (is_kept and path != PAY) else 400  # the status of a body kept

        async def receive_and_keep() -> Message:
            message = await receive()
            if (body := message.get("body")) and len(request.sent) < MAX_BODY:
                request.sent += body[:MAX_BODY]
            return message

        def answer(message: Message) -> Awaitable[None]:
            if message["type"] == "http.response.start":
                request.status = message["status"]
                if has_heads:
                    request.answer_headers = message["headers"]
            elif (request.status or 0) >= least and len(request.answered) < MAX_BODY:
                body = message.get("body", b"")
                is_unpaid = request.status == 402 and not is_whole and b'"reason"' not in body
                request.answered += body[: MAX_402_BODY if is_unpaid else MAX_BODY]
            return send(message)

        token = _current.set(request)
        try:
            await app(scope, receive_and_keep if is_kept else receive, answer)
        finally:
            _current.reset(token)
            request.ended = real_now()
            for ended in self._on_ended:
                ended(request)


@lru_cache(maxsize=1024)
def settles(path: str) -> bool:
    """Return whether the body of a request to a path may be a payment."""
    return path == PAY or path.startswith("/facilitator")
