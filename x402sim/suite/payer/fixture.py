"""The judge of payers as tests: what the fixture `x402_payer_case` plays, one play a test."""

from collections.abc import Sequence

from x402sim.report.results import CaseResult
from x402sim.suite.fixture import CaseOfTest, chosen
from x402sim.suite.payer.case import PayerCase
from x402sim.suite.payer.judge import Judge
from x402sim.suite.payer.start import Buy, Function
from x402sim.suite.payer.subject import ONE_THING, PAYER, all_cases, flows_in, is_open
from x402sim.suite.played import skipped


async def _judged(buy: Buy, cases: Sequence[PayerCase]) -> list[tuple[PayerCase, CaseResult]]:
    judge, first = Judge(payer=Function(buy)), cases[0]
    if not is_open(first, ()):
        gate = next(case for case in all_cases() if case.played_as == first.gate)
        if not is_open(first, await judge.passed([gate])):
            return [(case, skipped(case, ONE_THING, lacks=False)) for case in cases]
    return [each async for each in judge.run(cases, lambda check_id: None)]


def plays(
    flows: str = "v2", only: str | Sequence[str] = (), *, strict: bool = False
) -> list[CaseOfTest]:
    """Return the plays in these payment flows, separated by commas; `only` as on the command line.

    Raises `ValueError` for an unknown flow or id.
    """
    wanted, found = flows_in(flows), chosen(all_cases(), only, PAYER.documents)
    return [CaseOfTest(cases, _judged, strict) for cases in found if cases[0].flow in wanted]
