"""A node for the tests of the real chain: one for all of them, as new for each."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.evm import find
from tests.evm.helpers import ChainDriver, Town


@pytest.fixture(scope="session")
def program() -> Path:
    """The path of anvil; a session that lacks it installs it."""
    return find.anvil()


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
def anvil(town: Town) -> ChainDriver:
    return town.driver(town.anvil)


@pytest.fixture(params=["anvil", "ledger"])
def either(request: pytest.FixtureRequest, town: Town) -> ChainDriver:
    """The chain on a node, and the ledger with the same token: they must do the same."""
    return town.driver(town.anvil if request.param == "anvil" else town.ledger("openzeppelin"))
