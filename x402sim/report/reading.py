"""Reads a journal: who is who, when it began, and which transactions stand."""

from collections.abc import Callable, Iterable
from copy import copy
from functools import cache, cached_property
from typing import TypeVar

from x402sim import events
from x402sim.journal import EVERY, Entry, Journal
from x402sim.report.summary import Summary

Made = TypeVar("Made")
SERVICES = frozenset(events.service_name(number + 1) for number in range(events.MOST_SERVICES))
"""The services of any journal; a world may have others, with names of their own."""
MINT = "mint"
"""The name of the zero address: tokens come from there, and go there to be burnt."""
MERCHANT = "merchant"
"""The name of the merchant of a world with one service."""
LARGE = 20_000
"""Events; of a journal with more, what shows a part of it reads only that."""
LAST = 500
"""The payments on a page, unless it is asked for more or fewer."""
_NONE = 1 << 62
"""A number that no exchange has."""
DECIMALS = 6
"""Of the token, if the journal does not say."""


class Reading:
    """A journal, and what every report needs of it.

    A journal without a beginning (a server's own) starts with its first event.
    """

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        begin = next(journal.events(events.Begin), None)
        self.begin = begin
        self.start_ms = begin.start_ms if begin else next((each.at_ms for each in journal), 0)
        self.decimals = begin.decimals if begin else DECIMALS
        self.symbol = begin.symbol if begin else "token"
        self.services = SERVICES.union((begin and begin.services) or ())
        """The names of all services."""
        self.facilitators = ("facilitator", *((begin and begin.facilitators) or ()))

    def network(self, chain: str) -> str | None:
        """Return the network of a chain by the actor of its events; None if it is unknown."""
        first = self.begin.network if self.begin else None
        return chain.removeprefix("chain ") if chain != "chain" else first

    @property
    def length_s(self) -> float:
        """The seconds from the beginning to the last entry."""
        newest = self.journal.since(self.journal.length - 1)
        return self.since(newest[-1].at_ms) if newest else 0.0

    def since(self, at_ms: int) -> float:
        """Return the seconds from the beginning to a moment."""
        return (at_ms - self.start_ms) / 1000

    def seq_of(self, exchange: int) -> int:
        """Return the number of the event with which an exchange began, or a later one if there is
        no such exchange; it reads few events.

        Exchanges are numbered in the order of their requests.
        """
        low, high = 0, self.journal.length
        while high - low > EVERY:
            middle = (low + high) // 2
            _, number = self._first_from(middle, 0)
            low, high = (middle, high) if number < exchange else (low, middle)
        return self._first_from(low, exchange)[0]

    def _first_from(self, seq: int, exchange: int) -> tuple[int, int]:
        """Return the `seq` and the exchange of the first request from an event on whose exchange
        has this number, or a later one."""
        for entry in self.journal.of(events.RequestSent, since=seq):
            if isinstance(entry.event, events.RequestSent) and entry.event.exchange >= exchange:
                return entry.seq, entry.event.exchange
        return self.journal.length, _NONE

    def of_part(self, entries: Iterable[Entry]) -> "Reading":
        """Return the reading of some of the entries only, in which everybody has the same name."""
        begin = list(self.journal.of(events.Begin))
        part = copy(self)
        part.journal = Journal.made_of([*begin, *(each for each in entries if each not in begin)])
        part.__dict__["name"] = self.name  # it is made of all entries
        return part

    @cached_property
    def joined(self) -> frozenset[str]:
        """The services that are there, whose names no payer can have."""
        return frozenset(
            {"service", *(each.name for each in self.journal.events(events.ServiceJoined))}
        )

    @cached_property
    def merchants(self) -> frozenset[str]:
        """The names of all merchants: of several services their names, of one "merchant"."""
        named = [each.name for each in self.journal.events(events.ServiceJoined)]
        return frozenset(named or [MERCHANT])

    @cached_property
    def name(self) -> Callable[[str], str]:
        """Returns who has an address: a name, one of `merchants`, "mint"; or the address."""
        known = {f"0x{0:040x}": MINT}  # the first to have an address keeps it
        for service in self.journal.events(events.ServiceJoined):
            known[service.merchant.lower()] = service.name
        if self.begin and self.begin.merchant:
            known.setdefault(self.begin.merchant.lower(), MERCHANT)
        if self.begin and self.begin.token_owner:
            known[self.begin.token_owner.lower()] = "token owner"
        joined = events.name_of(events.PayerJoined)
        texts, batches = self.journal.columns(frozenset({(joined, "address"), (joined, "name")}))
        for payers in (batch[joined] for batch in batches if joined in batch):
            addresses, names = (
                map(texts.all.__getitem__, payers[field]) for field in ("address", "name")
            )
            for address, name in zip(addresses, names, strict=True):
                known.setdefault(str(address).lower(), str(name))

        @cache
        def name_of_address(address: str) -> str:
            return known.get(address.lower(), address)

        return name_of_address


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


reading_of = once(Reading)
"""Returns the reading of a journal."""


Source = Journal | Summary
"""What every plot takes: a journal, or a run."""


def journal_of(source: Source) -> Journal:
    """Return the journal of a run, or the journal itself."""
    return source if isinstance(source, Journal) else source.journal
