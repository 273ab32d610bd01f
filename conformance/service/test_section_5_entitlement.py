"""Section 5: the id of a settled payment grants access, and nothing else does."""

import asyncio
import string

from x402sim.spec.ground import derived, explicit
from x402sim.suite.service import expect
from x402sim.suite.service.answers import read_402
from x402sim.suite.service.case import (
    case,
    fault_case,
    paid_case,
    refusal_case,
    restart_case,
    unpaid_case,
)
from x402sim.suite.service.control_api import NOT_SETTLED, SETTLE
from x402sim.suite.service.inputs import examples, other_orders, random_text
from x402sim.suite.service.probe import Probe
from x402sim.suite.service.setting import Setting
from x402sim.suite.verdict import Inconclusive, NotApplicable
from x402sim.world.faults import Fault

INVENTED = ("", "pay_", "pay_x", "pay_" + "A" * 60, "pay_00000000-0000-4000-8000-000000000000")
"""Invented payment ids."""
INJECTIONS = (
    *("null", "undefined", "true", "0", "*", "%", "pay_%", "pay_*", "' OR '1'='1", '{"$ne":null}'),
    *("pay_' OR 1=1 --", "../pay_", "__proto__", "constructor", "[object Object]"),
)
"""Injection attempts; a firewall in front of the service may answer them."""
SHORT = 8
OFTEN, AT_ONCE = 25, 10
"""How often a payment id is presented, and how often at the same time."""
MANY = 21
"""More payments than twenty."""
SECONDS_S, MINUTES_S = 15, 310
HUGE = ("pay_" + "A" * 8000, "A" * 60_000)
UNSETTLED = derived(
    "5: X-Payment-Id",
    "5: Otherwise the response is 402",
    so="Access is granted for the id of a settled payment; without a transfer it is none.",
)
FAILURES: dict[str, Fault | None] = {
    "the facilitator refuses connections": SETTLE(does="refuse"),
    "the facilitator answers 500": SETTLE(does="answer", status=500, body="{}"),
    "the facilitator answers HTML in a 200": SETTLE(
        does="answer", status=200, body="<h1>Welcome</h1>", content_type="text/html"
    ),
    "the facilitator says it failed, in a 200": SETTLE(
        does="answer",
        status=200,
        body=f'{NOT_SETTLED[:-1]},"success":false,"errorReason":"invalid_transaction_state"}}',
    ),
    "the facilitator's answer is empty": SETTLE(does="answer", status=200, body="{}"),
    "the transaction reverts": None,
}
"""The fault in place of a settlement, or a revert: no money moves."""


@unpaid_case(
    "5/stored-records",
    title="A payment id without a record, invented, random or not paid yet, gets no content.",
    decisive=False,
)
async def an_invented_id_is_worth_nothing(probe: Probe) -> None:
    for payment_id in INVENTED:
        expect.not_served(await probe.ask(payment_id=payment_id), is_402=True)
    for payment_id in INJECTIONS:
        expect.not_served(await probe.ask(payment_id=payment_id))
    for payment_id in HUGE:
        expect.withheld(await probe.ask(payment_id=payment_id, may_break=True))
    letters = string.ascii_letters + string.digits + string.punctuation
    proofs = examples("proofs", 16, lambda rng: random_text(rng, letters, 90, shortest=1))
    for proof in proofs[::2]:
        expect.not_served(await probe.ask(payment_id=proof))
    for proof in proofs[1::2]:
        expect.withheld(await probe.ask(session_id=proof))
    expect.not_served(await probe.ask(payment_id=proofs[0], session_id=proofs[1]))
    unpaid = await probe.challenge()  # last, because its 402 may be unreadable
    expect.not_served(await probe.ask(payment_id=unpaid.payment_id), is_402=True)


