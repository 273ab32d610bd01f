"""Expectations of a payment: no effect, or a settlement exactly on the terms issued.

A payer may send anything to the settlement endpoint. A service chooses how to refuse, and whether
to read the returned requirements: a check counts the ledger's transfers and the granted access.
"""

from typing import Any

from x402sim.payer.wallet import Wallet
from x402sim.suite.service.answers import Challenge, Paid, TargetAnswer, filled, shown
from x402sim.suite.service.control_api import paid_to
from x402sim.suite.service.expect import (
    expect_not_served,
    expect_refused,
    expect_served,
    expect_transfers,
    expect_withheld,
)
from x402sim.suite.service.probe import Probe
from x402sim.suite.verdict import Inconclusive


async def expect_nothing(
    probe: Probe,
    challenge: Challenge,
    payer: Wallet,
    answer: TargetAnswer,
    *texts: str,
    is_402: bool = False,
) -> None:
    """Fail unless a payment was refused (with one of the texts), and moved and grants nothing.

    With `is_402`, a request with the payment id must be answered 402.
    """
    expect_refused(answer, *texts)
    expect_not_served(await probe.ask(payment_id=challenge.payment_id), is_402=is_402)
    await probe.world.expect_payments(payer)


async def expect_refused_if(
    probe: Probe, payer: Wallet, requirements: dict[str, Any] | None = None, **signed: Any
) -> None:
    """Pay a new 402 with changes; fail unless it is refused, and moves and grants nothing."""
    challenge = await probe.challenge()
    header = probe.wallets.sign(challenge, payer, **signed)
    answer = await probe.settle(challenge, header, requirements=requirements)
    await expect_nothing(probe, challenge, payer, answer, is_402=True)


async def expect_nothing_or_as_issued(
    probe: Probe, challenge: Challenge, payer: Wallet, answer: TargetAnswer
) -> bool:
    """Fail unless a payment for the protected resource came to nothing, or was settled as issued.

    As issued: the amount of the 402 moved to its payee, once, and opens the resource. Without a
    world, the transfers are unknown. Returns whether the payment was settled.
    """
    if not answer.is_receipt:
        await expect_nothing(probe, challenge, payer, answer)
        return False
    if probe.world.exists:
        wanted = paid_to(str(challenge.requirements["payTo"]), challenge.amount_base)
        expect_transfers(
            "what was settled, on the ledger", await probe.world.payments(payer), [wanted]
        )
    expect_served(await probe.opened(challenge))
    return True


async def record_of(probe: Probe, paid: Paid) -> dict[str, Any]:
    """Return a payment's stored record, with the names of 2.4; raises `Inconclusive`."""
    path = filled(probe.target.record.path, "paymentId", paid.challenge.payment_id)
    answer = await probe.send("GET", path)
    record = shown(answer.body, "payment_id")
    if answer.status != 200 or record is None:
        raise Inconclusive(f"the payment record cannot be read: {answer.summary}")
    return record


# --- of a deposit ------------------------------------------------------------------------


async def drain(probe: Probe, session_id: str, at_most: int) -> int:
    """Send requests one by one until a request is refused; return how many were served."""
    served = 0
    while served < at_most and (await probe.ask(session_id=session_id)).has_content:
        served += 1
    return served


async def expect_no_session(probe: Probe, *answers: TargetAnswer) -> None:
    """Fail if a session of these answers can be spent."""
    for session_id in dict.fromkeys(each.session_id for each in answers if each.session_id):
        expect_withheld(await probe.ask(session_id=session_id))
