"""`clauses`, `decisions` and `events`: a part of each, and JSON for programs; events are as declared."""

import json
import re

import pytest

from tests.cli.runner import run
from x402sim.commands.book import GROUPS, fields_of
from x402sim.events import KINDS, name_of
from x402sim.spec.clauses import CLAUSES
from x402sim.spec.decisions import decisions

IDS = {
    "clauses": [clause.id for clause in CLAUSES],
    "decisions": [decision.id for decision in decisions()],
    "events": [name_of(kind) for kind in KINDS],
}
ONE = {"clauses": "7/nonce-already-used", "decisions": "7/final", "events": "payment refused"}


@pytest.mark.parametrize("book", IDS)
def test_json_has_every_row(book: str) -> None:
    rows = json.loads(run(book, "--json").stdout)
    key = "name" if book == "events" else "id"
    assert sorted(row[key] for row in rows) == sorted(IDS[book])
    assert all(all(row.values()) for row in rows if "fields" not in row)


@pytest.mark.parametrize("book", IDS)
def test_a_beginning_chooses_in_every_form(book: str) -> None:
    one = ONE[book]
    (row,) = json.loads(run(book, one, "--json").stdout)
    assert one in row.values()
    for form in ((), ("--markdown",)):
        text = run(book, one, *form).stdout
        assert one in text
        assert not [each for each in IDS[book] if each not in one and f"`{each}`" in text]
    first = one.split("/")[0].split()[0]
    several = json.loads(run(book, first, "--json").stdout)
    assert len(several) == sum(each.startswith(first) for each in IDS[book]) > 1


def test_every_event_is_in_one_group() -> None:
    assert sorted(kind.__name__ for kinds in GROUPS.values() for kind in kinds) == sorted(
        kind.__name__ for kind in KINDS
    )


def test_the_text_has_every_event_with_every_field_in_80_columns() -> None:
    text = run("events").stdout
    assert max(map(len, text.splitlines())) <= 80
    for kind in KINDS:
        _, after = text.split(f"\n\n{name_of(kind)}\n")
        section = after.split("\n\n")[0]
        assert section.startswith("  Written ")
        assert re.findall(r"^    (\w+)  +\S", section, re.MULTILINE) == [
            name for name, _ in fields_of(kind)
        ]
