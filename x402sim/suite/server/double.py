"""The facilitator of a room: settles as ours, unless a case makes the double hang, lie or fail.

A settled payment, settled again for the same requirements, gets the same answer: settle may be
called more than once for one payment. Another payment with the same nonce goes to our facilitator.
A case about races makes the double `strict`: then every used nonce of a payer is refused.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import httpx

from x402sim.clock import stopwatch
from x402sim.protocol.crypto import to_hex
from x402sim.protocol.messages import decoded, encode
from x402sim.protocol.money import base_in
from x402sim.suite.redact import cut
from x402sim.suite.wire import CLOCK, How, Reply, Request, Twisted, as_json
from x402sim.text.words import printable

LOOK_S = 0.02
SHOWN = 200
"""The most characters of an answer in a report."""
VERIFY, SETTLE, SUPPORTED = "/verify", "/settle", "/supported"
INVALID = {"isValid": False, "invalidReason": "insufficient_funds"}
REFUSED = {"success": False, "errorReason": "insufficient_funds", "transaction": ""}
USED = REFUSED | {"errorReason": "nonce_already_used"}
"""Refusals; the last is that of a `strict` facilitator, to a nonce that came before."""
_PERMIT2 = ("paymentPayload", "payload", "permit2Authorization")
_TERMS = ("scheme", "network", "asset", "payTo", "amount", "maxAmountRequired")


@dataclass(slots=True, eq=False)
class Call:
    """A request to the facilitator, and the answer; None before the answer."""

    path: str
    body: Any
    reply: Reply | None = None
    is_done: bool = False
    """Whether our facilitator has done the work."""

    def at(self, *names: str) -> Any:
        """Return the body's value at a path of names; None if missing."""
        found: Any = self.body
        for name in names:
            found = found.get(name) if isinstance(found, dict) else None
        return found

    @property
    def nonce(self) -> str:
        """The nonce of the payment, in small letters; empty without one."""
        found = self.at("paymentPayload", "payload", "authorization", "nonce")
        if isinstance(number := self.at(*_PERMIT2, "nonce"), str):
            with suppress(ValueError, OverflowError):
                return to_hex(int(number, 0).to_bytes(32))
        return found.lower() if isinstance(found, str) else ""

    @property
    def amount_base(self) -> int | None:
        """The amount of the requirements in base units; None without one."""
        return base_in(self.at("paymentRequirements", "amount"))

    @property
    def most_base(self) -> int | None:
        """The maximum that a payer of `upto` has signed, in base units; None for other payments."""
        is_upto = self.at("paymentRequirements", "scheme") == "upto"
        return base_in(self.at(*_PERMIT2, "permitted", "amount")) if is_upto else None

    @property
    def told(self) -> str:
        """The path and the answer, for a report: "/settle: 200 {}"."""
        reply = self.reply
        if reply is None or reply.how is How.LOST:
            return f"{self.path}: nothing: the connection ends"
        where = [f"{name}: {to}" for name, to in reply.headers.items() if name == "Location"]
        said = [*where, printable(cut(reply.body.decode("latin-1"), SHOWN))]
        end = ", cut in the middle" if reply.how is How.CUT else ""
        return " ".join(filter(None, (f"{self.path}: {reply.status}", *said))) + end

    @property
    def payer(self) -> Any:
        """The payer that the payment names; None without one."""
        named = self.at("paymentPayload", "payload", "authorization", "from")
        return named or self.at(*_PERMIT2, "from")

    @property
    def claim(self) -> str:
        """The payer and the nonce, in small letters: the chain takes one payment for each pair."""
        return f"{self.payer} {self.nonce}".lower()

    def refusal(self, fields: Mapping[str, Any], status: int = 200) -> Reply:
        """Return a refusal with the payer, and of settle with the network, of this request.

        Version 1 demands both of a settlement, and its SDK for Python reads no answer without the
        payer.
        """
        own = {"payer": self.payer, "network": self.at("paymentRequirements", "network")}
        if self.path != SETTLE:
            del own["network"]
        return as_json({**fields, **{name: it for name, it in own.items() if it}}, status)

    @property
    def payment(self) -> str:
        """The payment with signature and requirements: one text for all spellings."""
        terms = self.at("paymentRequirements")
        wanted = [terms.get(name) for name in _TERMS] if isinstance(terms, dict) else terms
        return json.dumps([wanted, self.at("paymentPayload", "payload")], sort_keys=True).lower()


def is_answered(call: Call) -> bool:
    """Tell whether a request was answered."""
    return call.reply is not None


def is_worked_on(call: Call) -> bool:
    """Tell whether our facilitator has worked on a request."""
    return call.is_done


Go = Callable[[], Awaitable[Reply]]
Twist = Callable[[Call, Go], Awaitable[Reply | None]]
"""Changes the answer to a call: returns an answer, or None for our facilitator's answer. `go` lets
our facilitator do the work.
"""


