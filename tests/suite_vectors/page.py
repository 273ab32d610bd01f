"""Writes the tables of the guide's page: operations, and differing implementations."""

from collections.abc import Sequence

from tests.running import ROOT
from x402sim.suite.vectors.differing import differences
from x402sim.suite.vectors.vector import OPERATIONS, File
from x402sim.text.templates import markdown_table

GUIDE = ROOT / "x402sim/guide/vectors.md"


def operations() -> str:
    rows = [[f"`{name}`", each.about, _names(each.takes), _names(each.gives)] for name, each in OPERATIONS.items()]  # fmt: skip
    return markdown_table(["operation", "what it does", "`input`", "`result`"], rows)


def _names(text: str) -> str:
    return ", ".join(f"`{each}`" for each in text.split())


def cell(text: str, most: int) -> str:
    """Return a text as a cell of a table, cut."""
    shown = " ".join(text.split()).replace("|", "\\|")
    return shown if len(shown) <= most else f"{shown[:most]}…"


def news(files: Sequence[File]) -> str:
    """Return the table of demanded answers that an independent implementation does not give."""
    rows = []
    for each in differences(files):
        more = f"; {each.number - 1} more" if each.number > 1 else ""
        sentence = f"{each.sentence.section}: “{cell(each.sentence.text, 150)}”"
        rows.append([each.implementation, f"{cell(each.vector.about, 110)}: `{each.id}`{more}", each.answer, each.level, sentence])  # fmt: skip
    return markdown_table(["implementation", "request: the first vector", "answer", "level", "sentence"], rows)  # fmt: skip


def replaced(page: str, table: str) -> str:
    titles = table.splitlines()[0]
    before, found, rest = page.partition(titles)
    assert found, f"no table {titles}"
    _, _, after = rest.partition("\n\n")
    return f"{before}{table}\n{after}"


def write(files: Sequence[File]) -> None:
    guide = GUIDE.read_text("utf-8")
    for table in (operations(), news(files)):
        guide = replaced(guide, table)
    GUIDE.write_text(guide, encoding="utf-8")
