"""`python -m tests.suite.costs`: measure what each case costs our own service.

Writes `conformance/service/costs.json`: the requests of each case, and the seconds in which it waits. A
plan is made of them (`x402sim.suite.service.plan`).
"""

import asyncio
import json

from tests.suite.duo import Duo
from x402sim.clock import stopwatch
from x402sim.report.results import Outcome
from x402sim.suite.service.engine import all_checks, folder, run_case
from x402sim.suite.service.parse_options import parse
from x402sim.suite.service.preflight import examine
from x402sim.suite.service.remote import reach

WAITS_S = 0.25
"""A case that takes longer waits; a shorter one works."""


async def measure(duo: Duo) -> dict[str, list[float]]:
    """Return requests and seconds of each case that runs with a world."""
    found: dict[str, list[float]] = {}
    checks = all_checks()
    async with reach(parse(duo.url, world=duo.control)) as setting:
        await examine(setting, checks)
        for case in checks:
            before, elapsed = setting.pace.requests, stopwatch()
            result = await run_case(setting, case)
            requests, seconds = setting.pace.requests - before, elapsed()
            if result.outcome is not Outcome.SKIPPED:
                found[case.name] = [requests, round(seconds, 1) if seconds > WAITS_S else 0]
    return found


def main() -> None:
    duo = Duo(one_account=True)  # or a case that needs deposits there is skipped
    try:
        found = asyncio.run(measure(duo))
    finally:
        duo.close()
    lines = ",\n".join(f"  {json.dumps(name)}: {json.dumps(cost)}" for name, cost in found.items())
    (folder() / "costs.json").write_text("{\n" + lines + "\n}\n", encoding="utf-8")
    print(f"{len(found)} cases, {sum(cost[0] for cost in found.values()):.0f} requests")


if __name__ == "__main__":
    main()
