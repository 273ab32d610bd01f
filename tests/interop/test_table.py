"""The guide's table of other people's programs shows what the tests show."""

from pathlib import Path

import pytest

from tests.interop.table import FOLDER, PAGE, SHOWN, markdown


def test_the_guides_table_is_current(pytestconfig: pytest.Config) -> None:
    """Each of its tests runs in CI or in a campaign, so that a row is there only if it is true.

    Of a part of this folder, each program is in the table.
    """
    rows, page = pytestconfig.stash[SHOWN], PAGE.read_text()
    if any(FOLDER.is_relative_to(Path(each).resolve()) for each in pytestconfig.args):
        assert markdown(rows) in page, "python -m tests.renew --only interop"
        assert len(rows) > 20
    assert all(f"| {row.package} | {row.role} |" in page for row, _ in rows)
