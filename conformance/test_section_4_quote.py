"""Section 4.2: the price of a quote, and its fields."""

import math
from typing import Any

from x402sim.spec.ground import derived
from x402sim.suite.answers import TargetAnswer, read_402
from x402sim.suite.check import check
from x402sim.suite.expect import expect, require
from x402sim.suite.inputs import other_orders
from x402sim.suite.probe import Probe
from x402sim.suite.verdict import Inconclusive, NotApplicable, as_json

TYPES = {"string": str, "number": int | float}


@check(
    "4.2/price",
    title=("The 402 of the protected endpoint asks for its price, 10000 base units for a quote."),
    decisive=True,
)
async def a_quote_has_its_price(probe: Probe) -> None:
    price_base = probe.target.protected.amount_base
    if not price_base:
        raise NotApplicable("the target file says that the price is open")
    probe.by_target("protected.amount_base")
    asked = (await probe.challenge()).amount_base
    expect("maxAmountRequired", asked, price_base)


@check(
    "4.2/price",
    title="The price does not depend on the order: its size, its leverage or its pair.",
    ground=derived(
        "8: Quote price",
        "4.2: The amount shown",
        so="A quote has one price, so it does not depend on the order.",
    ),
    decisive=True,
)
async def another_order_costs_the_same(probe: Probe) -> None:
    if not probe.target.protected.amount_base:
        raise NotApplicable("the target file says that the price is open")
    challenge = await probe.challenge()
    answers = [await probe.ask(body=order) for order in other_orders(probe)]
    required = [answer for answer in answers if answer.status == 402]
    if not required:
        raise NotApplicable("the target takes no other order")
    for answer in required:
        asked = read_402(answer).amount_base
        expect("maxAmountRequired", asked, challenge.amount_base, answer.show)


@check(
    "4.2/quote",
    title=(
        "A paid quote has its fields, with their types, for the requested pair, whatever the order."
    ),
    needs="funds",
    pays=1,
    decisive=True,
)
async def a_quote_has_its_fields(probe: Probe) -> None:
    payment_id = (await probe.buy()).challenge.payment_id
    answer = await probe.ask(payment_id=payment_id)
    expect("status", answer.status, 200)
    probe.by_target("protected.content", "protected.fields")
    _expect_quote(answer, probe.usual_body)
    for order in other_orders(probe):
        answer = await probe.ask(payment_id=payment_id, body=order)
        if answer.has_content:  # else it is no order that the target takes
            _expect_quote(answer, order)


def _expect_quote(answer: TargetAnswer, order: dict[str, Any]) -> None:
    """Fail unless the content of an answer is a quote for an order."""
    endpoint = answer.target.protected
    content = answer.at(endpoint.content)
    if not isinstance(content, dict):
        require(f"an object at {endpoint.content}", not endpoint.fields, answer.summary)
        return
    for name, kind in endpoint.fields.items():
        value = content.get(name)
        require(f"{name}, a {kind}", _is(kind, value), as_json(value), answer.show)
    pair = order.get("pair")
    if "pair" in endpoint.fields and pair is not None:
        expect("pair", content.get("pair"), pair, answer.show)


def _is(kind: str, value: Any) -> bool:
    """Tell whether a JSON value is a string that is not empty, or a finite number."""
    if isinstance(value, str):
        return kind == "string" and bool(value)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return kind == "number" and is_number and (isinstance(value, int) or math.isfinite(value))


@check(
    "4.2/quote",
    title=("The quote is for the pair in the request's body; the target file names a second pair."),
    ground=derived(
        "4.2: pair | string | Trading pair",
        "4.2: pair | string",
        so="The pair of a quote is the pair that was asked for.",
    ),
    needs="funds",
    pays=1,
)
async def another_pair_has_another_quote(probe: Probe) -> None:
    endpoint = probe.target.protected
    body = probe.usual_body
    if not endpoint.second_pair:
        raise NotApplicable("the target file names no second pair (protected.second_pair)")
    if "pair" not in body or "pair" not in endpoint.fields:
        raise NotApplicable("the body of a request has no pair")
    paid = await probe.buy()
    other = {**body, "pair": endpoint.second_pair}
    answer = await probe.ask(payment_id=paid.challenge.payment_id, body=other)
    if not answer.has_content:
        raise Inconclusive(f"the target has no quote for {other['pair']}: {answer.summary}")
    shown = answer.at(probe.target.protected.content + "/pair")
    expect("pair", shown, other["pair"])
