"""Reads a journal: names of parties, start time, units. Of a run: scenario, outcome, checks, and
the command that repeats the run.
"""

import shlex
from collections.abc import Callable, Iterable
from copy import copy
from dataclasses import dataclass
from functools import cache, cached_property
from typing import TypeVar, get_args

from msgspec import UNSET

from x402sim import events
from x402sim.events import Begin, Check, End, Note, StoryOutcome, StoryRaised, name_of
from x402sim.journal import EVERY, Entry, EventType, Journal
from x402sim.text.program import shown
from x402sim.text.tracebacks import is_users

Made = TypeVar("Made")
SERVICES = frozenset(events.service_name(number + 1) for number in range(events.MOST_SERVICES))
"""Names of services in any journal; a world may have further names."""
MINT = "mint"
"""The name of the zero address, the source of minted and the target of burnt tokens."""
MERCHANT = "merchant"
"""The name of the merchant of a world with one service."""
LARGE = 20_000
"""Events. If a journal is longer, a plot or trace of a part reads only the part."""
LAST = 500
"""Payments on a page, by default."""
_NONE = 1 << 62  # above the number of any exchange
DECIMALS = 6
"""The token's decimals, if the journal does not state them."""


class Reading:
    """A journal, with the facts that every report needs: names of parties, start time, units.

    A server's own journal has no `begin`: the first event is the start.
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
        """Return the network of a chain, given the actor of its events; None if unknown."""
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
        """Return the `seq` of the request of an exchange, or of the next request if it has none.

        Exchanges are numbered in the order of the requests, so halving needs few reads.
        """
        low, high = 0, self.journal.length
        while high - low > EVERY:
            middle = (low + high) // 2
            _, number = self._first_from(middle, 0)
            low, high = (middle, high) if number < exchange else (low, middle)
        return self._first_from(low, exchange)[0]

    def _first_from(self, seq: int, exchange: int) -> tuple[int, int]:
        """Return `seq` and exchange of the first request, from the event `seq` on, whose exchange
        has at least this number."""
        for entry in self.journal.of(events.RequestSent, since=seq):
            if isinstance(entry.event, events.RequestSent) and entry.event.exchange >= exchange:
                return entry.seq, entry.event.exchange
        return self.journal.length, _NONE

    def of_part(self, entries: Iterable[Entry]) -> "Reading":
        """Return a reading of some entries, with the names of the whole journal."""
        begin = list(self.journal.of(events.Begin))
        part = copy(self)
        part.journal = Journal.made_of([*begin, *(each for each in entries if each not in begin)])
        part.__dict__["name"] = self.name  # a part lacks most `payer joined` events
        return part

    @cached_property
    def joined(self) -> frozenset[str]:
        """Names of the services in this journal; payers have other names."""
        return frozenset(
            {"service", *(each.name for each in self.journal.events(events.ServiceJoined))}
        )

    @cached_property
    def merchants(self) -> frozenset[str]:
        """Names of all merchants: the services' names if there are several, else "merchant"."""
        named = [each.name for each in self.journal.events(events.ServiceJoined)]
        return frozenset(named or [MERCHANT])

    @cached_property
    def name(self) -> Callable[[str], str]:
        """Maps an address to a name, one of `merchants`, or "mint"; else returns the address."""
        known = {f"0x{0:040x}": MINT}  # the first name of an address counts
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


def once_per_journal(make: Callable[[Journal], Made]) -> Callable[[Journal], Made]:
    """Cache a function of a journal in the journal; a journal that has grown is read anew."""

    def made(journal: Journal) -> Made:
        (length, found), now = journal.made, journal.length  # the journal may grow meanwhile
        if length != now:
            found = {}
            journal.made = now, found
        if make not in found:
            found[make] = make(journal)
        thing: Made = found[make]
        return thing

    return made


reading_of = once_per_journal(Reading)
"""Returns the reading of a journal."""


# --- a run ---------------------------------------------------------------------------------

OUTCOMES: tuple[str, ...] = get_args(StoryOutcome)
"""The outcomes of a run."""


def checks_of(journal: Journal) -> list[Check]:
    """Return every check in order: clause, ok, expected, actual, exchange."""
    return list(journal.events(Check))


def held_of(journal: Journal) -> str:
    """Return how many checks held: "3 of 4 checks held"; "no checks" without any."""
    checks = checks_of(journal)
    held = sum(check.ok for check in checks)
    return f"{held} of {len(checks)} checks held" if checks else "no checks"


