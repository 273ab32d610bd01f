"""The guide's tables of other people's programs show what the tests show."""

from pathlib import Path

import pytest

from tests.interop.pairings import TABLES
from tests.interop.table import COLLECTED, FOLDER, PAGE, shown


def test_the_guides_tables_are_current(pytestconfig: pytest.Config) -> None:
    """The tests behind each row run in CI or in a campaign, so a wrong row cannot stay.

    Of a part of this folder, each program is in the table.
    """
    items = pytestconfig.stash[COLLECTED]
    if any(FOLDER.is_relative_to(Path(each).resolve()) for each in pytestconfig.args):
        for make, page in TABLES.items():
            assert make(items) in page.read_text(), "python -m tests.renew --only interop"
        assert len(items) > 100
    rows, page = [row for item in items for row, _ in shown(item)], PAGE.read_text()
    assert all(f"| {row.package} | {row.role} |" in page for row in rows)
