"""Cases as tests need them: checks that act and end in one way, and those of a subject by their ids."""

import re
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from x402sim.suite.case import AnyCase
from x402sim.suite.service.case import ServiceCase, case as declared
from x402sim.suite.service.probe import Probe


def case(
    clause: str,
    act: Callable[[Probe], Awaitable[object]] | None = None,
    *,
    title: str = "A case.",
    ends: Exception | None = None,
    decisive: bool | str = False,
    **options: Any,
) -> ServiceCase:
    async def run(probe: Probe) -> None:
        if act is not None:
            await act(probe)
        if ends is not None:
            raise ends

    return declared(clause, title=title, decisive=decisive, **options)(run)


def names(text: str) -> list[str]:
    """Return the names of cases that a text has: "server/many/again [v2 v1]" are two of one id."""
    found = re.findall(r"(\S+(?: \(.+?\))?)(?: \[(.+?)\])?", text)
    return [
        f"{check_id} [{dialect}]" if dialect else check_id
        for check_id, dialects in found
        for dialect in dialects.split() or [""]
    ]


def with_ids(every: Iterable[AnyCase], ids: str) -> list[AnyCase]:
    """Return the cases that a text names, in their own order; each must be there."""
    wanted = names(ids)
    found = [case for case in every if case.name in wanted]
    assert len(found) == len(wanted), {*wanted} - {case.name for case in found}
    return found
