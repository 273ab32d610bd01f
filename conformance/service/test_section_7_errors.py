"""Section 7: the 402, and the five error texts of a settlement.

A text is required only if the payment has a single defect. Statuses and bodies are open: the text
may be anywhere in the answer.
"""

import asyncio
from dataclasses import replace

from x402sim.payer.wallet import Wallet
from x402sim.protocol.money import to_decimal
from x402sim.spec.ground import derived, silent
from x402sim.suite.service import expect, inputs
from x402sim.suite.service.answers import Challenge
from x402sim.suite.service.case import case, fault_case, refusal_case, session_case, unpaid_case
from x402sim.suite.service.control_api import SETTLE
from x402sim.suite.service.probe import Probe
from x402sim.suite.service.target import SHAPE
from x402sim.suite.verdict import Inconclusive

BALANCE = "Insufficient USDC balance"
SIGNATURE = "Invalid signature"
NONCE = "Nonce already used"
EXPIRED = "Authorization expired"
SETTLED = "Payment already settled"
PAST_S, FUTURE_S = (-420, -60), (600, 900)
"""Time windows that have ended or not yet begun, relative to signing."""


# --- the 402 -------------------------------------------------------------------------


@unpaid_case(
    "7/payment-required",
    title="A request without a valid proof gets a 402 for this resource; a malformed one is none.",
)
async def no_proof_no_content(probe: Probe) -> None:
    places, challenge = probe.target.payment_required, await probe.challenge()
    wanted = challenge.requirements
    probe.by_target(*SHAPE)
    for payment_id in (None, "pay_invented", challenge.payment_id):
        answer = await probe.ask(payment_id=payment_id)
        expect.not_served(answer, is_402=True)
        asked = answer.requirements
        is_payable = isinstance(asked, dict) and isinstance(answer.at(places.payment_id), str)
        expect.holds("a payment id and requirements", is_payable, answer.summary)
        if places.error:
            expect.equal_form("the error", answer.at(places.error), places.error_text)
        for field in ("asset", "maxAmountRequired", "resource"):
            expect.equal_form(field, asked.get(field), wanted.get(field))
    if probe.target.sessions.exists:
        session_id = f"session_{probe.setting.rng.stream('no session').randbytes(20).hex()}"
        expect.not_served(await probe.ask(session_id=session_id), is_402=True)
    for each in await inputs.sent(probe, "proofs"):
        expect.withheld(each.answer, each.label)


# --- settlement ----------------------------------------------------------------------


@unpaid_case(
    "7/insufficient-balance",
    title="A payer without any of the token gets the text for an insufficient balance.",
    decisive="its text",
)
async def a_payer_without_money(probe: Probe) -> None:
    challenge = await probe.challenge()
    answer = await probe.settle(challenge, probe.wallets.sign(challenge, probe.wallets.stranger()))
    if EXPIRED in answer.text and not probe.world.exists:
        raise Inconclusive("the target's clock is not this machine's")
    expect.refused(answer, BALANCE)
    expect.not_served(await probe.ask(payment_id=challenge.payment_id), is_402=True)


@refusal_case(
    "7/insufficient-balance",
    title="A payer who lacks one base unit gets the text for an insufficient balance.",
    needs="world",
    decisive="its text",
)
async def a_payer_with_too_little(probe: Probe) -> None:
    challenge = await probe.challenge()
    payer = await probe.wallets.payer(to_decimal(challenge.amount_base - 1, 6))
    answer = await probe.settle(challenge, probe.wallets.sign(challenge, payer))
    expect.refused(answer, BALANCE)
    await probe.world.expect_payments(payer)


@refusal_case(
    "7/insufficient-balance",
    title="A payment that was refused for want of money is settled once the wallet is funded.",
    ground=derived(
        "7: Insufficient USDC balance",
        so=("What resolves it is money in the wallet: neither a new header nor a new payment id."),
    ),
    needs="world",
)
async def money_in_the_wallet_resolves_it(probe: Probe) -> None:
    challenge, payer = await probe.challenge(), probe.wallets.stranger()
    header = probe.wallets.sign(challenge, payer)
    expect.refused(await probe.settle(challenge, header), BALANCE)
    await probe.wallets.fund(payer, to_decimal(challenge.amount_base, 6))
    await probe.settles(challenge, header)
    expect.served(await probe.opened(challenge))
    await probe.world.expect_payments(payer, challenge.amount_base)


@refusal_case(
    "7/invalid-signature",
    title="After a signature by another key was refused, a valid header pays for the same id.",
    ground=derived(
        "7: Invalid signature",
        "7: Payment already settled",
        so="What resolves it is a new header, and not a new id: the id is still good.",
    ),
    pays=2,
    decisive="its text",
)
async def a_new_header_resolves_it(probe: Probe) -> None:
    challenge, payer = await probe.challenge(), await probe.wallets.payer()
    forged = probe.wallets.sign(challenge, payer, by=probe.wallets.stranger())
    expect.refused(await probe.settle(challenge, forged), SIGNATURE)
    await probe.settles(challenge, probe.wallets.sign(challenge, payer))


