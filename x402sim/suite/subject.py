"""A subject: what is judged, how it is started, spoken to and stopped. One engine judges them all.

The way of a judgement, in this order: a subject's options, read of flags; its preflight and plan,
where it begins; the engine, which runs its cases; the verdict, and its reports.
"""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from x402sim.report.results import Result

Tell = Callable[[str], None]
"""Tells the user what a run waits for."""
Begin = Callable[[str], None]
"""Is called with each id before its first case runs."""


class Chosen(Protocol):
    """What a user has chosen: the options of a subject. Their flags are fields (`options.flag`)."""

    @property
    def shown(self) -> str:
        """What reports call the subject: a URL, or a command; it shows no secret."""

    @property
    def rerun(self) -> str:
        """The command that repeats the run, without --only."""


AnyChosen = TypeVar("AnyChosen", bound=Chosen)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a run will do: the ids that can be judged, what is printed before, how long it takes."""

    ids: tuple[str, ...]
    lines: tuple[str, ...] = ()
    seconds: float = 0.0


class Judging(Protocol):
    """A run that has begun: the subject is there, and worth judging."""

    @property
    def plan(self) -> Plan:
        """The plan."""

    def run(self, on_begin: Begin) -> AsyncIterator[Result]:
        """Run the cases; yield the result of each id as soon as it is certain."""

    def done(self) -> str:
        """Return what was done, such as "2178 requests"."""

    def left_open(self, results: Sequence[Result]) -> tuple[list[str], list[str]]:
        """Return what to tell besides the results, and what --require demanded in vain."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject(Generic[AnyChosen]):
    """A kind of subject: a row of the table of `suite.subjects`.

    `begin` starts the subject or connects to it, and plans; it raises `NotReady` in one line that
    says what was seen, what is wanted, and what to do. Leaving it stops all that it has started.
    """

    name: str
    words: str
    """What stands behind the name on the command line, such as "-- COMMAND…"."""
    words_help: str
    help: str = ""
    """What `conformance NAME --help` says; that of the usual subject is in `commands.help`."""
    options: type[AnyChosen]
    read: Callable[[Sequence[str], Mapping[str, Any]], AnyChosen]
    """Returns the options, of the words behind the name and the flags by their names. Raises
    `ValueError`."""
    cases: Callable[[], Sequence[Any]]
    documents: tuple[str, ...]
    """What its ids begin with; the first may be left out."""
    sections: Mapping[str, str]
    """The title of each section."""
    begin: Callable[[AnyChosen, Sequence[Any], Tell], AbstractAsyncContextManager[Judging]]
    texts: Callable[[str], str] = field(default=lambda check_id: "")
    """Returns the text of the clause behind an id; empty without one."""
    needs: Mapping[Any, str] = field(default_factory=dict)
    """What `--list` calls the needs of cases."""
    costs: Callable[[Sequence[Any]], str] = field(default=lambda cases: "")
    """Returns what `--list` says that the cases of an id cost, such as "pays 2"."""
    uncounted: str = ""
    """The reason of what does not apply and is only counted, unless the run is verbose."""
