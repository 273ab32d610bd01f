"""A server that commands are run against."""

from collections.abc import Iterator

import pytest

from x402sim import LocalServer


@pytest.fixture(scope="module")
def server() -> Iterator[LocalServer]:
    with LocalServer(seed=1) as running:
        yield running
