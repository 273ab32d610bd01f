"""Draws the sequence diagram: messages in order, with time downwards, not to scale.

To keep it short, an exchange of the service without other events in between is one row. Repeated
exchanges (one, or two in turn), reads of the chain in a row and idle runs of the indexer are drawn
once, with a count. A payer's exchange has two rows unless there are many. Each text stands in one
gap between two lanes; gaps are as wide as their texts need, and a text is cut if its gap is too
narrow. Widths are in letters. Of a large journal only the part near the shown rows is read.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, groupby, pairwise
from textwrap import wrap

from matplotlib.axes import Axes

from x402sim.events import IndexerRan
from x402sim.report.columns import exchanges_of
from x402sim.report.plots import figure
from x402sim.report.plots.figure import (
    BLACK,
    BLUE,
    GREY,
    LIGHT,
    ORANGE,
    VERMILLION,
    Labels,
    line_sample,
    mark_sample,
    styled,
)
from x402sim.report.reading import LARGE, Reading, Source, journal_of, reading_of
from x402sim.report.trace import CHAIN, TraceLine, lines

MANY = 3
"""The least number of a payer's equal exchanges in a row that are drawn as one."""
_EVENTS_A_ROW = 16
"""Events read at first per row shown, on each side; more if rows stand for many events."""


@dataclass(frozen=True, slots=True)
class Row:
    """One row: a line, the answer if the row is a whole exchange, and the number of repetitions."""

    line: TraceLine
    times: int = 1
    answer: TraceLine | None = None
    are_reads: bool = False

    @property
    def text(self) -> str:
        """The text of the row."""
        if self.are_reads:
            return f"{self.times} chain reads"
        count = f"{self.times}\N{MULTIPLICATION SIGN} " if self.times > 1 else ""
        return count + self.line.text + (f": {self.answer.text}" if self.answer else "")

    @property
    def outcome(self) -> str | None:
        """The outcome of the exchange, if the row shows the answer."""
        return (self.answer or self.line).outcome

    @property
    def name(self) -> str:
        """The kind and the exchange: the id of the arrow in the picture."""
        return f"{'exchange' if self.answer else self.line.kind} {self.line.exchange}"


class Numbers(dict[str, str]):
    """Numbers ids as they appear: #1 is a payment, s1 a session, a1 an authorization."""

    def __init__(self) -> None:
        super().__init__()
        self._counts = Counter[str]()

    def __missing__(self, name: str) -> str:
        sign = "#" if name.startswith("pay_") else "s" if name.startswith("session_") else "a"
        self._counts[sign] += 1
        self[name] = f"{sign}{self._counts[sign]}"
        return self[name]


def rows(reading: Reading, *, fold: bool = True, words: Callable[[str], str] = str) -> list[Row]:
    """Return the rows of the diagram. An event that an answer repeats has no row.

    `fold` makes one row of successive reads of the chain, and one of idle runs of the indexer;
    `words` renames parties and texts.
    """
    came_to = exchanges_of(reading.journal).outcomes
    every = [
        replace(
            each,
            text=words(each.text),
            outcome=None if each.kind == "request" else came_to.get(each.exchange),
        )
        for each in lines(reading, Numbers().__getitem__, words)
        if not each.in_answer
    ]
    paired: list[Row] = []
    for line in every:
        before = paired[-1].line if paired and paired[-1].answer is None else None
        is_answer = before is not None and (before.kind, line.kind) == ("request", "answer")
        if before is not None and is_answer and before.exchange == line.exchange:
            paired[-1] = Row(before, answer=line)
        else:
            paired.append(Row(line))
    return list(_folded(_quiet(paired, reading) if fold else paired, reading.services))


def chosen(
    reading: Reading, exchange: int, count: int, *, fold: bool, words: Callable[[str], str]
) -> list[Row]:
    """Return at most `count` rows: the last rows, and the rows around an exchange."""
    journal, width = reading.journal, _EVENTS_A_ROW * count
    if len(journal) <= LARGE:
        return excerpt(rows(reading, fold=fold, words=words), exchange, count)
    begin, until, at = journal.length - len(journal), journal.length, reading.seq_of(exchange)
    while True:
        first, end = max(begin, at - width), min(until, at + width)
        late = max(end, until - width)
        part = reading.of_part([*journal.between(first, end), *journal.between(late, until)])
        every = rows(part, fold=fold, words=words)
        cut = sum(row.line.seq < end for row in every)
        # a row at the edge of the part read may be incomplete
        unsure = every[:2] if first > reading.seq_of(0) else []
        unsure += every[max(0, cut - 2) : cut + 2] if late > end else []
        if late > end and cut < len(every):
            every.insert(cut, _gap(end, every[cut]))
        if first > begin and every:
            every.insert(0, _gap(begin, every[0]))
        found = excerpt(every, exchange, count, are_all=False)
        is_sure = found and not any(row is one for row in found for one in unsure)
        if is_sure or (first == begin and late == end):
            return found
        width *= 2


