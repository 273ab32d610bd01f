"""A row of the matrix: a defect of our own service, the clauses it breaks, and how it is made.

A row is a call of its `Kind`, such as `session("never-expires", …)`, or a decorator around the
only code of the defect, whose docstring is then the row's sentence.

A `Change` takes a world and returns another one. Nothing is patched: every change is a rule left
out, a setting, a decision, a wrapped collaborator, or middleware around the application, where only
HTTP is seen, so that the service can be rewritten without touching the mutants.
"""

import inspect
from collections.abc import Awaitable, Callable, Mapping
from copy import copy
from dataclasses import dataclass, replace
from functools import partial
from inspect import isfunction
from typing import Any, TypeVar

import msgspec
from starlette.requests import ClientDisconnect, Request as Received
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from x402sim import World
from x402sim.http.web import CONNECTION
from x402sim.protocol.eip3009 import Authorization
from x402sim.protocol.header import present
from x402sim.protocol.messages import BadMessage, decode
from x402sim.protocol.refusals import Refusal
from x402sim.protocol.routes import (
    AGENTS as AGENTS,
    PAY as PAY,
    QUOTE as QUOTE,
    SESSIONS as SESSIONS,
)
from x402sim.protocol.rules import Presented
from x402sim.service.environment import Environment
from x402sim.service.state import Service
from x402sim.suite.service.check import DOCUMENT

# --- rules, settings and decisions -----------------------------------------------------------


Change = Callable[[World], World]


def all_of(*changes: Change) -> Change:
    """Make one change of several; they are applied in this order."""

    def change(world: World) -> World:
        for each in changes:
            world = each(world)
        return world

    return change


def setting(**values: Any) -> Change:
    """Change settings of the service."""
    return on_setup(lambda setup: replace(setup, settings=replace(setup.settings, **values)))


def decision(**values: Any) -> Change:
    """Change decisions of the service; here they may have impossible values."""

    def change(setup: Environment) -> Environment:
        decisions = copy(setup.settings.decisions)
        for name, value in values.items():
            object.__setattr__(decisions, name, value)
        return replace(setup, settings=replace(setup.settings, decisions=decisions))

    return on_setup(change)


def leave_out(table: str, clause: str) -> Change:
    """Leave a row out of a rule table."""
    return lambda world: replace(world, without=(*world.without, (table, clause)))


def settlement_rule(clause: str, holds: Callable[[Presented], bool]) -> Change:
    """Let a row of the settlement's table hold in other cases."""

    def change(service: Service) -> Service:
        rules = service.settlement_rules
        assert clause in [rule.clause for rule in rules]
        other = [replace(rule, holds=holds) if rule.clause == clause else rule for rule in rules]
        return replace(service, settlement_rules=tuple(other))

    return on_service(change)


def freshness(holds: Callable[[Presented], bool]) -> Change:
    """Let requirements be paid as long as this holds."""

    def change(service: Service) -> Service:
        rules = tuple(replace(rule, holds=holds) for rule in service.freshness_rules)
        return replace(service, freshness_rules=rules)

    return on_service(change)


def _on(hook: str, change: Callable[..., Any]) -> Change:
    """Change what a hook of the world gives, once more after the changes before.

    `change` gets what the hook gets, with the last of it as the changes before have left it.
    """

    def changed(world: World) -> World:
        before = getattr(world.hooks, hook)

        def both(*given: Any) -> Any:
            return change(*given[:-1], before(*given))

        return replace(world, hooks=replace(world.hooks, **{hook: both}))

    return changed


on_setup, on_service, on_app, on_facilitator = (
    partial(_on, hook) for hook in ("setup", "service", "app", "facilitator")
)
"""Change the service's setup, the service, its application (middleware around it), or the facilitator."""


# --- collaborators in the place of the service's ---------------------------------------------


