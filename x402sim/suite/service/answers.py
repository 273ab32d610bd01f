"""The target's answers as data: an answer, a 402, a settled payment, an open session."""

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

import httpx

from x402sim.payer.core import settlement
from x402sim.payer.wallet import Wallet
from x402sim.protocol.money import parse_base
from x402sim.protocol.networks import Network
from x402sim.suite import redact
from x402sim.suite.service.target import Target, at
from x402sim.suite.verdict import Inconclusive, Show


def find(body: Any, fits: Callable[[str, Any], bool]) -> str:
    """Return the place of the first fitting value, outer values first; empty without one.

    `fits` is called with the name of a field, or an index of a list, and the value.
    """
    return next((place for place, value in walk(body) if fits(last_part(place), value)), "")


def last_part(place: str) -> str:
    """Return the last part of a place: the name of a field, or an index of a list."""
    return place.rpartition("/")[2]


def walk(body: Any) -> Iterator[tuple[str, Any]]:
    """Yield every value of a JSON document with its pointer, outer values first."""
    layer = [("", body)]
    while layer:
        yield from layer
        layer = [
            (f"{where}/{str(name).replace('~', '~0').replace('/', '~1')}", inner)
            for where, value in layer
            for name, inner in (
                value.items()
                if isinstance(value, dict)
                else enumerate(value)
                if isinstance(value, list)
                else ()
            )
        ]


def shown(body: Any, *names: str) -> dict[str, Any] | None:
    """Return the first object with these fields, names in snake_case; None without a match."""
    for _, value in walk(body):
        named = {snake(name): each for name, each in value.items()} if type(value) is dict else {}
        if named.keys() >= {*names}:
            return named
    return None


def snake(name: str) -> str:
    """Return a field's name in snake_case."""
    return "".join("_" + letter.lower() if letter.isupper() else letter for letter in name)


def begins(value: Any, prefix: str) -> bool:
    """Tell whether a value is a text with this prefix."""
    return isinstance(value, str) and value.startswith(prefix)


def is_requirements(value: Any) -> bool:
    """Tell whether a value is an object of section 2.1: with a payee and an amount."""
    return isinstance(value, dict) and {"payTo", "maxAmountRequired"} <= set(value)


def whole(value: Any) -> int | None:
    """Return a whole JSON number, however it is written (300.0); None for another value."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return int(value) if is_number and value == value // 1 else None


def filled(path: str, name: str, opaque: str) -> str:
    """Return a path of a target file with {name} replaced by an id; any id fits into a path."""
    return path.replace(f"{{{name}}}", quote(opaque, safe="-._~"))


LONGEST_READ, LONGEST_SAID = 2000, 160
"""Characters of an answer that its summary reads, and characters of the summary."""
CURE_OF_DEPOSITS = (
    '; if a larger deposit or another duration is wanted, set sessions.smallest = "1.00" or '
    "sessions.duration = 60 in the target file"
)
CURE_OF_IDS = (
    '; say in the target file where it is: sessions.id = "/data/session/id" or a header\'s name, '
    'and sessions.claim = "get" with sessions.claim_path = "/api/sessions/claim/{paymentId}" if '
    "it is asked for there"
)
_PREFIX, _URL = "session_", ("/", "http://", "https://")
_WORD = re.compile("session(_[a-z]{1,14})+")
_INDEX = re.compile(r"(/[0-9]+)+$")
"""The list indices at the end of a JSON pointer."""
_NAMES = ("sessionid", "session")
"""The fields that name a session, in lower case and without underscores and hyphens."""


@dataclass(frozen=True, slots=True)
class TargetAnswer:
    """An answer of the target; `status` is 0 if the exchange broke, and `broken` tells how.

    `show` makes the exchange for a report, without secrets; it runs after a failure only.
    """

    target: Target
    status: int
    headers: httpx.Headers
    text: str
    body: Any
    show: Show
    broken: str = ""
    networks: Mapping[str, Network] = field(default_factory=dict)
    """The networks that can be paid on, by name; they choose among several requirements."""
    cure: str = ""
    """The key of the target file that may help if the answer is useless."""

    def at(self, pointer: str) -> Any:
        """Return the value at a JSON pointer of the body, or None."""
        return at(self.body, pointer)

    @property
    def requirements(self) -> Any:
        """The payment requirements of a 402; of several, the ones to pay (see the target file)."""
        wanted = self.at(self.target.payment_required.requirements)
        return _choose(wanted, self.target, self.networks) if isinstance(wanted, list) else wanted

    @property
    def session_id(self) -> str | None:
        """The session id in the answer, or None."""
        place = self.target.sessions.id
        if place.startswith("/"):
            found = self.at(place)
            return found if isinstance(found, str) and found else None
        if place:
            given = self.headers.get(place, "")
            return (_last(given) if given.startswith(_URL) else given) or None
        return find_session_id(self.body) or find_session_id(dict(self.headers))

    @property
    def is_receipt(self) -> bool:
        """Whether the answer reports a payment as settled (4.1: success).

        A 2xx with a true flag; without a flag, a 2xx with a hash or a session id, which only a
        success has. Any other answer, with any status, is a refusal: section 7 shows no status.
        """
        places = self.target.receipt
        has_hash = isinstance(self.at(places.tx_hash), str)
        has_more = self.at(places.success) is True or has_hash or self.session_id is not None
        return self.may_be_receipt and has_more

    @property
    def may_be_receipt(self) -> bool:
        """Whether it is a 2xx without a false flag: no receipt of a deposit is specified."""
        return 200 <= self.status < 300 and self.at(self.target.receipt.success) is not False

    @property
    def has_content(self) -> bool:
        """Whether the answer has the paid content."""
        return self.at(self.target.protected.content) is not None

    @property
    def is_late(self) -> bool:
        """Whether no answer came in time."""
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
    """A payable 402."""

    answer: TargetAnswer
    payment_id: str
    requirements: dict[str, Any]

    @property
    def amount_base(self) -> int:
        """The amount of the 402, in base units."""
        return int(self.requirements["maxAmountRequired"])

    def settlement(self, header: str, changes: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return the body of a settlement; `changes` replace fields of the requirements, and None
        drops a field."""
        return settlement(self.payment_id, header, self.requirements, changes)


