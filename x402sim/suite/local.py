"""Judging the service of this package itself, in one process and in virtual time."""

from collections.abc import Callable
from dataclasses import replace

import httpx

from x402sim.suite.check import Check
from x402sim.suite.engine import all_checks, run
from x402sim.suite.setting import Setting
from x402sim.suite.target import Target
from x402sim.suite.verdict import Result
from x402sim.world.assembly.parts import Parts, Recipe
from x402sim.world.loop import run_virtual
from x402sim.world.story.stage import Plan, in_process
from x402sim.world.transport.link import Asgi, Latency

__all__ = ["Recipe", "judge"]

SWEEP_S = 300
"""Days go by while a service is judged; it need not look every ten seconds of them."""
HEARTBEAT_S = 300
"""And where nothing happens on the chain, a block in five minutes will do."""


def judge(
    recipe: Recipe,
    *,
    target: Target | None = None,
    checks: list[Check] | None = None,
    latency: dict[str, Latency] | None = None,
    mutate: Callable[[Parts], None] = lambda parts: None,
) -> list[Result]:
    """Run the suite against a service of our own, after `mutate` has changed it.

    All depths are open: money, the world around it, and its clock.
    """

    calm = replace(recipe, sweep_s=recipe.sweep_s or SWEEP_S, heartbeat_s=HEARTBEAT_S)

    async def main() -> list[Result]:
        async with in_process(Plan(recipe=calm, latency=latency or {})) as stage:
            assert stage.parts is not None
            mutate(stage.parts)
            setting = Setting(
                target=target or Target(),
                http=stage.client("suite"),
                clock=stage.clock,
                rng=stage.rng,
                control=stage.control,
                rpc=httpx.AsyncClient(transport=Asgi(stage.parts.rpc_app), base_url="http://rpc"),
                pay_to=stage.parts.service.settings.pay_to,
                advance=stage.advance,
            )
            return [each async for each in run(setting, checks or all_checks())]

    return run_virtual(main)
