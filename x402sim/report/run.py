"""A `Run`: the result of playing a scenario, with the journal, frames and reports.

A `Run` is the front of this package: frames, plots and pages take a journal or a `Summary`, and do
not import this module.
"""

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, overload

from x402sim.events import Begin, Check, StoryRaised
from x402sim.journal import Journal
from x402sim.report import need_extra
from x402sim.report.reading import (
    LAST,
    Summary,
    checks_of,
    findings_of,
    held_of,
    raised_in,
    why_failed,
)

if TYPE_CHECKING:
    from pandas import DataFrame

    from x402sim.report.page import Shown

_MOST_SHOWN = 5  # failed checks in the text of a `RunFailed`


class RunFailed(Exception):
    """A run failed: a check did not hold, or the scenario raised. `run` is the run.

    The text has the failed checks, the scenario's traceback, and the command that plays it again;
    of a recording by `watch`, the findings.
    """

    def __init__(self, run: "Run") -> None:
        super().__init__(run)
        self.run = run

    def __str__(self) -> str:
        run = self.run
        if run.is_recording:
            found = list(dict.fromkeys(findings_of(run.journal)))
            more = [f"and {len(found) - _MOST_SHOWN} more"] if len(found) > _MOST_SHOWN else []
            return "\n  ".join([f"{run.title}: {run.reason}", *found[:_MOST_SHOWN], *more])
        lines = [f"{run.name!r} failed with seed {run.seed}: {why_failed(run)}"]
        failed = [check for check in checks_of(run.journal) if not check.ok]
        for check in failed[:_MOST_SHOWN]:
            lines.append(f"{check.clause}: expected {check.expected!r}, got {check.actual!r}")
        if len(failed) > _MOST_SHOWN:
            lines.append(f"and {len(failed) - _MOST_SHOWN} more failed checks")
        return "\n  ".join([*lines, *raised_in(run.journal), f"play it again: {run.command}"])


class Frame:
    """An attribute that is a frame of `x402sim.report.frames`; its `help` has the columns."""

    def __init__(self, title: str) -> None:
        self._title, self._name = title, ""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, run: None, owner: type) -> Self: ...
    @overload
    def __get__(self, run: "Run", owner: type) -> "DataFrame": ...
    def __get__(self, run: "Run | None", owner: type) -> "Self | DataFrame":
        if run is None:
            return self
        if run._broke_off and not run._is_partial:
            raise ValueError(
                f"{run.name!r} broke off: {why_failed(run)}. `run.partial` has frames up to there, "
                "and `run.raise_for_failure()` raises the whole failure"
            )
        return self._table()(run.journal)

    def _table(self) -> "Callable[[Journal], DataFrame]":
        need_extra()
        from x402sim.report import frames

        return frames.TABLES[self._name]

    def _columns(self) -> str:
        """Return the declaration of the columns; without the extra `report`, the title."""
        try:
            return str(self._table().__doc__)
        except ModuleNotFoundError:
            return self._title


Frame.__doc__ = property(Frame._columns)  # type: ignore[assignment]


