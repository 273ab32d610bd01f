"""Opens the stage that a world names."""

from contextlib import AbstractAsyncContextManager
from typing import assert_never

from x402sim.world.stages.deployment import at_url
from x402sim.world.stages.in_process import in_process
from x402sim.world.stages.stage import Stage
from x402sim.world.where import Deployment, InProcess, Tcp
from x402sim.world.world import World


def open_stage(world: World) -> AbstractAsyncContextManager[Stage]:
    """Open the stage of a world; raises `ChainError`, and `ConnectionError` without an answer."""
    match world.where:
        case InProcess():
            return in_process(world)
        case Tcp():
            from x402sim.world.stages.tcp import over_tcp  # with uvicorn, which few worlds need

            return over_tcp(world)
        case Deployment() as where:
            return at_url(world, where)
        case never:
            assert_never(never)