@paid_case(
    "5/cache-first",
    title="The id of a settled payment opens its resource 25 times, also at the same time.",
    ground=explicit("5: Look in", "5: When it is present", "5: When one exists"),
)
async def access_again(probe: Probe) -> None:
    payment_id = (await probe.buy()).challenge.payment_id
    for _ in range(OFTEN - AT_ONCE):
        expect.served(await probe.ask(payment_id=payment_id))
    together = (probe.ask(payment_id=payment_id) for _ in range(AT_ONCE))
    for answer in await asyncio.gather(*together):
        expect.served(answer)


@paid_case(
    "5/cache-first",
    title="The id of a settled payment opens its path with a query, if the resource is the same.",
    ground=derived(
        "5: When it is present",
        "2.1: resource",
        so="The requested path is compared, and a query is no part of a path.",
    ),
)
async def a_query_is_no_part_of_the_path(probe: Probe) -> None:
    endpoint, challenge = probe.target.protected, await probe.challenge()
    path = endpoint.path + ("&" if "?" in endpoint.path else "?") + "from=list"
    unpaid = await probe.ask(path=path)
    if unpaid.status != 402 or read_402(unpaid).requirements.get("resource") != (
        challenge.requirements.get("resource")
    ):
        raise NotApplicable(f"a request with a query asks for no such payment: {unpaid.summary}")
    paid = await probe.pay(challenge)
    expect.served(await probe.ask(payment_id=paid.challenge.payment_id))
    expect.served(await probe.ask(payment_id=paid.challenge.payment_id, path=path))


@refusal_case(
    "5/cache-first",
    title="The id of a settled payment is taken for other orders, and in headers of any case.",
    ground=derived(
        "5: When it is present",
        "5: When one exists",
        "0: All bodies are JSON",
        so="Payment id and path decide: neither the order, nor the case of a header's name.",
    ),
)
async def access_for_any_order(probe: Probe) -> None:
    payment_id, endpoint = (await probe.buy()).challenge.payment_id, probe.target.protected
    for name in ("x-payment-id", "X-PAYMENT-ID"):
        repeated = await probe.send(
            endpoint.method, endpoint.path, json=probe.usual_body, headers={name: payment_id}
        )
        expect.served(repeated)
    for order in other_orders(probe):
        answer = await probe.ask(payment_id=payment_id, body=order)
        expect.holds("no 402 for another order", answer.status != 402, answer.summary, answer.show)


@paid_case(
    "5/stored-records",
    title="Of two payments of one payer for one resource, each id grants access.",
    pays=2,
)
async def each_payment_of_a_payer_opens_it(probe: Probe) -> None:
    payer = await probe.wallets.payer()
    both = [await probe.buy(payer), await probe.buy(payer)]
    for paid in both:
        expect.served(await probe.ask(payment_id=paid.challenge.payment_id))


@refusal_case(
    "5/stored-records",
    title="An id refused before its payment grants access once paid.",
    ground=derived(
        "5: X-Payment-Id",
        "5: Otherwise look",
        so="Each request looks the payment up anew: an earlier refusal decides nothing.",
    ),
)
async def an_id_that_was_refused_is_good_once_it_is_paid(probe: Probe) -> None:
    challenge = await probe.challenge()
    for _ in range(3):
        expect.not_served(await probe.ask(payment_id=challenge.payment_id), is_402=True)
    await probe.pay(challenge)
    expect.served(await probe.ask(payment_id=challenge.payment_id))


@refusal_case(
    "5/stored-records",
    title="Of 21 payments of one payer, each id grants access; the first is not paid again.",
    ground=derived(
        "5: When one exists",
        "7: Payment already settled",
        so="A payment stays stored and its id used, however many the payer has made since.",
    ),
    needs="world",
)
async def each_of_many_payments_of_a_payer_opens_it(probe: Probe) -> None:
    payer = await probe.wallets.payer()
    every = [await probe.buy(payer) for _ in range(MANY)]
    for paid in every:
        expect.served(await probe.ask(payment_id=paid.challenge.payment_id))
    first = every[0].challenge
    expect.refused(await probe.settle(first, probe.wallets.sign(first, payer)))
    await probe.world.expect_payments(payer, *(paid.challenge.amount_base for paid in every))


