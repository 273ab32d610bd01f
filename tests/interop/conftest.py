"""A world on Base Sepolia that other people's programs use, on each chain."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.evm import find
from tests.interop.table import COLLECTED, FOLDER
from tests.serve.driver import Server, started
from x402sim.chain.node.anvil import VARIABLE


@contextmanager
def base_sepolia(chain: str, *args: str) -> Iterator[Server]:
    """Serve Base Sepolia as a subprocess, on a ledger or on the pinned anvil."""
    with pytest.MonkeyPatch.context() as patch:
        if chain == "anvil":
            patch.setenv(VARIABLE, str(find.anvil()))
        with started("--network", "base-sepolia", "--chain", chain, *args) as running:
            yield running


@pytest.fixture(scope="module", params=["ledger", "anvil"])
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    """The server of a module, whose tests bring their own payers."""
    with base_sepolia(request.param) as running:
        yield running


INSTALL_S = 400
"""The test that comes first installs the packages of other people, and the others wait for it."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    ours = [item for item in items if str(item.path).startswith(f"{FOLDER}{os.sep}")]
    config.stash[COLLECTED] = ours
    for item in ours:
        item.add_marker(pytest.mark.timeout(INSTALL_S))
