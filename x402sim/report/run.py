"""What came of playing a story: its journal, and everything that is read from it."""

import hashlib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from x402sim.events import Begin, Check, End, Event, name_of
from x402sim.journal import Journal
from x402sim.report import need_extra

if TYPE_CHECKING:
    from pandas import DataFrame

Kind = TypeVar("Kind", bound=Event)
OUTCOMES = ("passed", "failed", "skipped")


@dataclass(frozen=True, kw_only=True)
class Run:
    """One run of one scenario. `on` is the stage; `real_s` is what it took in real time.

    The frames are documented in `x402sim.report.frames`.
    """

    journal: Journal
    on: str = ""
    real_s: float | None = None

    @cached_property
    def _begin(self) -> Begin:
        return self._one(Begin)

    @cached_property
    def _end(self) -> End:
        return self._one(End)

    def _one(self, kind: type[Kind]) -> Kind:
        found = [entry.event for entry in self.journal if isinstance(entry.event, kind)]
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
    def checked(self) -> list[Check]:
        """Every check as it was made: clause, ok, expected, actual, exchange."""
        return [entry.event for entry in self.journal if isinstance(entry.event, Check)]

    @cached_property
    def sha256(self) -> str:
        """The hash of the journal, in hex."""
        return hashlib.sha256(self.journal.ndjson()).hexdigest()

    @property
    def command(self) -> str:
        """The command that plays it again; of a world with options, the program."""
        if self._begin.options:
            return self._program(self._begin.options)
        chain = f" --chain {self._begin.chain}" if self._begin.chain else ""
        where = f"--on {self.on or 'in-process'}{chain} --seed {self.seed}"
        return f"python -m x402sim run {self.name} {where}"

    def _program(self, options: dict[str, str]) -> str:
        usual = {"on": "in-process", "chain": "ledger"}
        given = {"on": self.on or "in-process", "chain": self._begin.chain or "ledger"}
        places = {name: repr(value) for name, value in given.items() if value != usual[name]}
        told = ", ".join(f"{name}={value}" for name, value in {**places, **options}.items())
        return f"World(seed={self.seed}, {told}).play({self.name!r})"

    @property
    def steps(self) -> "DataFrame":
        """One row for each exchange of a payer."""
        return _frames().steps(self.journal)

    @property
    def checks(self) -> "DataFrame":
        """One row for each check."""
        return _frames().checks(self.journal)

    @property
    def transfers(self) -> "DataFrame":
        """One row for each movement of the token."""
        return _frames().transfers(self.journal)

    @property
    def payments(self) -> "DataFrame":
        """One row for each payment id that was issued or used."""
        return _frames().payments(self.journal)

    @property
    def sessions(self) -> "DataFrame":
        """One row for each change of each session's budget."""
        return _frames().sessions(self.journal)

    @property
    def latency(self) -> "DataFrame":
        """One row for each exchange on any hop."""
        return _frames().latency(self.journal)

    @property
    def balances(self) -> "DataFrame":
        """One row for each change of each party's balance."""
        return _frames().balances(self.journal)

    @property
    def backlog(self) -> "DataFrame":
        """One row for each run of the payment indexer."""
        return _frames().backlog(self.journal)

    @property
    def transactions(self) -> "DataFrame":
        """One row for each transaction that was mined, with the gas it used."""
        return _frames().transactions(self.journal)

    def save(self, folder: str | Path) -> Path:
        """Write journal, frames, plots and report.html into a folder; return the folder."""
        need_extra()
        from x402sim.report import save

        return save.save_run(self, Path(folder))

    @classmethod
    def load(cls, file: str | Path) -> "Run":
        """Return the run whose `journal.ndjson` this is; raises `ValueError`."""
        run = cls(journal=Journal.load(Path(file).read_bytes()))
        run._one(Begin), run._one(End)
        return run

    def _repr_html_(self) -> str:
        """Show it in a notebook."""
        need_extra()
        from x402sim.report import html

        return html.fragment(self)

    def __repr__(self) -> str:
        held = sum(check.ok for check in self.checked)
        return f"Run({self.name}: {self.outcome}, {held} of {len(self.checked)} checks held)"


def _frames() -> Any:
    need_extra()
    from x402sim.report import frames

    return frames
