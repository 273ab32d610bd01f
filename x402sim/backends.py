"""What a world runs on and where it is played, where a word does not say it all.

`World(chain=...)` takes "ledger", "anvil" or a URL, and `Anvil(program)` or `Node(url, token,
deploy, keys)`; `World(on=...)` takes "in-process", "tcp" or a URL, and `Deployment(url,
payer_key)`.

Parts: `FacilitatorSettings`, `ExplorerSettings`, for `World(facilitator=..., explorer=...)`;
`Exponential(mean_s=...)`, for their `service_time_s`, and wherever a latency is wanted.
Block times: `FixedBlocks(seconds, phase)`, `JitteredBlocks(seconds, share)`,
`PoissonBlocks(seconds)`, for `World(block_time_s=...)`; `Reorgs(probability, deeper, drop)`, for
`World(reorgs=...)`. The price of gas: `GasWalk(gwei, sigma, every_s, memory)`, for
`World(gas_price_gwei=...)`. A CDN before the services: `SharedCache(default_s, obeys_headers)`,
for `World(cache=...)`.
"""

from x402sim.durations import Exponential as Exponential
from x402sim.explorer.index import ExplorerSettings as ExplorerSettings
from x402sim.facilitator.settings import FacilitatorSettings as FacilitatorSettings
from x402sim.world.chain_models import (
    FixedBlocks as FixedBlocks,
    GasWalk as GasWalk,
    JitteredBlocks as JitteredBlocks,
    PoissonBlocks as PoissonBlocks,
    Reorgs as Reorgs,
)
from x402sim.world.chains import Anvil as Anvil, Node as Node
from x402sim.world.transport.cache import SharedCache as SharedCache
from x402sim.world.world import Deployment as Deployment

__all__ = [name for name in dir() if name[0] != "_"]
