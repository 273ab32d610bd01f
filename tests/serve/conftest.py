from collections.abc import Iterator

import pytest

from tests.serve.driver import Payer, Server, started


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """One server for all tests of a file, which bring their own wallets."""
    with started() as running:
        yield running


@pytest.fixture
def payer(server: Server) -> Payer:
    return server.payer()