@refusal_case(
    "7/authorization-expired",
    title=("After an expired authorization was refused, a new one pays for the same payment id."),
    ground=derived(
        "7: Authorization expired",
        so="What resolves it is a new authorization, and not a new id: the id is still good.",
    ),
    pays=2,
)
async def a_new_authorization_resolves_it(probe: Probe) -> None:
    challenge, payer, header = await probe.signed(window_s=PAST_S)
    expect.refused(await probe.settle(challenge, header), EXPIRED)
    await probe.settles(challenge, probe.wallets.sign(challenge, payer))


@refusal_case(
    "7/nonce-already-used",
    title="After a used nonce was refused for an id, a fresh one pays for it.",
    ground=derived(
        "7: Nonce already used",
        so="What resolves it is a fresh nonce, and not a new id: the id is still good.",
    ),
    pays=2,
)
async def a_fresh_nonce_resolves_it(probe: Probe) -> None:
    paid, challenge = await probe.buy(), await probe.challenge()
    expect.refused(await probe.settle(challenge, paid.header), NONCE)
    await probe.world.expect_payments(paid.payer, paid.challenge.amount_base)
    fresh = probe.wallets.sign(challenge, paid.payer)
    await probe.settles(challenge, fresh)


@refusal_case(
    "7/nonce-already-used",
    title="A cancelled nonce gets the text for a used nonce.",
    ground=derived(
        "7: Nonce already used",
        so="A nonce that was cancelled is stale: it cannot be used any more.",
    ),
    needs="world",
)
async def the_nonce_was_cancelled(probe: Probe) -> None:
    challenge, payer, header = await probe.signed()
    await probe.wallets.cancel(challenge, header, payer)
    expect.refused(await probe.settle(challenge, header), NONCE)
    await probe.world.expect_payments(payer)


@refusal_case(
    "7/payment-already-settled",
    title="A payment refused for a paid id pays for a new id; the first id stays good.",
    ground=derived(
        "7: Payment already settled",
        "5: The token contract keeps",
        so="A new id resolves it, and no new header: the refused payment has used no nonce.",
    ),
    pays=2,
)
async def a_new_id_resolves_it(probe: Probe) -> None:
    paid = await probe.buy()
    second = probe.wallets.sign(paid.challenge, paid.payer)
    expect.refused(await probe.settle(paid.challenge, second), SETTLED)
    await probe.world.expect_payments(paid.payer, paid.challenge.amount_base)
    expect.served(await probe.ask(payment_id=paid.challenge.payment_id))
    challenge = await probe.challenge()
    await probe.settles(challenge, second)
    expect.served(await probe.ask(payment_id=challenge.payment_id))


@refusal_case(
    "7/payment-already-settled",
    title="After eight wrong payments for an id, the id can be paid, and their payer can pay.",
    ground=derived(
        "7: Payment already settled",
        "4.1: Processing order",
        "5: The token contract keeps",
        so="A settlement uses an id and a nonce; a refusal uses nothing.",
    ),
    needs="world",
)
async def what_was_refused_has_not_paid(probe: Probe) -> None:
    challenge, one = await probe.challenge(), await probe.wallets.payer()
    other = await probe.wallets.payer()
    network = probe.wallets.network(challenge)
    elsewhere = replace(network, chain_id=network.chain_id + 1)
    refused = (
        probe.wallets.sign(challenge, one, by=other),
        probe.wallets.sign(challenge, one, value=challenge.amount_base - 1),
        probe.wallets.sign(challenge, one, value=challenge.amount_base + 1),
        probe.wallets.sign(challenge, one, to=other.address),
        probe.wallets.sign(challenge, one, network=elsewhere),
        probe.wallets.sign(challenge, one, window_s=PAST_S),
        probe.wallets.sign(challenge, one, window_s=FUTURE_S),
        probe.wallets.sign(challenge, probe.wallets.stranger()),
    )
    for header in refused:
        answer = await probe.settle(challenge, header)
        if answer.is_receipt:
            raise Inconclusive(f"what is to be refused was settled: {answer.summary}")
    await _pays(probe, challenge, other)
    await _pays(probe, await probe.challenge(fresh=True), one)


async def _pays(probe: Probe, challenge: Challenge, payer: Wallet) -> None:
    await probe.settles(challenge, probe.wallets.sign(challenge, payer))
    expect.served(await probe.opened(challenge))
    await probe.world.expect_payments(payer, challenge.amount_base)


