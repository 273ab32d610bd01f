"""Each demand on payers has a defect that it catches; what honest payers do differently is left alone."""

import asyncio
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from tests.campaign import at_length
from tests.suite.cases import with_ids
from tests.suite_payer.payer import Payer
from x402sim.suite.case import by_play, of_id
from x402sim.suite.dialect import Dialect
from x402sim.suite.engine import result
from x402sim.suite.payer.case import PayerCase, Violation
from x402sim.suite.payer.play import Bound, Function
from x402sim.suite.payer.subject import PayerJudge, all_cases
from x402sim.suite.report.causes import causes
from x402sim.suite.report.exchange import record
from x402sim.suite.report.results import CaseResult, Outcome

DEFECTS = {
    "signs again": "payer/lost/events-break-off [mcp] payer/budget/instalments [v2] payer/lost/no-answer-before-settling [v2] payer/lost/slow [v1] payer/lost/cut [mcp] "
    "payer/hostile/endless-goods [v2] payer/lost/error-before-settling [v1] payer/extension/identifier [v2] "
    "payer/lost/record-missing [steps] payer/lost/record-error [steps] payer/lost/record-oversized [steps] "
    "payer/lost/no-answer-after-settling [v1 upto] payer/lost/asked-again [v2] payer/lost/pending [mcp] "
    "payer/lost/refused-after-settling [steps] payer/lost/conflict [session]",
    "signs again on 5xx": "payer/lost/error-after-settling [v2]",
    "tries the next offer": "payer/lost/refused-for-good [v2 v1]",
    "pays in both versions": "payer/choose/second-network [v2]",
    "signs again on 429": "payer/lost/refused-for-good [v2 v1]",
    "forgets": "payer/lost/for-good [steps] payer/lost/refused-for-good [v1]",
    "believes refusals": "payer/lost/refused-for-good [v2] payer/lost/again-dearer [v1] payer/clock/behind-1800 [v2] "
    "payer/budget/paid-and-asked-for-ever [v1]",
    "demands a receipt": "payer/lost/no-receipt [v2] payer/lost/false-receipt [v1] payer/lost/unreadable-receipt [v2]",
    "pays what is asked next": "payer/lost/again-other-payee [v2] payer/lost/asked-again [v1] payer/lost/again-over-cap [v2] payer/lost/again-over-cap [mcp] payer/lost/again-other-asset [v1]",
    "pays anew for goods": "payer/lost/goods-no-answer [steps] payer/lost/goods-error [steps] "
    "payer/lost/goods-asked-again [session] payer/lost/goods-empty [steps] payer/lost/goods-cut [session] "
    "payer/lost/goods-slow [steps]",
    "no cap": "payer/sign/price-over-cap [v1] payer/sign/price-huge [v2] payer/sign/price-over-cap [steps upto permit2] "
    "payer/choose/first-too-dear [v2]",
    "trusts decimals": "payer/sign/decimals [v2]",
    "reads tokens": "payer/sign/whole-tokens [v1] payer/sign/fraction [v2]",
    "signs negatives": "payer/sign/free-money [steps] payer/sign/free-money [v2]",
    "any asset": "payer/sign/asset [v2 steps upto] payer/choose/second-network [mcp]",
    "any network": "payer/sign/network [v2 v1 upto] payer/choose/second-network [v2]",
    "believes extra": "payer/sign/domain-in-extra [v2 mcp permit2 upto]",
    "any scheme": "payer/sign/scheme [v2] payer/choose/other-schemes [v1]",
    "copies the window": "kit/sign/window-of-years [v2 upto]",
    "windows in milliseconds": "payer/control/buys-window-ends [v1 upto] kit/control/buys-window-as-offered [v1]",
    "a window of an hour": "kit/control/buys-window-as-offered [mcp permit2]",
    "counts nonces": "payer/control/buys-nonce [v2 upto]",
    "overpays": "payer/lost/error-in-200 [v1] payer/control/buys [v2]",
    "pays another": "payer/control/buys [v1] payer/control/buys [steps] payer/lost/asked-again [v2] payer/sign/whole-tokens [v2]",
    "tips": "payer/control/buys [mcp] payer/lost/asked-again [session]",
    "tips and turns the chain back": "payer/control/buys [v2]",
    "leaves one waiting": "payer/control/buys [v1]",
    "sends its key": "payer/control/buys [v2] payer/lost/asked-again [v1]",
    "approves all": "payer/control/buys [v2] payer/sign/asset [steps]",
    "permits all": "payer/control/buys [v1] payer/control/buys [v2]",
    "lets another receive": "payer/control/buys [v1] payer/lost/cut [mcp]",
    "pays twice": "payer/control/buys [v2] payer/control/buys [session]",
    "compares as text": "payer/sign/price-over-cap [v2] payer/choose/first-too-dear [v1]",
    "looks before it asks": "payer/lost/again-over-cap [v1] payer/lost/again-over-cap [v2]",
    "believes the window": "payer/lost/for-good [v2] payer/lost/for-good [mcp]",
    "locks nothing": "kit/budget/started-twice [v2] kit/budget/started-twice [steps] kit/budget/started-twice [mcp]",
    "takes any 200": "kit/lost/error-in-200 [v1]",
    "accepts another": "payer/control/accepted [v2]",
    "follows anywhere": "payer/send/redirect-to-port [v2] payer/send/redirect-to-name [v1] "
    "payer/send/redirect-to-user [v2]",
    "keeps headers on redirects": "payer/send/paid-and-redirected-307 [v2] payer/send/paid-and-redirected-307-along [v1] "
    "payer/send/proof-redirected [steps] payer/send/proof-redirected [session]",
    "believes prose": "payer/send/asked-in-prose [v2] payer/send/tip-in-prose [v1] payer/send/asked-in-prose [mcp] payer/hostile/page [v2]",
    "pays any status": "payer/send/asked-with-403 [v1] payer/send/asked-with-500 [v2]",
    "only the first offer": "kit/choose/second-network [v1] kit/choose/other-schemes [v2] kit/choose/first-too-dear [v1] "
    "kit/choose/many [v2]",
    "takes upfront": "payer/choose/flow [v2]",
    "demands its own scheme": "kit/accept/https-behind-proxy [v1]",
    "demands checksums": "kit/accept/small-letters [v2]",
    "knows its extra": "kit/accept/more-in-extra [v2]",
    "drops extensions": "payer/accept/extension-echoed [v2]",
    "signs in anywhere": "payer/extension/sign-in-elsewhere [v2]",
    "one id for all": "payer/extension/identifier-same [v2]",
    "no limits": "kit/hostile/endless-402 [v2]",
    "storms": "kit/budget/paid-and-asked-for-ever [v2]",
    "valid from now": "kit/clock/behind-30 [v2]",
    "a window of ten seconds": "kit/clock/ahead-30 [v1]",
    "drops the payment of tools": "payer/control/buys [mcp]",
    "prints nothing": "payer/control/buys [v1]",
    "gives up": "kit/lost/no-answer-after-settling [v2] kit/lost/error-after-settling [v1] kit/lost/asked-again [mcp] "
    "kit/lost/refused-after-settling [v2] kit/lost/pending [steps] kit/lost/cut [v1] kit/lost/conflict [v2] kit/lost/slow [v2] "
    "kit/lost/goods-no-answer [steps] kit/lost/goods-error [session] kit/lost/goods-asked-again [steps] "
    "kit/lost/goods-cut [steps] kit/lost/goods-slow [session] kit/extension/identifier [v2] kit/lost/events-break-off [mcp] kit/lost/error-before-settling [v2]",
    "demands a receipt and gives up": "kit/lost/no-receipt [v2] kit/lost/false-receipt [v1] kit/lost/unreadable-receipt [v2]",
    "never stops": "kit/hostile/deep-402 [v1] kit/hostile/huge-402 [v2]",
    "expects a 402": "kit/accept/free [v2]",
    "refuses long offers": "kit/accept/an-hour [v1]",
    "demands a schema": "kit/accept/null-schema [v1]",
    "demands one version": "kit/accept/both-versions [v2]",
    "refuses extensions": "kit/accept/extension [v2]",
    "opens sessions for ever": "payer/budget/session-spent [session] payer/budget/session-short [session] "
    "payer/budget/session-refund-claimed [session] payer/budget/session-renamed [session] "
    "payer/budget/session-over-debited [session]",
    "a budget for each call": "payer/budget/calls [v2 upto] payer/budget/calls-unanswered [v1 upto] payer/budget/calls-unanswered (nothing used) [upto] payer/budget/parallel [steps]",
    "races its budget": "payer/budget/parallel [v2] payer/budget/parallel [v1]",
    "trusts the resource": "payer/send/resource-elsewhere [v2] payer/send/resource-elsewhere [v1]",
    "reads no events": "payer/accept/events [mcp]",
    "signs for another spender": "payer/control/buys [permit2 upto] payer/sign/whole-tokens [upto]",
    "signs for the older proxy": "payer/control/buys [upto]",
    "names another facilitator": "payer/control/buys [upto] payer/lost/refused-for-good [upto]",
    "approves Permit2 without limit": "payer/control/buys [permit2 upto] payer/sign/price-over-cap [upto] payer/lost/refused-for-good (allowance) [permit2]",
    "approves Permit2 when asked": "payer/lost/refused-for-good (allowance) [permit2 upto]",
    "permits Permit2 without limit": "payer/sign/sponsored [permit2 upto]",
    "counts what was used": "payer/budget/calls-unanswered (nothing used) [upto]",
}  # fmt: skip
"""What a payer gets wrong, and the ids that catch it."""
ALSO = {
    "one id for all": "signs again",
    "any asset": "any network",
    "reads tokens": "no cap",
    "signs negatives": "no cap",
    "pays what is asked next": "no cap and any asset",
}
"""What else has to be wrong for a defect to show."""
HONEST = [
    frozenset(),
    frozenset({"gives up"}),
    frozenset({"valid from 0", "cheapest first", "drops extensions"}),
    frozenset({"buys one thing", "valid from then", "signs in", "takes empty answers"}),
]
"""What honest payers do differently."""


