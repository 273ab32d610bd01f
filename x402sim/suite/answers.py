"""What a target answers, as data: an answer, a 402, a settled payment, an open session."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import httpx

from x402sim.payer.wallet import Wallet
from x402sim.protocol.crypto import parse_address
from x402sim.protocol.messages import BadMessage, decode
from x402sim.suite.target import at


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer of the target; `status` is 0 if the exchange broke, and `broken` says how.

    `show` gives the exchange as a report may have it; it is only asked after a failure.
    """

    status: int
    headers: httpx.Headers
    text: str
    body: Any
    show: Callable[[], str]
    broken: str = ""

    def at(self, pointer: str) -> Any:
        """Return what stands at a JSON pointer of the body."""
        return at(self.body, pointer)


@dataclass(frozen=True, slots=True)
class Challenge:
    """A 402 that could be read."""

    answer: Answer
    payment_id: str
    requirements: dict[str, Any]

    @property
    def amount_base(self) -> int:
        """What is asked for, in base units."""
        return int(self.requirements["maxAmountRequired"])

    @property
    def to_send(self) -> dict[str, Any]:
        """The requirements as they go back: without the description (2.1)."""
        return {k: v for k, v in self.requirements.items() if k != "description"}


@dataclass(frozen=True, slots=True)
class Paid:
    """A payment that the target has settled."""

    challenge: Challenge
    header: str
    receipt: Answer
    payer: Wallet


@dataclass(frozen=True, slots=True)
class OpenSession:
    """A session that was opened with a settled deposit."""

    session_id: str
    paid: Paid
    answer: Answer


def find_session_id(body: Any) -> str | None:
    """Return the first string session_… in an answer, wherever it stands."""
    if isinstance(body, str):
        return body if body.startswith("session_") and len(body) > len("session_") else None
    children = body.values() if isinstance(body, dict) else body if isinstance(body, list) else ()
    return next((found for child in children if (found := find_session_id(child))), None)


def decoded(content: bytes) -> Any:
    """Return the JSON of an answer; None if it is none."""
    try:
        return decode(content, Any)
    except BadMessage:
        return None


def as_fields(changes: dict[str, Any]) -> dict[str, Any]:
    """Return changes of an authorization with `to`, if it is text, as an address."""
    to = changes.get("to")
    return {**changes, "to": parse_address(to)} if isinstance(to, str) else changes
