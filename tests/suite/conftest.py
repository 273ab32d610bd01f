"""One service and its world for all tests of this folder."""

from collections.abc import Iterator

import pytest

from tests.suite.deployment import Deployment


@pytest.fixture(scope="session")
def deployment() -> Iterator[Deployment]:
    both = Deployment()
    yield both
    both.close()
