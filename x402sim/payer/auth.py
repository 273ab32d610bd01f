"""Paying as httpx authentication: any httpx client, sync or async, can pay.

`PaymentAuth` answers a 402 by signing, settling and repeating the request.
`SessionAuth` pays one deposit and then spends it. Neither signs more than its caps
allow, nor signs again while an earlier authorization may still be settled.
Clauses: 1/sign-settle-repeat, 1/session-no-402.
"""

import asyncio
import re
import threading
from collections.abc import AsyncGenerator, Generator
from dataclasses import dataclass
from typing import Any

import httpx

from x402sim.clock import Clock
from x402sim.payer.wallet import Wallet
from x402sim.protocol.crypto import checksum
from x402sim.protocol.errors import Refusal
from x402sim.protocol.header import Spelling
from x402sim.protocol.messages import (
    BadMessage,
    ErrorBody,
    PaymentRequired,
    PaymentRequirements,
    Receipt,
    SettlementRequest,
    Wire,
    decode,
    encode,
)
from x402sim.protocol.money import parse_base, to_base, to_decimal
from x402sim.protocol.networks import TESTNET, Network

Flow = Generator[httpx.Request, httpx.Response, httpx.Response]


class PaymentFailed(Exception):
    """The payment was not made, or it is not known whether it was; the text says which."""


class SpendingCapExceeded(PaymentFailed):
    """More was asked than this payer may spend; nothing was signed."""


class _RefusedForGood(PaymentFailed):
    """The server says that this payment was not made and never will be."""


class _SessionAnswer(Wire, frozen=True):
    """What a payer needs of the answer to a session request."""

    session_id: str


_PLAIN = re.compile(r"[!-~]{1,256}")
"""What can be sent as a header."""


@dataclass(frozen=True, slots=True)
class _Signed:
    """A signed payment on its way."""

    payment_id: str
    header: str
    requirements: PaymentRequirements


