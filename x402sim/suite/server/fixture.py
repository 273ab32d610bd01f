"""The judge of servers as tests: what `x402_server_case` plays, one play a test."""

from collections.abc import Sequence

from x402sim.suite.fixture import CaseOfTest, chosen
from x402sim.suite.rooms import Outcomes
from x402sim.suite.row import RoomCase
from x402sim.suite.server.judge import Judge
from x402sim.suite.server.start import Make
from x402sim.suite.server.subject import SERVER, all_cases, item_in, versions_in
from x402sim.suite.started import App


def plays(
    sells: str | Sequence[str],
    versions: str = "v2",
    only: str | Sequence[str] = (),
    *,
    strict: bool = False,
) -> list[CaseOfTest]:
    """Return the plays in these versions of what is sold; `only` as on the command line.

    Raises `ValueError` for an unknown version or id, and for what is no path.
    """
    items = [item_in(each) for each in ([sells] if isinstance(sells, str) else sells)]
    wanted, found = versions_in(versions), chosen(all_cases(), only, SERVER.documents)

    async def judged(make: Make, cases: Sequence[RoomCase]) -> Outcomes:
        return await Judge(subject=App(make), items=items, jobs=1).every(cases)

    return [
        CaseOfTest(cases, judged, strict, certain=True)
        for cases in found
        if cases[0].dialect in wanted
    ]
