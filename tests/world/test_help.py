"""What `help()` shows of the public names is true: the examples run, every option is there."""

import doctest
import sys

import pytest

from x402sim.payer import policies as of_payer
from x402sim.service import policies as of_service
from x402sim.world import faults, world

pytestmark = pytest.mark.skipif(sys.flags.optimize > 1, reason="-OO leaves docstrings out")


@pytest.mark.parametrize(
    "module", [world, faults, of_service, of_payer], ids=lambda each: each.__name__
)
def test_the_examples_run(module) -> None:
    result = doctest.testmod(module)
    assert result.attempted > 0
    assert result.failed == 0
