"""`python -m tests.interop`: write the guide's table of other people's programs.

It is made from what the tests of this folder say that they show. They run in CI, the longest in a
campaign, so that a row is there only if it is true.
"""

import argparse

import pytest

from tests.interop.table import FOLDER, PAGE, Row, markdown, replaced, shown

IMPORTED = "ignore:Module already imported so cannot be rewritten:pytest.PytestAssertRewriteWarning"
"""This program has imported what `tests/conftest.py` has rewritten."""


class Shown:
    """A plugin of pytest that notes what the tests show."""

    def __init__(self) -> None:
        self.places: set[tuple[Row, str]] = set()

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Note the rows of all tests."""
        self.places.update(place for item in session.items for place in shown(item))


def main() -> int:
    """Write the table; return pytest's exit code."""
    argparse.ArgumentParser(prog="python -m tests.interop", description=__doc__).parse_args()
    plugin = Shown()
    every = ["-qq", "--collect-only", "-p", "no:cacheprovider", "-m", "", "-W", IMPORTED]
    code = pytest.main([*every, str(FOLDER)], plugins=[plugin])
    if code == 0:
        PAGE.write_text(replaced(PAGE.read_text(), markdown(plugin.places)))
    return int(code)


if __name__ == "__main__":
    raise SystemExit(main())