class Wrapper:
    """Has every attribute of `inner`, except for what a subclass overrides.

    A subclass that overrides what `inner` no longer has is an error: its defect would
    never show.
    """

    def __init__(self, inner: Any, service: Service) -> None:
        self.inner, self.service = inner, service
        public = [name for name, it in vars(type(self)).items() if isfunction(it)]
        for name in public:
            if not name.startswith("_") and not hasattr(inner, name):
                raise LookupError(f"{type(self).__name__} overrides {name}, which is gone")

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def __len__(self) -> int:
        return len(self.inner)


def collaborator(**wrappers: Callable[[Any, Service], Any]) -> Change:
    """Wrap collaborators of the service, by their names in `Service` or in its store.

    Each wrapper gets the real one and the service as it was before.
    """

    def change(service: Service) -> Service:
        made: dict[str, Any] = {}
        store = Wrapper(service.store, service)
        for name, wrap in wrappers.items():
            if hasattr(service.store, name):
                setattr(store, name, wrap(getattr(service.store, name), service))
                made["store"] = store
            else:
                made[name] = wrap(getattr(service, name), service)
        return replace(service, **made)

    return on_service(change)


def overriding(part: str, **methods: Callable[..., Any]) -> Change:
    """Override methods of one collaborator; each gets the wrapper around the real one, too."""
    return collaborator(**{part: type(f"Other{part}", (Wrapper,), methods)})


def altered(message: Any, **changes: Any) -> Any:
    """Return a dataclass or a message with other values in some fields."""
    is_message = isinstance(message, msgspec.Struct)
    return (msgspec.structs.replace if is_message else replace)(message, **changes)


# --- around the application ------------------------------------------------------------------


JSON = "application/json"


@dataclass(frozen=True)
class Request:
    """A whole request; the names of headers are in lower case."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes
    query: str = ""

    @property
    def json(self) -> Any:
        """The body; None if it is not JSON."""
        try:
            return decode(self.body, Any)
        except BadMessage:
            return None

    def field(self, name: str) -> str:
        """Return a string of the body; empty if there is none."""
        body = self.json
        found = body.get(name) if isinstance(body, dict) else None
        return found if isinstance(found, str) else ""

    def having(self, **headers: str | None) -> "Request":
        """Return the request with other headers; None takes one out."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        kept = {**self.headers, **named}
        return replace(self, headers={k: v for k, v in kept.items() if v is not None})

    def sending(self, body: Any) -> "Request":
        """Return the request with another body."""
        content = msgspec.json.encode(body)
        return replace(self.having(content_length=str(len(content))), body=content)


@dataclass(frozen=True)
class Answer:
    """A whole answer."""

    status: int
    body: bytes
    media_type: str = JSON
    headers: tuple[tuple[bytes, bytes], ...] = ()
    """The headers besides content-type and content-length."""

    @property
    def json(self) -> Any:
        """The body; None if it is not JSON."""
        return msgspec.json.decode(self.body) if self.media_type == JSON else None

    @property
    def error(self) -> Any:
        """The error's text; None if there is none."""
        body = self.json
        return body.get("error") if isinstance(body, dict) else None


def answer(status: int, body: Any) -> Answer:
    """Return an answer in JSON."""
    return Answer(status, msgspec.json.encode(body))


def page(text: str, status: int = 200) -> Answer:
    """Return a web page."""
    return Answer(status, text.encode(), "text/html; charset=utf-8")


CRASHED = answer(500, {"error": "Internal server error"})
"""What is seen of a handler that has raised an exception."""

Serve = Callable[[Request], Awaitable[Answer]]
Handler = Callable[[Service, Request, Serve], Awaitable[Answer]]


def middleware(handler: Handler, path: str = "/") -> Change:
    """Let a handler deal with the requests below this path."""

    def around(service: Service, app: ASGIApp) -> ASGIApp:
        async def wrapped(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] != "http" or not scope["path"].startswith(path):
                await app(scope, receive, send)
                return
            received = Received(scope, receive)
            try:
                body = await received.body()
            except ClientDisconnect:
                return
            asked = Request(
                scope["method"],
                scope["path"],
                dict(received.headers.items()),
                body,
                scope["query_string"].decode(),
            )

            async def serve(request: Request) -> Answer:
                return await _served(app, scope, request, receive)

            reply = await handler(service, asked, serve)
            response = Response(reply.body, reply.status, media_type=reply.media_type)
            response.raw_headers[:0] = reply.headers
            await response(scope, receive, send)

        return wrapped

    return on_app(around)


