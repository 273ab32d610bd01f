"""`python -m tests.interop`: run other people's programs, and write the guide's table of them.

It runs all tests of this folder, the thorough ones too, for some minutes; the table is written
only if they all passed.
"""

import argparse

import pytest

from tests.interop.table import FOLDER, PAGE, Row, markdown, replaced, shown


class Shown:
    """A plugin of pytest that notes what the tests show."""

    def __init__(self) -> None:
        self.places: set[tuple[Row, str]] = set()

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Note the rows of all tests that run."""
        self.places.update(place for item in session.items for place in shown(item))


def main() -> int:
    """Run them, and write the table; return pytest's exit code."""
    argparse.ArgumentParser(prog="python -m tests.interop", description=__doc__).parse_args()
    plugin = Shown()
    every = ["-q", "-p", "no:cacheprovider", "-m", "thorough or not thorough"]
    code = pytest.main([*every, str(FOLDER)], plugins=[plugin])
    if code == 0:
        PAGE.write_text(replaced(PAGE.read_text(), markdown(plugin.places)))
    return int(code)


if __name__ == "__main__":
    raise SystemExit(main())
