"""Where do tests find anvil, and what do they do without one?"""

import os
from pathlib import Path

import pytest

from x402sim.chain.base import ChainError
from x402sim.chain.node.anvil import find_anvil

PACKAGES = Path(__file__).parent
HOW = "to run the tests of the real chain: npm install --prefix tests/evm"
REQUIRED = "X402SIM_REQUIRE_ANVIL"
"""With 1, as in CI, a test fails that cannot be run."""


def or_skip(request: pytest.FixtureRequest, missing: str) -> None:
    """Skip a test for what it needs and is not here; where that is required, fail it."""
    if os.environ.get(REQUIRED) == "1":
        pytest.fail(f"{missing} ({HOW})")
    getattr(request.node, "user_properties", []).append(("told", HOW))
    pytest.skip(missing)


def anvil_or_skip(request: pytest.FixtureRequest) -> Path:
    """Return the path of anvil."""
    try:
        return find_anvil(near=PACKAGES)
    except ChainError as missing:
        or_skip(request, str(missing))
        raise
