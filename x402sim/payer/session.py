"""Sessions as httpx authentication: one deposit pays for many requests, without further 402s.

Clauses: 1/session-no-402.
"""

import threading
from collections.abc import Generator
from dataclasses import dataclass, field
from functools import partial
from weakref import WeakSet

import httpx

from x402sim.clock import Clock
from x402sim.http.bounded import MIB
from x402sim.payer.auth import DEADLINE_S, PaymentAuth
from x402sim.payer.body import on_body_end
from x402sim.payer.core import (
    PAY_PATH,
    SESSION_ID_HEADER,
    PaidNotServed,
    PaymentFailed,
    SpendingCapExceeded,
    proofs,
)
from x402sim.payer.flow import (
    FairLock,
    Flow,
    FlowAuth,
    Send,
    Step,
    origin_of,
    post,
    send,
    shown_in,
    shown_in_vain,
)
from x402sim.payer.reading import is_header_value, quoted
from x402sim.payer.wallet import Wallet
from x402sim.protocol import routes
from x402sim.protocol.messages import SessionRequest, Wire, decoded
from x402sim.protocol.money import to_base, to_decimal
from x402sim.protocol.networks import TESTNET, Network, networks_of


class _SessionAnswer(Wire, frozen=True):
    """The fields that a payer reads of the answer to a session request."""

    session_id: str


@dataclass(slots=True, eq=False)
class _Session:
    """One paid session. A server may give two sessions one id; they stay two."""

    id: str
    was_served: bool = False
    reading: WeakSet[httpx.Response] = field(default_factory=WeakSet)
    """Answers whose bodies are being read. Threads share a session, so this is no counter; a caller
    may drop an answer unread, so the references are weak.
    """

    @property
    def serves(self) -> bool:
        """Whether the session has served an answer, or is serving one."""
        return self.was_served or len(self.reading) > 0

    def note_read(self, response: httpx.Response, is_whole: bool) -> None:
        """Note that an answer is read no more, and whether to its end."""
        self.reading.discard(response)
        self.was_served |= is_whole


@dataclass(slots=True)
class _Seller:
    """A server: its current session, and how many sessions were given up unserved.

    A lock for each server: a slow server holds up no other.
    """

    origin: str
    lock: FairLock = field(default_factory=FairLock)
    session: _Session | None = None
    unserved: int = 0


