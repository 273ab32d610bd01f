"""Which plots has a run something to show in? Those, as PNG."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from matplotlib.axes import Axes

from x402sim.events import AuthorizationConsumed, Check, Event, IndexerRan, SessionOpened
from x402sim.journal import Journal
from x402sim.report import plots
from x402sim.report.figure import png
from x402sim.report.reading import Reading

if TYPE_CHECKING:
    from x402sim.report.run import Run


@dataclass(frozen=True, slots=True)
class Picture:
    """One plot: its file's name, what it shows, and when there is something to show."""

    name: str
    caption: str
    draw: "Callable[[Run], Axes]"
    is_worth_it: Callable[[Reading], bool]


def _has(kind: type[Event]) -> Callable[[Reading], bool]:
    """Tell of a run whether it takes any time, and has such an event."""
    return lambda reading: _takes_time(reading) and any(reading.of(kind))


def _has_indexed(reading: Reading) -> bool:
    return _takes_time(reading) and any(ran.asked for _, ran in reading.of(IndexerRan))


def _takes_time(reading: Reading) -> bool:
    return reading.entries[-1].at_ms > reading.entries[0].at_ms


def _first_failure(journal: Journal) -> int:
    """Return the exchange that the first failed check is about; the first one if none failed."""
    checks = (check for _, check in Reading(journal).of(Check))
    return next((check.exchange or 0 for check in checks if not check.ok), 1)


PICTURES = (
    Picture(
        "sequence",
        "Who said what to whom: solid arrows are requests, dashed ones answers (blue: 2xx, "
        "orange: 402 Payment Required, red: any other), arrows both ways whole exchanges; a cross "
        "is an answer that never came. #1 payment ids, s1 sessions, a1 signed authorizations.",
        lambda run: plots.sequence(run, exchange=_first_failure(run.journal)),
        lambda reading: bool(reading.exchanges),
    ),
    Picture(
        "balances",
        "What each party has gained or lost on the chain so far, without what was minted for it.",
        plots.balances,
        _has(AuthorizationConsumed),
    ),
    Picture(
        "session_burn_down",
        "What is left of each session's budget.",
        plots.session_burn_down,
        _has(SessionOpened),
    ),
    Picture(
        "latency",
        "How long each part took to answer. Dot: median; thick: the middle half; thin: all but "
        "the outer 5 % on either side; ticks: single answers.",
        plots.latency,
        lambda reading: any(
            each.ended and each.ended.at_ms > each.sent.at_ms for each in reading.exchanges
        ),
    ),
    Picture(
        "backlog",
        "Settled payments whose block number the indexer has not found yet.",
        plots.backlog,
        _has_indexed,
    ),
)
MATRIX = "Which checks held (tick) and which did not (cross), by scenario and clause."
NAMES = tuple(each.name for each in PICTURES)


def pictures(run: "Run", names: Sequence[str] = NAMES) -> dict[str, bytes]:
    """Return the plots of a run, of these names, that show something: PNG by name."""
    reading = Reading(run.journal)
    return {
        each.name: png(each.draw(run).figure)
        for each in PICTURES
        if each.name in names and each.is_worth_it(reading)
    }
