"""Many hostile requests to every part of one world in this process."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random
from urllib.parse import quote

import eth_account  # noqa: F401 - the first signature loads it, for a second: that is no slow answer

from tests.hostile.inputs import Sent, hostile, request
from tests.hostile.memory import rss_bytes
from tests.hostile.town import Answer, Town, send, town

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
