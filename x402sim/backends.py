"""What a world runs on and where it is played, as objects: for `World(chain=..., on=...)`.

Chains: `Ledger()` in memory, `Anvil()` a real EVM of the world's own, `Node(url)` an existing
JSON-RPC node. Stages: `InProcess()`, `Tcp()`, `Deployment(url)`.

Parts: `FacilitatorSettings`, `ExplorerSettings`, for `World(facilitator=..., explorer=...)`.
Block times: `FixedBlocks(seconds, phase)`, `JitteredBlocks(seconds, share)`,
`PoissonBlocks(seconds)`, for `World(block_time_s=...)`; `Reorgs(probability, deeper, drop)`, for
`World(reorgs=...)`. The price of gas: `GasWalk(gwei, sigma, every_s, memory)`, for
`World(gas_price_gwei=...)`. A CDN before the services: `SharedCache(default_s, obeys_headers)`,
for `World(cache=...)`.
"""

from x402sim.explorer.settings import ExplorerSettings
from x402sim.facilitator.settings import FacilitatorSettings
from x402sim.world.chains.anvil import Anvil
from x402sim.world.chains.block_times import FixedBlocks, JitteredBlocks, PoissonBlocks
from x402sim.world.chains.gas_prices import GasWalk
from x402sim.world.chains.ledger import Ledger
from x402sim.world.chains.node import Node
from x402sim.world.chains.reorgs import Reorgs
from x402sim.world.stages.deployment import Deployment
from x402sim.world.stages.in_process import InProcess
from x402sim.world.stages.tcp import Tcp
from x402sim.world.transport.cache import SharedCache

__all__ = [
    "Anvil",
    "Deployment",
    "ExplorerSettings",
    "FacilitatorSettings",
    "FixedBlocks",
    "GasWalk",
    "InProcess",
    "JitteredBlocks",
    "Ledger",
    "Node",
    "PoissonBlocks",
    "Reorgs",
    "SharedCache",
    "Tcp",
]
