"""What a payment buys, and how often: another request, again, many times, at once."""

from dataclasses import replace
from typing import Any

from x402sim.protocol.messages import decoded, encode
from x402sim.suite import texts
from x402sim.suite.server.case import bought_repeated, buys_one, case, demand, uncounted
from x402sim.suite.server.double import SETTLE, VERIFY, is_answered
from x402sim.suite.server.observed import Uses
from x402sim.suite.server.play import BEGINS_S, Play
from x402sim.suite.verdict import Found, NotApplicable, Untold, Violation

MANY = 5
"""The requests with one payment, and seconds that the facilitator holds the first request."""


def _changed(value: Any) -> Any:
    """Return a JSON value with each text, number and boolean replaced."""
    match value:
        case bool():
            return not value
        case int() | float():
            return value + 1
        case str():
            return f"{value}-other"
        case list():
            return [_changed(each) for each in value]
        case dict():
            return {name: _changed(each) for name, each in value.items()}
        case _:
            return value


async def _at_once(play: Play, path: str, *, strict: bool) -> Uses:
    """Send one payment in several requests at once, while the facilitator holds a path."""
    payment = await play.draft()
    play.double.strict = strict
    answers = await play.held(path, [play.pay(payment) for _ in range(MANY)])
    return await play.distinguished(payment, answers)


@demand(
    "How often the handler runs for a payment in five requests at once",
    texts.silent(texts.VERIFIES, why="nothing says when the work is done"),
)
def _how_often(_: Play, runs: int) -> Found:
    return f"what is sold was made {runs} times for one payment" if runs > 1 else None


@demand(
    "The payment of something cheap does not buy something dear",
    texts.explicit(texts.MATCHES, texts.PARAMETERS),
)
def _not_for_less(play: Play, observed: Uses) -> Found:
    if not observed.successes:
        return None
    return Violation(
        demand="no-success-for-another-price",
        actual=observed.summary,
        loss=play.tokens(observed.payment.auth.value, "served for less than the price"),
    )


@demand(
    "The payment of something cheap, sent for something dear, is charged only if served",
    texts.derived(texts.STATUS_FAILED, texts.INTENT, so="a payment that is refused does not move"),
    suffix="charged",
)
def _not_charged(play: Play, observed: Uses) -> Found:
    if len(observed.moved) <= len(observed.successes):
        return None
    base = sum(each.amount_base for each in observed.moved)
    return Violation(
        demand="no-transfer-for-refused",
        actual=observed.summary,
        loss=play.tokens(base, "charged and not served"),
    )


@demand(
    "The answer to a used payment, sent again",
    texts.silent(texts.UNIQUE, why="nothing says how a replay is answered"),
    suffix="kept",
)
def _is_kept(play: Play, observed: Uses) -> Found:
    again = observed.answers[1]
    if again.is_2xx:
        return "the same payment again gets the same answer"
    return f"the same payment again is refused with {again.status}"


@demand(
    "A payment in five requests at once: no 5xx",
    texts.ours(texts.STATUS_SERVER, because="a payer takes it for an outage and tries again"),
    suffix="answer",
)
def _in_order(play: Play, observed: Uses) -> Found:
    wrong = next((each for each in observed.answers if each.is_server_error), None)
    if wrong is None:
        return None
    return Violation(demand="used-is-no-5xx", actual=observed.summary)


@demand("Two payments at once are served, each once", texts.explicit(texts.SUCCESS))
def _both(play: Play, observed: Uses) -> Found:
    sold = len(observed.successes)
    if sold + len(observed.unused) == len(observed.answers) and sold == len(observed.moved):
        return None
    return Violation(demand="two-payments-two-answers", actual=observed.summary)


