"""Which plots has a run something to show in? Those, as PNG."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from matplotlib.axes import Axes

from x402sim.journal import Journal
from x402sim.report import plots
from x402sim.report.figure import png
from x402sim.report.reading import SERVICE, Reading, is_

if TYPE_CHECKING:
    from x402sim.report.run import Run


@dataclass(frozen=True, slots=True)
class Picture:
    """One plot: its file's name, what it shows, and when there is something to show."""

    name: str
    caption: str
    draw: "Callable[[Run], Axes]"
    is_worth_it: Callable[[Reading], bool]


def _has(actor: str, event: str, fact: str = "") -> Callable[[Reading], bool]:
    """Tell of a run whether it takes any time, and such an event (with this fact) is in it."""
    return lambda reading: (
        reading.events[-1].at_ms > reading.events[0].at_ms
        and any(
            is_(each, actor, event) and (not fact or each.data[fact]) for each in reading.events
        )
    )


def _first_failure(journal: Journal) -> int:
    """Return the exchange that the first failed check is about; the first one if none failed."""
    failed = (event.data for event in journal if is_(event, "world", "check"))
    return next((int(check["exchange"]) for check in failed if not check["ok"]), 1)


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
        _has("chain", "authorization"),
    ),
    Picture(
        "session_burn_down",
        "What is left of each session's budget.",
        plots.session_burn_down,
        _has(SERVICE, "session opened"),
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
        _has(SERVICE, "indexer ran", "asked"),
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