def judged(
    payer: Payer, cases: Iterable[PayerCase], takes_no: frozenset[Bound] = frozenset()
) -> dict[str, CaseResult]:
    """Judge by these cases, and return what came of each."""

    async def main() -> dict[str, CaseResult]:
        with ThreadPoolExecutor(32) as threads:
            asyncio.get_running_loop().set_default_executor(threads)
            judge = PayerJudge(payer=Function(payer), jobs=4, takes_no=takes_no)
            found = judge.played(list(cases), lambda check_id: None)
            return {case.name: result async for case, result in found}

    return asyncio.run(main())


def failures(payer: Payer, wanted: Iterable[PayerCase], patience_s: float) -> dict[str, CaseResult]:
    """Play these cases, and return what failed; only what does not fail is played again.

    That a failure is played again before it is reported is shown in `test_judging`.
    """
    found: dict[str, CaseResult] = {}

    async def look(judge: PayerJudge, group: list[PayerCase]) -> None:
        for again in ("", " again"):  # the first is no proof if the judge answered too late
            played = await judge.play(group[0], again)
            failed = {case: it for case in group if isinstance(it := case.test(played), Violation)}
            if len(failed) == len(group):
                break
        for case, it in failed.items():
            wrong = replace(it, loss=None)
            found[case.name] = result(case, wrong, record(played.exchanges))

    async def main() -> None:
        with ThreadPoolExecutor(32) as threads:
            asyncio.get_running_loop().set_default_executor(threads)
            judge = PayerJudge(payer=Function(payer), patience_s=patience_s, jobs=4)
            await asyncio.gather(*(look(judge, group) for group in by_play(wanted)))

    asyncio.run(main())
    return found


