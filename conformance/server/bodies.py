"""Other bodies than a paid request's: no body gets the goods without a payment."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from x402sim.suite import texts
from x402sim.suite.dialect import Dialect
from x402sim.suite.server.case import Demand, case
from x402sim.suite.server.play import Play
from x402sim.suite.server.raw import Answer
from x402sim.suite.verdict import Found, Violation

ONCE = {Dialect.V1: "without a payment there is no version: it is judged with version 2"}
BODIES = (
    "",
    "{",
    "{}",
    "[]",
    "null",
    "true",
    "0",
    '"paid"',
    '{"a":' * 500 + "1" + "}" * 500,
    '{"paid": true}',
    '{"__proto__": {"paid": true}}',
    "title=a",
    " " * 5000,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tries:
    """Requests without payment, each with a body, the goods, and their price."""

    answers: Sequence[tuple[str, Answer]]
    goods: Answer
    price: int


def _nothing_served(play: Play, observed: Tries) -> Found:
    for body, answer in observed.answers:
        if play.is_goods(answer, observed.goods):
            return Violation(
                demand="no-other-body-unpaid",
                actual=f"the body {body[:40]!r}: {answer.summary}",
                loss=play.tokens(observed.price, "served for nothing, as often as anybody likes"),
            )
    return None


@case(
    "path/body",
    Demand(
        title="Other bodies of a paid request: nothing is served unpaid",
        ground=texts.derived(
            texts.NO_VALID_PAYMENT,
            texts.SIGNAL,
            so="another body of the request does not attach a payment",
        ),
        test=_nothing_served,
    ),
    absent=ONCE,
)
async def _bodies(play: Play) -> Tries:
    item = play.sold(lambda each: each.body, "body")
    goods, price = await play.goods(item), (await play.draft(item)).auth.value
    answers = [(body, await play.ask(replace(item, body=body))) for body in BODIES]
    return Tries(answers=answers, goods=goods, price=price)
