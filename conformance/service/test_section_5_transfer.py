"""Section 5: the exact amount to the exact recipient, and nothing else.

The false value is in the header, in the requirements sent back, or in both.
"""

from typing import Any

from x402sim.protocol.crypto import checksum
from x402sim.suite.service.case import refusal_case
from x402sim.suite.service.inputs import examples
from x402sim.suite.service.probe import Probe


def _both(value: int) -> dict[str, Any]:
    return {"sent": {"maxAmountRequired": str(value)}, "value": value}


@refusal_case(
    "5/exact-amount",
    title="Another amount is refused, even if the requirements sent back name it.",
    pays=6,
    decisive="the signed amount",
)
async def not_the_amount_required(probe: Probe) -> None:
    price_base, payer = (await probe.challenge()).amount_base, await probe.wallets.payer()
    for value in (price_base - 1, price_base + 1, 1, 0):
        await probe.expect_refused_if(payer, value=value)
        await probe.expect_refused_if(payer, **_both(value))


@refusal_case(
    "5/exact-amount",
    title="Random other amounts are refused.",
    needs="world",
    decisive="the signed amount",
)
async def amounts_made_up(probe: Probe) -> None:
    price_base, payer = (await probe.challenge()).amount_base, await probe.wallets.payer()
    amounts = examples("amounts", 8, lambda rng: rng.randint(0, 10 ** rng.randint(0, 7)))
    near = {price_base * 10, price_base * 100, price_base // 100}
    for value in sorted({*amounts[::2], *near} - {price_base}):
        await probe.expect_refused_if(payer, value=value)
    for value in sorted({*amounts[1::2], *near} - {price_base}):
        await probe.expect_refused_if(payer, **_both(value))


@refusal_case(
    "5/exact-recipient",
    title="A transfer to another account is refused, even if the requirements sent back name it.",
    pays=2,
)
async def another_account_is_paid(probe: Probe) -> None:
    payer, others = await probe.wallets.payer(), []
    if probe.world.exists:  # the user's own key pays nobody else
        others = [probe.wallets.stranger().address]
        others.append(checksum(probe.wallets.network(await probe.challenge()).asset))
    for other in (payer.address, *others):
        await probe.expect_refused_if(payer, to=other)
        await probe.expect_refused_if(payer, sent={"payTo": other}, to=other)