@session_case(
    "7/payment-already-settled",
    title="A paid deposit accepts no second payment, and its session keeps its budget.",
    needs="funds, sessions, world",
)
async def a_second_payment_for_a_deposit(probe: Probe) -> None:
    session = await probe.open_session(await probe.budget_for(2))
    paid, price_base = session.paid, (await probe.challenge()).amount_base
    second = probe.wallets.sign(paid.challenge, paid.payer)
    expect.refused(await probe.settle(paid.challenge, second), SETTLED)
    await probe.world.expect_payments(paid.payer, paid.challenge.amount_base)
    worth = paid.challenge.amount_base // price_base
    served = await probe.drain(session.session_id, worth + 1)
    expect.equal("requests served for the deposit", served, worth)


@refusal_case(
    "7/payment-already-settled",
    title="A paid payment id accepts no payment by another payer.",
    needs="world",
    decisive="its text",
)
async def a_second_payer_for_one_id(probe: Probe) -> None:
    paid, other = await probe.buy(), await probe.wallets.payer()
    second = probe.wallets.sign(paid.challenge, other)
    expect.refused(await probe.settle(paid.challenge, second), SETTLED)
    await probe.world.expect_payments(other)


@refusal_case(
    "7/payment-already-settled",
    title="Of concurrent payments for one id, by one payer or two, exactly one is accepted.",
    ground=derived(
        "7: Payment already settled",
        "5: The token contract keeps",
        so="The first payment uses the id; every other one comes too late, and moves nothing.",
    ),
    needs="world",
)
async def payments_for_one_id_at_the_same_time(probe: Probe) -> None:
    for payers in (2, 1):
        challenge = await probe.challenge()
        wallets = [await probe.wallets.payer() for _ in range(payers)]
        for payer in wallets:
            await probe.world.hold(payer)
        headers = [probe.wallets.sign(challenge, payer) for payer in wallets * (4 // payers)]
        answers = await asyncio.gather(*(probe.settle(challenge, header) for header in headers))
        moved = [base for payer in wallets for base in await probe.world.payments_base(payer)]
        if not moved:
            raise Inconclusive(f"nothing was settled: {[each.summary for each in answers]}")
        expect.equal("payments of all payers, on the ledger", moved, [challenge.amount_base])
        expect.served(await probe.opened(challenge))


@fault_case(
    "7/payment-already-settled",
    title=("After a settlement whose answer was lost, a second header for its id moves no money."),
    ground=derived(
        "7: Payment already settled",
        "5: The amount must equal",
        so="An id that was paid on the chain is used, whatever the service has heard of that.",
    ),
    decisive=False,
)
async def a_second_payment_after_a_lost_answer(probe: Probe) -> None:
    challenge, payer = await probe.challenge(), await probe.wallets.payer()
    await probe.world.fault(SETTLE(does="lose answer"), of=payer)
    await probe.settle(challenge, probe.wallets.sign(challenge, payer), may_break=True)
    moved = await probe.world.payments_base(payer)
    if moved != [challenge.amount_base]:
        raise Inconclusive(f"the settlement whose answer was lost moved {moved}")
    await probe.settle(challenge, probe.wallets.sign(challenge, payer), may_break=True)
    await probe.world.expect_payments(payer, challenge.amount_base)


@refusal_case(
    "7/payment-already-settled",
    title="After a restart, a paid payment id accepts no second payment.",
    ground=derived(
        "7: Payment already settled",
        "4.1: Store the payment record",
        so="The payment is stored, so its id stays used after a restart.",
    ),
    needs="funds, restart",
    pays=2,
    decisive=False,
)
async def a_second_payment_after_a_restart(probe: Probe) -> None:
    paid = await probe.buy()
    await probe.restart()
    second = await probe.settle(paid.challenge, probe.wallets.sign(paid.challenge, paid.payer))
    expect.refused(second)
    await probe.world.expect_payments(paid.payer, paid.challenge.amount_base)


# --- where the specification is silent -----------------------------------------------


@case(
    "7/settlement-statuses",
    title="The HTTP status of each of the five texts.",
    ground=silent("7: HTTP status codes for these"),
    needs="world",
)
async def statuses_of_the_settlement_errors(probe: Probe) -> None:
    paid, challenge, payer = await probe.buy(), await probe.challenge(), await probe.wallets.payer()
    by_another = probe.wallets.sign(challenge, payer, by=probe.wallets.stranger())
    expired = probe.wallets.sign(challenge, payer, window_s=PAST_S)
    answers = {
        BALANCE: await probe.settle(
            challenge, probe.wallets.sign(challenge, probe.wallets.stranger())
        ),
        SIGNATURE: await probe.settle(challenge, by_another),
        EXPIRED: await probe.settle(challenge, expired),
        NONCE: await probe.settle(challenge, paid.header),
        SETTLED: await probe.settle(paid.challenge, probe.wallets.sign(paid.challenge, paid.payer)),
    }
    statuses = [
        f"{text}: {each.status}{'' if text in each.text else ' without the text'}"
        for text, each in answers.items()
    ]
    probe.observe("; ".join(statuses))
