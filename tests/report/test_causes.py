"""Failures of one cause stand together: the mutants, the defects of independent services, a toy's five.

`seen` makes results of the tables of what failed: without texts, so that the ids alone decide.
"""

import tomllib
from collections.abc import Collection, Mapping
from typing import Any

import pytest

from tests.independent.implementation import world
from tests.independent.matrix import Trial, kept as independent, try_one
from tests.mutants import matrix
from x402sim.spec.clauses import Level
from x402sim.spec.ground import folder
from x402sim.suite.case import of_id
from x402sim.suite.engine import result
from x402sim.suite.payer.subject import all_cases as payers
from x402sim.suite.report.causes import by_cause, cause, causes, repair
from x402sim.suite.report.results import DemandKey, Evidence, Outcome, Result
from x402sim.suite.subject import subject
from x402sim.suite.verdict import Violation

NAMES, *ROWS = matrix.kept()
IDS = NAMES[len(matrix.FIRST) :]


def seen(outcomes: Mapping[str, str]) -> list[Result]:
    return [
        Result(id=name, level="MUST", section="1", outcome=Outcome(outcomes.get(name) or "passed"),
               title=name, expected=name, actual=name, reason="it stopped")
        for name in IDS
    ]  # fmt: skip


def test_each_mutant_is_one_cause_and_most_are_called_by_what_they_break() -> None:
    called, mutants = 0, [row for row in ROWS if row[2]]
    for name, _, breaks, *cells in mutants:
        (group,) = by_cause(seen(dict(zip(IDS, cells, strict=True))))
        assert len(group) == sum(cell in ("failed", "inconclusive") for cell in cells), name
        called += group[0].id in breaks.split()
    assert called >= 0.95 * len(mutants)


def test_most_defects_of_others_are_one_cause_though_no_table_has_them() -> None:
    groups = [
        len(by_cause(seen(dict.fromkeys(failed, "failed"))))
        for row in independent()
        if row["kind"] == "defect"
        and (failed := (row["seen_by_text"] + " " + row["seen_by_us"]).split())
    ]
    assert groups.count(1) >= 0.83 * len(groups)


def heads(failed: Collection[str]) -> list[str]:
    return [each.id for each in causes(seen(dict.fromkeys(failed, "failed")))]


def test_what_no_defect_has_in_common_is_apart() -> None:
    apart = ["spec/2.4/record", "spec/4.5/llms-txt", "spec/8/timeout"]
    assert heads(apart) == apart
    assert heads([]) == []


def failed(name: str, level: Level, demand: str = "", about: str = "") -> Result:
    return Result(
        id=name, level=level, section="1", outcome=Outcome.FAILED, title=name, expected=about,
        actual="", evidence=Evidence(demand, about),
    )  # fmt: skip


def test_that_nothing_is_ever_settled_is_the_first_cause() -> None:
    names = ("spec/2.1/amount", "spec/4.1/settle-on-chain")
    unpaid = [failed(name, "MUST", DemandKey.TRANSFER, "one transfer") for name in names]
    first, second = causes([*unpaid, failed("spec/8/timeout", "MUST")])
    assert (first.id, first.follows) == (names[1], [names[0]])
    assert second.id == "spec/8/timeout"


def test_a_must_comes_before_what_costs_more() -> None:
    found = causes([failed("a", "SHOULD", DemandKey.WITHHELD), failed("b", "MUST", DemandKey.FORM)])
    assert [(each.id, each.loss) for each in found] == [("b", ""), ("a", "goods")]


def test_what_follows_from_what_has_failed_is_no_cause_of_its_own() -> None:
    gas = failed("gas", "SHOULD", "no-gas-for-refused")
    reverts = failed("reverts", "SHOULD", "no-reverts")
    moved = failed("moved", "MUST", "settle-checks", "no transfer")
    kept = failed("kept", "SHOULD", "settle-checks")
    (alone,) = causes([reverts, gas])
    assert (alone.id, alone.follows) == ("gas", ["reverts"])
    (one,) = causes([gas, reverts, kept, moved])
    assert one.cause == "settle does not check what verify checks"
    assert (one.id, one.loss, len(one.follows)) == ("moved", "payers", 3)
    assert len(causes([reverts, gas, moved, failed("valid", "MUST", "refused-is-not-valid")])) == 2


