"""The target's answers as data: an answer, a 402, a settled payment, an open session."""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

import httpx

from x402sim.payer.wallet import Wallet
from x402sim.protocol.messages import BadMessage, decode
from x402sim.protocol.money import parse_base
from x402sim.suite import redact
from x402sim.suite.target import Target, at
from x402sim.suite.verdict import Inconclusive

LONGEST_READ, LONGEST_SAID = 2000, 160
"""Of an answer, how many characters are looked at for its summary, and how many stand in it."""


@dataclass(frozen=True, slots=True)
class TargetAnswer:
    """An answer of the target; `status` is 0 if the exchange broke, and `broken` says how.

    `show` renders the exchange for a report, without secrets; it runs after a failure only.
    """

    target: Target
    status: int
    headers: httpx.Headers
    text: str
    body: Any
    show: Callable[[], str]
    broken: str = ""
    networks: Collection[str] = ()
    """The names of the networks that can be paid on: of several requirements, one is chosen."""

    def at(self, pointer: str) -> Any:
        """Return the value at a JSON pointer of the body; None if there is none."""
        return at(self.body, pointer)

    @property
    def requirements(self) -> Any:
        """The payment requirements of a 402; of several, those to pay (see the target file)."""
        wanted = self.at(self.target.payment_required.requirements)
        return _choose(wanted, self.target, self.networks) if isinstance(wanted, list) else wanted

    @property
    def session_id(self) -> str | None:
        """The session id that the answer gives; None if there is none."""
        place = self.target.sessions.id
        if place.startswith("/"):
            found = self.at(place)
            return found if isinstance(found, str) and found else None
        if place:
            given = self.headers.get(place, "")
            is_url = given.startswith(("/", "http://", "https://"))
            return (given.rstrip("/").rpartition("/")[2] if is_url else given) or None
        return find_session_id(self.body) or find_session_id(list(self.headers.values()))

    @property
    def has_content(self) -> bool:
        """Whether the answer has the paid content."""
        return self.at(self.target.protected.content) is not None

    @property
    def is_late(self) -> bool:
        """Whether there was no answer in time."""
        return self.broken.endswith(("Timeout", "TooSlow"))

    @property
    def summary(self) -> str:
        """The answer in one line, without secrets."""
        if self.broken:
            return f"no answer ({self.broken})"
        text = redact.redacted(self.text[:LONGEST_READ])
        unread = max(0, len(self.text) - LONGEST_READ)
        return f"{self.status} {redact.cut(text, LONGEST_SAID, unread)}"


@dataclass(frozen=True, slots=True)
class Challenge:
    """A 402 that can be paid."""

    answer: TargetAnswer
    payment_id: str
    requirements: dict[str, Any]

    @property
    def amount_base(self) -> int:
        """The amount asked for, in base units."""
        return int(self.requirements["maxAmountRequired"])

    @property
    def to_send(self) -> dict[str, Any]:
        """The requirements as the payer sends them back: without the description (2.1)."""
        return {k: v for k, v in self.requirements.items() if k != "description"}


@dataclass(frozen=True, slots=True)
class Paid:
    """A payment that the target has settled."""

    challenge: Challenge
    header: str
    receipt: TargetAnswer
    payer: Wallet


@dataclass(frozen=True, slots=True)
class OpenSession:
    """A session that was opened with a settled deposit."""

    session_id: str
    paid: Paid
    answer: TargetAnswer


def read_402(answer: TargetAnswer) -> Challenge:
    """Read a 402; raises `Inconclusive` if it cannot be paid."""
    if answer.status != 402:
        raise Inconclusive(f"expected a 402 to pay, got {answer.summary}")
    places = answer.target.payment_required
    payment_id, wanted = answer.at(places.payment_id), answer.requirements
    if not isinstance(payment_id, str) or not isinstance(wanted, dict):
        raise Inconclusive(f"the 402 has no readable payment id and requirements: {answer.summary}")
    amount = wanted.get("maxAmountRequired")
    try:
        parse_base(amount if isinstance(amount, str) else "")
    except ValueError:
        shown = redact.cut(repr(amount) if isinstance(amount, str) else str(amount), 80)
        raise Inconclusive(f"maxAmountRequired of the 402 is no amount: {shown}") from None
    return Challenge(answer, payment_id, wanted)


def _choose(several: list[Any], target: Target, networks: Collection[str]) -> Any:
    """Return the requirements to pay: those for the target file's asset, or the first known."""
    asset = target.payment_required.asset.lower()
    for each in several:
        if isinstance(each, dict):
            named = str(each.get("asset")).lower() == asset
            if named if asset else each.get("network") in networks:
                return each
    return several[0] if several and not asset else None


def find_session_id(body: Any) -> str | None:
    """Return the first string session_… anywhere in an answer; None if there is none."""
    to_search = [body]
    while to_search:
        value = to_search.pop()
        if isinstance(value, str) and value.startswith("session_") and value != "session_":
            return value
        children = value.values() if isinstance(value, dict) else value
        if isinstance(value, dict | list):
            to_search += reversed(list(children))
    return None


def decoded(content: bytes) -> Any:
    """Return the JSON of an answer; None if it is not JSON."""
    try:
        return decode(content, Any)
    except BadMessage:
        return None
