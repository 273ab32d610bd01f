"""Ledgers for the tests of this folder."""

import pytest

from tests.chain.asking import OWNER_KEY, Rpc
from tests.chain.helpers import LedgerDriver


@pytest.fixture
def driver() -> LedgerDriver:
    return LedgerDriver()


@pytest.fixture
def rpc() -> Rpc:
    """A ledger whose accounts are locked, behind JSON-RPC."""
    return Rpc()


@pytest.fixture
def unlocked() -> Rpc:
    """A ledger that signs for the token's owner, behind JSON-RPC."""
    return Rpc(OWNER_KEY.secret)
