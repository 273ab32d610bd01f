"""The programs of other people run in an environment of their own."""

from tests.interop import programs
from tests.interop.table import THOROUGH

pytestmark = THOROUGH


def test_it_has_the_pinned_packages_and_nothing_of_ours():
    told = programs.run("versions.py", {"packages": ["x402", "web3", "x402sim"]})
    assert told == {"x402": "2.25.0", "web3": "8.0.0", "x402sim": None}
