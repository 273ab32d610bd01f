from collections.abc import Iterator

import pytest

from tests.serve.driver import Payer, Server
from tests.serve.hosted import hosted


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """One server for all tests of a file, which bring their own wallets."""
    with hosted() as running:
        yield running


@pytest.fixture
def payer(server: Server) -> Payer:
    return server.payer()