class PaymentAuth(httpx.Auth):
    """402 -> sign -> POST /api/pay -> repeat with X-Payment-Id (1/sign-settle-repeat).

    `max_amount` caps one payment and `max_total` everything this object ever signs,
    both as decimal strings of the token ("0.10"): a signed authorization counts whether
    or not the server says it used it. A payment id is used again for the same resource
    unless `reuse` is False. When an answer of /api/pay is lost, the next request for the
    resource sends the same authorization again instead of signing another.

    One object may serve many requests at once, in threads or tasks. A payment id is proof
    of payment for whoever shows it: do not let the client follow redirects to strangers.
    Raises `SpendingCapExceeded` and `PaymentFailed` out of the client's call.
    """

    requires_response_body = True

    def __init__(
        self,
        wallet: Wallet,
        *,
        max_amount: str = "0.10",
        max_total: str = "1.00",
        network: Network = TESTNET,
        reuse: bool = True,
        pay_path: str = "/api/pay",
        spelling: Spelling = "hex",
        clock: Clock | None = None,
    ) -> None:
        self.wallet = wallet
        self.network = network
        self.max_amount_base = to_base(max_amount, network.decimals)
        self.max_total_base = to_base(max_total, network.decimals)
        self.signed_base = 0
        """What has been signed for so far, in base units."""
        self.receipts: list[Receipt] = []
        self._reuse = reuse
        self._pay_path = pay_path
        self._spelling = spelling
        self._clock = clock or Clock()
        self._granted: dict[str, str] = {}
        self._lost: dict[str, list[_Signed]] = {}
        self._lock = threading.Lock()

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        """Yield the requests of one paid exchange; httpx sends them."""
        yield from self.exchange(request)

    def exchange(self, request: httpx.Request) -> Flow:
        """Yield the requests of one paid exchange, and return its last response."""
        resource = _origin(request) + request.url.path
        known = self._granted.get(resource) if self._reuse else None
        if known:
            request.headers["X-Payment-Id"] = known
        response = yield request
        if response.status_code != 402:
            return response
        if known and self._granted.get(resource) == known:
            self._granted.pop(resource, None)
        asked = self._read(request, response)
        signed = yield from self._settle_lost(request, resource)
        if signed is None:
            signed = self._sign(asked)
            yield from self._settle(request, resource, signed)
        self._granted[resource] = signed.payment_id
        request.headers["X-Payment-Id"] = signed.payment_id
        response = yield request
        return response

    def _read(self, request: httpx.Request, response: httpx.Response) -> PaymentRequired:
        """Return what the 402 asks for, if this payer can give it; raises `PaymentFailed`."""
        try:
            asked: PaymentRequired = decode(response.content, PaymentRequired)
        except BadMessage as error:
            raise PaymentFailed(f"the 402 has no readable payment requirements: {error}") from error
        wanted = asked.payment_requirements
        ours = {
            "scheme": ("exact", wanted.scheme),
            "network": (self.network.name, wanted.network),
            "asset": (checksum(self.network.asset).lower(), wanted.asset.lower()),
            "resource": (request.url.path, wanted.resource),
        }
        for name, (mine, theirs) in ours.items():
            if mine != theirs:
                raise PaymentFailed(f"the 402 asks for {name} {theirs!r}, this payer has {mine!r}")
        if not _PLAIN.fullmatch(asked.payment_id):
            raise PaymentFailed(f"the 402 has no usable payment id: {asked.payment_id[:80]!r}")
        if not 1 <= wanted.max_timeout_seconds < 2**31:
            raise PaymentFailed(f"the 402 allows {wanted.max_timeout_seconds} seconds to pay")
        return asked

    def _sign(self, asked: PaymentRequired) -> _Signed:
        """Sign for what is asked, within the caps; raises `PaymentFailed`."""
        requirements = asked.payment_requirements
        with self._lock:
            try:
                amount_base = parse_base(requirements.max_amount_required)
                self._check_caps(amount_base)
                header = self.wallet.payment_header(
                    requirements,
                    self._clock.now_s(),
                    network=self.network,
                    spelling=self._spelling,
                )
            except ValueError as error:
                raise PaymentFailed(f"the 402 cannot be paid: {error}") from error
            self.signed_base += amount_base
        return _Signed(asked.payment_id, header, requirements)

    def _check_caps(self, amount_base: int) -> None:
        """Raise `SpendingCapExceeded` if this amount is more than is allowed."""
        left_base = self.max_total_base - self.signed_base
        if amount_base > self.max_amount_base:
            allowed = f"max_amount {self._show(self.max_amount_base)} for one payment"
        elif amount_base > left_base:
            allowed = (
                f"{self._show(left_base)}, what is left of max_total "
                f"{self._show(self.max_total_base)}"
            )
        else:
            return
        asked = self._show(amount_base)
        raise SpendingCapExceeded(f"the 402 asks for {asked}, allowed is {allowed}")

    def _show(self, amount_base: int) -> str:
        return f"{to_decimal(amount_base, self.network.decimals)} {self.network.token_symbol}"

    def _settle_lost(
        self, request: httpx.Request, resource: str
    ) -> Generator[httpx.Request, httpx.Response, _Signed | None]:
        """Send again what was signed before and never answered; None if none was settled."""
        while True:
            with self._lock:
                lost = self._lost.get(resource)
                signed = lost.pop() if lost else None
            if signed is None:
                return None
            try:
                yield from self._settle(request, resource, signed)
            except _RefusedForGood:
                continue
            return signed

    def _settle(
        self, request: httpx.Request, resource: str, signed: _Signed
    ) -> Generator[httpx.Request, httpx.Response, None]:
        """Send a payment to /api/pay until it is settled; raises `PaymentFailed`.

        Without a clear answer it is kept, to be sent again: also when the exchange is
        broken off here, as it is when the connection breaks.
        """
        is_clear = False
        try:
            response = yield self._settlement(request, signed)
            self._conclude(response)
            is_clear = True
        except _RefusedForGood:
            is_clear = True
            raise
        finally:
            if not is_clear:
                with self._lock:
                    self._lost.setdefault(resource, []).append(signed)

    def _conclude(self, response: httpx.Response) -> None:
        """Read the answer of /api/pay; raises `PaymentFailed` unless it is settled."""
        if response.status_code == 200:
            self.receipts.append(_decode_or_fail(response, Receipt))
            return
        error: ErrorBody = _decode_or_fail(response, ErrorBody)
        if error.error == Refusal.ALREADY_SETTLED.value:
            return
        said = f"{response.status_code} {error.error}"
        said += f": {error.reason}" if error.reason else ""
        if response.status_code >= 500 or error.error == Refusal.PENDING.value:
            raise PaymentFailed(
                f"it is not known whether the payment was made ({said}); the next request "
                "sends the same authorization again"
            )
        raise _RefusedForGood(f"the payment was refused: {said}")

    def _settlement(self, request: httpx.Request, signed: _Signed) -> httpx.Request:
        requirements = signed.requirements
        fields = {name: getattr(requirements, name) for name in requirements.__struct_fields__}
        body = SettlementRequest(
            payment_id=signed.payment_id,
            payment_header=signed.header,
            payment_requirements=PaymentRequirements(
                **{name: value for name, value in fields.items() if name != "description"}
            ),
        )
        return httpx.Request(
            "POST",
            request.url.copy_with(path=self._pay_path, query=None, fragment=None),
            content=encode(body),
            headers={"Content-Type": "application/json"},
            extensions=request.extensions,
        )


