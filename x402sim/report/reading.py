"""Who is who in a journal, when it began, and which answer belongs to which request?"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

from x402sim.journal import Event, Journal

PAY = "/api/pay"
SERVICE = "service"
MINT = "mint"
"""The name of the zero address: tokens come from there, and go there to be burnt."""
DECIMALS = 6
"""Of the token, if the journal does not say."""

OUTCOMES = ("served", "paid", "payment required", "refused", "error", "lost", "open")
"""What an exchange came to, as its caller saw it:

- served, paid: a 2xx answer; paid if it was to POST /api/pay
- payment required: the 402 of section 2.2
- refused: any other 4xx, or a 2xx that says no, such as `{"isValid": false}`
- error: 5xx
- lost: the connection broke, or the caller's time was up
- open: neither answered nor lost when the journal ended
"""


@dataclass(frozen=True, slots=True)
class Exchange:
    """A request, and what ended it: an answer, the news that none comes, or nothing yet."""

    sent: Event
    ended: Event | None

    @property
    def number(self) -> int:
        """The number of the exchange, unique in its journal."""
        return int(self.sent.data["exchange"])

    @property
    def caller(self) -> str:
        """Who asked: a payer's name, or "service"."""
        return self.sent.actor

    @property
    def to(self) -> str:
        """Who was asked: service, facilitator, explorer or rpc."""
        return str(self.sent.data["to"])

    @property
    def path(self) -> str:
        """The path; of JSON-RPC, the method that was called."""
        return str(self.sent.data["path"])

    @property
    def status(self) -> int | None:
        """The HTTP status of the answer."""
        return self.told.get("status")

    @property
    def told(self) -> dict[str, Any]:
        """What the end of the exchange says; empty if it has none."""
        return self.ended.data if self.ended else {}

    @property
    def error(self) -> str | None:
        """The error that was answered, or why there was no answer."""
        return words(self.told.get("error", self.told.get("reason")))

    def fact(self, name: str) -> str | None:
        """Return what the request says under this name, or else its answer."""
        return words(self.sent.data.get(name)) or words(self.told.get(name))

    @property
    def is_answered(self) -> bool:
        """Whether an answer came."""
        return self.ended is not None and self.ended.event == "answer"

    @property
    def outcome(self) -> str:
        """Which of `OUTCOMES` it came to."""
        status = self.status
        if self.ended is None:
            return "open"
        if not self.is_answered or status is None:
            return "lost"
        if status >= 500:
            return "error"
        if status == 402 and self.error == "Payment Required":
            return "payment required"
        if status >= 400 or self.error is not None or self.told.get("ok") is False:
            return "refused"
        return "paid" if self.path.endswith(PAY) else "served"


class Reading:
    """A journal, read once for what every report needs of it.

    A journal without a beginning (a server's own) starts with its first event.
    """

    def __init__(self, journal: Journal) -> None:
        self.events = list(journal)
        self.begin = next((e.data for e in self.events if is_(e, "world", "begin")), {})
        first_ms = self.events[0].at_ms if self.events else 0
        self.start_ms = int(self.begin.get("start_ms", first_ms))
        self.decimals = int(self.begin.get("decimals", DECIMALS))
        self.symbol = str(self.begin.get("symbol", "token"))

    def since(self, at_ms: int | None) -> float | None:
        """Return the seconds from the beginning to a moment."""
        return None if at_ms is None else (at_ms - self.start_ms) / 1000

    def when(self, event: Event) -> tuple[float | None, int]:
        """Return the moment of an event twice: in seconds from the beginning, and in Unix ms."""
        return self.since(event.at_ms), event.at_ms

    @cached_property
    def _names(self) -> dict[str, str]:
        """Who has which address, in lower case; the first to have it keeps it."""
        known = {f"0x{0:040x}": MINT}
        for role in ("merchant", "token_owner"):
            if self.begin.get(role):
                known[self.begin[role].lower()] = role.replace("_", " ")
        for event in self.events:
            if is_(event, "world", "joined"):
                known.setdefault(event.data["address"].lower(), event.data["name"])
        return known

    def name(self, address: str) -> str:
        """Return who has this address: a payer's name, "merchant", "mint"; or the address."""
        return self._names.get(address.lower(), address)

    @cached_property
    def exchanges(self) -> list[Exchange]:
        """Every exchange, in the order of the requests."""
        ends = {
            event.data["exchange"]: event
            for event in self.events
            if event.event in ("answer", "no answer") and crosses_a_wire(event)
        }
        return [
            Exchange(event, ends.get(event.data["exchange"]))
            for event in self.events
            if event.event == "request" and crosses_a_wire(event)
        ]

    def movements(self) -> Iterator[tuple[Event, Event, int]]:
        """Yield what moves tokens: the event, the transfer it is or undoes, and 1 or -1."""
        standing: dict[str, list[Event]] = {}
        for event in self.events:
            if is_(event, "chain", "transfer"):
                standing.setdefault(event.data["tx"], []).append(event)
                yield event, event, 1
            elif is_(event, "chain", "undone"):
                for transfer in standing.pop(event.data["tx"], ()):
                    yield event, transfer, -1


class HasJournal(Protocol):
    """What has a journal, such as a run."""

    @property
    def journal(self) -> Journal:
        """The journal."""
        ...


Source = Journal | HasJournal
"""What every plot takes: a journal, or what has one."""


def journal_of(source: Source) -> Journal:
    """Return the journal of a run, or the journal itself."""
    return source if isinstance(source, Journal) else source.journal


def is_(event: Event, actor: str, name: str) -> bool:
    """Tell whether an event is this actor's event of this name."""
    return event.event == name and event.actor == actor


def crosses_a_wire(event: Event) -> bool:
    """Tell whether an event is a side of an exchange, and no note of a story's own."""
    return event.actor != "world" and "exchange" in event.data


def words(value: object) -> str | None:
    """Return a text as it is; what came over the wire in its place (a number…) is none."""
    return value if isinstance(value, str) else None
