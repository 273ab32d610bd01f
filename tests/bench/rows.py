"""The rows of the benchmark: what each compares, and the three numbers it is held against.

The floor and the aim are where a row shall be; nearly all are above their floor. `guarded` is what
the quick form measured on `GUARDED_SINCE`, on a busy machine: it fails if a row is 30 % worse
(`log`: 7 %), so that no change costs half the speed unseen. Raise it when a row has become faster.
"""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from statistics import median

from tests.bench import lifecycle, served, size, small
from tests.bench.rounds import Measured, NotMeasured, Round, Work, alternate, cpu, sized
from tests.bench.served import Servers

GUARDED_SINCE = "2026-11-30"
PAIRED_WITH, OF_PAIRS = "6fef0bf0", 0.85
"""A row may have 0.85 of its speed at this commit; name another once a row has become faster."""
TOLERANCE = 0.7
"""A row may have 0.7 of its guarded speed; a cost may be 1 / 0.7 of its guarded one."""
OF_PARTS = 0.93
"""The tolerance of a row whose limit is nearly the same work."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How much is measured: CPU seconds of a round, rounds, and the sizes of worlds."""

    round_s: float
    rounds: int
    few: int
    """The rounds of what takes long."""
    hours: float
    framed: int
    """The payments of the journal that frames are made of."""
    payers: int
    payments: int
    """Of the row `growth`."""
    worlds: int
    """Of the rows `spread` and `dask`."""
    large: int
    """The payers of a run whose journal is in a file."""
    million: tuple[int, int]
    """The payers of an even longer run, and its payments."""
    logged: int
    """The servers of the row `log`, which tells a few per cent: one differs from the next by one."""


QUICK = Effort(
    round_s=0.05, rounds=9, few=3, hours=1, framed=400, payers=400, payments=100, logged=1,
    worlds=20, large=1000, million=(100, 1000),
)  # fmt: skip
FULL = Effort(
    round_s=0.5, rounds=9, few=3, hours=24, framed=22_000, payers=10_000, payments=1000, logged=9,
    worlds=60, large=100_000, million=(10_000, 1_000_000),
)  # fmt: skip


class Bench(ExitStack):
    """What rows share: their effort, the yardstick, the servers and the crowd, made when first used."""

    def __init__(self, effort: Effort) -> None:
        super().__init__()
        self.effort = effort

    @cached_property
    def limit(self) -> Round:
        return self.sized(cpu(lifecycle.sign_raw))

    @cached_property
    def place(self) -> lifecycle.Place:
        return lifecycle.Place()

    @cached_property
    def servers(self) -> Servers:
        return self.enter_context(Servers())

    @cached_property
    def bare(self) -> Round:
        return self.sized(self.servers.bare)

    @cached_property
    def facilitators(self) -> dict[str, list[float]]:
        """The seconds of a payment by each facilitator, and by none, in each round."""
        from tests.bench.facilitators import payments  # web3 takes a second to import

        return payments(self.effort.few, 64)

    @cached_property
    def payers(self) -> size.Costs:
        """What a run of many payers costs to play, with its journal in memory."""
        return size.in_processes(self.effort.payers, self.effort.payers, is_kept=False)

    @cached_property
    def large(self) -> size.Costs:
        """What a run of more payers costs to play and to show."""
        return size.in_processes(self.effort.large, self.effort.large, is_shown=True)

    @cached_property
    def million(self) -> size.Costs:
        """What many payments of the same payers cost to play."""
        return size.in_processes(*self.effort.million)

    def sized(self, work: Work) -> Round:
        return sized(work, self.effort.round_s)

    def against(self, limit: Round, work: Work) -> Measured:
        return alternate(self.sized(work), limit, self.effort.rounds)

    def cost(self, ours: Round, limit: Round) -> Measured:
        return alternate(ours, limit, self.effort.few, is_cost=True)

    def started(self, *arguments: str) -> Measured:
        """Compare a start of Python with that of one which imports asyncio."""
        return self.cost(small.starting(*arguments), small.starting("-c", "import asyncio"))


