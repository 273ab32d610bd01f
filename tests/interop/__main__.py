"""`python -m tests.interop`: write the guide's tables of other people's programs.

The marks of this folder's tests make the tables. The tests run in CI, the longest in a campaign, so a
row of a failing test cannot stay.
"""

import pytest

from tests.interop.pairings import TABLES
from tests.interop.table import COLLECTED, FOLDER, replaced

IMPORTED = "ignore:Module already imported so cannot be rewritten:pytest.PytestAssertRewriteWarning"
"""This program has imported what `tests/conftest.py` has rewritten."""


class Writing:
    """A plugin of pytest that writes what the tests show."""

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Write the tables, unless a file could not be collected."""
        if not session.testsfailed:
            for make, page in TABLES.items():
                table = make(session.config.stash[COLLECTED])
                page.write_text(replaced(page.read_text(), table))


if __name__ == "__main__":
    every = ["-qq", "--collect-only", "-p", "no:cacheprovider", "-m", "", "-W", IMPORTED]
    raise SystemExit(pytest.main([*every, str(FOLDER)], plugins=[Writing()]))
