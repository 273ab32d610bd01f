"""The plots of a run, ready for a paper, a notebook or a report.

A plot is a function of a run or a journal (`outcomes`: of several; `bands`: of a sweep's summary)
and, optionally, matplotlib axes to draw on. It returns the axes. Without axes it makes a new
figure, `axes.figure`: save it with `savefig`, or end a notebook cell with the plot to show it.
Times are virtual seconds since the run began, or minutes, hours or days for long runs.

To add a plot, write its function in the fitting file (`money`, `timing`, `diagram`, `matrix`,
`bands`; `figure` has the style), import it here as itself to export it, and add a row to `PLOTS`:
then reports, `Run.save` and the tests of every plot include it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

try:
    from matplotlib.axes import Axes
except ModuleNotFoundError:
    from x402sim.report import need_extra

    need_extra(purpose="plots")
    raise

from x402sim.events import RequestArrived, RequestSent
from x402sim.journal import Journal, Maker
from x402sim.report import frames
from x402sim.report.money import sessions, transfers
from x402sim.report.plots.bands import bands as bands
from x402sim.report.plots.diagram import sequence as sequence
from x402sim.report.plots.figure import legend as legend, png as png, style as style
from x402sim.report.plots.matrix import clauses_of as clauses_of, outcomes as outcomes
from x402sim.report.plots.money import balances as balances, session_burn_down as session_burn_down
from x402sim.report.plots.timing import backlog as backlog, latency as latency, queue as queue
from x402sim.report.reading import Source, Summary, checks_of, journal_of, reading_of
from x402sim.version import citation


@dataclass(frozen=True, slots=True)
class Plot:
    """A plot of a run: name (and file name), caption, and the drawing function.

    `has_content` tells whether a journal has content for the plot.
    """

    name: str
    caption: str
    draw: Callable[[Journal], Axes]
    has_content: Callable[[Journal], bool]


def _takes_time(journal: Journal) -> bool:
    return reading_of(journal).length_s > 0


def _has_waited(journal: Journal) -> bool:
    exchanges = frames.latency(journal)
    return bool((exchanges["ended_s"] > exchanges["sent_s"]).any())


def _first_failure(journal: Journal) -> int:
    """Return the exchange of the first failed check; the first exchange without a failure."""
    failed = [check.exchange for check in checks_of(journal) if not check.ok]
    return (failed and failed[0]) or 1


PLOTS = (
    Plot(
        "sequence",
        "Requests and answers in order. Solid arrows are requests, dashed arrows answers, in the "
        "legend's colours, two-headed arrows whole exchanges; a cross is an answer that never "
        "arrived. #1 is a payment id, s1 a session, a1 a signed authorization.",
        lambda journal: sequence(journal, exchange=_first_failure(journal)),
        lambda journal: any(True for _ in journal.of(RequestSent)),
    ),
    Plot(
        "balances",
        "Net gain or loss of each party on the chain, without the tokens minted for it.",
        balances,
        lambda journal: _takes_time(journal) and bool((transfers(journal)["kind"] != "mint").any()),
    ),
    Plot(
        "session_burn_down",
        "Remaining budget of each session, drawn narrower from session to session, so that all "
        "can be seen; of more than five, the median and bands of quantiles.",
        session_burn_down,
        lambda journal: _takes_time(journal) and not sessions(journal).empty,
    ),
    Plot(
        "latency",
        "Latency by part and request, in the colours of the parts. Ring: median; thick line: "
        "middle half; thin line: 5th to 95th percentile; ticks: single answers.",
        latency,
        _has_waited,
    ),
    Plot(
        "queue",
        "Requests waiting or being served at each part with a limited number of servers.",
        queue,
        lambda journal: any(True for _ in journal.of(RequestArrived)),
    ),
    Plot(
        "backlog",
        "Settled payments whose block number the indexer has not found yet.",
        backlog,
        lambda journal: _takes_time(journal) and bool(frames.backlog(journal)["asked"].any()),
    ),
)
_UNKNOWN = "x402sim of an unknown version"
_MOST_RUNS = 3  # the most runs that a caption lists
OUTCOMES_CAPTION = "Checks that held (tick) and checks that failed (cross), by scenario and clause."


def figures(journal: Journal, names: Sequence[str] | None = None) -> dict[str, Any]:
    """Return the figures of the plots with content, by name; with `names`, only the named plots."""
    return {
        each.name: each.draw(journal).figure
        for each in PLOTS
        if (names is None or each.name in names) and each.has_content(journal)
    }


def draw_all(journal: Journal, names: Sequence[str] | None = None) -> dict[str, bytes]:
    """Return the plots with content, as PNG by name; with `names`, only the named plots."""
    return {name: png(drawn) for name, drawn in figures(journal, names).items()}


class Caption(str):
    """Text that a notebook displays as Markdown."""

    __slots__ = ()

    def _repr_markdown_(self) -> str:
        return str(self)


def caption(source: Any = None, *, text: str = "", number: int | None = None) -> Caption:
    """Return a sentence on a figure's source: a run, a list of runs, or the table of a sweep.

    "replay, seed 1: 19 requests, 2 payers, 1 s of virtual time (journal 2f1c0a7e55d1); x402sim
    1.0.0, Python 3.11.7". Of a sweep: "25 seeds (0 to 24), 200 rows, 0 failed; x402sim 1.0.0, …".
    The versions are from the time of playing, not from now. The end says how to cite
    x402sim: "Cite as: The x402sim authors (2026): x402sim, version 1.0.0 [software]". More than
    three runs are summed up: scenarios, seeds and requests.

    With `text` or `number`, return the caption of a figure, which a notebook displays: "**Figure
    3.** The text. *25 seeds (0 to 24), …*". Versions are left out, as a paper states versions once;
    without a `source`, it has number and text only. End a cell with it, after
    `display(plots.sequence(run))`.

    Raises `ValueError` for a table that `sweep` did not return, and without source and text.
    """
    if source is None and not text:
        raise ValueError("caption needs a source, or a text")
    facts, makers = ("", []) if source is None else _facts(source)
    if not text and number is None:
        made_by = " and ".join(dict.fromkeys(str(each or _UNKNOWN) for each in makers))
        cited = "; ".join(
            dict.fromkeys(citation(each.x402sim if each else None) for each in makers)
        )
        return Caption(f"{facts}; {made_by}. Cite as: {cited}")
    head = "" if number is None else f"**Figure {number}.**"
    return Caption(" ".join(filter(None, (head, text, f"*{facts}.*" if facts else ""))))


def _facts(source: Any) -> tuple[str, list[Maker | None]]:
    if hasattr(source, "columns"):
        if "seed" not in source.columns:
            raise ValueError("caption needs the table that sweep returned, with a column 'seed'")
        failed = source["error"].notna().sum() if "error" in source else 0
        seeds = source["seed"]
        text = f"{_seeds(list(seeds))}, {_count(len(source), 'row')}, {failed} failed"
        made_by = source.attrs.get("made by")
        return text, [Maker(**made_by) if made_by else None]
    several = list(source) if isinstance(source, Sequence) else [source]
    makers = [journal_of(each).maker for each in several]
    if len(several) <= _MOST_RUNS:
        return "; ".join(map(_of_run, several)), makers
    runs = [Summary(journal_of(each)) for each in several]
    names = list(dict.fromkeys(run.name for run in runs))
    shown = ", ".join([*names[:_MOST_RUNS], *(["…"] if len(names) > _MOST_RUNS else [])])
    requests = sum(len(frames.steps(run.journal)) for run in runs)
    seeds = _seeds([run.seed for run in runs])
    return f"{len(runs)} runs of {shown}, {seeds}: {_count(requests, 'request')}", makers


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _seeds(seeds: Sequence[int | None]) -> str:
    known = {each for each in seeds if each is not None}
    if len(known) == 1:
        return f"seed {min(known)}"
    return f"{len(known)} seeds ({min(known)} to {max(known)})" if known else "no seed"


def _of_run(source: Source) -> str:
    run = Summary(journal_of(source))
    steps, length_s = frames.steps(run.journal), reading_of(run.journal).length_s
    return (
        f"{run.name}, seed {run.seed}: {_count(len(steps), 'request')}, "
        f"{_count(steps['payer'].nunique(), 'payer')}, "
        f"{length_s:g} s of virtual time (journal {run.sha256[:12]})"
    )


__all__ = [
    name
    for name, it in sorted(globals().items())
    if name[0] != "_" and callable(it) and str(it.__module__).startswith(__name__)
]


def __dir__() -> list[str]:
    return __all__
