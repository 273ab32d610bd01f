"""Cases of checks, as the tests of the engine need them."""

from collections.abc import Awaitable, Callable
from typing import Any

from x402sim.suite.service.check import Check, check
from x402sim.suite.service.probe import Probe


def case(
    clause: str,
    act: Callable[[Probe], Awaitable[object]] | None = None,
    *,
    title: str = "A case.",
    ends: Exception | None = None,
    **options: Any,
) -> Check:
    """Return a check that acts, and ends in one way."""

    async def run(probe: Probe) -> None:
        if act is not None:
            await act(probe)
        if ends is not None:
            raise ends

    return check(clause, title=title, **options)(run)
