"""The lanes of the sequence diagram, as far apart as the texts between them need.

No text crosses a lane: each has its place in one gap between two lanes, and is cut if the gap is
too narrow. Widths are in letters of the diagram's texts.
"""

from collections.abc import Mapping, Sequence
from itertools import accumulate

from x402sim.report.plots.rows import Row
from x402sim.report.trace import CHAIN

PAD = 2.5
"""Letters of room beside a text."""
_HEAD = 1.25
"""The width of a letter of a lane's head, which is bold and larger."""


Place = tuple[int, bool]
"""Where the text of a row is: in the gap right of which lane, and whether at its right end."""


def lay_out(
    rows: Sequence[Row], lanes: Mapping[str, str], heads: Sequence[str]
) -> tuple[list[float], dict[int, Place]]:
    """Return the letters that each gap needs, and where the text of each row is.

    Each text has the gap that has to grow least for it; the last gap is the right margin. `lanes`
    gives the lane's name of each party, `heads` are these names from left to right.
    """
    at = {name: number for number, name in enumerate(dict.fromkeys(lanes.values()))}
    needs = [_between(heads, number) for number in range(len(at) - 1)] + [PAD]
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
    """Return the gaps that a row's text can be in, from one to before another; None for a word."""
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


def _between(heads: Sequence[str], number: int) -> float:
    """Return the least gap right of a lane, so that the heads of two lanes stay apart."""
    longest = [max(map(len, head.split("\n"))) for head in heads[number : number + 2]]
    return sum(longest) / 2 * _HEAD + PAD


def xs_of(needs: Sequence[float], letters: float) -> tuple[float, ...]:
    """Return the x of each lane and of the right end, on a width of so many letters.

    A gap is as wide as it needs, and has an equal share of the rest; else the widest are cut.
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
