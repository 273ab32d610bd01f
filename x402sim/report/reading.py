"""Reads a journal: who is who, when it began, and which answer belongs to which request."""

import ast
from collections.abc import Callable, Iterator
from functools import cache, cached_property
from itertools import compress
from typing import Any, TypeVar, assert_never

import msgspec

from x402sim.events import (
    MOST_SERVICES,
    AnswerReceived,
    Begin,
    Event,
    NoAnswer,
    PayerJoined,
    RequestSent,
    ServiceJoined,
    TransactionMined,
    TransactionUndone,
    service_name,
)
from x402sim.journal import Entry, Journal
from x402sim.report.summary import Summary

Kind = TypeVar("Kind", bound=Event)
Made = TypeVar("Made")
PAY = "/api/pay"
SERVICES = frozenset(service_name(number + 1) for number in range(MOST_SERVICES))
"""The services of any journal; a world may have others, with names of their own."""
MINT = "mint"
"""The name of the zero address: tokens come from there, and go there to be burnt."""
MERCHANT = "merchant"
"""The name of the merchant of a world with one service."""
DECIMALS = 6
"""Of the token, if the journal does not say."""

OUTCOMES = ("served", "paid", "payment required", "refused", "error", "lost", "open")
"""What an exchange came to, as its caller saw it:

- served, paid: a 2xx answer; paid if it was to POST /api/pay
- payment required: the 402 of section 2.2
- refused: any other 4xx, or a 2xx that says no, such as `{"isValid": false}`
- error: 5xx
- lost: the connection broke, or the caller's timeout passed
- open: neither answered nor lost when the journal ended
"""


class Exchange(msgspec.Struct, frozen=True, gc=False):
    """A request, and what ended it: an answer, a loss, or nothing yet."""

    sent: Entry
    request: RequestSent
    ended: Entry | None = None
    end: AnswerReceived | NoAnswer | None = None

    @property
    def outcome(self) -> str:
        """Which of `OUTCOMES` it came to."""
        match self.end:
            case None:
                return "open"
            case NoAnswer():
                return "lost"
            case AnswerReceived(status=status, error=error, ok=ok):
                if status >= 500:
                    return "error"
                if asks_for_payment(self.request.path, self.end):
                    return "payment required"
                if status >= 400 or error is not None or ok is False:
                    return "refused"
                return "paid" if self.request.path.endswith(PAY) else "served"
            case _:
                assert_never(self.end)


class Reading:
    """A journal, and what every report needs of it.

    A journal without a beginning (a server's own) starts with its first event.
    """

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        begin = next((event for _, event in self.of(Begin)), None)
        self.begin = begin
        self.start_ms = begin.start_ms if begin else next((each.at_ms for each in journal), 0)
        self.decimals = begin.decimals if begin else DECIMALS
        self.symbol = begin.symbol if begin else "token"
        self.services = SERVICES.union(_named(begin, "service"))
        """The names of all services."""
        self.facilitators = ("facilitator", *_named(begin, "facilitator"))

    def network(self, chain: str) -> str | None:
        """Return the network of a chain by the actor of its events; None if it is not told."""
        first = self.begin.network if self.begin else None
        return chain.removeprefix("chain ") if chain != "chain" else first

    def of(self, kind: type[Kind]) -> Iterator[tuple[Entry, Kind]]:
        """Yield the events of one kind, with their entries."""
        for entry in self.journal.of(kind):
            assert isinstance(entry.event, kind)
            yield entry, entry.event

    @cached_property
    def newest(self) -> Entry | None:
        """The last entry."""
        return next(iter(self.journal.since(self.journal.length - 1)), None)

    @property
    def length_s(self) -> float:
        """The seconds from the beginning to the last entry."""
        return self.since(self.newest.at_ms if self.newest else None) or 0.0

    def since(self, at_ms: int | None) -> float | None:
        """Return the seconds from the beginning to a moment."""
        return None if at_ms is None else (at_ms - self.start_ms) / 1000

    def when(self, at_ms: int) -> tuple[float | None, int]:
        """Return a moment twice: in seconds from the beginning, and in Unix milliseconds."""
        return (at_ms - self.start_ms) / 1000, at_ms

    @cached_property
    def _names(self) -> dict[str, str]:
        """Who has which address, in lower case; the first to have it keeps it."""
        known = {f"0x{0:040x}": MINT}
        for _, service in self.of(ServiceJoined):
            known[service.merchant.lower()] = service.name
        if self.begin and self.begin.merchant:
            known.setdefault(self.begin.merchant.lower(), MERCHANT)
        if self.begin and self.begin.token_owner:
            known[self.begin.token_owner.lower()] = "token owner"
        for _, payer in self.of(PayerJoined):
            known.setdefault(payer.address.lower(), payer.name)
        return known

    @cached_property
    def merchants(self) -> frozenset[str]:
        """The names of all merchants: of several services their names, of one "merchant"."""
        return frozenset(each.name for _, each in self.of(ServiceJoined)) or frozenset({MERCHANT})

    @cached_property
    def name(self) -> Callable[[str], str]:
        """Returns who has an address: a name, one of `merchants`, "mint"; or the address."""
        names = self._names

        @cache
        def name(address: str) -> str:
            return names.get(address.lower(), address)

        return name

    @cached_property
    def exchanges(self) -> list[Exchange]:
        """Every exchange, in the order of the requests."""
        ends: dict[int, tuple[Entry, AnswerReceived | NoAnswer]] = {}
        for entry in self.journal.of(AnswerReceived, NoAnswer):
            assert isinstance(entry.event, AnswerReceived | NoAnswer)
            ends[entry.event.exchange] = entry, entry.event
        return [
            Exchange(entry, request, *ends.get(request.exchange, ()))
            for entry, request in self.of(RequestSent)
        ]

    def standing(self, *fields: str) -> Iterator[Any]:
        """Yield fields of the transactions that stand in the chain at the end, as mined."""
        undone = dict(self.journal.rows(TransactionUndone, "tx_hash", "seq"))
        rows = self.journal.rows(TransactionMined, *fields)
        if not undone:
            return rows
        mined = self.journal.rows(TransactionMined, "tx_hash", "seq")
        return compress(rows, (seq > undone.get(tx_hash, -1) for tx_hash, seq in mined))


def once(make: Callable[[Journal], Made]) -> Callable[[Journal], Made]:
    """Return a function that makes something of a journal, and anew only if that has grown."""

    def made(journal: Journal) -> Made:
        (length, found), now = journal.made, journal.length  # it may grow while it is read
        if length != now:
            found = {}
            journal.made = now, found
        if make not in found:
            found[make] = make(journal)
        thing: Made = found[make]
        return thing

    return made


def _named(begin: Begin | None, option: str) -> list[str]:
    """Return the names that a world's option gives, such as "service"; [] without it."""
    code = begin.options.get(option) if begin else None
    if code is None:
        return []
    given = ast.parse(code, mode="eval").body
    keys = given.keys if isinstance(given, ast.Dict) else []
    return [str(key.value) for key in keys if isinstance(key, ast.Constant)]


Source = Journal | Summary
"""What every plot takes: a journal, or a run."""


def journal_of(source: Source) -> Journal:
    """Return the journal of a run, or the journal itself."""
    return source if isinstance(source, Journal) else source.journal


def asks_for_payment(path: str, answer: AnswerReceived) -> bool:
    """Tell whether an answer is the 402 of section 2.2, which names a payment to make."""
    return answer.status == 402 and answer.payment_id is not None and not path.endswith(PAY)
