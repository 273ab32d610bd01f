"""A node for the tests of the real chain: one for all of them, as new for each."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.evm import find
from tests.evm.between import Between
from tests.evm.helpers import ChainDriver, Town


@pytest.fixture(scope="session")
def program() -> Path:
    """The path of anvil; a session without anvil installs the package."""
    return find.anvil()


@pytest.fixture(scope="session")
def towns() -> Iterator[dict[str, Town]]:
    """The towns of this session, by contract."""
    built: dict[str, Town] = {}
    yield built
    for town in built.values():
        town.close()


def as_new(towns: dict[str, Town], program: Path, contract: str) -> Town:
    """Return the town of a contract, at the beginning."""
    if contract not in towns:
        towns[contract] = Town(program, contract)
    towns[contract].begin()
    return towns[contract]


@pytest.fixture
def town(program: Path, towns: dict[str, Town]) -> Town:
    """A clock and an anvil as the product starts it, both at the beginning."""
    return as_new(towns, program, "stablecoin")


@pytest.fixture
def circle_town(program: Path, towns: dict[str, Town]) -> Town:
    """A clock and an anvil with Circle's contract, both at the beginning."""
    return as_new(towns, program, "circle")


@pytest.fixture
def anvil(town: Town) -> ChainDriver:
    return town.driver(town.anvil)


@pytest.fixture(params=["anvil", "ledger"])
def either(request: pytest.FixtureRequest, town: Town) -> ChainDriver:
    """Anvil and the ledger: they must do the same."""
    return town.driver(town.anvil if request.param == "anvil" else town.ledger())


@pytest.fixture
def two(circle_town: Town) -> list[ChainDriver]:
    """Circle's contract on anvil, and the ledger."""
    return [circle_town.driver(chain) for chain in (circle_town.anvil, circle_town.ledger())]


@pytest.fixture
def between(town: Town) -> Iterator[Between]:
    """A server of the test's own before the node."""
    between = Between(town.node.url)
    yield between
    between.close()