@dataclass(frozen=True, kw_only=True)
class Run(Summary):
    """One run of a scenario: outcome, checks, and the journal as frames and reports.

    `on` is the stage, `real_s` the real seconds of the run, and `ahead_s` the seconds by which the
    run left the clock of a server at a URL ahead of real time. `help(Run.orders)` and so on
    document the frames' columns. A frame raises `ValueError` if the scenario raised an exception:
    `run.partial.orders` has what happened until then. A run can be pickled.
    """

    real_s: float | None = None
    ahead_s: float = 0.0
    _is_partial: bool = False

    orders = Frame("One row for each order: asked, charged, served, refunded, and at what cost.")
    steps = Frame("One row for each exchange of a payer.")
    checks = Frame("One row for each check.")
    transfers = Frame("One row for each movement of the token.")
    payments = Frame("One row for each payment id that was issued or used.")
    sessions = Frame("One row for each change of each session's budget.")
    latency = Frame("One row for each exchange between any two parts.")
    costs = Frame("One row for each transaction: gas, fee and waiting, by order and party.")
    queues = Frame("One row for each request to a part with a limited number of servers.")
    balances = Frame("One row for each change of each party's balance.")
    backlog = Frame("One row for each run of the payment indexer.")
    transactions = Frame("One row for each mined transaction, with gas used and price.")
    blocks = Frame("One row for each block with transactions, replaced blocks included.")
    forks = Frame("One row for each reorganisation, with depth and losses.")
    outages = Frame("One row for each period of a fault with `when`.")

    def raise_for_failure(self) -> Self:
        """Return the run; raise `RunFailed` if it failed. A skipped run has not failed.

        >>> from x402sim import World
        >>> World().play("replay").raise_for_failure().outcome
        'passed'
        """
        if self.outcome == "failed":
            raise RunFailed(self)
        return self

    @property
    def partial(self) -> "Run":
        """This run, with frames up to the moment at which the scenario raised."""
        return replace(self, _is_partial=True)

    @property
    def summary(self) -> "DataFrame":
        """The state of each law, one row a law: held, switched off, or broken.

        One more row counts payments that the chain undid after the goods were served; no law of the
        service forbids this.

        | column | dtype | meaning |
        | --- | --- | --- |
        | law | object | its name in checks, "invariant/…" |
        | state | object | held, broken, off (`invariants=False`), not checked (at a URL), seen |
        | cases | int64 | the payments and sessions with which it broke; the orders undone |
        | money | float64 | tokens at stake in these: served and not paid, or paid too often |
        | meaning | object | the law |
        """
        need_extra()
        import pandas as pd

        return pd.DataFrame(laws(self.journal, self._begin, is_ours="://" not in self.on))

    def save(self, folder: str | Path, *, bundle: bool = False) -> Path:
        """Write journal (and the versions that made it), frames, plots (PNG, SVG, PDF), page.html
        (the newest payments, as `show()`) and report.html into a folder; return the folder.

        With `bundle`, the folder also has what somebody else needs to repeat the run with
        `x402sim reproduce`: in `sources/` your program and your files that it imports, and in
        `bundle.json` versions, options, hashes, and what could not be carried.

        Raises `ModuleNotFoundError` without the extra `report`, `OSError`, and with `bundle`
        `ValueError` for a run that cannot be repeated.
        """
        need_extra()
        if bundle:
            from x402sim.report.bundle import awaited

            if (call := awaited()) is not None:  # `reproduce` runs this program: write nothing
                call.arrive(self)
                return Path(folder)
        from x402sim.report import save

        if bundle:
            return save.save_bundle(self, Path(folder), wrong=self._why_unrepeatable())
        return save.save_run(self, Path(folder))

    def _why_unrepeatable(self) -> str:
        """Return why this run cannot be repeated, with a remedy; empty if it can be."""
        if is_swept():
            return "it is a point of a sweep, which is repeated as a whole: give the sweep out="
        if self.real_s is None:
            return "it was read from a file: save the bundle in the program that plays it"
        if "://" in self.on:
            return f"it was played at {self.on}, whose state nobody else has: play it in-process"
        if self._begin.chain:
            return f"it was played on the chain {self._begin.chain}, in real time: take the ledger"
        if "file" in self._begin.options:
            return "its world continued a database: play it without file="
        return ""

    def show(self, last: int | None = LAST) -> "Shown":
        """Return the page of payments with a slider of time, for a notebook cell.

        `x402sim open` shows the same page, and `save` writes the page; `.page` is the HTML. The
        newest `last` payments are shown, and the number of the others; with None, all payments.
        """
        from x402sim.report.page import Shown, of_run  # slow: it loads the specification

        return Shown(of_run(self.journal, self.name, last))

    @classmethod
    def load(cls, file: str | Path) -> "Run":
        """Return the run of a journal, or of a folder in which `save` wrote its `journal.ndjson`.

        A journal of more than 64 MiB stays in the file, and each frame reads it anew. Raises
        `OSError`, and `ValueError` if the file is not the journal of one whole run.
        """
        path = Path(file)
        path = path / "journal.ndjson" if path.is_dir() else path
        run = cls(journal=Journal.read(path))
        _ = run.seed, run.outcome  # of the first and the last event, which must be there
        return run

    @cached_property
    def _broke_off(self) -> bool:
        """Whether the scenario raised: then the journal has only a part of the scenario."""
        return any(True for _ in self.journal.of(StoryRaised))

    def _repr_html_(self) -> str:
        need_extra()
        from x402sim.report import html

        return html.fragment(self)

    def __repr__(self) -> str:
        broke = f", broke off by {why_failed(self)}" if self._broke_off else ""
        return f"Run({self.name}: {self.outcome}, {held_of(self.journal)}{broke})"


