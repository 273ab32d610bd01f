"""One service and its world for all tests of this folder."""

from collections.abc import Iterator

import pytest

from tests.suite.duo import Duo


@pytest.fixture(scope="session")
def duo() -> Iterator[Duo]:
    both = Duo()
    yield both
    both.close()
