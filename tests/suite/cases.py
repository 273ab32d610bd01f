"""Cases as tests need them: checks that act and end in one way, and those of a subject by their ids."""

from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from x402sim.suite.row import AnyPlayed
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


def with_ids(every: Iterable[AnyPlayed], ids: str) -> list[AnyPlayed]:
    """Return the cases with these ids, with spaces between them; each must be there."""
    found = [case for case in every if case.id in ids.split()]
    assert len(found) == len(ids.split()), set(ids.split()) - {case.id for case in found}
    return found
