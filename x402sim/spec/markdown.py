"""The book as Markdown: the tables of the guide and of the documentation pages."""

from collections.abc import Iterable, Sequence


def table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table; a bar in a cell is escaped."""
    lines = [titles, ["---"] * len(titles), *rows]
    return "".join(
        f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |\n" for line in lines
    )