def findings_of(journal: Journal) -> list[str]:
    """Return the errors in a recording: "value: 5000; wanted: 10000, as amount says. Sign…"."""
    found = (note.data for note in journal.events(Note) if note.name == "finding")
    return [
        f"{each['about']}: {each['seen']}; wanted: {each['wanted']}. {each['do']}"
        for each in found
        if each["stops"]
    ]


def end_of_recording(errors: int) -> End:
    """Return the end of a recording with this number of findings that are errors."""
    reason = f"{errors} error{'s' * (errors > 1)} found" if errors else ""
    return End(outcome="failed" if errors else "passed", reason=reason)


def raised_in(journal: Journal) -> list[str]:
    """Return the lines of the scenario's traceback; none if the scenario did not raise."""
    return [line for each in journal.events(StoryRaised) for line in each.trace]


@dataclass(frozen=True)
class Summary:
    """The facts of a run, read from the journal: without frames and plots.

    `on` is the stage of the run. The journal does not name the stage, as the same story has the
    same journal in one process and over TCP.
    """

    journal: Journal
    on: str = ""

    @cached_property
    def _begin(self) -> Begin:
        return self._one(Begin)

    @cached_property
    def _end(self) -> End:
        if self.is_recording and not any(True for _ in self.journal.of(End)):
            return end_of_recording(len(findings_of(self.journal)))  # `watch` was killed
        return self._one(End)

    def _one(self, kind: type[EventType]) -> EventType:
        found = list(self.journal.events(kind))
        if len(found) != 1:
            name = name_of(kind)
            raise ValueError(f"this journal has {len(found)} {name!r} events, a run has one")
        return found[0]

    @property
    def is_recording(self) -> bool:
        """Whether `watch` has recorded it: nothing was played, and nothing can be played again."""
        return self._begin.upstream is not UNSET

    @property
    def name(self) -> str:
        """The scenario's name."""
        return self._begin.scenario

    @property
    def title(self) -> str:
        """The scenario's title."""
        return self._begin.title

    @property
    def seed(self) -> int:
        """The seed of the run."""
        return self._begin.seed

    @property
    def outcome(self) -> str:
        """passed, failed or skipped."""
        return self._end.outcome

    @property
    def reason(self) -> str:
        """Why the run failed or was skipped; empty for a passed run."""
        return self._end.reason

    @property
    def place(self) -> str:
        """Where the scenario raised: "study.py:12"; empty without an exception."""
        frames = [line.strip().partition(" in ") for line in raised_in(self.journal)]
        ours = [place for place, is_frame, _ in frames if is_frame and is_users(place)]
        return ours[-1] if ours else ""

    @cached_property
    def sha256(self) -> str:
        """The hash of the journal, in hex."""
        return self.journal.sha256()

    @property
    def command(self) -> str:
        """The command that plays the run again; a Python expression if the world had options, or
        if the scenario has no file. Of a recording: the command that records again."""
        if self.is_recording:
            return f"{shown()} watch --upstream {shlex.quote(str(self._begin.upstream))}"
        options, maker = self._begin.options, self.journal.maker
        source = maker.source if maker else None
        source = self.name if source is None else source
        if not source:
            return self._expression(options, self.name)
        if options:
            return self._expression(options, repr(source))
        chain = f" --chain {self._begin.chain}" if self._begin.chain else ""
        where = f"--on {self.on or 'in-process'}{chain} --seed {self.seed}"
        return f"{shown()} run {shlex.quote(source)} {where}"

    def _expression(self, options: dict[str, str], story: str) -> str:
        defaults = {"on": "in-process", "chain": "ledger"}
        given = {"on": self.on or "in-process", "chain": self._begin.chain or "ledger"}
        places = {name: repr(value) for name, value in given.items() if value != defaults[name]}
        shown = {"seed": str(self.seed), **places, **options}
        return f"World({', '.join(f'{name}={text}' for name, text in shown.items())}).play({story})"


def why_failed(run: Summary) -> str:
    """Return why a run failed, and where: "KeyError: 'x', at study.py:12"."""
    return f"{run.reason}, at {run.place}" if run.place else run.reason


Source = Journal | Summary
"""A journal, or a run: the argument of every plot."""


def journal_of(source: Source) -> Journal:
    """Return the journal of a run, or the journal itself."""
    return source if isinstance(source, Journal) else source.journal