def excerpt(every: list[Row], exchange: int, count: int, *, are_all: bool = True) -> list[Row]:
    """Return at most `count` rows: the last rows, and the rows around an exchange.

    A row such as "… 12 rows left out …" stands for the others; unless `every` has all rows, it
    counts events instead.
    """
    if len(every) <= count:
        return every
    last = len(every) - max(1, count // 4)
    begins = max(
        (n for n, row in enumerate(every) if 0 < (row.line.exchange or 0) <= exchange), default=0
    )
    length = count - (len(every) - last) - 1
    first = 0 if begins < length else min(begins - length // 2, last - length + 1)
    length -= first > 0
    end = min(first + length, last)

    def gap(start: int, stop: int) -> list[Row]:
        if start == stop:
            return []
        row, seq = every[start], every[start].line.seq
        return [_gap(seq, row, stop - start) if are_all else _gap(seq, every[stop])]

    return [*gap(0, first), *every[first:end], *gap(end, last), *every[last:]]


def _gap(seq: int, row: Row, rows: int | None = None) -> Row:
    """Return a row that stands for `rows` rows, or for the events from `seq` up to a row."""
    count = f"{row.line.seq - seq:,} events" if rows is None else f"{rows} rows"
    text = f"… {count} left out …"
    return Row(replace(row.line, seq=seq, kind="world", left="world", right=None, text=text))


def _quiet(paired: list[Row], reading: Reading) -> list[Row]:
    """Join a service's background rows: successful reads of the chain, idle runs of its indexer.

    Successive reads become one row, and so do idle runs; reads between idle runs become one row
    before them.
    """
    idle = {
        entry.seq
        for entry in reading.journal.of(IndexerRan)
        if isinstance(event := entry.event, IndexerRan)
        if not (event.matched or event.reverted or event.unanswered)
    }

    def quiet(row: Row) -> tuple[object, ...]:
        line, answer = row.line, row.answer
        is_read = line.left in reading.services and line.right == CHAIN and "_send" not in line.text
        is_good = answer is not None and answer.text == "200" and answer.outcome == "served"
        is_quiet = line.seq in idle or (is_read and is_good)
        return (line.left,) if is_quiet else (line.seq, line.kind)

    found = []
    for _, grouped in groupby(paired, quiet):
        group = list(grouped)
        runs = [n for n, row in enumerate(group) if row.line.seq in idle]
        if len(runs) < 2:
            for at in (*runs, len(group)):
                found += _one_of_reads(group[:at])
                found += group[at : at + 1]
                group = group[at + 1 :]
            continue
        found += _one_of_reads([row for row in group[: runs[-1]] if row.line.seq not in idle])
        line = group[runs[0]].line
        found.append(Row(replace(line, text=f"indexer: {len(runs)} runs, nothing new")))
        found += _one_of_reads(group[runs[-1] + 1 :])
    return found


def _one_of_reads(reads: list[Row]) -> list[Row]:
    return [replace(reads[0], times=len(reads), are_reads=True)] if len(reads) > 1 else reads


def _folded(paired: list[Row], services: Collection[str]) -> Iterator[Row]:
    """Yield rows, repeated ones once with a count; a payer's exchange is two rows."""
    n = 0
    while n < len(paired):
        period, times = _repeats(paired, n, services)
        if times > 1:
            yield from (replace(row, times=row.times * times) for row in paired[n : n + period])
        else:
            row = paired[n]
            if row.answer is None or row.line.left in services:
                yield row
            else:
                yield from (Row(row.line), Row(row.answer))
        n += period * times


def _repeats(paired: list[Row], start: int, services: Collection[str]) -> tuple[int, int]:
    """Return how many rows from `start` on are repeated, and how often they occur."""
    for period in (1, 2):
        block = paired[start : start + period]
        looks, times, end = list(map(_looks, block)), 1, start + period
        while looks == list(map(_looks, paired[end : end + period])):
            times, end = times + 1, end + period
        is_service = all(row.line.left in services for row in block)
        if times >= (2 if is_service else MANY):
            return period, times
    return 1, 1


def _looks(row: Row) -> tuple[object, ...]:
    """Return a key, equal for rows that look alike; only whole exchanges can look alike."""
    return (row.line.left, row.line.right, row.text) if row.answer else (row.line.seq,)


PAD = 2.5
"""Free space beside a text, in letters."""
_HEAD = 1.25  # width of a letter in a lane's head, which is bold and larger


Place = tuple[int, bool]
"""The place of a row's text: the gap right of a lane, and whether at the gap's right end."""


def lay_out(
    rows: Sequence[Row], lanes: Mapping[str, str], heads: Sequence[str]
) -> tuple[list[float], dict[int, Place]]:
    """Return the width of each gap in letters, and the place of each row's text.

    A text goes into the gap that must grow least; the last gap is the right margin. `lanes` maps
    each party to its lane, and `heads` are the lanes' names from left to right.
    """
    at = {name: number for number, name in enumerate(dict.fromkeys(lanes.values()))}
    wide = [max(map(len, head.split("\n"))) for head in heads]
    needs = [sum(two) / 2 * _HEAD + PAD for two in pairwise(wide)] + [PAD]  # heads stay apart
    spans = {n: span for n, row in enumerate(rows) if (span := _span(row, lanes, at))}
    places: dict[int, Place] = {}
    for n, (first, last, is_at_right) in sorted(spans.items(), key=lambda it: it[1][1] - it[1][0]):
        gap = max(range(first, last), key=lambda g: needs[g])
        needs[gap] = max(needs[gap], len(rows[n].text) + PAD)
        places[n] = gap, is_at_right
    return needs, places


def _span(
    row: Row, lanes: Mapping[str, str], at: Mapping[str, int]
) -> tuple[int, int, bool] | None:
    """Return the possible gaps of a row's text, as first and end; None for a full row."""
    line = row.line
    if line.kind in ("world", "alarm"):
        return None
    left = at[lanes[line.left]]
    if line.kind == "action":
        is_at_right = line.left == CHAIN and left > 0
        return (left - 1, left, True) if is_at_right else (left, left + 1, False)
    right = at[lanes[str(line.right)]]
    first, last = sorted((left, right))
    return first, max(last, first + 1), False


def xs_of(needs: Sequence[float], letters: float) -> tuple[float, ...]:
    """Return the x of each lane and of the right end, for a width in letters.

    Gaps get the needed width and share the rest equally; if there is too little, the widest shrink.
    """
    spare, (*gaps, margin) = letters - sum(needs), needs
    if spare >= 0:
        return (0.0, *accumulate([*(gap + spare / max(1, len(gaps)) for gap in gaps), margin]))
    low, high = 0.0, max(needs)
    for _ in range(40):
        middle = (low + high) / 2
        is_too_wide = sum(min(need, middle) for need in needs) > letters
        low, high = (low, middle) if is_too_wide else (middle, high)
    return (0.0, *accumulate(min(need, low) for need in needs))


ROWS = 40
"""Most rows in a new figure, by default; given axes get as many rows as fit."""
MOST_PAYERS = 4
"""Most lanes of payers; further payers share the last lane."""
ROW_IN, LEAST_ROW_IN = 0.19, 0.155
_OTHERS = "other payers"
_WORD, _ALARM = "#efefef", "#f8dccb"
_ARROW, _TEXT = 0.38, -0.06
"""Offsets of an arrow and of its text from the middle of the row, in rows, downwards."""
_LETTER = 0.55  # mean width of a letter, as a share of the font size
_LEFT_SHARE = 0.02
_WIDEST_MM = 240  # widest new figure; wider texts are cut
_OWN_SIZE = 7.5  # font size in a new figure, in points


@styled
def sequence(
    source: Source,
    ax: Axes | None = None,
    *,
    exchange: int = 1,
    rows_shown: int | None = None,
    fold: bool = True,
    labels: Labels | None = None,
) -> Axes:
    """Draw the messages between payers, service, facilitator, explorer and chain, in order.

    Shows at most `rows_shown` rows (default: as many as fit): the last ones, and those around
    `exchange`; a row says how many are left out, or how many events if the run has more than
    20,000. Solid arrow: request; dashed: answer; two-headed: a whole exchange; cross: an answer
    that never arrived. Blue: 2xx; orange: 402 Payment Required; vermilion: anything else. #1, s1
    and a1 are payment ids, sessions and authorizations, numbered as they appear. `fold` makes one
    row of successive reads of the chain, and one of idle runs of the indexer. `labels` rename
    parties and texts of rows.
    """
    reading = reading_of(journal_of(source))
    given = None if ax is None else figure.prepare(ax)
    if given is None:
        count = max(3, rows_shown or ROWS)
    else:
        count = rows_shown or max(5, int(figure.height_in(given) / LEAST_ROW_IN))
    shown = chosen(reading, exchange, count, fold=fold, words=figure.plain)
    parts = [*sorted(reading.services), *reading.facilitators, "explorer", CHAIN]
    lanes = _lanes(shown, parts)
    heads = ["\n".join(wrap(figure.plain(name), 14)[:3]) for name in dict.fromkeys(lanes.values())]
    needs, places = lay_out(shown, lanes, heads)
    height_mm = (max(2, len(shown)) * ROW_IN + 0.9) * 25.4
    wanted_in = sum(needs) * _LETTER * _OWN_SIZE / 72 + figure.LEFT_IN  # then all texts fit
    least_mm, _ = figure.default_mm()
    most_mm = min(_WIDEST_MM, 2 * least_mm)
    width_mm = max(least_mm, min(most_mm, wanted_in * (1 + _LEFT_SHARE) * 25.4))
    ax = given or figure.prepare(None, height_mm=height_mm, width_mm=width_mm)
    if not shown:
        return figure.empty_axes(ax, "no exchange")
    diagram = _Diagram(ax, shown, lanes, heads, needs, places)
    diagram.draw()
    diagram.draw_legend()
    return ax


class _Diagram:
    """Draws rows on axes: lanes from left to right, rows from top to bottom."""

    def __init__(
        self,
        ax: Axes,
        shown: list[Row],
        lanes: dict[str, str],
        heads: list[str],
        needs: list[float],
        places: dict[int, Place],
    ) -> None:
        self._ax, self._rows, self._heads, self._places = ax, shown, heads, places
        self._size = figure.font_size(ax) - 0.5
        room_in = figure.room_right_in(ax) / (1 + _LEFT_SHARE)
        self._xs = xs_of(needs, room_in * 72 / self._size / _LETTER)
        at = dict(zip(dict.fromkeys(lanes.values()), self._xs, strict=False))
        self._x = {party: at[lane] for party, lane in lanes.items()}

    def draw(self) -> None:
        self._draw_lanes()
        self._draw_times()
        before = set(self._ax.get_children())
        for y, row in enumerate(self._rows):
            if row.line.kind == "action":
                x = self._x[row.line.left]
                self._ax.plot(x, y, "D", ms=3.2, color=BLACK, gid=f"action {row.line.seq}")
                self._write(y, row.text, self._places[y])
            elif row.line.right is None:
                self._draw_word(y, row)
            else:
                self._draw_message(y, row, row.line.right)
        for artist in set(self._ax.get_children()) - before:
            artist.set_in_layout(False)  # inside the axes; its layout would take time

    def _draw_lanes(self) -> None:
        ax, (*xs, width) = self._ax, self._xs
        ax.set_xlim(-_LEFT_SHARE * width, width)
        ax.set_ylim(len(self._rows) - 0.4, -0.85)
        ax.spines[:].set_visible(False)
        ends = -0.85, len(self._rows) - 0.4
        ax.vlines(xs, *ends, colors=LIGHT, lw=0.8, zorder=0, gid="lanes")
        ax.xaxis.tick_top()
        ax.set_xticks(xs, self._heads, size=figure.font_size(ax), weight="bold", parse_math=False)
        ax.tick_params(axis="x", length=0, pad=2)
        if figure.width_in(ax) < 0.75 * len(self._heads):
            for head in ax.get_xticklabels()[1::2]:
                head.set_y(1 + 0.6 * figure.font_size(ax) / 72 / figure.height_in(ax))

    def _draw_times(self) -> None:
        """Label a row with the time if the row above has another."""
        times = [row.line.t_s for row in self._rows]
        digits = 3 if times[-1] < 1000 else 1
        texts = [f"{t_s:.{digits}f}" for t_s in times]
        new = [n for n, text in enumerate(texts) if n == 0 or text != texts[n - 1]]
        self._ax.set_yticks(new, [texts[n] for n in new], size=self._size, color=GREY)
        self._ax.tick_params(axis="y", length=0)
        self._ax.set_ylabel("virtual time (s), not to scale", size=figure.font_size(self._ax))

    def _draw_message(self, y: int, row: Row, to: str) -> None:
        line = row.line
        left, right = self._x[line.left], self._x[to]
        start, end = (left, right) if line.kind == "request" else (right, left)
        if line.kind == "lost":
            middle = (left + right) / 2
            self._ax.plot(
                middle, y + _ARROW, "x", ms=3.8, zorder=4, mew=1.3, color=VERMILLION,
                gid=f"cross {line.exchange}",
            )  # fmt: skip
            end = middle
        heads = "<|-|>" if row.answer else "-|>"
        colour = _COLOURS.get(row.outcome, VERMILLION)
        style = "-" if line.kind == "lost" else f"{heads},head_width=0.16,head_length=0.35"
        self._ax.annotate(
            "", (end, y + _ARROW), (start, y + _ARROW), gid=row.name,
            arrowprops={
                "arrowstyle": style,
                "color": colour, "lw": 0.9, "shrinkA": 0, "shrinkB": 0,
                "linestyle": "-" if line.kind == "request" or row.answer else (0, (3, 2)),
            },
        )  # fmt: skip
        self._write(y + _TEXT, row.text, self._places[y])

    def _draw_word(self, y: int, row: Row) -> None:
        is_alarm = row.line.kind == "alarm"
        self._ax.axhspan(
            y - 0.42, y + 0.42, color=_ALARM if is_alarm else _WORD, lw=0, zorder=0.5,
            gid=f"word {row.line.seq}",
        )  # fmt: skip
        text = ("✗ " if is_alarm else "") + row.text
        self._annotate(0, y, _cut(text, int(self._xs[-1])), 4)

    def _write(self, y: float, text: str, place: Place) -> None:
        gap, is_at_right = place
        left, right = self._xs[gap : gap + 2]
        x = right if is_at_right else left
        text = _cut(text, max(1, int(right - left - PAD)))
        self._annotate(x, y, text, -6 if is_at_right else 5)

    def _annotate(self, x: float, y: float, text: str, gap_pt: int) -> None:
        self._ax.annotate(
            text, (x, y), xytext=(gap_pt, 0), textcoords="offset points", size=self._size,
            ha="left" if gap_pt > 0 else "right", va="center_baseline", zorder=2,
            annotation_clip=False,
        )  # fmt: skip

    def draw_legend(self) -> None:
        kinds = {row.line.kind for row in self._rows if not row.answer}
        outcomes = {row.outcome for row in self._rows if row.line.kind == "answer" or row.answer}
        colours = {_COLOURS.get(outcome, VERMILLION) for outcome in outcomes}
        is_whole = any(row.answer for row in self._rows)
        samples = [
            *([line_sample("request", BLACK, "-")] if "request" in kinds else []),
            *(line_sample(name, c, (0, (3, 2))) for c, name in _ANSWERS.items() if c in colours),
            *([mark_sample("no answer", "x", VERMILLION, VERMILLION)] if "lost" in kinds else []),
            *([line_sample("↔ request and answer", GREY, "-")] if is_whole else []),
            *([mark_sample("event at one party", "D", BLACK, BLACK)] if "action" in kinds else []),
        ]
        if samples:
            figure.legend(self._ax, samples, loc="upper left", bbox_to_anchor=(0, 0))


def _cut(text: str, most: int) -> str:
    text = figure.plain(text)
    return text if len(text) <= most else text[: most - 1] + "…"


_ANSWERS = {BLUE: "answer 2xx", ORANGE: "402 Payment Required", VERMILLION: "any other answer"}
_COLOURS = {None: BLACK, "served": BLUE, "paid": BLUE, "payment required": ORANGE}
"""Colours by outcome; others are vermillion."""


def _lanes(shown: list[Row], parts: list[str]) -> dict[str, str]:
    """Return the lane of each party in these rows: payers first, in order of appearance.

    `parts` are the other parties, from left to right.
    """
    there = dict.fromkeys(
        name
        for row in shown
        for name in (row.line.left, row.line.right)
        if name is not None and name != "world"
    )
    payers = [name for name in there if name not in parts]
    own = payers if len(payers) <= MOST_PAYERS else payers[: MOST_PAYERS - 1]
    lanes = {name: name if name in own else _OTHERS for name in payers}
    return lanes | {name: name for name in parts if name in there}
