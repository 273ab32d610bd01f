"""Section 2.2: a payment id is opaque, comes once, cannot be guessed and cannot be invented."""

import asyncio
import math

from x402sim.protocol.refusals import Refusal
from x402sim.spec.ground import derived, explicit, ours
from x402sim.suite.service import expect
from x402sim.suite.service.answers import read_402
from x402sim.suite.service.case import case, paid_case, refusal_case, restart_case, unpaid_case
from x402sim.suite.service.probe import Probe
from x402sim.suite.verdict import Inconclusive

PREFIX = "pay_"
SAMPLE, AT_ONCE, AFTER_A_RESTART = 32, 6, 40
GUESSABLE_BITS = 44
"""Bits that 32 ids vary by: between a nanosecond clock with a counter (at most 41) and 60 random
bits (46)."""
SHORT = 8
"""Fewer letters are short: another issued id may differ by four letters."""
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"


@case(
    "2.2/payment-id",
    title="A payment id is pay_ and an opaque part that is valid in a header.",
    ground=derived(
        "2.2: paymentId", so="The client quotes the id in X-Payment-Id, so ids fit into a header."
    ),
)
async def a_payment_id_has_its_prefix(probe: Probe) -> None:
    payment_id = (await probe.challenge()).payment_id
    opaque = payment_id.removeprefix(PREFIX)
    fits = opaque.isascii() and opaque.isprintable() and " " not in opaque
    good = payment_id.startswith(PREFIX) and bool(opaque) and fits
    expect.holds_form("pay_ and an opaque part", good, payment_id)


@paid_case(
    "2.2/payment-id",
    title="After a payment, the next 402 has another payment id.",
    ground=derived(
        "2.2: paymentId",
        "7: Payment already settled",
        so="An id identifies one payment, so the 402 after a payment has a new id.",
    ),
    decisive="another id each time",
)
async def a_paid_id_does_not_come_again(probe: Probe) -> None:
    challenge, payer = await probe.challenge(fresh=True), await probe.wallets.payer()
    answer = await probe.settle(challenge, probe.wallets.sign(challenge, payer))
    is_new = answer.is_receipt or Refusal.ALREADY_SETTLED.text not in answer.text
    expect.holds("the payment id of a new 402 is not settled yet", is_new, answer.summary)
    if not answer.is_receipt:
        raise Inconclusive(f"a valid payment was not settled: {answer.summary}")
    another = (await probe.challenge(fresh=True)).payment_id
    expect.holds("another payment id", another != challenge.payment_id, "the id that was paid")


@unpaid_case(
    "2.2/payment-id",
    title="Of several 402s that are requested at the same time, each has its own payment id.",
    ground=derived(
        "2.2: paymentId",
        "7: Payment already settled",
        so="An id identifies one payment: of two payers with one id, the second is refused.",
    ),
    decisive="another id each time",
)
async def two_who_ask_at_once_get_two_ids(probe: Probe) -> None:
    await probe.challenge()
    answers = await asyncio.gather(*(probe.ask() for _ in range(AT_ONCE)))
    ids = [read_402(answer).payment_id for answer in answers if answer.status == 402]
    expect.equal(f"different ids among {len(ids)}", len(set(ids)), len(ids))


@restart_case(
    "2.2/payment-id",
    title="After a restart, no 402 names an id that was paid before it.",
    ground=derived(
        "2.2: paymentId",
        "7: Payment already settled",
        so="An id that was paid calls for a new one: a 402 that names it cannot be paid.",
    ),
    decisive=False,
)
async def ids_do_not_begin_anew(probe: Probe) -> None:
    await probe.buy()
    await probe.restart()
    for _ in range(AFTER_A_RESTART):
        answer = await probe.unpaid()
        is_new = read_402(answer).payment_id not in probe.setting.paid_ids
        expect.holds("a payment id that was never paid", is_new, answer.summary, answer.show)


@case(
    "2.2/payment-id",
    title="No payment id comes twice, and 32 of them reveal neither a counter nor a clock.",
    ground=ours(
        "2.2: paymentId",
        because="Whoever guesses a payment id gets the goods. The specification says: opaque.",
    ),
)
async def payment_ids_cannot_be_guessed(probe: Probe) -> None:
    ids = [(await probe.challenge(fresh=True)).payment_id for _ in range(SAMPLE)]
    expect.equal(f"different ids among {SAMPLE}", len(set(ids)), SAMPLE)
    bits = _bits_that_vary(ids)
    demand = f"ids that vary by more than {GUESSABLE_BITS} bits"
    expect.holds(demand, bits > GUESSABLE_BITS, f"{bits:.0f} bits, such as {ids[-2:]}")


def _bits_that_vary(ids: list[str]) -> float:
    places = range(max(len(each) for each in ids))
    seen = [{each[place : place + 1] for each in ids} for place in places]
    return sum(math.log2(len(characters)) for characters in seen)


@unpaid_case(
    "2.2/payment-id",
    title="A request with a payment id that was never issued gets a 402.",
    ground=explicit("5: Otherwise the response is 402", "5: X-Payment-Id"),
    decisive=False,
)
async def an_invented_id_grants_nothing(probe: Probe) -> None:
    payment_id = (await probe.challenge()).payment_id
    for invented in _invented(probe, payment_id):
        expect.not_served(await probe.ask(payment_id=invented), is_402=True)


@refusal_case(
    "2.2/payment-id",
    title="A payment for an id that was never issued is refused, and moves no money.",
    ground=derived(
        "4.1: paymentId | string | yes",
        "4.1: Validate the parameters",
        "5: The token contract keeps",
        so="A settlement names an id of a 402. An invented id settles nothing, so uses no nonce.",
    ),
)
async def an_invented_id_settles_nothing(probe: Probe) -> None:
    challenge, payer, header = await probe.signed()
    for invented in _invented(probe, challenge.payment_id):
        expect.refused(await probe.settle(challenge, header, payment_id=invented))
        expect.not_served(await probe.ask(payment_id=invented))
    await probe.world.expect_payments(payer)
    await probe.settles(challenge, header)


def _invented(probe: Probe, payment_id: str) -> list[str]:
    """Return ids similar to an issued id: with another end, another middle, all different.

    An id that differs from a short id by a few letters may have been issued, too; so similar ids
    of a short id are longer.
    """
    rng = probe.setting.rng.stream(f"invented {payment_id}")
    opaque = payment_id.removeprefix(PREFIX)

    def other(text: str) -> str:
        return "".join(rng.choice(LETTERS.replace(letter, "")) for letter in text)

    if len(opaque) < SHORT:
        return [payment_id + other("A" * SHORT), PREFIX + other("A" * 3 * SHORT)]
    half = len(opaque) // 2
    return [
        PREFIX + opaque[:-4] + other(opaque[-4:]),
        PREFIX + opaque[:half] + other(opaque[half : half + 4]) + opaque[half + 4 :],
        PREFIX + other(opaque),
    ]


@unpaid_case(
    "2.2/payment-id",
    title="The 402 for an unknown payment id has a different one: the service issues ids.",
    ground=ours(
        "2.2: paymentId",
        because="A payer who chooses an id errs, or attacks. The specification leaves this open.",
    ),
)
async def an_id_is_not_the_payers_choice(probe: Probe) -> None:
    chosen = "pay_" + "Chosen" * 6
    answer = await probe.ask(payment_id=chosen)
    issued = answer.at(probe.target.payment_required.payment_id)
    expect.holds("another payment id than the one that was sent", issued != chosen, issued)