@dataclass(frozen=True, slots=True)
class Row:
    """What a row compares and with which limit, the unit of both, and how it is measured.

    `guarded` is None for a row of the full form only. Of a cost, less is better.
    """

    what: str
    limit: str
    unit: str
    measure: Callable[[Bench], Measured]
    floor: float
    aim: float
    guarded: float | None = None
    is_cost: bool = False
    tolerance: float = TOLERANCE
    is_asked_for: bool = False
    """It takes so long that it is measured by its name only."""

    def reaches(self, value: float, wanted: float) -> bool:
        return value <= wanted if self.is_cost else value >= wanted

    def status(self, value: float) -> str:
        if self.reaches(value, self.aim):
            return "above aim"
        return "above floor" if self.reaches(value, self.floor) else "below floor"

    def is_kept(self, found: Measured | NotMeasured) -> bool:
        """Tell whether a value is within the tolerance of the guarded one, if there are both."""
        if self.guarded is None or isinstance(found, NotMeasured):
            return True
        factor = 1 / self.tolerance if self.is_cost else self.tolerance
        return self.reaches(found.value, self.guarded * factor)


def _day(bench: Bench) -> Measured:
    return alternate(lambda: lifecycle.of_a_day(bench.effort.hours), bench.limit, bench.effort.few)


def _debit(bench: Bench) -> Measured:
    with small.debits() as (ours, raw):
        return bench.against(bench.sized(raw), ours)


def _log(bench: Bench) -> Measured:
    return served.log(servers=bench.effort.logged, rounds=5, times=100)


def _beside(side: str) -> Callable[[Bench], Measured]:
    """Return what compares our facilitator with another side of the same chain."""

    def measure(bench: Bench) -> Measured:
        ours, other = bench.facilitators["ours"], bench.facilitators[side]
        values = tuple(theirs / own for own, theirs in zip(ours, other, strict=True))
        return Measured(values, median(ours), median(other))

    return measure


def _growth(bench: Bench) -> Measured:
    times = bench.effort.payments

    def among(payers: int) -> Round:
        return lambda: lifecycle.buy(times, payers) / times

    many = among(bench.effort.payers)
    return alternate(many, among(100), bench.effort.rounds, is_cost=True)  # three differ by a tenth


def _joined(_: Bench) -> Measured:
    first, second = (lifecycle.joined_bytes(1000) / 1000 for _ in range(2))
    return Measured((min(first, second),))  # the first fills caches, too


RUNS = {
    "payers": "{payers:,} payers pay once",
    "large": "{large:,} payers pay once, journal in a file",
    "million": "{million[1]:,} payments of {million[0]:,} payers, journal in a file",
}


def _of(run: str, what: str, cost: str, floor: float, aim: float) -> Row:
    measure = lambda bench: Measured((getattr(bench, run)[cost],))  # noqa: E731
    text, takes_an_hour = f"{RUNS[run]}: {what}", run == "million"
    return Row(text, "", "", measure, floor, aim, is_cost=True, is_asked_for=takes_an_hour)


