"""Options of a World: stages, chains, parts and faults.

help(x402sim.backends.Outages) and so on explain each.

World(chain=...)           "ledger", "anvil", a URL, Anvil, Node
World(on=...)              "in-process", "tcp", a URL, Deployment
World(facilitator=...)     FacilitatorSettings
World(explorer=...)        ExplorerSettings
World(block_time_s=...)    FixedBlocks, PoissonBlocks
World(reorgs=...)          Reorgs
service_time_s=...         Exponential, also wherever a latency is
World(cache=...)           SharedCache, a CDN
Fault(when=...)            Outages, Schedule
world.fault(function)      FaultedRequest: what the function is given
world.observe(act)         Observed, with a WaitingTransaction: for act
"""

from x402sim.durations import Exponential as Exponential
from x402sim.explorer.index import ExplorerSettings as ExplorerSettings
from x402sim.facilitator.engine import FacilitatorSettings as FacilitatorSettings
from x402sim.story.observing import (
    Observed as Observed,
    WaitingTransaction as WaitingTransaction,
)
from x402sim.world.cache import SharedCache as SharedCache
from x402sim.world.chains import (
    Anvil as Anvil,
    FixedBlocks as FixedBlocks,
    Node as Node,
    PoissonBlocks as PoissonBlocks,
    Reorgs as Reorgs,
)
from x402sim.world.faults import (
    FaultedRequest as FaultedRequest,
    Outages as Outages,
    Schedule as Schedule,
)
from x402sim.world.world import Deployment as Deployment

# There is no `__all__`: `help` of this module would be that of each class.
