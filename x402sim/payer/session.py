"""Spend a session as httpx authentication: one deposit, then no 402 and no signature.

Clauses: 1/session-no-402.
"""

import asyncio
import threading
from collections.abc import AsyncGenerator, Generator
from weakref import WeakKeyDictionary

import httpx

from x402sim.clock import Clock
from x402sim.payer.auth import PaymentAuth
from x402sim.payer.errors import PaymentFailed, SpendingCapExceeded
from x402sim.payer.reading import decode_or_fail, is_header_value, origin_of
from x402sim.payer.wallet import Wallet
from x402sim.protocol.messages import SessionRequest, Wire, encode
from x402sim.protocol.money import to_base, to_decimal
from x402sim.protocol.networks import TESTNET, Network


class _SessionAnswer(Wire, frozen=True):
    """The fields that a payer reads of the answer to a session request."""

    session_id: str


class SessionAuth(httpx.Auth):
    """Pay one deposit of `max_spend`, then send X-Session-Id (1/session-no-402).

    The first request to a server opens a session, which lasts `duration` (in the server's
    unit: seconds). When its budget or time is over, the next request opens another one, up
    to `max_sessions` in all (default 1), and then raises `SpendingCapExceeded`. With
    `session_id`, an existing session is spent at the first server asked, and `max_sessions`
    is 0 by default.

    Concurrent requests share a session. Anyone who has its id can spend it: it is sent only to the
    server that made it, but do not let the client follow redirects to other hosts.
    """

    requires_response_body = True

    def __init__(
        self,
        wallet: Wallet,
        *,
        max_spend: str = "1.00",
        duration: int = 3600,
        max_sessions: int | None = None,
        session_id: str | None = None,
        network: Network = TESTNET,
        create_path: str = "/api/sessions/create",
        pay_path: str = "/api/pay",
        clock: Clock | None = None,
    ) -> None:
        if max_sessions is None:
            max_sessions = 1 if session_id is None else 0
        total_base = to_base(max_spend, network.decimals, fraction_digits=2) * max_sessions
        self.payment = PaymentAuth(
            wallet,
            max_amount=max_spend,
            max_total=to_decimal(total_base, network.decimals),
            network=network,
            reuse=False,
            pay_path=pay_path,
            clock=clock,
        )
        self.session_id = session_id
        """The newest session."""
        self.max_spend = max_spend
        self._max_sessions = max_sessions
        self._duration = duration
        self._create_path = create_path
        self._sessions: dict[str, str] = {}
        self._thread_lock = threading.Lock()
        self._task_locks: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = (
            WeakKeyDictionary()
        )

    def sync_auth_flow(
        self, request: httpx.Request
    ) -> Generator[httpx.Request, httpx.Response, None]:
        """Yield the requests of one exchange to a sync client; one thread opens the session."""
        for _ in range(2):
            with self._thread_lock:
                opening = self._opening(request)
                to_send = next(opening, None)
                while to_send is not None:
                    response = yield to_send
                    response.read()
                    to_send = _send(opening, response)
            spent = self._show_session(request)
            response = yield request
            if response.status_code != 402:
                return
            self._forget(request, spent)

    async def async_auth_flow(
        self, request: httpx.Request
    ) -> AsyncGenerator[httpx.Request, httpx.Response]:
        """Yield the requests of one exchange to an async client; one task opens the session."""
        for _ in range(2):
            async with self._task_locks.setdefault(asyncio.get_running_loop(), asyncio.Lock()):
                opening = self._opening(request)
                to_send = next(opening, None)
                while to_send is not None:
                    response = yield to_send
                    await response.aread()
                    to_send = _send(opening, response)
            spent = self._show_session(request)
            response = yield request
            if response.status_code != 402:
                return
            self._forget(request, spent)

    def _show_session(self, request: httpx.Request) -> str:
        session_id = self._sessions[origin_of(request)]
        request.headers["X-Session-Id"] = session_id
        return session_id

    def _forget(self, request: httpx.Request, session_id: str) -> None:
        """Give up a session that no longer pays, unless there is a newer one already."""
        if self._sessions.get(origin_of(request)) == session_id:
            del self._sessions[origin_of(request)]

    def _opening(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        """Yield what opens a session at this server, if there is none; raises `PaymentFailed`."""
        origin = origin_of(request)
        if self.session_id is not None and not self._sessions and not self.payment.signed_base:
            self._sessions[origin], self.session_id = self.session_id, None
        if origin in self._sessions:
            return
        create = httpx.Request(
            "POST",
            request.url.copy_with(path=self._create_path, query=None, fragment=None),
            content=encode(SessionRequest(max_spend=self.max_spend, duration=self._duration)),
            headers={"Content-Type": "application/json"},
            extensions=request.extensions,
        )
        try:
            response = yield from self.payment.exchange(create)
        except SpendingCapExceeded as over:
            raise SpendingCapExceeded(
                "no session has enough budget, and "
                f"max_sessions={self._max_sessions} of max_spend={self.max_spend} allows no other. "
                "Raise max_sessions or max_spend to go on."
            ) from over
        if response.is_error:
            answered = f"{response.status_code} {response.text[:200]}"
            raise PaymentFailed(f"the session was not opened: the server answered {answered}")
        view: _SessionAnswer = decode_or_fail(response, _SessionAnswer)
        if not is_header_value(view.session_id):
            raise PaymentFailed(
                f"the session has no usable id: {view.session_id[:80]!r} cannot be sent as a header"
            )
        self._sessions[origin] = self.session_id = view.session_id


def _send(
    flow: Generator[httpx.Request, httpx.Response, None], response: httpx.Response
) -> httpx.Request | None:
    """Hand a response to a flow; return its next request, or None at its end."""
    try:
        return flow.send(response)
    except StopIteration:
        return None
