"""The newest payments of a run, each with all that happened to it, for a page that shows no others.

A payment is a payment id that a 402 has named. What else happened to it is found by what events
share: its exchanges, authorizations, transactions and sessions.
"""

from collections.abc import Iterable
from typing import NamedTuple

from x402sim.events import (
    AnswerReceived,
    AuthorizationConsumed,
    BaseEvent,
    Begin,
    ExchangeEvent,
    RequestSent,
    ServiceJoined,
    SessionRefunded,
)
from x402sim.journal import Entry, Journal
from x402sim.report.reading import reading_of

LAST = 500
"""The payments on a page, unless it is asked for more or fewer."""
_OLDER = ""
"""Stands for the payments that are left out."""
_NAMES = ("exchange", "authorization", "tx_hash", "session_id")
"""The fields that tell which payment an event is about, if it has no payment id."""
_LINKS = (RequestSent, AuthorizationConsumed, SessionRefunded)
"""Events that may have two such names of one payment, and not its id."""


class Newest(NamedTuple):
    """What happened to the newest payments, and to none since then; and how many are older."""

    entries: Iterable[Entry]
    older: int


def newest(journal: Journal, last: int) -> Newest:
    """Return the newest `last` payments of a journal; of a file, little else is decoded.

    A journal without payment ids is returned whole. Raises `ValueError` if `last` is not above 0.
    """
    if last < 1:
        raise ValueError(f"last: expected a number of payments above 0, or None, got {last!r}")
    began: dict[str, int] = {}
    for entry in journal.of(AnswerReceived, holding=b'"status":402'):
        match entry.event:
            case AnswerReceived(status=402, payment_id=str(payment_id), exchange=exchange):
                began.setdefault(payment_id, exchange)
            case _:
                pass
    older = len(began) - last
    if older <= 0:
        return Newest(journal, 0)
    kept = dict(list(began.items())[older:])
    since = reading_of(journal).seq_of(min(kept.values()))
    entries = list(journal.between(since, journal.length))
    about = Payments(entries)
    begin = [entry for entry in journal.of(Begin, ServiceJoined) if entry.seq < since]
    wanted = {None, *kept}
    shown = [entry for entry in entries if about.payment_of(entry.event) in wanted]
    return Newest(begin + shown, older)


class Payments:
    """Tells the payment of each event, as far as these entries say it."""

    def __init__(self, entries: Iterable[Entry]) -> None:
        self._of: dict[str | int, str | None] = {}
        """The payment id by each other name of a payment; what is said first of one holds."""
        self._first: dict[str, str] = {}
        """The id in the 402 by the other id that a payment in one step gets."""
        links = list[list[str | int]]()
        for event in (entry.event for entry in entries):
            names = _names(event)
            if payment_id := getattr(event, "payment_id", None):
                self._note(names, payment_id)
                if isinstance(event, AnswerReceived) and event.status != 402:
                    self._first.setdefault(payment_id, self._of[event.exchange] or payment_id)
            elif isinstance(event, _LINKS):
                links.append(names)
        for _ in range(2):  # from an exchange to its authorization, from there to the transaction
            for names in links:
                if found := [self._of[name] for name in names if name in self._of]:
                    self._note(names, found[0])
        for names in links:
            self._note(names, _OLDER if len(names) > 1 else None)

    def _note(self, names: Iterable[str | int], payment_id: str | None) -> None:
        for name in names:
            self._of.setdefault(name, payment_id)

    def payment_of(self, event: BaseEvent) -> str | None:
        """Return the id of the payment that an event is about; None if it is about none."""
        found = getattr(event, "payment_id", None)
        if not found:
            is_part = isinstance(event, ExchangeEvent) or getattr(event, "session_id", None)
            known = (self._of[name] for name in _names(event) if name in self._of)
            found = next(known, _OLDER if is_part else None)
        return self._first.get(found, found) if found else found


def _names(event: BaseEvent) -> list[str | int]:
    names = (getattr(event, name, None) for name in _NAMES)
    return [name for name in names if name not in (None, "", "unreadable")]
