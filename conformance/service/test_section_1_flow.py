"""Section 1: the whole flow, from an unpaid request to a paid answer, and who pays the gas."""

from functools import partial
from typing import Any

import httpx

from x402sim.payer.wallet import Wallet
from x402sim.spec.ground import derived
from x402sim.suite.service import expect, inputs
from x402sim.suite.service.background import buy_late, turn_s, tx_hash
from x402sim.suite.service.case import case, fault_case, paid_case, unpaid_case
from x402sim.suite.service.control_api import eventually
from x402sim.suite.service.probe import Probe
from x402sim.suite.verdict import Inconclusive
from x402sim.world.faults import Fault

OTHER_METHODS = ("GET", "PUT", "PATCH", "OPTIONS")
NO_KIND = partial(Fault, victim="facilitator", path="/supported", does="answer", times=None)
UNSUPPORTED = (NO_KIND(status=200, body='{"kinds":[]}'), NO_KIND(status=500))
DOWN_S, BACK_S = 2.5, 5
"""Seconds of each outage of the facilitator, and seconds for a target to notice its end."""


@case(
    "1/unpaid-402",
    title="A protected request without proof of payment is answered 402, with requirements.",
)
async def an_unpaid_request_is_answered_402(probe: Probe) -> None:
    answers = [await probe.ask(body=body) for body in probe.target.protected.bodies]
    for answer in answers:
        expect.not_served(answer)
    required = [answer for answer in answers if answer.status == 402]
    if not required and all(answer.status in (400, 422) for answer in answers):
        said = answers[0].summary
        raise Inconclusive(f"the target accepts no body of the target file: {said}")
    expect.holds_form("402", bool(required), answers[0].summary)
    wanted = required[0].requirements
    expect.holds("payment requirements", isinstance(wanted, dict), required[0].summary)


@case(
    "1/unpaid-402",
    title="No other HTTP method gives away the protected content without proof of payment.",
    ground=derived(
        "5: Access to protected endpoints",
        "1: The service returns the protected content",
        so="The content is protected, not only one way to ask for it.",
    ),
    decisive=False,
)
async def no_other_method_is_free(probe: Probe) -> None:
    endpoint = probe.target.protected
    for method in OTHER_METHODS:
        for body in endpoint.bodies:
            query = str(httpx.QueryParams(body))
            answer = await probe.send(method, f"{endpoint.path}?{query}", json=body)
            expect.withheld(answer)


WRONG_TOO = derived(
    "1: A client calls a protected endpoint",
    "1: The service answers 402",
    "1: The service returns the protected content",
    so="A wrong request has no proof of payment either: no refusal contains the content.",
)


@unpaid_case(
    "1/unpaid-402",
    title="No body of a wrong form, type or value, or of random JSON, gives the content away.",
    ground=WRONG_TOO,
)
async def no_wrong_request_is_free(probe: Probe) -> None:
    for group in ("unreadable", "content types", "wrong types", "made up"):
        for each in await inputs.sent(probe, group):
            expect.withheld(each.answer, each.label)


@fault_case(
    "1/unpaid-402",
    title="While the facilitator serves no network, or is unreachable, nothing is free.",
    ground=derived(
        "4.2: No valid proof of payment",
        "5: Access to protected endpoints",
        so="Who cannot pay just now has not paid either.",
    ),
)
async def nothing_is_free_while_the_facilitator_is_down(probe: Probe) -> None:
    for fault in UNSUPPORTED:
        await probe.world.fault(fault)
        end_s = probe.clock.now() + DOWN_S
        while probe.clock.now() < end_s:
            expect.withheld(await probe.ask(may_break=True))
            await probe.clock.sleep(DOWN_S / 5)
        await probe.world.clear_faults()
    challenge, payer, header = await probe.signed()
    await probe.world.fault(Fault(victim="facilitator", does="refuse", times=None), of=payer)
    for _ in range(2):
        await probe.settle(challenge, header, may_break=True)
        expect.withheld(await probe.ask(may_break=True))
    await probe.world.clear_faults()

    async def is_back() -> bool:
        return (await probe.ask(may_break=True)).status == 402

    await eventually(probe.clock, is_back, within_s=BACK_S)


@paid_case(
    "1/sign-settle-repeat",
    title="A payment that is signed as the 402 asks is settled, and its payer is served.",
    decisive=False,
)
async def sign_settle_repeat(probe: Probe) -> None:
    challenge, _, header = await probe.signed()
    await probe.settles(challenge, header)
    expect.served(await probe.opened(challenge))


@paid_case(
    "1/payer-pays-no-gas",
    title="The payment's transaction is sent by another account; the payer pays no gas.",
    needs="funds, observe chain",
    decisive=False,
)
async def the_payer_pays_no_gas(probe: Probe) -> None:
    payer = await probe.wallets.payer()
    before = await _gas_account(probe, payer)
    paid = await probe.buy(payer)
    receipt = await probe.chain.receipt(paid)
    sender = str(receipt.get("from"))
    expect.holds("another sender than the payer", sender.lower() != payer.address.lower(), sender)
    after = await _gas_account(probe, payer)
    expect.equal("the payer's transactions and native balance", after, before)


async def _gas_account(probe: Probe, payer: Wallet) -> tuple[Any, Any]:
    count = await probe.chain.call("eth_getTransactionCount", payer.address, "latest")
    return count, await probe.chain.call("eth_getBalance", payer.address, "latest")


@paid_case(
    "1/repeat-served",
    title="The request that got a 402 is served when repeated with the payment's id.",
    decisive=False,
)
async def the_repeated_request_is_served(probe: Probe) -> None:
    paid = await probe.buy()
    expect.served(await probe.ask(payment_id=paid.challenge.payment_id))


@case(
    "1/session-no-402",
    title="One deposit pays for several requests, none of which gets a 402.",
    needs="funds, sessions",
    deposits="0.02",
    decisive=False,
)
async def a_session_needs_no_402(probe: Probe) -> None:
    session = await probe.open_session(await probe.budget_for(2))
    expect.served(await probe.ask(session_id=session.session_id))
    expect.served(await probe.ask(session_id=session.session_id))


@case(
    "1/indexer",
    title="The service asks the chain explorer for a payment within the interval, by itself.",
    needs="funds, world",
    waits=turn_s,
    late=True,
    decisive=False,
)
async def the_indexer_runs_by_itself(probe: Probe) -> None:
    paid_by, within_s = tx_hash(await buy_late(probe)), turn_s(probe.setting)
    asked = await probe.eventually(lambda: probe.world.first_queries([paid_by]), within_s)
    expect.holds(f"a query to the explorer within {within_s:.0f} s", bool(asked), "none")
