"""What a world runs on and where it is played, as objects: for `World(chain=..., on=...)`.

Chains: `Ledger()` in memory, `Anvil()` a real EVM of the world's own, `Node(url)` an existing
JSON-RPC node. Stages: `InProcess()`, `Tcp()`, `Deployment(url)`. Each is loaded when it is
first used.

Parts: `FacilitatorSettings`, `ExplorerSettings`, for `World(facilitator=..., explorer=...)`.
Block times: `FixedBlocks(seconds, phase)`, `JitteredBlocks(seconds, share)`,
`PoissonBlocks(seconds)`, for `World(block_time_s=...)`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from x402sim.explorer.settings import ExplorerSettings
    from x402sim.facilitator.settings import FacilitatorSettings
    from x402sim.world.chains.anvil import Anvil
    from x402sim.world.chains.block_times import FixedBlocks, JitteredBlocks, PoissonBlocks
    from x402sim.world.chains.ledger import Ledger
    from x402sim.world.chains.node import Node
    from x402sim.world.stages.deployment import Deployment
    from x402sim.world.stages.in_process import InProcess
    from x402sim.world.stages.tcp import Tcp

__all__ = [
    "Anvil",
    "Deployment",
    "ExplorerSettings",
    "FacilitatorSettings",
    "FixedBlocks",
    "InProcess",
    "JitteredBlocks",
    "Ledger",
    "Node",
    "PoissonBlocks",
    "Tcp",
]

_HOME = {
    "Anvil": "world.chains.anvil",
    "Ledger": "world.chains.ledger",
    "Node": "world.chains.node",
    "FixedBlocks": "world.chains.block_times",
    "JitteredBlocks": "world.chains.block_times",
    "PoissonBlocks": "world.chains.block_times",
    "ExplorerSettings": "explorer.settings",
    "FacilitatorSettings": "facilitator.settings",
    "Deployment": "world.stages.deployment",
    "InProcess": "world.stages.in_process",
    "Tcp": "world.stages.tcp",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'x402sim.backends' has no attribute {name!r}")
    value = getattr(import_module(f"x402sim.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
