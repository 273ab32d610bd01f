"""Judges a service of somebody else in one process and in virtual time, with the world's clock."""

from collections.abc import Callable, Sequence
from typing import Any

import httpx

from x402sim.protocol.networks import Network
from x402sim.report.results import Result
from x402sim.suite.check import Check
from x402sim.suite.engine import run
from x402sim.suite.setting import Options, Setting
from x402sim.suite.target import Target
from x402sim.world.assembly.recipe import Recipe
from x402sim.world.loop import run_virtual
from x402sim.world.stages.in_process import InProcess
from x402sim.world.stages.stage import OpenStage
from x402sim.world.transport.link import Asgi

Opens = Callable[[httpx.AsyncClient, httpx.AsyncClient, OpenStage], Any]
"""Makes the application of a service, given its facilitator, its node and the world."""


def judge_beside(
    opens: Opens, network: Network, target: Target, checks: Sequence[Check]
) -> dict[str, Result]:
    """Run checks against a service beside a world; return the results by their ids."""

    def client(app: Any) -> httpx.AsyncClient:
        return httpx.AsyncClient(transport=Asgi(app), base_url="http://there", timeout=90)

    async def main() -> list[Result]:
        recipe = Recipe(network=network, seed=1, has_service=False)
        async with InProcess().open(recipe) as stage:
            assert stage.parts is not None
            rpc = client(stage.parts.rpc_app)
            setting = Setting(
                options=Options(target=target),
                http=client(opens(client(stage.parts.facilitator_app), rpc, stage)),
                clock=stage.clock,
                rng=stage.rng,
                control=stage.control,
                rpc=rpc,
            )
            return [each async for each in run(setting, list(checks))]

    return {each.id: each for each in run_virtual(main)}