class SessionAuth(httpx.Auth):
    """Pay one deposit of `max_spend`, then send X-Session-Id (1/session-no-402).

    A session opens with the first request to a server and lasts `duration` (in the
    server's unit: seconds). When the budget or the time is over, another one is opened,
    up to `max_sessions` in all; then `SpendingCapExceeded` is raised. With `session_id`
    an existing session is spent first, at the first server asked.

    Requests at the same time share a session. Its id is as good as money: it is sent
    only to the server that made it, but do not let the client follow redirects to others.
    """

    requires_response_body = True

    def __init__(
        self,
        wallet: Wallet,
        *,
        max_spend: str = "1.00",
        duration: int = 3600,
        max_sessions: int = 1,
        session_id: str | None = None,
        network: Network = TESTNET,
        create_path: str = "/api/sessions/create",
        pay_path: str = "/api/pay",
        clock: Clock | None = None,
    ) -> None:
        total_base = to_base(max_spend, network.decimals) * max_sessions
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
        self._duration = duration
        self._create_path = create_path
        self._sessions: dict[str, str] = {}
        self._thread_lock = threading.Lock()
        self._task_lock = asyncio.Lock()

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
            async with self._task_lock:
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
        session_id = self._sessions[_origin(request)]
        request.headers["X-Session-Id"] = session_id
        return session_id

    def _forget(self, request: httpx.Request, session_id: str) -> None:
        """Give up a session that no longer pays, unless there is a newer one already."""
        if self._sessions.get(_origin(request)) == session_id:
            del self._sessions[_origin(request)]

    def _opening(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        """Yield what opens a session at this server, if there is none; raises `PaymentFailed`."""
        origin = _origin(request)
        if self.session_id is not None and not self._sessions and not self.payment.signed_base:
            self._sessions[origin], self.session_id = self.session_id, None
        if origin in self._sessions:
            return
        create = httpx.Request(
            "POST",
            request.url.copy_with(path=self._create_path, query=None, fragment=None),
            json={"maxSpend": self.max_spend, "duration": self._duration},
            extensions=request.extensions,
        )
        response = yield from self.payment.exchange(create)
        if response.is_error:
            said = f"{response.status_code} {response.text[:200]}"
            raise PaymentFailed(f"the session was not opened: {said}")
        view: _SessionAnswer = _decode_or_fail(response, _SessionAnswer)
        if not _PLAIN.fullmatch(view.session_id):
            raise PaymentFailed(f"no usable sessionId in {response.text[:200]!r}")
        self._sessions[origin] = self.session_id = view.session_id


def _send(
    flow: Generator[httpx.Request, httpx.Response, None], response: httpx.Response
) -> httpx.Request | None:
    """Hand a response to a flow; return its next request, or None at its end."""
    try:
        return flow.send(response)
    except StopIteration:
        return None


def _origin(request: httpx.Request) -> str:
    """Return what a proof of payment is for: this server, and no other."""
    return f"{request.url.scheme}://{request.url.netloc.decode('ascii')}"


def _decode_or_fail(response: httpx.Response, kind: type[Any]) -> Any:
    try:
        return decode(response.content, kind)
    except BadMessage as error:
        raise PaymentFailed(
            f"it is not known whether the payment was made: {response.status_code} "
            f"{response.text[:200]!r}"
        ) from error
