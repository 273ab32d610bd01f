"""A world on Base Sepolia that other people's programs use, on each chain."""

from collections.abc import Iterator

import pytest

from tests.evm import find
from tests.serve.driver import Server, started
from x402sim.chain.node.anvil import VARIABLE

BASE_SEPOLIA = ("--network", "base-sepolia")


@pytest.fixture(
    scope="module", params=["ledger", pytest.param("anvil", marks=pytest.mark.thorough)]
)
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    """`serve` as a subprocess; the tests of a module bring their own payers."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "anvil":
            patch.setenv(VARIABLE, str(find.anvil()))
        with started(*BASE_SEPOLIA, "--chain", request.param) as running:
            yield running
