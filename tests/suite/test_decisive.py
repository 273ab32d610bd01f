"""A MUST of which a decisive case was not judged has not passed; what was not judged in full is reported."""

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from tests.mutants.changes import Change, all_of
from tests.mutants.messages import Answer
from tests.mutants.middleware import instead
from tests.mutants.rows import MUTANTS
from tests.suite.cases import case
from tests.suite.deployment import Deployment, conformance
from tests.suite.gateway import Gateway, running
from x402sim import World
from x402sim.suite.report.conformance import headline, verdict
from x402sim.suite.report.results import Outcome, Result
from x402sim.suite.service.engine import all_checks
from x402sim.suite.service.local import judge
from x402sim.suite.service.options import Options
from x402sim.suite.service.preflight import examine
from x402sim.suite.service.setting import Setting
from x402sim.suite.service.subject import lacking, not_in_full
from x402sim.suite.service.target import SecondEndpoint, SessionsEndpoint, Target
from x402sim.suite.verdict import (
    CheckFailed,
    Inconclusive,
    Lacking,
    NotApplicable,
    NotReady,
    Skipped,
)

OURS = World(seed=1)
HOLDS = case("2.1/amount", title="It holds.")


def outcome_of(*ends: Exception | None, decisive: bool | str = True) -> Result:
    cases = [
        case("2.1/amount", title=f"Case {n}.", ends=end, decisive=decisive)
        for n, end in enumerate(ends)
    ]
    # every case of `cases.case` has the same name, so each decides the same question
    (result,) = judge(OURS, checks=[HOLDS, *cases])
    return result


def test_what_a_decisive_case_leaves_open_is_inconclusive_in_the_headline() -> None:
    result = outcome_of(Skipped("the file does not say"))
    assert result.outcome is Outcome.INCONCLUSIVE
    assert result.reason == "a decisive case was not judged: Case 0: the file does not say"
    assert headline(result) == "inconclusive (1 of 2 cases passed)"
    assert verdict([result])[0] is Outcome.INCONCLUSIVE


def test_where_a_need_is_lacking_it_is_skipped_and_fails_no_run() -> None:
    result = outcome_of(Lacking("give --world"))
    assert (result.outcome, result.in_part) == (Outcome.SKIPPED, "1 of 2 cases")
    assert headline(result) == "skipped (1 of 2 cases passed)"
    assert verdict([result]) == (
        Outcome.PASSED, "No MUST demand failed: 0 held, 1 skipped (1 judged in part)."
    )  # fmt: skip


@pytest.mark.parametrize("ends", [(NotApplicable("none"),), (None, Skipped("?")), (None,)])
def test_what_does_not_apply_or_was_decided_by_another_case_has_passed(ends: Any) -> None:
    assert outcome_of(*ends).outcome is Outcome.PASSED


@pytest.mark.parametrize(
    ("end", "outcome"),
    [(CheckFailed("", 1, 2), Outcome.FAILED), (Inconclusive("no"), Outcome.INCONCLUSIVE)],
)
def test_a_failure_stays_one(end: Exception, outcome: Outcome) -> None:
    (result,) = judge(OURS, checks=[
        case("2.1/amount", ends=end), case("2.1/amount", ends=Skipped("?"), decisive="another"),
    ])  # fmt: skip
    assert result.outcome is outcome


def test_only_a_must_needs_its_decisive_case() -> None:
    (result,) = judge(OURS, checks=[
        case("2.1/amount", level="SHOULD"),
        case("2.1/amount", level="SHOULD", ends=Skipped("?"), decisive=True),
    ])  # fmt: skip
    assert result.outcome is Outcome.PASSED


# --- a second path that is sold ---------------------------------------------------------------

BINDING = [each for each in all_checks() if each.id == "spec/5/resource-binding"]
MARKET = "/api/perp/market"
SILENT = all_of(*(
    instead(path, Answer(404, {"content-type": "application/json"}, b"{}"))
    for path in ("/", "/llms.txt", "/openapi.json", "/.well-known/x402")
))  # fmt: skip
"""A service that tells nothing of what it sells."""


def bound(*changes: Change, path: str | None, has_sessions: bool = False) -> Result:
    target = Target(
        second=SecondEndpoint(path=path), sessions=SessionsEndpoint(exists=has_sessions)
    )
    (result,) = judge(all_of(*changes)(OURS), target=target, checks=BINDING)
    return result


HOLE = MUTANTS["one-path-for-the-other"].world


@pytest.mark.parametrize("changes", [(), (SILENT,)])
def test_a_payment_that_opens_the_other_path_fails_where_the_path_is_known(
    changes: tuple[Change, ...],
) -> None:
    """The target file names it, or the service's own documents do."""
    result = bound(HOLE, *changes, path=MARKET if changes else None)
    assert result.outcome is Outcome.FAILED
    assert result.title.startswith("The payment for one path opens no other path that is sold")
    assert bound(*changes, path=MARKET).outcome is Outcome.PASSED


def test_with_the_second_path_declared_absent_it_does_not_apply() -> None:
    result = bound(SILENT, path="")
    assert result.outcome is Outcome.PASSED
    assert [each.applies for each in result.cases if "no other path" in each.title] == [False]


def test_what_the_specification_sells_needs_no_key() -> None:
    assert bound(SILENT, path=None, has_sessions=True).outcome is Outcome.PASSED