@dataclass(frozen=True, slots=True)
class Paid:
    """A payment settled by the target."""

    challenge: Challenge
    header: str
    receipt: TargetAnswer
    payer: Wallet


@dataclass(frozen=True, slots=True)
class OpenSession:
    """A session, opened with a settled deposit."""

    session_id: str
    paid: Paid
    answer: TargetAnswer


def read_402(answer: TargetAnswer) -> Challenge:
    """Read a 402; raises `Inconclusive` if it cannot be paid."""
    if answer.status != 402:
        raise Inconclusive(f"expected a 402 to pay, got {answer.summary}{answer.cure}")
    places = answer.target.payment_required
    payment_id, wanted = answer.at(places.payment_id), answer.requirements
    if not isinstance(payment_id, str) or not isinstance(wanted, dict):
        raise Inconclusive(_unreadable(answer))
    amount = wanted.get("maxAmountRequired")
    try:
        parse_base(amount if isinstance(amount, str) else "")
    except ValueError:
        shown = redact.cut(repr(amount) if isinstance(amount, str) else str(amount), 80)
        raise Inconclusive(f"maxAmountRequired of the 402 is no amount: {shown}") from None
    return Challenge(answer, payment_id, wanted)


def _unreadable(answer: TargetAnswer) -> str:
    """Return the error of a 402 that cannot be paid, with the key of the target file that helps."""
    problem = f"the 402 has no readable payment id and requirements: {answer.summary}"
    there = {
        "payment_id": find(answer.body, lambda _, value: begins(value, "pay_")),
        "requirements": find(answer.body, lambda _, value: is_requirements(value)),
    }
    places = answer.target.payment_required
    keys = [
        f'payment_required.{key} = "{place}"'
        for key, place in there.items()
        if place and place != getattr(places, key)
    ]
    return f"{problem}; set {', '.join(keys)} in the target file" if keys else problem


def _choose(several: list[Any], target: Target, networks: Collection[str]) -> Any:
    """Return the requirements to pay: for the target file's asset, or for a known network."""
    asset = target.payment_required.asset.lower()
    for each in several:
        if isinstance(each, dict):
            named = str(each.get("asset")).lower() == asset
            if named if asset else each.get("network") in networks:
                return each
    return several[0] if several and not asset else None


def find_session_id(body: Any) -> str | None:
    """Return the session's id from any place in an answer; None without an id.

    Fields that name a session, and lists in such fields, precede other texts, and outer fields
    precede inner fields; a word such as session_opened is no id.
    """
    others = []
    for place, value in walk(body):
        text = _last(value) if isinstance(value, str) and value.startswith(_URL) else value
        if begins(text, _PREFIX) and text != _PREFIX:
            if re.sub("^x-|[_-]", "", last_part(_INDEX.sub("", place)).lower()) in _NAMES:
                return str(text)
            others += [text] if not _WORD.fullmatch(text) else []
    return others[0] if others else None


def _last(url: str) -> str:
    return url.partition("?")[0].rstrip("/").rpartition("/")[2]
