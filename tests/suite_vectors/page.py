"""Writes the tables of the pages: operations, counts, and differing implementations."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from tests.published import cell
from tests.running import ROOT
from x402sim.suite.vectors.vector import FAMILIES, OPERATIONS, File, Vector
from x402sim.text.templates import markdown_table

GUIDE, PAGE = ROOT / "x402sim/guide/vectors.md", ROOT / "conformance/vectors.md"
OURS = "x402sim"


def operations() -> str:
    rows = [[f"`{name}`", each.about, _names(each.takes), _names(each.gives)] for name, each in OPERATIONS.items()]  # fmt: skip
    return markdown_table(["operation", "what it does", "`input`", "`result`"], rows)


def _names(text: str) -> str:
    return ", ".join(f"`{each}`" for each in text.split())


def news(files: Sequence[File]) -> str:
    """Return the table of demanded answers that an independent implementation does not give."""
    groups: dict[tuple[Any, ...], list[tuple[File, Vector]]] = {}
    for file in files:
        for vector in file.vectors:
            if vector.expect is None:
                continue
            for name, answer in vector.answers.items():
                said = _said(vector, answer)
                key = (vector.level != "MUST" or said.startswith("the word"), file.implementations[name], vector.about.partition(":")[0] * (not said.startswith("the word")), said)  # fmt: skip
                groups.setdefault(key, []).append((file, vector))
    rows = []
    for key, its in sorted(groups.items(), key=lambda each: (each[0][0], -len(each[1]), str(each[0]))):  # fmt: skip
        file, first = its[0]
        is_word = key[3].startswith("the word")
        quoted = file.sentences[first.word_sentence if is_word else first.ground.sentences[0]]
        more = f"; {len(its) - 1} more" if len(its) > 1 else ""
        level = "SHOULD" if key[0] else "MUST"
        its_id = first.id if not is_word else f"kit/{first.id.partition('/')[2]}-word"  # fmt: skip
        rows.append([key[1], f"{cell(first.about, 110)}: `{its_id}`{more}", key[3], level, f"{quoted.source}: “{cell(quoted.text, 150)}”"])  # fmt: skip
    return markdown_table(["implementation", "request: the first vector", "answer", "level", "sentence"], rows)  # fmt: skip


def _said(vector: Vector, answer: Any) -> str:
    if isinstance(answer, str):
        return answer
    if answer.keys() == {"invalidReason"}:
        return f"the word `{answer['invalidReason']}`, for `{vector.word}`"
    return f"`{msgspec.json.encode(answer).decode()}`"


def families(files: Sequence[File]) -> Iterator[str]:
    """Yield the sections of the page of families."""
    for file in files:
        yield f"## {file.family}: {file.about}\n"
        counts: dict[str, Counter[str]] = {}
        for vector in file.vectors:
            its = counts.setdefault(vector.op, Counter())
            its[vector.level] += 1
            others = [name for name in vector.confirmed if name != OURS]
            if vector.expect is not None:
                its["confirmed" if others else "alone"] += 1
                its.update(others)
        rows = [
            [f"`{op}`", *(str(its[name]) for name in ("MUST", "SHOULD", "MAY", "confirmed", "alone")), ", ".join(f"{name} {its[name]}" for name in file.implementations if name != OURS and its[name])]
            for op, its in counts.items()
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
