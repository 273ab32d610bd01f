"""Section 5: the exact amount to the exact recipient, and nothing else.

The false value is in the header, in the requirements sent back, or in both.
"""

from typing import Any

from x402sim.suite.service.check import check
from x402sim.suite.service.inputs import examples
from x402sim.suite.service.payment_outcome import expect_refused_if
from x402sim.suite.service.probe import Probe


def _both(value: int) -> dict[str, Any]:
    return {"requirements": {"maxAmountRequired": str(value)}, "value": value}


@check(
    "5/exact-amount",
    title="An authorization for more or less than maxAmountRequired is refused.",
    baseline="payment",
    needs="funds",
    pays=3,
    decisive="the signed amount",
)
async def not_the_amount_required(probe: Probe) -> None:
    price_base, payer = (await probe.challenge()).amount_base, await probe.wallets.payer()
    for value in (price_base - 1, price_base + 1, 1, 0):
        await expect_refused_if(probe, payer, value=value)


@check(
    "5/exact-amount",
    title="Another amount is refused, even if the requirements sent back name it.",
    baseline="payment",
    needs="funds",
    pays=3,
)
async def another_amount_in_both(probe: Probe) -> None:
    price_base, payer = (await probe.challenge()).amount_base, await probe.wallets.payer()
    for value in (price_base - 1, price_base + 1, 1, 0):
        await expect_refused_if(probe, payer, **_both(value))


@check(
    "5/exact-amount",
    title="Random other amounts are refused.",
    baseline="payment",
    needs="world",
    decisive="the signed amount",
)
async def amounts_made_up(probe: Probe) -> None:
    price_base, payer = (await probe.challenge()).amount_base, await probe.wallets.payer()
    amounts = examples(8, lambda st: st.integers(0, 10_000_000))
    near = {price_base * 10, price_base * 100, price_base // 100}
    for value in sorted({*amounts[::2], *near} - {price_base}):
        await expect_refused_if(probe, payer, value=value)
    for value in sorted({*amounts[1::2], *near} - {price_base}):
        await expect_refused_if(probe, payer, **_both(value))


@check(
    "5/exact-recipient",
    title="A transfer to the payer is refused, even if the requirements sent back name it.",
    baseline="payment",
    needs="funds",
    pays=2,
    decisive="the signed recipient",
)
async def the_payer_pays_itself(probe: Probe) -> None:
    payer = await probe.wallets.payer()
    await expect_refused_if(probe, payer, to=payer.address)
    await expect_refused_if(probe, payer, {"payTo": payer.address}, to=payer.address)


@check(
    "5/exact-recipient",
    title=("A transfer to a third party is refused, even if the requirements sent back name it."),
    baseline="payment",
    needs="world",
    decisive="the signed recipient",
)
async def a_third_party_is_paid(probe: Probe) -> None:
    payer, friend = await probe.wallets.payer(), probe.wallets.stranger().address
    await expect_refused_if(probe, payer, to=friend)
    await expect_refused_if(probe, payer, {"payTo": friend}, to=friend)
    token = probe.wallets.network(await probe.challenge()).asset
    await expect_refused_if(probe, payer, to=token)