def cases(ids: str) -> list[PayerCase]:
    return with_ids(all_cases(), ids)


CAUSES = {"sends its key": "payer/hosts", "prints nothing": "payer/served"}
PATIENCE_S = {"no limits": 5, "never stops": 3}
"""How long a start may take that does not end by itself: longer than the deadline of a payer below."""


@pytest.mark.parametrize("defect", DEFECTS)
def test_a_defect_is_caught(defect: str) -> None:
    wanted = cases(DEFECTS[defect])
    with_it = frozenset(filter(None, (defect, ALSO.get(defect))))
    payer = Payer(with_it, timeout_s=2, deadline_s=2)
    found = failures(payer, wanted, PATIENCE_S.get(defect, 20))
    assert [case.name for case in wanted if case.name not in found] == [], "missed"
    if defect in CAUSES:
        assert {found[case.name].evidence.demand for case in wanted} == {CAUSES[defect]}
    told = causes([of_id([case], {case: found[case.name]}, "") for case in wanted])
    assert all(each.repair for each in told), (
        "conformance/payer/causes.toml says what is wrong, and how to repair it"
    )
    assert len(told) == 1 + (defect in ALSO and defect.startswith("pays what"))


def test_every_demand_has_a_defect_that_it_catches() -> None:
    """In some payment flow: a defect is the same in all."""
    caught = {case.id for ids in DEFECTS.values() for case in cases(ids)}
    demanded = {case.id for case in all_cases() if not case.id.startswith("silent/")}
    assert demanded - caught == set()


@pytest.mark.parametrize(
    "flow",
    [
        Dialect.V2,
        *(pytest.param(it, marks=pytest.mark.thorough) for it in (Dialect.STEPS, Dialect.UPTO)),
    ],
)
def test_an_honest_payer_passes_everything(flow: Dialect) -> None:
    mine = [case for case in all_cases() if case.dialect is flow and not case.waits_s]
    found = judged(Payer(), mine)
    assert [name for name, result in found.items() if result.outcome is Outcome.FAILED] == []
    assert len(found) > 60


@pytest.mark.thorough
@pytest.mark.parametrize(
    "habits", at_length(HONEST[-1:], HONEST), ids=lambda habits: ", ".join(sorted(habits))
)
def test_no_must_accuses_an_honest_payer(habits: frozenset[str]) -> None:
    found = judged(Payer(habits=habits), all_cases())
    failed = {name for name, result in found.items() if result.outcome is not Outcome.PASSED}
    musts = {case.name for case in all_cases() if case.level == "MUST"}
    assert failed & musts == set()
