"""Section 9: whether paths carry a version segment; versioning is not shown."""

import re

from x402sim.suite.service.case import case
from x402sim.suite.service.probe import Probe

VERSION = re.compile(r"v\d+([._-]\d+)*|\d+\.\d+(\.\d+)?|\d{4}-\d{2}-\d{2}", re.IGNORECASE)


def versions(path: str) -> list[str]:
    """Return the version segments of a path."""
    return [part for part in path.split("/") if VERSION.fullmatch(part)]


@case(
    "9/no-version-segment",
    title="Whether the paths of the endpoints carry a version segment.",
)
async def paths_without_a_version(probe: Probe) -> None:
    target = probe.target
    paths = [target.protected.path, target.pay.path]
    paths += [each.path for each in (target.sessions, target.agents, target.llms) if each.exists]
    found = [path for path in paths if versions(path)]
    probe.observe(f"paths with a version: {', '.join(found) or 'none'}")
