"""Writes the tables of the pages: operations, counts, and differing implementations."""

from collections.abc import Iterator, Sequence

from tests.published import cell
from tests.running import ROOT
from x402sim.suite.vectors.differing import OURS, counts, differences
from x402sim.suite.vectors.vector import FAMILIES, OPERATIONS, File, Vector
from x402sim.text.templates import markdown_table

GUIDE, PAGE = ROOT / "x402sim/guide/vectors.md", ROOT / "conformance/vectors.md"


def operations() -> str:
    rows = [[f"`{name}`", each.about, _names(each.takes), _names(each.gives)] for name, each in OPERATIONS.items()]  # fmt: skip
    return markdown_table(["operation", "what it does", "`input`", "`result`"], rows)


def _names(text: str) -> str:
    return ", ".join(f"`{each}`" for each in text.split())


def news(files: Sequence[File]) -> str:
    """Return the table of demanded answers that an independent implementation does not give."""
    rows = []
    for each in differences(files):
        more = f"; {each.number - 1} more" if each.number > 1 else ""
        sentence = f"{each.sentence.section}: “{cell(each.sentence.text, 150)}”"
        rows.append([each.implementation, f"{cell(each.vector.about, 110)}: `{each.id}`{more}", each.answer, each.level, sentence])  # fmt: skip
    return markdown_table(["implementation", "request: the first vector", "answer", "level", "sentence"], rows)  # fmt: skip


def families(files: Sequence[File]) -> Iterator[str]:
    """Yield the sections of the page of families."""
    for file in files:
        yield f"## {file.family}: {file.about}\n"
        by_op: dict[str, list[Vector]] = {}
        for vector in file.vectors:
            by_op.setdefault(vector.op, []).append(vector)
        rows = [
            [f"`{op}`", *(str(its[name]) for name in ("MUST", "SHOULD", "MAY", "confirmed", "alone")), ", ".join(f"{name} {its[name]}" for name in file.implementations if name != OURS and its[name])]
            for op, its in ((op, counts(vectors)) for op, vectors in by_op.items())
        ]  # fmt: skip
        yield markdown_table(["operation", "MUST", "SHOULD", "open", "confirmed", "ours alone", "confirmed by"], rows)  # fmt: skip


def head(files: Sequence[File]) -> str:
    """Return the beginning of the page of families."""
    every = [vector for file in files for vector in file.vectors]
    named = dict(pair for file in files for pair in file.implementations.items())
    others = "; ".join(f"`{name}` is {version}" for name, version in named.items() if name != OURS)
    size = sum((ROOT / f"conformance/vectors/{file.family}.json").stat().st_size for file in files)
    return f"""# Vectors

{len(every)} vectors in {len(FAMILIES)} files, {size / 1e6:.1f} MB. `python -m tests.renew --only vectors` makes the files and this
page: the makers are in `tests/suite_vectors`, the format is in [vectors/README.md](vectors/README.md), and the guide's page
`x402sim/guide/vectors.md` shows how to write an adapter. *Confirmed*: an independent implementation gave the expected
answer through an adapter. {others}.
"""


def replaced(page: str, table: str) -> str:
    titles = table.splitlines()[0]
    before, found, rest = page.partition(titles)
    assert found, f"no table {titles}"
    _, _, after = rest.partition("\n\n")
    return f"{before}{table}\n{after}"


def families_page(files: Sequence[File]) -> str:
    return "\n".join([head(files), *families(files)])


def write(files: Sequence[File]) -> None:
    PAGE.write_text(families_page(files), encoding="utf-8")
    guide = GUIDE.read_text("utf-8")
    for table in (operations(), news(files)):
        guide = replaced(guide, table)
    GUIDE.write_text(guide, encoding="utf-8")
