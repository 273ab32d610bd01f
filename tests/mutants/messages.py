"""Requests and answers, whole, as a defect in front of the service sees them."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from x402sim.protocol.eip3009 import Authorization
from x402sim.protocol.header import present
from x402sim.protocol.messages import BadMessage, decode

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

    @property
    def payment_id(self) -> str:
        """The payment id with which it proves that it is paid; empty without one."""
        return self.headers.get("x-payment-id", "")

    @property
    def session_id(self) -> str:
        """The session by which it is paid; empty without one."""
        return self.headers.get("x-session-id", "")

    @property
    def authorization(self) -> Authorization | None:
        """What the payment header of a settlement authorizes; None if it cannot be read."""
        return present(self.field("paymentHeader")).authorization

    def having(self, **headers: str | None) -> "Request":
        """Return the request with other headers; None takes one out."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        kept = {**self.headers, **named}
        return replace(self, headers={k: v for k, v in kept.items() if v is not None})

    def sending(self, body: Any) -> "Request":
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
    return Answer(status, text.encode(), "text/html; charset=utf-8")


CRASHED = answer(500, {"error": "Internal server error"})
"""What is seen of a handler that has raised an exception."""

Serve = Callable[[Request], Awaitable[Answer]]