PAID = "a payment by `x402sim facilitator` on anvil, Circle's token, real time"
SIGNED, BARE, ASYNCIO = "its signatures", "a bare uvicorn", 'python -c "import asyncio"'
# The numbers of a row are floor, aim and guarded; `speed.md` says whence those of `day` and `pay`.
# fmt: off
ROWS = {
    "direct": Row("a paid request by function calls", SIGNED, "µs",
        lambda bench: bench.against(bench.limit, bench.place.direct()), 0.16, 0.25, 0.23),
    "asgi": Row("a paid request over ASGI", SIGNED, "µs",
        lambda bench: bench.against(bench.limit, bench.place.asgi()), 0.12, 0.18, 0.15),
    "httpx": Row("a paid request through httpx", SIGNED, "µs",
        lambda bench: bench.against(bench.limit, bench.place.httpx()), 0.06, 0.09, 0.081),
    "world": Row("a payment in a World", SIGNED, "µs",
        lambda bench: bench.against(bench.limit, lifecycle.buy), 0.055, 0.08, 0.135),
    "day": Row("a payment of 200 payers' day", SIGNED, "µs", _day, 0.028, 0.038, 0.031),
    "pay": Row("POST /api/pay, CPU of the server", SIGNED, "µs",
        lambda bench: bench.against(bench.limit, bench.servers.payments), 0.12, 0.18, 0.185),
    "402": Row("a 402, CPU of the server", BARE, "µs",
        lambda bench: bench.against(bench.bare, bench.servers.unpaid), 0.40, 0.55, 0.485),
    "quote": Row("a session's quote, CPU of the server", BARE, "µs",
        lambda bench: bench.against(bench.bare, bench.servers.quotes), 0.24, 0.30, 0.22),
    "log": Row("402, payment and quote, CPU of the server with its log", "without", "µs",
        _log, 1.03, 1.02, 1.03, is_cost=True, tolerance=OF_PARTS),
    "debit": Row("a debit of a session", "UPDATE and INSERT by sqlite3", "µs",
        _debit, 0.85, 0.95, 1.23),
    "payers": _of("payers", "seconds of CPU", "play_s", 45, 32),
    "memory": _of("payers", "peak memory in MB", "play_mb", 250, 150),
    "frames": Row("all frames, an event", "of a list of dicts", "µs",
        lambda bench: bench.cost(*small.framing(size.play(100, bench.effort.framed).journal)),
        0.25, 0.05, 0.88, is_cost=True),
    "anvil": Row(PAID, "the same anvil alone", "ms", _beside("anvil"), 0.2, 0.8),
    "npm": Row(PAID, "by npm's @x402/evm", "ms", _beside("npm"), 2, 4),
    "pypi": Row(PAID, "by PyPI's x402", "ms", _beside("pypi"), 2, 4),
    "help": Row("x402sim --help", ASYNCIO, "ms",
        lambda bench: bench.started("-m", "x402sim", "--help"), 3, 2, 1.72, is_cost=True),
    "import": Row("import x402sim.World", ASYNCIO, "ms",
        lambda bench: bench.started("-c", "from x402sim import World"), 5, 4, 4.0, is_cost=True),
    "growth": Row("a payment among {payers:,} payers", "among 100", "µs",
        _growth, 1.1, 1.0, 1.03, is_cost=True),
    "joined": Row("a payer of 1,000 who have joined: kB", "", "",
        _joined, 5.5, 4, 5.03, is_cost=True, tolerance=OF_PAIRS),
    "cases": Row("a case of a judgement by all", "by every third", "ms",
        lambda bench: bench.cost(small.judging(1), small.judging(3)), 1.2, 1.1, is_cost=True),
    "reading": Row("the frame of orders from a file, an event", "its lines by msgspec", "µs",
        lambda bench: bench.cost(*size.reading(bench.effort.framed)), 3, 2, 1.92, is_cost=True),
    "spread": Row("a sweep over two processes, a world", "multiprocessing.Pool", "ms",
        lambda bench: bench.cost(small.by_sweep(bench.effort.worlds), small.by_pool(bench.effort.worlds)),
        1.15, 1.05, is_cost=True),
    "dask": Row("a sweep over a running cluster of Dask, a world", "multiprocessing.Pool", "ms",
        lambda bench: bench.cost(small.by_dask(bench.effort.worlds), small.by_pool(bench.effort.worlds)),
        1.15, 1.05, is_cost=True),
    "play": _of("large", "seconds of CPU", "play_s", 300, 240),
    "peak": _of("large", "peak memory in MB", "play_mb", 500, 350),
    "first": _of("large", "the first frame, seconds of CPU", "first_s", 3, 1.5),
    "load": _of("large", "Run.load and the first frame, seconds of CPU", "load_s", 4, 2),
    "lanes": _of("large", "plots.sequence, seconds of CPU", "sequence_s", 1, 0.5),
    "cell": _of("large", "a run in a cell, seconds of CPU", "cell_s", 1, 0.5),
    "show": _of("large", "run.show(), seconds of CPU", "show_s", 2, 1),
    "page": _of("large", "run.show(), MB", "show_mb", 5, 3),
    "million": _of("million", "seconds of CPU", "play_s", 2400, 1800),
    "m_peak": _of("million", "peak memory in MB", "play_mb", 600, 400),
    "m_flat": _of("million", "the last tenth, of the third", "flat", 1.1, 1.0),
}
# fmt: on
