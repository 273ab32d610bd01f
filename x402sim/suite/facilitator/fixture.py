"""The judge of facilitators as tests: what `x402_facilitator_case` plays, one play a test."""

from collections.abc import Sequence

from x402sim.suite.facilitator.judge import Judge
from x402sim.suite.facilitator.start import Make
from x402sim.suite.facilitator.subject import FACILITATOR, all_cases, dialects_in
from x402sim.suite.fixture import CaseOfTest, chosen
from x402sim.suite.rooms import Outcomes
from x402sim.suite.row import RoomCase
from x402sim.suite.started import App


async def _judged(make: Make, cases: Sequence[RoomCase]) -> Outcomes:
    return await Judge(subject=App(make), dialects=(cases[0].dialect,), jobs=1).every(cases)


def plays(
    dialects: str = "v2", only: str | Sequence[str] = (), *, strict: bool = False
) -> list[CaseOfTest]:
    """Return the plays in these dialects, separated by commas; `only` as on the command line.

    Raises `ValueError` for an unknown dialect or id.
    """
    wanted, found = dialects_in(dialects), chosen(all_cases(), only, FACILITATOR.documents)
    return [CaseOfTest(cases, _judged, strict) for cases in found if cases[0].dialect in wanted]