class SessionAuth(FlowAuth):
    """An httpx auth that pays one `deposit`, then sends X-Session-Id (1/session-no-402).

    The first request to a server opens a session, which lasts `duration` (in the server's
    unit: seconds). When the session's budget or time is over, the next request opens another, up
    to `max_sessions` in all (default 1), and then raises `SpendingCapExceeded`. With
    `session_id`, an existing session is spent at the first server requested, and `max_sessions`
    is 0 by default. A deposit that was signed and refused counts, too. A deposit of unknown outcome
    is sent again, as by `PaymentAuth`. A paid session that never served, and is serving nothing,
    is not replaced, unless `max_unserved` (default 1) allows more. Sessions are kept in memory: a
    deposit does not survive the end of the process.

    Concurrent requests share a session. Anyone with the id can spend the session: the id goes
    only to the server of the session, and follows no redirect to another origin.
    `max_answer_bytes` limits the answers that open a session, and `deadline_s` each call, as for
    `PaymentAuth`. Raises the errors of `PaymentAuth`.
    """

    def __init__(
        self,
        wallet: Wallet,
        *,
        deposit: str = "1.00",
        duration: int = 3600,
        max_sessions: int | None = None,
        session_id: str | None = None,
        network: Network | str | None = None,
        create_path: str = routes.SESSIONS,
        pay_path: str = PAY_PATH,
        clock: Clock | None = None,
        max_unserved: int = 1,
        max_answer_bytes: int = MIB,
        deadline_s: float = DEADLINE_S,
    ) -> None:
        if max_sessions is None:
            max_sessions = 1 if session_id is None else 0
        decimals = (TESTNET if network is None else networks_of(network)[0]).decimals
        total_base = to_base(deposit, decimals, fraction_digits=2, name="deposit") * max_sessions
        self.payment = PaymentAuth(
            wallet,
            max_amount=deposit,
            max_total=to_decimal(total_base, decimals),
            network=network,
            reuse=False,
            pay_path=pay_path,
            clock=clock,
            max_unserved=max_unserved,
            max_answer_bytes=max_answer_bytes,
            deadline_s=deadline_s,
        )
        self.payment.signer.max_payments = max_sessions  # a server may ask for less than deposit
        self.limits = self.payment.limits
        self.session_id = self._given = session_id
        """The newest session."""
        self.deposit = deposit
        self._max_sessions = max_sessions
        self._duration = duration
        self._create_path = create_path
        self._sellers: dict[str, _Seller] = {}
        self._own = set[str]()
        """The ids of all sessions: a request that is sent again brings an old one."""
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"<SessionAuth of deposit {self.deposit}, paid by {self.payment!r}>"

    def exchange(self, request: httpx.Request) -> Flow:
        """Yield the steps of one exchange, and return its last answer."""
        shown = shown_in(request)
        if shown and request.headers.get(SESSION_ID_HEADER) not in self._own:
            response = yield from send(Send(request))  # the caller has paid already
            if response.status_code == 402:
                raise shown_in_vain(request.url, shown)
            return response
        response = yield from self._spend(request)
        if response.status_code == 402:
            response = yield from self._spend(request)
        return response

    def _spend(self, request: httpx.Request) -> Flow:
        """Send the request with a session, and open one before if necessary."""
        origin = origin_of(request.url)
        with self._lock:
            seller = self._sellers.setdefault(origin, _Seller(origin))
            if self._given:  # the first server requested has made the session
                seller.session = _Session(self._given, was_served=True)
                self._own.add(self._given)
                self._given = None
        yield seller.lock
        try:
            if seller.session is None:
                self.session_id = yield from self._opened(request)
                self._own.add(self.session_id)
                seller.session = _Session(self.session_id)
            session = seller.session
        finally:
            seller.lock.release()
        request.headers.update(proofs(session_id=session.id))
        try:
            response = yield from send(Send(request))
        except httpx.HTTPError as error:
            raise PaymentFailed(f"the answer cannot be read: {error}") from error
        if response.is_success and not session.was_served:
            session.reading.add(response)  # before `on_body_end`, which may note the end at once
            on_body_end(response, partial(session.note_read, response))
        # the session no longer pays, and no other request has opened a newer one
        if response.status_code == 402 and seller.session is session:
            if not session.serves and seller.unserved + 1 >= self.payment.max_unserved:
                raise PaidNotServed(
                    f"{seller.origin} took {self.deposit} for the session {session.id[:12]}…, "
                    "which has bought nothing yet, and answers 402; nothing more was signed. Raise "
                    "deposit if one request costs more than that; to open another session all the "
                    f"same, raise max_unserved (now {self.payment.max_unserved})"
                )
            seller.unserved += not session.serves
            seller.session = None
        return response

    def _opened(self, request: httpx.Request) -> Generator[Step, httpx.Response | None, str]:
        """Open a session, and return its id."""
        terms = SessionRequest(max_spend=self.deposit, duration=self._duration)
        create = post(request, self._create_path, terms)
        try:
            response = yield from self.payment.exchange(create, is_own=True, is_served=_is_session)
        except SpendingCapExceeded as over:
            raise SpendingCapExceeded(
                "no session has enough budget, and "
                f"max_sessions={self._max_sessions} of deposit={self.deposit} allows no other; "
                "a deposit that was signed and refused counts, too. Raise max_sessions or "
                "deposit to go on."
            ) from over
        return _session_id(response)


def _session_id(response: httpx.Response) -> str:
    """Return the id of a new session; raises `PaymentFailed`."""
    if response.is_error:
        todo = "No deposit was signed; if it has no sessions, pay each request"
        if shown_in(response.request):
            todo = "Repeat the request: it shows the same deposit again"
        raise PaymentFailed(
            f"the session was not opened: the server answered {response.status_code} "
            f"{quoted(response)}",
            todo,
        )
    view: _SessionAnswer | None = decoded(response.content, _SessionAnswer)
    if view is None:
        raise PaymentFailed(
            f"the answer names no session: the server answered {response.status_code} "
            f"{quoted(response)}"
        )
    if not is_header_value(view.session_id):
        raise PaymentFailed(
            f"the session has no usable id: {view.session_id[:80]!r} cannot be sent as a header"
        )
    return view.session_id


def _is_session(response: httpx.Response) -> bool:
    try:
        _session_id(response)
    except PaymentFailed:
        return False
    return True