async def _served(app: ASGIApp, scope: Scope, request: Request, receive: Receive) -> Answer:
    waiting = [{"type": "http.request", "body": request.body, "more_body": False}]
    sent: list[Message] = []

    async def read() -> Message:
        return waiting.pop() if waiting else await receive()

    async def keep(message: Message) -> None:
        sent.append(message)

    headers = [
        (name.encode("latin-1"), it.encode("latin-1")) for name, it in request.headers.items()
    ]
    asked = {**scope, "method": request.method, "path": request.path, "headers": headers}
    asked.pop(CONNECTION, None)  # the answer is kept back here
    try:
        await app(asked, read, keep)
    except Exception:  # Starlette answers 500 and then raises all the same
        if not sent:
            raise
    start, body = sent[0], b"".join(message.get("body", b"") for message in sent[1:])
    headers_sent = dict(start["headers"])
    media_type = headers_sent.pop(b"content-type", b"").decode()
    headers_sent.pop(b"content-length", None)
    return Answer(start["status"], body, media_type, tuple(headers_sent.items()))


# --- what many defects share ---------------------------------------------------------


def paths(rewrite: Callable[[str], str]) -> Change:
    """Serve other paths than were asked for."""
    return requests("/", lambda request: replace(request, path=rewrite(request.path)))


def instead(
    path: str, given: Answer, when: Callable[[Request], bool] = lambda request: True
) -> Change:
    """Give one answer to every request for this path, or to some."""

    async def handler(_: Service, request: Request, serve: Serve) -> Answer:
        return given if request.path == path and when(request) else await serve(request)

    return middleware(handler, path)


def requests(path: str, change: Callable[[Request], Request]) -> Change:
    """Change the requests below this path before they are served."""

    async def handler(_: Service, request: Request, serve: Serve) -> Answer:
        return await serve(change(request))

    return middleware(handler, path)


def replies(path: str, change: Callable[[Request, Answer], Answer]) -> Change:
    """Change the answers below this path."""

    async def handler(_: Service, request: Request, serve: Serve) -> Answer:
        return change(request, await serve(request))

    return middleware(handler, path)


def answers(status: int | None, path: str, change: Callable[[Any], Any]) -> Change:
    """Change the JSON bodies of the answers with this status (None: any), below this path.

    `change` alters the body in place, or returns another one.
    """

    def changed(_: Request, reply: Answer) -> Answer:
        if reply.media_type != JSON or status not in (None, reply.status):
            return reply
        body = reply.json
        return replace(reply, body=msgspec.json.encode(change(body) or body))

    return replies(path, changed)


def statuses(path: str, before: int, after: int) -> Change:
    """Answer one status where another one is meant."""
    return replies(path, lambda _, it: replace(it, status=after) if it.status == before else it)


# --- a gate that stands open ---------------------------------------------------------

FREE = "pay_free-pass"


def free(request: Request) -> Request:
    """Return a request that passes the gate without payment, if it is `unlocked`."""
    return request.having(x_payment_id=FREE, x_session_id=None)


unlocked = overriding("entitlements", grants=lambda it, payment_id, *of: (
    payment_id == FREE or it.inner.grants(payment_id, *of)
))  # fmt: skip
"""A cache with one entitlement for everything."""


def let_in(path: str, when: Callable[[Service, Request], bool]) -> Change:
    """Let some requests for this path pass the gate without payment."""

    async def handler(service: Service, request: Request, serve: Serve) -> Answer:
        return await serve(free(request) if when(service, request) else request)

    return all_of(unlocked, middleware(handler, path))


# --- rows ------------------------------------------------------------------------------------