def test_a_cause_is_that_of_the_place_where_a_failure_was_found() -> None:
    """Who shows a payment elsewhere follows a redirect only where there is one."""
    cases = {case.id: case for case in payers()}

    def cause_at(check_id: str, key: str) -> str:
        wrong = Violation(expected="", actual="it sent a payment to localhost", demand=key)
        case = cases[check_id]
        return cause(of_id([case], {case: result(case, wrong)}, ""))

    redirected = "it follows a redirect, and pays there or shows its payment"
    assert cause_at("payer/send/proof-redirected", "payer/hosts") == redirected
    assert cause_at("payer/send/redirect-to-user", "payer/hosts") == redirected
    twice = cause_at("payer/send/paid-and-redirected-307", "payer/one-price")
    assert twice == "it signs another authorization while the first can still be used"
    elsewhere = cause_at("payer/send/resource-elsewhere", "payer/hosts")
    assert (
        elsewhere
        == "it sends a payment, its proof or its key to a host that its task does not name"
    )


@pytest.mark.parametrize(
    ("name", "check_id", "demand", "word"),
    [
        ("facilitator", "kit/fields/amount-zero", "refused-is-not-moved", "a payment of 0"),
        ("facilitator", "kit/spelling/value", "refused-is-not-moved", "decimal digits"),
        ("facilitator", "facilitator/fields/payee", "refused-is-not-moved", "compare payee"),
        ("facilitator", "kit/again/at-once-gas", "no-reverts", "under way"),
        ("facilitator", "kit/token/paused-between-gas", "no-reverts", "simulate"),
        ("payer", "kit/choose/many", "payer/served", "each of `accepts`"),
        ("payer", "kit/accept/null-schema", "payer/served", "null"),
        ("payer", "kit/lost/cut", "payer/served", "send the same payment again"),
    ],
)
def test_a_repair_is_one_of_its_own_case(name: str, check_id: str, demand: str, word: str) -> None:
    case = next(each for each in subject(name).cases() if each.id == check_id)
    wrong = Violation(actual="so", expected="else", demand=demand)
    assert word in repair(of_id([case], {case: result(case, wrong)}, ""))


@pytest.mark.parametrize("name", ["payer", "facilitator", "server"])
def test_each_place_of_a_cause_is_one_of_a_case_and_its_demand_has_words_elsewhere(
    name: str,
) -> None:
    places = {case.id for case in subject(name).cases()}
    words = tomllib.loads((folder(name) / "causes.toml").read_text("utf-8"))
    for place in (each for word in words.values() for each in word.get("at", ())):
        check_id, _, demand = place.partition(": ")
        assert check_id in places
        assert not demand or demand in words, place


@pytest.mark.parametrize("subject", ["service", "payer", "facilitator", "server"])
def test_the_words_of_causes_follow_from_others_and_never_in_a_circle(subject: str) -> None:
    """What is worded alike is one cause."""
    file = folder(subject) / "causes.toml"
    words: dict[str, dict[str, Any]] = tomllib.loads(file.read_text("utf-8"))
    keys = [*words]
    for key, each in words.items():
        assert set(each.get("follows", [])) <= words.keys() - {key}, key
        assert key not in {
            it for other in each.get("follows", []) for it in words[other].get("follows", [])
        }
        alike = [
            other for other in keys[: keys.index(key)] if words[other]["cause"] == each["cause"]
        ]
        assert set(alike) <= set(each.get("follows", [])), key


@pytest.mark.waits  # for sessions to end, in real time
@pytest.mark.thorough
@pytest.mark.timeout(300)
def test_the_five_faults_of_a_toy_are_named_and_no_more() -> None:
    faults = {  # by what they cost: goods, then payers' money, then words
        "entitled_after_verify": "spec/5/stored-records",
        "one_use": "spec/5/cache-first",
        "bare_session_id": "spec/2.6/id-prefix",
        "expired_as_invalid": "spec/7/authorization-expired",
        "timeout_3600": "spec/8/timeout",
    }
    with world() as within:
        toy = try_one(Trial(implementation="fastapi", defect=",".join(faults)), within=within)
    found = causes([*toy.results.values()])
    assert [each.id for each in found] == list(faults.values())
    assert sum(len(each.follows) for each in found) > 15, "what follows is not told as a cause"