@dataclass(slots=True, eq=False)
class Double(Twisted[Call]):
    """A facilitator with twisted answers."""

    url: str
    """The URL of our facilitator."""
    http: httpx.AsyncClient
    strict: bool = False
    _settled: dict[str, Reply] = field(default_factory=dict)
    """By settled payment: our facilitator's answer."""
    _nonces: set[str] = field(default_factory=set)
    """Payers and nonces of the settled payments."""
    _taken: set[str] = field(default_factory=set)
    """Payers and nonces of all calls of settle."""
    _turns: dict[str, asyncio.Lock] = field(default_factory=dict)
    """By payment: the running settlement; a second call for the payment waits, and gets the same
    answer."""

    def count(self, path: str, nonce: str = "") -> int:
        """Return how often a path was called, with one payment or with any."""
        return sum(each.path == path and nonce.lower() in ("", each.nonce) for each in self.calls)

    def is_settled(self, nonce: str) -> bool:
        """Tell whether a payment was settled."""
        return nonce.lower() in self._nonces

    async def until(
        self, path: str, nonce: str, within_s: float, is_it: Callable[[Call], bool] = bool
    ) -> bool:
        """Wait until a path was called with a payment, and `is_it` is true of every such call.

        Returns whether this happened in time. `is_answered` and `is_worked_on` are examples of
        `is_it`.
        """
        elapsed = stopwatch()
        while elapsed() < within_s:
            mine = [each for each in self.calls if (each.path, each.nonce) == (path, nonce.lower())]
            if mine and all(map(is_it, mine)):
                return True
            await CLOCK.sleep(LOOK_S)
        return False

    async def answer(self, request: Request) -> Reply:
        """Answer a request over HTTP."""
        call = Call(request.path.rstrip("/") or "/", request.json)
        reply: Reply = await self.called(call, lambda: self._work(request, call))
        call.reply = reply
        return reply

    async def _work(self, request: Request, call: Call) -> Reply:
        reply = await self._forward(request, call)
        call.is_done = True
        return reply

    async def _forward(self, request: Request, call: Call) -> Reply:
        if call.path != SETTLE or not call.nonce:
            return await self._sent_on(request)
        if self.strict and call.claim in self._taken:
            return call.refusal(USED)
        self._taken.add(call.claim)
        async with self._turns.setdefault(call.payment, asyncio.Lock()):
            if call.payment not in self._settled:
                reply = await self._sent_on(request)
                answer = decoded(reply.body)
                if not isinstance(answer, dict) or answer.get("success") is not True:
                    return reply
                self._settled[call.payment] = reply
                self._nonces.add(call.nonce)
            return self._settled[call.payment]

    async def _sent_on(self, request: Request) -> Reply:
        content = {"Content-Type": request.headers.get("content-type", "application/json")}
        got = await self.http.request(
            request.method, self.url + request.target, content=request.body, headers=content
        )
        return Reply(
            status=got.status_code,
            headers={"Content-Type": got.headers.get("content-type", "application/json")},
            body=got.content,
        )


# --- twists ------------------------------------------------------------------------------


def on(path: str, do: Twist) -> Twist:
    """Return a twist of one path only."""

    async def twist(call: Call, go: Go) -> Reply | None:
        return await do(call, go) if call.path == path else None

    return twist


def first(count: int, do: Twist) -> Twist:
    """Return a twist of the first `count` calls only."""
    left = count

    async def twist(call: Call, go: Go) -> Reply | None:
        nonlocal left
        if left <= 0:
            return None
        left -= 1
        return await do(call, go)

    return twist


def refuses(fields: Mapping[str, Any], status: int = 200) -> Twist:
    """Return a twist that answers this refusal, and does no work."""

    async def twist(call: Call, _: Go) -> Reply:
        return call.refusal(fields, status)

    return twist


def breaks(how: How) -> Twist:
    """Return a twist that does the work, and loses or cuts the answer."""

    async def twist(_: Call, go: Go) -> Reply:
        done = await go()
        return Reply(status=done.status, headers=done.headers, body=done.body, how=how)

    return twist


def waits(gate: asyncio.Event, *, after: bool = False) -> Twist:
    """Return a twist that answers when a gate opens; the work is done then, or (`after`) before."""

    async def twist(_: Call, go: Go) -> Reply:
        if after:
            await go()
        await gate.wait()
        return await go()

    return twist


def pending(network: str) -> Twist:
    """Return a twist that sends the payment, and answers that the transaction is still pending."""

    async def twist(_: Call, go: Go) -> Reply:
        done = await go()
        receipt = httpx.Response(done.status, content=done.body).json()
        return as_json(
            {
                "success": False,
                "errorReason": "settlement_pending",
                "transaction": receipt.get("transaction", ""),
                "network": receipt.get("network", network),
                "payer": receipt.get("payer", ""),
            }
        )

    return twist


def twice() -> Twist:
    """Return a twist that does the work, and answers with several JSON texts in one body."""

    async def twist(_: Call, go: Go) -> Reply:
        done = await go()
        return Reply(headers=done.headers, body=done.body + encode({}) + done.body)

    return twist
