"""A field of another type is the target's failure, with expected and actual, in any answer."""

from random import Random
from typing import Any

import pytest

from tests.campaign import at_length
from tests.hostile.inputs import places, replaced
from tests.mutants.change import Change, Service, all_of
from tests.mutants.honest import own_target
from tests.mutants.middleware import Answer, Request, Serve, answer, middleware, requests
from tests.mutants.paying import PAY
from x402sim import World
from x402sim.report.results import Outcome, Result
from x402sim.suite.service.engine import all_checks
from x402sim.suite.service.local import judge

LONG = "9" * 5000
HUGE = 10**400
OTHERS: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1.5, 300.0, 1e300, 2**63, HUGE),
    *("", "x", "300", "0x", "\ud7ff\0", LONG, [], ["x"], [[]], {}, {"x": None}, {"": []}),
)
"""Values of every type, and some that are of the right type and too large."""


def at_random(seed: int, share: float = 0.25) -> Change:
    """Twist a share of all answers: one field of each gets a value of another type."""
    luck = Random(seed)

    async def handler(_: Service, request: Request, serve: Serve) -> Answer:
        reply = await serve(request)
        if luck.random() > share or reply.json is None:
            return reply
        place = luck.choice(places(reply.json))
        return answer(reply.status, replaced(reply.json, place, luck.choice(OTHERS)))

    return middleware(handler)


def everywhere(at: tuple[str | int, ...], other: Any) -> Change:
    """Give one field of every answer that has it another value."""

    async def handler(_: Service, request: Request, serve: Serve) -> Answer:
        reply = await serve(request)
        body = reply.json
        if body is None or at not in places(body):
            return reply
        return answer(reply.status, replaced(body, at, other))

    return middleware(handler)


# --- the tests ----------------------------------------------------------------------


CHECKS = all_checks()
WANTED = "paymentRequirements"
FIELDS: dict[tuple[str, ...], str] = {
    (WANTED, "scheme"): "2.1/scheme",
    (WANTED, "network"): "2.1/network",
    (WANTED, "payTo"): "2.1/pay-to",
    (WANTED, "asset"): "2.1/asset",
    (WANTED, "maxAmountRequired"): "2.1/amount",
    (WANTED, "maxTimeoutSeconds"): "2.1/timeout",
    (WANTED, "resource"): "2.1/resource",
    (WANTED, "description"): "2.1/description-shown",
    (WANTED,): "2.2/body",
    ("paymentId",): "2.2/body",
    ("error",): "2.2/body",
    ("message",): "2.2/body",
    ("network",): "2.2/body",
    ("success",): "4.1/receipt",
    ("txHash",): "4.1/receipt",
    ("timestamp",): "4.1/receipt",
    ("quote", "pair"): "4.2/quote",
    ("quote", "entryPrice"): "4.2/quote",
    ("quote", "bestVenue"): "4.2/quote",
}
"""The fields of our own answers, and the check that must fail if one has another type."""
WRONG: tuple[Any, ...] = (None, True, -1.5, HUGE, [["x"]], {"x": None})

RIGHT: tuple[tuple[tuple[str, ...], Any], ...] = (
    ((WANTED, "maxTimeoutSeconds"), HUGE),
    (("success",), True),
    (("quote", "entryPrice"), -1.5),
    (("quote", "entryPrice"), HUGE),
)
"""What is of the right type, among them."""


def bugs(results: list[Result]) -> list[str]:
    """Return what the engine says of checks that ended in no verdict of their own."""
    reasons = [f"{each.id}: {case.reason}" for each in results for case in each.cases]
    return [reason for reason in reasons if "has a bug" in reason]


@pytest.mark.parametrize("other", WRONG, ids=lambda other: repr(other)[:12])
@pytest.mark.parametrize("at", FIELDS, ids=".".join)
def test_a_field_of_another_type_fails_its_check(at: tuple[str, ...], other: Any) -> None:
    its_own = [check for check in CHECKS if check.id == f"spec/{FIELDS[at]}"]
    world = everywhere(at, other)(World(seed=1))
    (result,) = judge(world, target=own_target(), checks=its_own, has_clock=False)
    if (at, other) in RIGHT:
        assert result.outcome is not Outcome.FAILED
    else:
        assert result.outcome is Outcome.FAILED, result.reason
        assert result.expected
        assert result.actual
    assert bugs([result]) == []


def taken_back(request: Request) -> Request:
    """Return a settlement with the timeout that the service means."""
    body = request.json
    wanted = body.get(WANTED) if isinstance(body, dict) else None
    if not isinstance(wanted, dict) or wanted.get("maxTimeoutSeconds") == 86_400:
        return request
    return request.sending({**body, WANTED: {**wanted, "maxTimeoutSeconds": 300}})


@pytest.mark.parametrize(
    "other", [LONG, *(pytest.param(each, marks=pytest.mark.thorough) for each in ("300", None, 0))]
)
def test_a_timeout_of_another_type_keeps_no_other_check_from_judging(other: Any) -> None:
    at = (WANTED, "maxTimeoutSeconds")
    prefixes = ("spec/1/", "spec/2.", "spec/4.1/", "spec/5/")
    checks = [check for check in CHECKS if check.id.startswith(prefixes) and not check.waits]
    shown = all_of(everywhere(at, other), requests(PAY, taken_back))
    world = shown(World(seed=1))
    results = judge(world, target=own_target(), checks=checks)
    assert bugs(results) == []
    unclear = [result.id for result in results if result.outcome is Outcome.INCONCLUSIVE]
    assert len(results) == len({check.id for check in checks})
    assert unclear == []


SEEDS = range(10, 10 + at_length(2, 30))
MANY = [
    *((1, 0.02, False), (3, 0.3, False)),
    *((seed, 0.05, has_clock) for seed in SEEDS for has_clock in (True, False)),
]


@pytest.mark.parametrize(
    ("seed", "share", "has_clock"),
    [
        (2, 0.1, False),
        *(pytest.param(*each, marks=pytest.mark.thorough) for each in MANY),
    ],
)
def test_no_answer_of_another_type_is_a_bug_of_a_check(
    seed: int, share: float, has_clock: bool
) -> None:
    """A share of all answers has one field of another type."""
    world = at_random(seed, share)(World(seed=seed))
    results = judge(world, target=own_target(), checks=CHECKS, has_clock=has_clock)
    assert bugs(results) == []
