"""The facts of a run: its scenario, outcome and checks, and the command that repeats it."""

import shlex
from dataclasses import dataclass
from functools import cached_property
from typing import get_args

from msgspec import UNSET

from x402sim.events import Begin, Check, End, Outcome, StoryRaised, name_of
from x402sim.journal import EventType, Journal
from x402sim.text.program import SHOWN
from x402sim.text.tracebacks import is_users

OUTCOMES: tuple[str, ...] = get_args(Outcome)
"""What a run can come to."""


def checks_of(journal: Journal) -> list[Check]:
    """Return every check in order: clause, ok, expected, actual, exchange."""
    return list(journal.events(Check))


def held_of(journal: Journal) -> str:
    """Return how many checks held: "3 of 4 checks held"; "no checks" if there are none."""
    checks = checks_of(journal)
    held = sum(check.ok for check in checks)
    return f"{held} of {len(checks)} checks held" if checks else "no checks"


def raised_in(journal: Journal) -> list[str]:
    """Return the trace of the scenario, if it raised, line by line."""
    return [line for each in journal.events(StoryRaised) for line in each.trace]


@dataclass(frozen=True)
class Summary:
    """The facts of one run, read from its journal, without frames and plots.

    `on` is the stage it was played on, which the journal does not name: the same story in
    one process and over TCP has the same journal.
    """

    journal: Journal
    on: str = ""

    @cached_property
    def _begin(self) -> Begin:
        return self._one(Begin)

    @cached_property
    def _end(self) -> End:
        if self._begin.upstream is not UNSET and not any(True for _ in self.journal.of(End)):
            return End(outcome="passed", reason="")  # a recording whose `watch` was killed
        return self._one(End)

    def _one(self, kind: type[EventType]) -> EventType:
        found = list(self.journal.events(kind))
        if len(found) != 1:
            name = name_of(kind)
            raise ValueError(f"this journal has {len(found)} {name!r} events, a run has one")
        return found[0]

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
        """The seed it was played with."""
        return self._begin.seed

    @property
    def outcome(self) -> str:
        """passed, failed or skipped."""
        return self._end.outcome

    @property
    def reason(self) -> str:
        """Why it failed or was skipped; empty if it passed."""
        return self._end.reason

    @property
    def place(self) -> str:
        """The file and line of the scenario that raised, "study.py:12"; empty if none did."""
        frames = [line.strip().partition(" in ") for line in raised_in(self.journal)]
        ours = [place for place, is_frame, _ in frames if is_frame and is_users(place)]
        return ours[-1] if ours else ""

    @cached_property
    def sha256(self) -> str:
        """The hash of the journal, in hex."""
        return self.journal.sha256()

    @property
    def command(self) -> str:
        """The command that plays it again, or the Python expression.

        An expression is needed if the world had options, or the scenario has no file.
        """
        options, source = self._begin.options, self._begin.source
        source = self.name if source is None else source
        if not source:
            return self._expression(options, self.name)
        if options:
            return self._expression(options, repr(source))
        chain = f" --chain {self._begin.chain}" if self._begin.chain else ""
        where = f"--on {self.on or 'in-process'}{chain} --seed {self.seed}"
        return f"{SHOWN} run {shlex.quote(source)} {where}"

    def _expression(self, options: dict[str, str], story: str) -> str:
        defaults = {"on": "in-process", "chain": "ledger"}
        given = {"on": self.on or "in-process", "chain": self._begin.chain or "ledger"}
        places = {name: repr(value) for name, value in given.items() if value != defaults[name]}
        shown = {"seed": str(self.seed), **places, **options}
        return f"World({', '.join(f'{name}={text}' for name, text in shown.items())}).play({story})"


def why_failed(run: Summary) -> str:
    """Return why a run failed, and where: "KeyError: 'x', at study.py:12"."""
    return f"{run.reason}, at {run.place}" if run.place else run.reason
