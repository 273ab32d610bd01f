"""What a world runs on and where it is played, where a word does not say it all.

`World(chain=...)` takes "ledger", "anvil" or a URL, and `Anvil(program)` or `Node(url, token,
deploy, keys)`; `World(on=...)` takes "in-process", "tcp" or a URL, and `Deployment(url,
payer_key)`.

Parts: `FacilitatorSettings`, `ExplorerSettings`, for `World(facilitator=..., explorer=...)`.
Block times: `FixedBlocks(seconds, phase)`, `JitteredBlocks(seconds, share)`,
`PoissonBlocks(seconds)`, for `World(block_time_s=...)`; `Reorgs(probability, deeper, drop)`, for
`World(reorgs=...)`. The price of gas: `GasWalk(gwei, sigma, every_s, memory)`, for
`World(gas_price_gwei=...)`. A CDN before the services: `SharedCache(default_s, obeys_headers)`,
for `World(cache=...)`.
"""

from x402sim.explorer.settings import ExplorerSettings as ExplorerSettings
from x402sim.facilitator.settings import FacilitatorSettings as FacilitatorSettings
from x402sim.world.chains.anvil import Anvil as Anvil
from x402sim.world.chains.block_times import (
    FixedBlocks as FixedBlocks,
    JitteredBlocks as JitteredBlocks,
    PoissonBlocks as PoissonBlocks,
)
from x402sim.world.chains.gas_prices import GasWalk as GasWalk
from x402sim.world.chains.node import Node as Node
from x402sim.world.chains.reorgs import Reorgs as Reorgs
from x402sim.world.transport.cache import SharedCache as SharedCache
from x402sim.world.where import Deployment as Deployment

__all__ = [name for name in dir() if name[0] != "_"]