@refusal_case(
    "5/stored-records",
    title=("Only the exact id of a payment grants access: no part of it, and no text around it."),
)
async def nearly_the_paid_id_is_worth_nothing(probe: Probe) -> None:
    payment_id = (await probe.buy()).challenge.payment_id
    half = payment_id[: len(payment_id) // 2]
    opaque = payment_id.removeprefix("pay_")
    nearlies = [payment_id + "A" * SHORT]
    if len(opaque) >= SHORT:  # else a part of the id may be another paid id
        nearlies += [payment_id[:-1], half, payment_id + "A"]
    if opaque != opaque.lower() and opaque != opaque.upper():  # else the letters may be hex
        nearlies += [f"pay_{opaque.swapcase()}", f"pay_{opaque.upper()}"]
    unpaid = (await probe.challenge(fresh=True)).payment_id  # for the same resource
    for nearly in (unpaid, *nearlies):
        expect.not_served(await probe.ask(payment_id=nearly), is_402=True)
    for around in (half + "%", f"{payment_id},{payment_id}", f"x {payment_id}"):
        expect.not_served(await probe.ask(payment_id=around))


@fault_case(
    "5/stored-records",
    title="A payment that the facilitator did not settle, or that reverts, grants nothing.",
    ground=UNSETTLED,
)
async def without_money_no_record_is_settled(probe: Probe) -> None:
    for failure, fault in FAILURES.items():
        challenge, payer, header = await probe.signed()
        await probe.world.hinder(payer, fault)
        answer = await probe.settle(challenge, header)
        if await probe.world.transfers(payer):
            raise Inconclusive(f"{failure}, but money has moved")
        expect.holds(f"no receipt if {failure}", not answer.is_receipt, answer.summary)
        expect.not_served(await probe.opened(challenge), is_402=True)
        await probe.world.clear_faults()


@restart_case(
    "5/stored-records",
    title="After a restart, with an empty cache, the stored record still grants its resource.",
    decisive=False,
)
async def the_record_grants_without_the_cache(probe: Probe) -> None:
    payment_id = (await probe.buy()).challenge.payment_id
    await probe.restart()
    expect.served(await probe.ask(payment_id=payment_id))


@fault_case(
    "5/stored-records",
    title=("After a restart, an id whose settlement was refused or failed still grants nothing."),
    ground=UNSETTLED,
    needs="world, restart",
)
async def without_money_there_is_no_record_after_a_restart(probe: Probe) -> None:
    forged, failed = await probe.challenge(), await probe.challenge(fresh=True)
    payer = await probe.wallets.payer()
    await probe.settle(forged, probe.wallets.sign(forged, payer, by=probe.wallets.stranger()))
    await probe.world.lasting_fault(SETTLE(does="refuse", times=None), payer.address)
    await probe.settle(failed, probe.wallets.sign(failed, payer), may_break=True)
    await probe.restart()
    for challenge in (forged, failed):
        expect.not_served(await probe.ask(payment_id=challenge.payment_id), is_402=True)


@case(
    "5/stored-records",
    title="After a restart, with an empty cache, a deposit's record does not open the quote.",
    control="payment",
    needs="funds, restart, sessions",
    deposits="0.02",
    decisive=False,
)
async def the_record_is_for_its_resource(probe: Probe) -> None:
    deposit = await probe.pay((await probe.deposit(2))[1])
    await probe.restart()
    expect.not_served(await probe.ask(payment_id=deposit.challenge.payment_id), is_402=True)


def _long_s(setting: Setting) -> float:
    """Return the seconds until the id of an untouched payment is sent again."""
    return MINUTES_S if setting.options.patient or setting.advance is not None else SECONDS_S


@paid_case(
    "5/stored-records",
    title="A payment from the beginning of the run still grants access at its end.",
    waits=_long_s,
)
async def a_payment_is_not_forgotten(probe: Probe) -> None:
    payment_id = (await probe.buy()).challenge.payment_id
    await probe.wait(_long_s(probe.setting))
    await probe.setting.scheduler.wait_for_the_rest()
    expect.served(await probe.ask(payment_id=payment_id))