@dataclass
class Watched:
    """The runs of a sweep's point, as collected: failed runs, and journals."""

    failed: list[Run] = field(default_factory=list)
    journals: list[str] = field(default_factory=list)
    """The hash of each journal, in the order in which the runs ended."""


_watched: ContextVar[Watched | None] = ContextVar("watched runs", default=None)


@contextmanager
def watched_runs() -> Iterator[Watched]:
    """Collect the runs that end in a `with` block."""
    found = Watched()
    token = _watched.set(found)
    try:
        yield found
    finally:
        _watched.reset(token)


def is_swept() -> bool:
    """Tell whether a sweep plays this run; a sweep shows its own progress."""
    return _watched.get() is not None


def finished(run: Run) -> Run:
    """Record an ended run for the sweep that plays the run; return the run."""
    watched = _watched.get()
    if watched is not None:
        if run.outcome == "failed":
            watched.failed.append(run)
        watched.journals.append(run.sha256)
    return run


# --- laws ------------------------------------------------------------------------------

LAWS = {
    "invariant/value-conserved": "the sum of all balances is what was minted",
    "invariant/released-within-deposit": "no session spends more than its deposit",
    "invariant/granted-only-if-transferred": "access is granted for money that moved",
    "invariant/one-transfer-per-payment": "a payment id is paid at most once",
    "invariant/one-order-per-authorization": "an authorization buys one order",
    "invariant/served-only-if-transferred": "a transfer stands when what it pays is served",
}
"""The invariants that a world checks after every event."""
UNDONE = "undone after serving"
_MOST_NAMED = 10


def laws(journal: Journal, begin: Begin, *, is_ours: bool) -> Iterator[dict[str, Any]]:
    """Yield the rows of `Run.summary`. `is_ours`: this process built the world."""
    from x402sim.report.orders import orders_of  # needs the extra `report`

    state = "off" if begin.options.get("invariants") == "False" else "held"
    broken: dict[str, dict[str, int]] = {}
    for check in journal.events(Check):
        if not check.ok and check.clause in LAWS:
            cases = broken.setdefault(check.clause, {})
            cases[check.about or ""] = int(check.at_stake_base or 0)  # the newest counts
    for law, meaning in LAWS.items():
        found = broken.get(law, {})
        is_broken = "broken" if found else state if is_ours else "not checked"
        yield _row(law, is_broken, found.values(), begin.decimals, meaning)
    lost = {each.number: each.lost_base for each in orders_of(journal) if each.lost_base}
    if lost:
        named = ", ".join(map(str, list(lost)[:_MOST_NAMED])) + ", …" * (len(lost) > _MOST_NAMED)
        meaning = f"no law: the chain undid a payment after it was served, of the orders {named}"
        yield _row(UNDONE, "seen", lost.values(), begin.decimals, meaning)


def _row(
    law: str, state: str, stakes: Collection[int], decimals: int, meaning: str
) -> dict[str, Any]:
    money = float(Decimal(sum(stakes)).scaleb(-decimals))
    return {"law": law, "state": state, "cases": len(stakes), "money": money, "meaning": meaning}
