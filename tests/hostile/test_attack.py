"""Many hostile requests to every part of one world in this process, and what they leave in memory.

A small part every day; an eighth of it with `-m thorough`; `python -m tests.campaign` runs the whole.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import quote

import eth_account  # noqa: F401 - the first signature loads it, for a second: that is no slow answer
import pytest

from tests.campaign import at_length, seed
from tests.hostile.inputs import KINDS, Sent, hostile, request
from tests.hostile.town import Answer, Town, send, town
from tests.money import Law
from tests.mutants.changes import all_of
from tests.mutants.rows import MUTANTS
from tests.serve.driver import IS_MEASURABLE, resident_bytes

SLOW_S = 5
REFRESH = 400
"""After so many requests the ids in them are new."""


@dataclass
class Attack:
    """The figures of one attack."""

    kinds: Counter[str] = field(default_factory=Counter)
    parts: Counter[str] = field(default_factory=Counter)
    statuses: Counter[int] = field(default_factory=Counter)
    violations: list[str] = field(default_factory=list)
    judged: int = 0
    """How many payments were compared with the ledger."""

    async def judge(self, world: Town) -> None:
        """Add what the law of money says of the world as it is."""
        self.judged += len(world.payments)
        self.violations += map(str, await world.money())

    def note(self, sent: Sent, answer: Answer) -> None:
        """Count an exchange, and what is wrong with its answer."""
        self.kinds[sent.kind] += 1
        self.parts[sent.part] += 1
        self.statuses[answer.status] += 1
        self.violations += [f"{wrong}: {_shown(sent)}" for wrong in complaints(sent, answer)]


def complaints(sent: Sent, answer: Answer) -> Iterator[str]:
    """Yield what no hostile request may cause."""
    if answer.status >= 500:
        yield f"{answer.status} {answer.body[:200]!r}"
    if answer.seconds > SLOW_S:
        yield f"{answer.seconds:.1f} s"
    if b"Traceback" in answer.body:
        yield "a stack trace"
    if sent.method != "HEAD" and answer.status >= 400 and answer.status != 402:
        yield from _no_error(answer)


def _no_error(answer: Answer) -> Iterator[str]:
    try:
        body = answer.json()
        is_error = isinstance(body["error"], str) and set(body) <= {"error", "reason", "final"}
    except (ValueError, TypeError, KeyError):
        is_error = False
    if answer.media_type != "application/json" or not is_error:
        yield f"{answer.status} is no error in JSON: {answer.body[:200]!r}"


def _shown(sent: Sent) -> str:
    headers = [(name, value[:60]) for name, value in sent.headers[:4]]
    body = sent.body if len(sent.body) < 1500 else sent.body[:300] + b"..."
    return f"[{sent.kind}] {sent.method} {sent.target[:200]!r} {headers} {body!r}"


async def attack(world: Town, seed: int, count: int) -> Attack:
    """Send `count` hostile requests, a share of them to each part."""
    rng, result = Random(seed), Attack()
    by_part = await _working(world)
    for number in range(count):
        if number % REFRESH == 0:
            await result.judge(world)
            by_part = await _working(world)
        part = rng.choice(["service", "service", "facilitator", "explorer", "rpc", "control"])
        sent = hostile(rng.choice(by_part[part]), rng)
        if sent.target.startswith("/_sim") and sent.method == "POST":
            await result.judge(world)  # the command may reset it
        try:
            answer = await world.send(sent)
        except TimeoutError:
            result.violations.append(f"no answer: {_shown(sent)}")
            continue
        result.note(sent, answer)
        if sent.target.startswith("/_sim") and sent.method == "POST" and answer.status == 200:
            await world.recover()
            by_part = await _working(world)
    await result.judge(world)
    await world.recover()
    return result


async def _working(world: Town) -> dict[str, list[Sent]]:
    by_part: dict[str, list[Sent]] = {}
    for each in await world.working():
        by_part.setdefault(each.part, []).append(each)
    return by_part


async def attack_and_measure(seed: int, count: int) -> tuple[Attack, dict[str, int]]:
    """Attack a world, fill its journal to the cap, go on; return the figures, and how it grew."""
    async with town() as world:
        await attack(world, seed + 1, min(2000, count))  # warms up: caches, pools, code
        first = rss_bytes()
        result = await attack(world, seed, count)
        await _ask_until(world, world.parts.journal.limit or 0)
        capped = rss_bytes()
        await _ask_until(world, world.parts.journal.length + 20_000)
        return result, {"until the cap": capped - first, "after the cap": rss_bytes() - capped}


async def _ask_until(world: Town, entries: int) -> None:
    """Send what fills the journal with the longest texts, until it has had so many entries.

    Without the deadline of `Town.send`, whose timers would be counted.
    """
    wide = "😀" * 300
    settlement = world.settlement(await world.ask())
    wrong = {**settlement["paymentRequirements"], "resource": wide}
    asked = [
        request("service", "POST", "/api/pay", {**settlement, "paymentRequirements": wrong}),
        request("service", "POST", "/api/pay", {**settlement, "paymentId": wide}),
        request("service", "GET", "/" + quote(wide)),
    ]
    while world.parts.journal.length < entries:
        for each in asked:
            await send(world.app, each)


# --- the memory -----------------------------------------------------------------------------

WARM_UP = 500
PAGES = "PRAGMA page_count"
MOST = {
    "until the cap": 50 << 20,
    "after the cap": 8 << 20,
    "in memory": 16_000,
    "in the database": 4_000,
    "in the chain's file": 1_000,
}
"""The most bytes that a world may grow until its journal is full, and in the 20,000 requests after
that: it is flat, but for the allocator; and those that a payment may leave behind."""


def exceeded(grown: dict[str, int]) -> dict[str, int]:
    """Return what has grown more than it may."""
    return {name: size for name, size in grown.items() if size > MOST[name]}


def rss_bytes() -> int:
    """Return the resident memory of this process; 0 where it cannot be read."""
    return resident_bytes() if IS_MEASURABLE else 0


async def payments(count: int) -> dict[str, int]:
    """Pay `count` times, in a world on disk; return what a payment leaves behind, in bytes."""
    with TemporaryDirectory() as folder:
        async with town(Path(folder) / "world.db") as world:
            for _ in range(WARM_UP):
                await world.buy()
            before = _sizes(world)
            for _ in range(count):
                await world.buy()
            return {name: (size - before[name]) // count for name, size in _sizes(world).items()}


def _sizes(world: Town) -> dict[str, int]:
    chain: Any = world.parts.chain
    return {
        "in memory": rss_bytes(),
        "in the database": world.parts.service.store.one(PAGES)[0] * 4096,
        "in the chain's file": chain._log._db.execute(PAGES).fetchone()[0] * 4096,
    }


# --- the tests ------------------------------------------------------------------------------


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


@pytest.mark.thorough
@pytest.mark.timeout(1800)
def test_many_hostile_requests_leave_no_memory_behind():
    result, grown = in_a_process(attack_and_measure, seed(1), at_length(2500, 20_000))
    print(result, grown)
    assert result.violations == []
    assert exceeded(grown) == {}


@pytest.mark.thorough
@pytest.mark.timeout(600)
def test_a_payment_leaves_little_behind():
    left = in_a_process(payments, 3000)
    print(left)
    assert exceeded(left) == {}