@case("binding/elsewhere", buys_one("A used payment buys nothing at another path"))
async def _elsewhere(play: Play) -> Uses:
    """Buy, and send the same payment for every other item, the same price first.

    A payment bound to the price alone gets another path of the same price.
    """
    other = play.other
    others = {each.place: each for each in play.items if each.place != play.item.place}
    price = (await play.draft()).auth.value
    far = {each: abs((await play.draft(each)).auth.value - price) for each in [*others.values()]}
    payment = await play.draft()
    play.double.strict = True
    answers = [await play.pay(payment)]
    for other in sorted(far, key=lambda each: far[each]):
        answers.append(await play.pay(payment, other))
        if answers[-1].is_sale:
            break
    return await play.distinguished(payment, answers, other)


@case("binding/dearer", _not_for_less, _not_charged)
async def _dearer(play: Play) -> Uses:
    """Pay for the dearest item with an unused payment of the cheapest item."""
    drafts = {item.shown: (await play.draft(item), item) for item in play.items}
    by_price = sorted(drafts.values(), key=lambda each: each[0].auth.value)
    (payment, _), (dear, item) = by_price[0], by_price[-1]
    if payment.auth.value == dear.auth.value:
        raise NotApplicable("all goods have one price: give a good of another price with --also")
    return await play.used(payment, [await play.pay(payment, item)])


@case("binding/query", buys_one("A used payment buys nothing with another query"))
async def _another_query(play: Play) -> Uses:
    """Buy, and send the same payment with another query."""
    item = play.sold(lambda each: "?" in each.target, "query")
    name, _, value = item.target.partition("?")[2].partition("&")[0].partition("=")
    other = replace(item, target=f"{item.path}?{name}={value}-other")
    payment = await play.draft(item)
    play.double.strict = True
    answers = [await play.pay(payment, item), await play.pay(payment, other)]
    return await play.distinguished(payment, answers, other)


@case("binding/body", buys_one("A used payment buys nothing with another body"))
async def _another_body(play: Play) -> Uses:
    """Buy, and send the same payment with another body."""
    item = play.sold(lambda each: each.body, "body")
    value = decoded(item.body.encode())
    if (changed := _changed(value)) == value:
        raise Untold(f"no value stands in the body {item.body} that could be another: give one")
    other = replace(item, body=encode(changed).decode())
    payment = await play.draft(item)
    play.double.strict = True
    answers = [await play.pay(payment, item), await play.pay(payment, other)]
    return await play.distinguished(payment, answers, other)


@case("many/again", buys_one("The same payment, sent three times, buys a single item"), _is_kept)
async def _again(play: Play) -> Uses:
    """Buy, and send the same payment twice more, each time after the whole answer."""
    payment = await play.draft()
    play.double.strict = True
    answers = [await play.pay(payment) for _ in range(3)]
    return await play.distinguished(payment, answers)


@case(
    "many/at-once",
    buys_one("A payment in five requests at once, verified together, buys a single item"),
    _in_order,
)
async def _at_once_strict(play: Play) -> Uses:
    return await _at_once(play, VERIFY, strict=True)


@case(
    "many/at-once-settling",
    buys_one("A payment in five requests at once, settled together, buys a single item"),
)
async def _at_once_settling(play: Play) -> Uses:
    return await _at_once(play, SETTLE, strict=True)


@case(
    "many/at-once-told-again",
    bought_repeated(
        "What a payment in five requests at once buys, if the facilitator says success each time"
    ),
)
async def _at_once_repeated(play: Play) -> Uses:
    return await _at_once(play, VERIFY, strict=False)


@case("many/runs", _how_often)
async def _runs(play: Play) -> int:
    """Return how often the handler ran for a single payment, by a counter in the goods.

    Raises `Untold` for goods without a counter.
    """
    made = await play.times_made(lambda: _at_once(play, SETTLE, strict=True))
    if made is None:
        raise uncounted()
    return made


@case("many/two", _both)
async def _two_payers(play: Play) -> Uses:
    """Buy twice at once with two payments: both are served, and settled by then or soon after."""
    payments = [await play.draft(), await play.draft()]
    answers = await play.at_once(payments)
    for each in payments:
        await play.double.until(SETTLE, each.nonce, BEGINS_S, is_answered)
    return await play.used(payments[0], answers, *payments[1:])
