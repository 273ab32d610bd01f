"""A small part of the campaign every day; a fourth of it with `-m thorough`.

`python -m tests.campaign` runs the whole of it.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

import pytest

from tests.campaign import at_length, seed
from tests.hostile.attack import Attack, attack, attack_and_measure
from tests.hostile.documented import documented
from tests.hostile.inputs import KINDS
from tests.hostile.memory import exceeded, payments
from tests.hostile.town import town
from tests.hostile.wire import over_tcp
from tests.money import Law
from tests.mutants.change import all_of
from tests.mutants.rows import MUTANTS
from x402sim.http import web
from x402sim.service import content


async def _attacked(seed: int, count: int, mutant: str | None = None) -> Attack:
    async with town(change=all_of(*(MUTANTS[mutant].changes if mutant else ()))) as world:
        return await attack(world, seed, count)


def in_a_process(work: Callable[..., Any], *given: Any) -> Any:
    """Return what a coroutine does in a process of its own, so that its memory is its own."""
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        return pool.submit(_run, work, *given).result()


def _run(work: Callable[..., Any], *given: Any) -> Any:
    return asyncio.run(work(*given))


def test_hostile_requests_cause_no_5xx():
    result = asyncio.run(_attacked(11, 900))
    assert result.violations == []
    assert (result.kinds.total(), sorted(result.kinds)) == (900, KINDS)
    assert set(result.parts) == {"service", "facilitator", "explorer", "rpc", "control"}
    assert {200, 400, 402, 404, 405, 413} <= set(result.statuses)
    assert result.judged > 100


def test_the_attack_notices_a_defect(monkeypatch):
    def broken(*_: object) -> None:
        raise web.Refused(500, "Internal server error")

    monkeypatch.setattr(content, "quote", broken)
    result = asyncio.run(_attacked(11, 300))
    assert any("500" in violation for violation in result.violations)


@pytest.mark.parametrize(
    ("mutant", "law"),
    [
        ("issued-id-opens", Law.SERVED_IS_PAID),
        ("never-debited", Law.DEBITS_ARE_SERVED),
        ("budget-of-fifty", Law.SESSION_IS_DEPOSIT),
    ],
)
def test_the_attack_notices_where_the_money_is_wrong(mutant: str, law: Law) -> None:
    result = asyncio.run(_attacked(11, 150, mutant))
    assert any(violation.startswith(law.value) for violation in result.violations)


@pytest.mark.timeout(at_length(120, 1200))
@pytest.mark.parametrize(
    "count", [100, pytest.param(at_length(500, 2000), marks=pytest.mark.thorough)]
)
def test_malformed_http_causes_no_5xx_and_holds_no_connection(count):
    statuses, violations = asyncio.run(over_tcp(seed(11), count))
    assert violations == []
    assert {200, 400, 408} <= set(statuses)


def test_the_service_does_what_its_openapi_document_says():
    assert documented(11, 3, "examples,fuzzing", only="payer") == (12, [])


@pytest.mark.thorough
@pytest.mark.timeout(1800)
def test_the_service_does_what_its_openapi_document_says_in_every_phase():
    assert documented(seed(1), at_length(30, 100)) == (12, [])


@pytest.mark.thorough
@pytest.mark.timeout(1800)
def test_many_hostile_requests_leave_no_memory_behind():
    result, grown = in_a_process(attack_and_measure, seed(1), at_length(5000, 20_000))
    print(result, grown)
    assert result.violations == []
    assert exceeded(grown) == {}


@pytest.mark.thorough
@pytest.mark.timeout(600)
def test_a_payment_leaves_little_behind():
    left = in_a_process(payments, 3000)
    print(left)
    assert exceeded(left) == {}
