"""A node for the tests of the real chain: one for all of them, as new for each.

Without anvil they are skipped, and one line says how to get it; with
X402SIM_REQUIRE_ANVIL=1, as in CI, they fail.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.evm.helpers import Bench, Town
from x402sim.chain.anvil import find_anvil
from x402sim.chain.base import ChainError

PACKAGES = Path(__file__).parent
HOW = "to run the tests of the real chain: npm install --prefix tests/evm"


def or_skip(request: pytest.FixtureRequest, missing: str) -> None:
    """Skip a test for what it needs and is not here; where that is required, fail it."""
    if os.environ.get("X402SIM_REQUIRE_ANVIL") == "1":
        pytest.fail(f"{missing} ({HOW})")
    request.node.user_properties.append(("told", HOW))
    pytest.skip(missing)


@pytest.fixture
def program(request: pytest.FixtureRequest) -> Path:
    try:
        return find_anvil(near=PACKAGES)
    except ChainError as missing:
        or_skip(request, str(missing))
        raise


@pytest.fixture(scope="session")
def towns() -> Iterator[list[Town]]:
    """The one town of this session, once a test has needed it."""
    built: list[Town] = []
    yield built
    for town in built:
        town.close()


@pytest.fixture
def town(program: Path, towns: list[Town]) -> Town:
    """A clock and an anvil, both at the beginning."""
    if not towns:
        towns.append(Town(program))
    towns[0].begin()
    return towns[0]


@pytest.fixture
def anvil(town: Town) -> Bench:
    return town.bench(town.anvil)


@pytest.fixture(params=["anvil", "ledger"])
def either(request: pytest.FixtureRequest, town: Town) -> Bench:
    """The chain on a node, and the ledger with the same token: they must do the same."""
    return town.bench(town.anvil if request.param == "anvil" else town.ledger("openzeppelin"))
