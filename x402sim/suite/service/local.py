"""Checks this package's own service, in one process and in virtual time."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import httpx

from x402sim.service.settings import Settings
from x402sim.story.stages import Stage, in_process
from x402sim.suite.report.results import Result
from x402sim.suite.service.case import ServiceCase
from x402sim.suite.service.engine import all_checks, run
from x402sim.suite.service.options import Options
from x402sim.suite.service.setting import Setting
from x402sim.suite.service.target import Target
from x402sim.world.link import Asgi
from x402sim.world.loop import run_virtual
from x402sim.world.running_world import RunningWorld
from x402sim.world.world import World

__all__ = ["judge"]

SWEEP_S = 300
"""The checks simulate days; a sweep every five minutes is enough."""
HEARTBEAT_S = 300
"""Without transactions, a block every five minutes is enough."""


PENDING_WAIT_S = 15, 3600
"""Some checks leave payments that may still settle for days; once an hour is enough for those."""
FINAL_DEPTH = 2
"""Two blocks here last as long as twelve blocks of a minute; the indexer revisits each payment
until then."""


def _calm(settings: Settings) -> Settings:
    depth = settings.final_depth
    return replace(
        settings,
        session_sweep_s=SWEEP_S,
        reconcile_interval_s=SWEEP_S,
        pending_wait_s=PENDING_WAIT_S,
        final_depth=FINAL_DEPTH if depth == Settings.final_depth else depth,
    )


async def _crash(stage: Stage) -> None:
    """Restart the service, as the command of --restart does."""
    assert stage.parts is not None
    stage.parts.process.crash()
    await stage.parts.process.runs()


def judge(
    world: World,
    *,
    target: Target | None = None,
    checks: list[ServiceCase] | None = None,
    mutate: Callable[[RunningWorld], None] = lambda parts: None,
    has_clock: bool = True,
    patient: bool = True,
) -> list[Result]:
    """Run the suite against a service of our own, after `mutate` has changed it.

    Every need is met: funds, the world around the service, and its clock. If not
    `has_clock`, time passes as for a service of somebody else: only by itself.
    """

    calm = replace(
        world,
        heartbeat_s=HEARTBEAT_S,
        service={name: _calm(settings) for name, settings in world.services.items()},
    )

    async def main() -> list[Result]:
        async with in_process(calm) as stage:
            assert stage.parts is not None
            mutate(stage.parts)
            setting = Setting(
                options=Options(
                    target=target or Target(),
                    pay_to=stage.parts.service.env.pay_to,
                    patient=patient,
                ),
                http=stage.client("suite"),
                clock=stage.clock,
                rng=stage.rng,
                control=stage.control,
                rpc=httpx.AsyncClient(transport=Asgi(stage.parts.rpc_app), base_url="http://rpc"),
                advance=stage.advance if has_clock else None,
                restart=partial(_crash, stage),
            )
            return [each async for each in run(setting, checks or all_checks())]

    return run_virtual(main)
