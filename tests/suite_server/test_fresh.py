"""The rule of repetition: a failed case is played again alone, by a subject that was just started."""

import asyncio
from collections.abc import Sequence
from typing import Any

from tests.suite_server.shop import Reply, Shop, shop
from x402sim.protocol.networks import BASE_SEPOLIA
from x402sim.suite import wire
from x402sim.suite.dialect import Dialect
from x402sim.suite.report.results import Outcome
from x402sim.suite.server.room import PLAIN, AtPort, opened
from x402sim.suite.server.subject import ServerJudge, all_cases, item_in
from x402sim.suite.started import App


class Poisoned(Shop):
    """After a TRACE, which one play sends, a HEAD is served unpaid."""

    is_poisoned = False

    async def answer(self, method: str, *given: Any) -> Reply:
        if method == "TRACE":
            self.is_poisoned = True
        if method == "HEAD" and self.is_poisoned:
            return Reply(200, {"n": 1})
        return await super().answer(method, *given)


def judged(*ids: str, plays: int) -> dict[str, tuple[Outcome, str]]:
    asked: Sequence[Any] = [
        each for each in all_cases() if each.id in ids and each.dialect is Dialect.V2
    ]
    subject = App(lambda given: shop(given, kind=Poisoned))
    items = [item_in("/weather")]
    judge = ServerJudge(subject=subject, dialects=(Dialect.V2,), items=items, jobs=1)
    found = asyncio.run(judge.every(asked))
    assert judge.plays == plays, "the good payments in between are none"
    return {case.id: (result.outcome, result.reason) for case, result in found}


def test_what_another_play_has_left_is_no_failure() -> None:
    head = "kit/path/head-success"
    outcome, why = judged("server/path/method", head, plays=3)[head]
    assert outcome is Outcome.INCONCLUSIVE
    assert "played again alone, it holds" in why
    assert judged(head, plays=1)[head][0] is Outcome.PASSED


def test_the_payer_of_a_running_server_can_pay_for_every_play_at_any_price() -> None:
    async def nothing(_: wire.Request) -> wire.Reply:
        return wire.Reply(status=404)

    async def main() -> int:
        async with wire.listening(nothing) as port:
            server = AtPort(f"http://127.0.0.1:{port}")
            room = await opened(server, PLAIN, BASE_SEPOLIA, 1, "room")
            balance = await room.chain.balance(room.payer.address_bytes)
            await room.close()
            return balance

    plays = len({case.played_as for case in all_cases()})
    assert asyncio.run(main()) > 100 * 10**6 * 2 * plays
