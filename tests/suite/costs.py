"""`python -m tests.suite.costs`: count what each case costs our own service.

Writes `conformance/service/costs.json`: the requests of each case, and the seconds for which it waits. A
plan is made of them (`x402sim.suite.service.plan`). They are counted in virtual time, in which only waiting
takes time, so that they are the same on every machine, however busy.
"""

import json
from collections.abc import Iterable

import httpx

from tests.mutants.judging import quiet
from x402sim import World
from x402sim.story.stages import in_process
from x402sim.suite.report.results import Outcome
from x402sim.suite.service.case import ServiceCase
from x402sim.suite.service.engine import all_checks, folder, run_case
from x402sim.suite.service.options import Options
from x402sim.suite.service.preflight import examine
from x402sim.suite.service.setting import Setting
from x402sim.world.link import Asgi
from x402sim.world.loop import run_virtual

FILE = folder("service") / "costs.json"


async def count(cases: Iterable[ServiceCase]) -> dict[str, tuple[int, int]]:
    """Return requests and seconds of each case that runs with a world, but no clock to advance."""
    found = {}
    async with in_process(World(seed=1)) as stage:
        assert stage.parts is not None
        setting = Setting(
            options=Options(pay_to=stage.parts.service.env.pay_to),
            http=stage.client("suite"),
            clock=stage.clock,
            rng=stage.rng,
            control=stage.control,
            rpc=httpx.AsyncClient(transport=Asgi(stage.parts.rpc_app), base_url="http://rpc"),
        )
        await examine(setting, all_checks())
        for case in cases:
            before, begun_s = setting.pace.requests, stage.clock.now()
            result = await run_case(setting, case)
            if result.outcome is not Outcome.SKIPPED:
                waited_s = round(stage.clock.now() - begun_s)
                found[case.name] = setting.pace.requests - before, waited_s
    return found


def counted() -> str:
    with quiet():
        found = run_virtual(lambda: count(all_checks()))
    lines = (f"  {json.dumps(name)}: {json.dumps(cost)}" for name, cost in found.items())
    return "{\n" + ",\n".join(lines) + "\n}\n"


if __name__ == "__main__":
    FILE.write_text(counted(), encoding="utf-8")
