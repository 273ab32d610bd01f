"""Where do tests find anvil, the compiler and the contracts?

They are npm packages, as `package-lock.json` pins them. X402SIM_ANVIL may name another anvil.
Nothing is skipped: what cannot be found or installed fails its tests.
"""

import os
from pathlib import Path

from tests import npm
from x402sim.chain.node.anvil import VARIABLE, find_anvil

PACKAGES = Path(__file__).parent


def anvil() -> Path:
    """Return the anvil that X402SIM_ANVIL names, else the pinned one, installed if need be."""
    if os.environ.get(VARIABLE):
        return find_anvil()
    folder = npm.packages(PACKAGES) / "@foundry-rs"
    if found := sorted(folder.glob("anvil-*/bin/anvil*")):
        return found[0]
    raise npm.NotInstalled(f"npm has no anvil for this machine; {VARIABLE} can name one")