def test_a_second_path_that_costs_nothing_is_told() -> None:
    result = bound(path="/healthz")
    assert result.outcome is Outcome.INCONCLUSIVE
    assert "GET /healthz (second.path in the target file) asks for no payment" in result.reason


class Silent(Gateway):
    """Tells nothing of what it sells."""

    async def answer(self, request: Request) -> Response:
        if request.url.path in ("/", "/llms.txt", "/openapi.json", "/.well-known/x402"):
            return JSONResponse({"error": "none"}, 404)
        return await super().answer(request)


HELD = 0, "No MUST demand failed: 1 held"


@pytest.mark.parametrize(
    ("keys", "code", "said"),
    [
        ("", 2, "No verdict. Inconclusive MUST checks: 1."),
        pytest.param('[second]\npath = ""\n', *HELD, marks=pytest.mark.thorough),
        pytest.param(f'[second]\npath = "{MARKET}"\n', *HELD, marks=pytest.mark.thorough),
    ],
)
def test_the_exit_code_says_whether_a_second_path_was_judged(
    deployment: Deployment, tmp_path: Path, keys: str, code: int, said: str
) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(f"[sessions]\nexists = false\n{keys}")
    with running(Silent(deployment.url, api_key=None)) as gateway:
        asked = (gateway.url, "--target", str(file), "--only", "5/resource-binding")
        done = conformance(*asked, "--world", deployment.control)
        without = conformance(*asked)
    assert (done.returncode, said in done.stdout) == (code, True), done.all
    assert without.returncode == 0, "what it needs was not given: as before"
    assert "0 held, 1 skipped (1 judged in part)" in without.stdout


REFUNDS = [case for case in all_checks() if case.id == "spec/3/expiry-refund"]


def judged(refund_within_s: int, **options: Any) -> Result:
    """Judge the refunds of a service that refunds nothing, whose clock nobody turns."""
    sessions = SessionsEndpoint(duration_unit_s=1, refund_within_s=refund_within_s)
    (result,) = judge(
        MUTANTS["never-refunded"].world(World(seed=1)),
        target=Target(sessions=sessions), checks=REFUNDS, has_clock=False, patient=False,
    )  # fmt: skip
    return result


def judged_apart() -> Result:
    """Judge an id of which a case that is not decisive leaves open what it is about."""
    cases = [case("2.1/amount"), case("2.1/amount", ends=Skipped("not known"))]
    (result,) = judge(World(seed=1), checks=cases)
    return result


def test_a_must_that_was_judged_in_part_is_named() -> None:
    """One without the decisive case, such as that of a refund, has not passed."""
    result = judged(0)
    assert (result.outcome, result.in_part) == (Outcome.SKIPPED, "3 of 7 cases")
    assert "set sessions.refund_within_s, and give --patient" in result.reason
    (said,) = not_in_full([judged_apart()])
    assert said == "not judged in full (1 of 2 cases): spec/2.1/amount, a MUST: not known"
    assert lacking([result], (), REFUNDS) == lacking([result], ("expiry",), REFUNDS) == []
    for lacks in lacking([result], ("refunds",), REFUNDS):
        assert lacks.startswith("--require refunds: spec/3/expiry-refund was not judged in full")


@pytest.mark.parametrize(
    ("defect", "outcome", "lacks"),
    [("served-after-expiry", Outcome.FAILED, 0), ("never-expires", Outcome.INCONCLUSIVE, 1)],
)
def test_an_end_that_the_service_tells_is_judged_without_the_unit(
    defect: str, outcome: Outcome, lacks: int
) -> None:
    """One that is too far away is not waited for, and --require expiry says so."""
    world = MUTANTS[defect].world(World(seed=1))
    (result,) = judge(world, target=Target(), checks=REFUNDS, has_clock=False, patient=False)
    assert (result.outcome, len(lacking([result], ("expiry",), REFUNDS))) == (outcome, lacks)


def test_with_the_key_a_refund_that_never_comes_fails() -> None:
    result = judged(10)
    assert result.outcome is Outcome.FAILED
    sent = result.exchanges[0].request
    assert sent
    assert sent.line.startswith("POST http"), "it is the payment of the deposit"
    assert sent.line.endswith("/api/pay")
    assert '"paymentHeader":{"from":' in sent.body
    assert not_in_full([result]) == lacking([result], ("refunds",), REFUNDS) == []


@pytest.mark.parametrize(
    ("refund_within_s", "patient", "has_world", "said"),
    [
        (0, False, True, "set sessions.refund_within_s in the target file, or --patient"),
        (10, False, False, "give --world"),
        (10, False, True, None),
        (0, True, True, None),
    ],
)
def test_refunds_can_be_required(
    refund_within_s: int, patient: bool, has_world: bool, said: str | None
) -> None:
    target = Target(sessions=SessionsEndpoint(refund_within_s=refund_within_s))
    http: Any = httpx.AsyncClient(base_url="http://127.0.0.1:9")
    options = Options(target=target, patient=patient, require=("refunds",))
    setting = Setting(options=options, http=http, control=http if has_world else None)
    with pytest.raises(NotReady) as raised:
        asyncio.run(examine(setting, REFUNDS))
    if said is None:
        assert "no answer from" in str(raised.value), "nothing is lacking; nobody is there"
    else:
        assert "--require refunds: this run lacks" in str(raised.value)
        assert said in str(raised.value)
