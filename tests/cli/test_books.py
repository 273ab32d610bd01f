"""`clauses`, `decisions` and `events`: a part of each, and JSON for programs."""

import json

import pytest

from tests.cli.runner import run
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
