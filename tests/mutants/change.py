"""How is a defect put into the service, and taken out again?

A `Change` makes a context manager; inside it, the service is the defective one. Most
defects are what a tired programmer would have typed, so `edit` changes a function's text;
it fails if the text is no longer there, so that no row can go stale in silence.
"""

import inspect
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import partial
from textwrap import dedent
from types import CodeType
from typing import Any
from unittest.mock import patch

import msgspec
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from x402sim.protocol.rules import Presented, without
from x402sim.service import store
from x402sim.world.assembly import parts, process

Change = Callable[[], AbstractContextManager[Any]]


def edit(function: Any, *texts: str) -> Change:
    """Change the text of a function: `texts` are old and new, in turn."""
    plain = inspect.unwrap(function.fget if isinstance(function, property) else function)
    return lambda: _running(plain, texts)


@contextmanager
def _running(function: Any, texts: tuple[str, ...]) -> Iterator[None]:
    before = function.__code__
    function.__code__ = _rewritten(function, texts)
    try:
        yield
    finally:
        function.__code__ = before


def schema(*texts: str) -> Change:
    """Change the tables of the database, in the same way."""
    return lambda: patch.object(store, "_SCHEMA", _replaced(store._SCHEMA, texts))


def _rewritten(function: Any, texts: tuple[str, ...]) -> CodeType:
    source = _replaced(dedent(inspect.getsource(function)), texts)
    module = compile(source, inspect.getfile(function), "exec")
    return next(
        each
        for each in module.co_consts
        if isinstance(each, CodeType) and each.co_name == function.__name__
    )


def _replaced(text: str, texts: tuple[str, ...]) -> str:
    for old, new in zip(texts[::2], texts[1::2], strict=True):
        if text.count(old) != 1:
            raise LookupError(f"{text[:80]!r}… has {text.count(old)} times {old!r}")
        text = text.replace(old, new)
    return text


def swap(owner: Any, name: str, value: Any) -> Change:
    """Put another value, function or class in the place of one."""
    return lambda: patch.object(owner, name, value)


def setting(**values: Any) -> Change:
    """Change settings of the service."""
    return lambda: patch.object(parts, "Settings", partial(parts.Settings, **values))


def leave_out(table: str, clause: str) -> Change:
    """Leave a row out of a rule table."""
    return lambda: patch.dict(parts.TABLES, {table: without(parts.TABLES[table], clause)})


def settlement_rule(clause: str, holds: Callable[[Presented], bool]) -> Change:
    """Let a row of the settlement's table hold in other cases."""

    def change() -> AbstractContextManager[Any]:
        rules = parts.TABLES["settlement"]
        other = [replace(rule, holds=holds) if rule.clause == clause else rule for rule in rules]
        return patch.dict(parts.TABLES, {"settlement": tuple(other)})

    return change


def around(middleware: Callable[[ASGIApp], ASGIApp]) -> Change:
    """Put something around the whole application of the service."""

    def change() -> AbstractContextManager[Any]:
        inner = process.service_app
        return patch.object(process, "service_app", lambda service: middleware(inner(service)))

    return change


def paths(rewrite: Callable[[str], str]) -> Change:
    """Serve other paths than were asked for."""

    def middleware(app: ASGIApp) -> ASGIApp:
        async def door(scope: Scope, receive: Receive, send: Send) -> None:
            await app({**scope, "path": rewrite(scope["path"])}, receive, send)

        return door

    return around(middleware)


def answers(status: int | None, path: str, change: Callable[[Any], Any]) -> Change:
    """Change the JSON bodies of the answers with this status (None: any), below this path.

    `change` alters the body in place, or returns another one.
    """

    def middleware(app: ASGIApp) -> ASGIApp:
        async def door(scope: Scope, receive: Receive, send: Send) -> None:
            start: Message = {}

            async def tell(message: Message) -> None:
                if message["type"] == "http.response.start":
                    start.update(message)
                    return
                content = message["body"]
                if (
                    _is_json(start)
                    and status in (None, start["status"])
                    and (scope["path"].startswith(path))
                ):
                    body = msgspec.json.decode(content)
                    content = msgspec.json.encode(change(body) or body)
                    length = (b"content-length", str(len(content)).encode())
                    kept = [pair for pair in start["headers"] if pair[0] != b"content-length"]
                    start["headers"] = [*kept, length]
                await send(start)
                await send({**message, "body": content})

            await app(scope, receive, tell)

        return door

    return around(middleware)


def _is_json(start: Message) -> bool:
    return (b"content-type", b"application/json") in start["headers"]
