"""The judge of servers as tests: what `x402_server_case` plays, one play a test."""

from collections.abc import Sequence

from x402sim.suite.fixture import CaseOfTest, chosen
from x402sim.suite.rooms import Outcomes
from x402sim.suite.row import RoomCase
from x402sim.suite.server.judge import Judge
from x402sim.suite.server.start import Make
from x402sim.suite.server.subject import (
    HANDLERS,
    SERVER,
    all_cases,
    item_in,
    offered,
    versions_in,
)
from x402sim.suite.started import App


def plays(
    sells: str | Sequence[str],
    versions: str = "v2",
    only: str | Sequence[str] = (),
    *,
    strict: bool = False,
    shared_store: bool = False,
    **handlers: str,
) -> list[CaseOfTest]:
    """Return the plays of what is sold, of paths in these versions; `only` as on the command line.

    `handlers` are its options that name a request, such as `failing` and `slow`. Raises
    `ValueError` for an unknown version, id or option, and for what is no path.
    """
    if unknown := handlers.keys() - set(HANDLERS):
        raise ValueError(f"{', '.join(sorted(unknown))}: options are {', '.join(HANDLERS)}")
    special = {name: item_in(text) for name, text in handlers.items()}
    items = [item_in(each) for each in ([sells] if isinstance(sells, str) else sells)]
    wanted = offered(items) if items[0].tool else versions_in(versions)
    found = chosen(all_cases(), only, SERVER.documents)

    async def judged(make: Make, cases: Sequence[RoomCase]) -> Outcomes:
        judge = Judge(
            subject=App(make),
            dialects=(cases[0].dialect,),
            items=items,
            handlers=special,
            shares=shared_store,
            jobs=1,
        )
        return await judge.every(cases)

    return [CaseOfTest(cases, judged, strict) for cases in found if cases[0].dialect in wanted]