FEW = 11
"""How many other ids a defect may fail: more, and a failure would not lead to its cause.

Five ids vary a good payment (spelling, window, balance) and fail with it, where all are refused.
"""
Code = TypeVar("Code", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Mutant:
    """A deliberate defect of our own service.

    The checks of all `clauses` must fail ("kit/…" is a demand of the kit's own), and at
    most a `FEW` others, unless it is `broad`, for the reason given.
    """

    name: str
    kind: str
    clauses: tuple[str, ...]
    does: str
    changes: tuple[Change, ...]
    broad: str

    @property
    def check_ids(self) -> frozenset[str]:
        """The ids that must fail."""
        return frozenset(c if c.startswith("kit/") else f"{DOCUMENT}/{c}" for c in self.clauses)

    def world(self, honest: World) -> World:
        """Return the options of a world with the defective service."""
        return all_of(*self.changes)(honest)


MUTANTS: dict[str, Mutant] = {}
"""Every defect, by its name; `tests.mutants.rows` has them all."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A class of defects; called, it adds one of them to `MUTANTS`."""

    name: str

    def __call__(
        self, name: str, clauses: str, does: str, *changes: Change, broad: str = ""
    ) -> None:
        """Add a row; `clauses` are written with spaces between them."""
        assert name not in MUTANTS, f"{name} comes twice"
        MUTANTS[name] = Mutant(name, self.name, tuple(clauses.split()), does, changes, broad)

    def defect(
        self,
        name: str,
        clauses: str,
        place: Callable[[Any], Change] = lambda change: change,
        broad: str = "",
    ) -> Callable[[Code], Code]:
        """Return a decorator that adds a row; `place` says where its code goes."""

        def add(code: Code) -> Code:
            does = " ".join((inspect.getdoc(code) or "").split())
            self(name, clauses, does, place(code), broad=broad)
            return code

        return add


def into(place: str) -> Callable[[Any], Change]:
    """Put a wrapper around a collaborator of the service, or a function in place of a method."""
    part, _, method = place.partition(".")
    if method:
        return lambda function: overriding(part, **{method: function})
    return lambda wrapper: collaborator(**{part: wrapper})


def at(path: str, *states: Callable[[], Any]) -> Callable[[Callable[..., Any]], Change]:
    """Let a handler deal with the requests below this path.

    It gets a new state of each kind for each world, before its other arguments.
    """
    return lambda handler: (
        lambda world: middleware(partial(handler, *(state() for state in states)), path)(world)
    )


# --- what defects of payment share -----------------------------------------------------------


ALREADY_SETTLED = Refusal.ALREADY_SETTLED.text
INVALID_SIGNATURE = Refusal.INVALID_SIGNATURE.text
NONCE_USED = Refusal.NONCE_USED.text
ORDER = {"pair": "BTC-USD", "side": "long", "leverage": 2, "sizeUsd": 100}
NO_PROOF: dict[str, str | None] = {"x_payment_id": None, "x_session_id": None}


def authorization(header: str) -> Authorization | None:
    """Return what a payment header authorizes; None if it cannot be read."""
    return present(header).authorization


def with_id(reply: Answer, payment_id: str) -> Answer:
    """Return a receipt, or a 402, with another payment id."""
    body: Any = reply.json
    return replace(reply, body=msgspec.json.encode({**body, "paymentId": payment_id}))


class OtherIds(dict[str, str]):
    """The payment ids as which others are served."""

    async def settled_anew(self, request: Request, serve: Serve) -> Answer:
        """Settle a payment of a quote under a new payment id, and hide that in the answer."""
        body = request.json
        unpaid = await serve(replace(request.having(**NO_PROOF).sending(ORDER), path=QUOTE))
        new = unpaid.json["paymentId"]
        reply = await serve(request.sending({**body, "paymentId": new}))
        if reply.status == 200:
            self[body["paymentId"]] = new
        return with_id(reply, body["paymentId"]) if reply.status == 200 else reply

    def of(self, request: Request) -> Request:
        """Return a request as it is served."""
        payment_id = request.headers.get("x-payment-id", "")
        return request.having(x_payment_id=self.get(payment_id, payment_id) or None)
