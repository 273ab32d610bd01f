"""Section 9: paths carry no version segment."""

import re

from x402sim.suite.check import check
from x402sim.suite.expect import require
from x402sim.suite.probe import Probe
from x402sim.suite.verdict import Inconclusive

VERSION = re.compile(r"v\d+([._-]\d+)*|\d+\.\d+(\.\d+)?|\d{4}-\d{2}-\d{2}", re.IGNORECASE)


def versions(path: str) -> list[str]:
    """Return the segments of a path that are a version."""
    return [part for part in path.split("/") if VERSION.fullmatch(part)]


@check("9/no-version-segment", baseline="unpaid")
async def paths_without_a_version(probe: Probe) -> None:
    """The endpoints have paths without a version, and so has the resource of a 402."""
    target = probe.target
    resource = (await probe.challenge()).requirements.get("resource")
    require("a resource without a version", not versions(str(resource)), resource)
    paths = [target.protected.path, target.pay.path]
    paths += [each.path for each in (target.sessions, target.agents, target.llms) if each.exists]
    for path in paths:
        require("a path without a version", not versions(path), path)


@check("9/no-version-segment")
async def the_protected_endpoint_is_not_behind_a_version(probe: Probe) -> None:
    """The protected endpoint is not behind a version segment."""
    path = probe.target.protected.path
    answer = await probe.ask()
    if answer.status not in (404, 405):
        return
    first, rest = path[1:].partition("/")[::2]
    for version in ("v1", "v2", "1.0"):
        for elsewhere in (f"/{version}{path}", f"/{first}/{version}/{rest}"):
            other = await probe.ask(path=elsewhere)
            is_there = other.status == 402 or other.has_content
            require(f"{path}, as it is", not is_there, f"{elsewhere} answers instead")
    raise Inconclusive(f"the protected endpoint is not found: {answer.status}")


@check("9/no-version-segment", baseline="unpaid")
async def the_settlement_endpoint_is_there(probe: Probe) -> None:
    """The settlement endpoint exists at its path without a version."""
    challenge = await probe.challenge()
    answer = await probe.settle(challenge, probe.money.sign(challenge, probe.money.stranger()))
    require("a settlement endpoint", answer.status not in (404, 405), answer.summary)
