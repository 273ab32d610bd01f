"""Section 4.2: the price of a quote, and its fields."""

import asyncio
import json
import math
from typing import Any

from x402sim.spec.ground import derived
from x402sim.suite.service import expect
from x402sim.suite.service.answers import TargetAnswer, read_402
from x402sim.suite.service.case import case, paid_case, session_case
from x402sim.suite.service.inputs import other_orders
from x402sim.suite.service.probe import Probe
from x402sim.suite.verdict import Inconclusive, NotApplicable, as_json

TYPES = {"string": str, "number": int | float}
AT_ONCE = 3
"""How many requests for each of two pairs are sent at the same time."""


@case(
    "4.2/price",
    title=("The 402 of the protected endpoint asks for its price, 10000 base units for a quote."),
)
async def a_quote_has_its_price(probe: Probe) -> None:
    price_base = probe.require_price()
    probe.by_target("protected.amount_base")
    asked = (await probe.challenge()).amount_base
    expect.equal("maxAmountRequired", asked, price_base)


@case(
    "4.2/price",
    title="The price does not depend on the order's size, leverage or pair.",
    ground=derived(
        "8: Quote price",
        "4.2: The amount shown",
        so="A quote has one price for all orders.",
    ),
)
async def another_order_costs_the_same(probe: Probe) -> None:
    probe.require_price()
    challenge = await probe.challenge()
    answers = [await probe.ask(body=order) for order in other_orders(probe)]
    required = [answer for answer in answers if answer.status == 402]
    if not required:
        raise NotApplicable("the target takes no other order")
    for answer in required:
        asked = read_402(answer).amount_base
        expect.equal("maxAmountRequired", asked, challenge.amount_base, answer.show)


@paid_case(
    "4.2/quote",
    title="A paid quote has its fields and their types for the requested pair, for any order.",
)
async def a_quote_has_its_fields(probe: Probe) -> None:
    payment_id = (await probe.buy()).challenge.payment_id
    answer = await probe.ask(payment_id=payment_id)
    expect.equal("status", answer.status, 200)
    probe.by_target("protected.content", "protected.fields")
    _expect_quote(answer, probe.usual_body)
    for order in other_orders(probe):
        answer = await probe.ask(payment_id=payment_id, body=order)
        if answer.has_content:  # else the target does not accept the order
            _expect_quote(answer, order)


@session_case(
    "4.2/quote",
    title="A quote that a session pays for has its fields, too, whatever the order.",
    deposits="0.10",
)
async def a_quote_of_a_session_has_its_fields(probe: Probe) -> None:
    orders = [probe.usual_body, *other_orders(probe)]
    session = await probe.open_session(await probe.budget_for(len(orders)))
    probe.by_target("protected.content", "protected.fields")
    for order in orders:
        answer = await probe.ask(session_id=session.session_id, body=order)
        if answer.has_content:  # else the target does not accept the order
            _expect_quote(answer, order)


def _expect_quote(answer: TargetAnswer, order: dict[str, Any]) -> None:
    endpoint = answer.target.protected
    content = answer.at(endpoint.content)
    if not isinstance(content, dict):
        expect.holds(f"an object at {endpoint.content}", not endpoint.fields, answer.summary)
        return
    for name, kind in endpoint.fields.items():
        value = content.get(name)
        expect.holds(f"{name}, a {kind}", _is(kind, value), as_json(value), answer.show)
    pair = order.get("pair")
    if "pair" in endpoint.fields and pair is not None:
        expect.equal("pair", content.get("pair"), pair, answer.show)


def _is(kind: str, value: Any) -> bool:
    """Tell whether a JSON value is a string that is not empty, or a finite number."""
    if isinstance(value, str):
        return kind == "string" and bool(value)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return kind == "number" and is_number and (isinstance(value, int) or math.isfinite(value))


@paid_case(
    "4.2/quote",
    title=("A paid order is served however its JSON is written, and with a charset in its type."),
    ground=derived(
        "0: All bodies are JSON",
        "4.2: leverage",
        "4.2: sizeUsd",
        so="JSON ignores white space and order; 1000.0 is 1000; a media type may say UTF-8.",
    ),
)
async def an_order_in_another_spelling_is_served(probe: Probe) -> None:
    endpoint, order = probe.target.protected, probe.usual_body
    if endpoint.method == "GET":
        raise NotApplicable("the protected endpoint takes no body")
    payment_id = (await probe.buy()).challenge.payment_id
    expect.served(await probe.ask(payment_id=payment_id))
    for said, text in _spelled(order).items():
        kind = "application/json; charset=utf-8" if said == CHARSET else "application/json"
        answer = await probe.send(
            endpoint.method,
            endpoint.path,
            content=text.encode(),
            headers={"X-Payment-Id": payment_id, "Content-Type": kind},
        )
        if not (answer.has_content or (await probe.ask(payment_id=payment_id)).has_content):
            raise Inconclusive("an order that was served is not served again, however written")
        expect.holds(f"the content, for an order with {said}", answer.has_content, answer.summary)


CHARSET = "a charset in its content type"


def _spelled(order: dict[str, Any]) -> dict[str, str]:
    backwards = {name: order[name] for name in reversed(order)}
    numbers = {name: value for name, value in order.items() if type(value) is int}
    return {
        "white space": json.dumps(order, indent=2),
        "its fields in another order": json.dumps(backwards),
        "numbers such as 1000.0": json.dumps({**order, **{n: float(numbers[n]) for n in numbers}}),
        CHARSET: json.dumps(order),
    }


@paid_case(
    "4.2/quote",
    title="Of concurrent requests for quotes of two pairs, each gets its own pair.",
    ground=derived(
        "4.2: pair | string | Trading pair",
        "4.2: pair | string",
        so="The pair of a quote is the pair of its own request, also beside others.",
    ),
)
async def quotes_at_the_same_time_are_not_mixed_up(probe: Probe) -> None:
    usual, endpoint = probe.usual_body, probe.target.protected
    if "pair" not in usual or "pair" not in endpoint.fields:
        raise NotApplicable("the body of a request has no pair")
    payment_id = (await probe.buy()).challenge.payment_id
    others = [order for order in other_orders(probe) if order["pair"] != usual["pair"]]
    taken = [
        order
        for order in others
        if (await probe.ask(payment_id=payment_id, body=order)).has_content
    ]
    if not taken:
        raise NotApplicable("the target takes no other pair (protected.second_pair)")
    orders = [usual, taken[0]] * AT_ONCE
    sent = (probe.ask(payment_id=payment_id, body=order) for order in orders)
    for order, answer in zip(orders, await asyncio.gather(*sent), strict=True):
        if answer.has_content:
            expect.equal("pair", answer.at(endpoint.content + "/pair"), order["pair"], answer.show)
