"""Section 7, and a demand of the kit itself: correct answers while the facilitator fails.

Each failure affects one call of the target, or all. Money may have moved or not; the ledger
shows which. A receipt requires a transfer, and so does access; the payer pays once; and
afterwards payments work again.
"""

from dataclasses import dataclass, field
from typing import Any

from x402sim.spec.ground import ours
from x402sim.suite.answers import Challenge
from x402sim.suite.check import check
from x402sim.suite.expect import expect_not_served, expect_served, require
from x402sim.suite.probe import Probe

IN_TROUBLE = ours(
    "The specification says nothing about a facilitator that fails. Nothing should be granted "
    "that was not paid, nobody should pay twice, and later payments should work again."
)
FAILED = (
    '{"x402Version":1,"event":"payment.failed","network":"cronos-testnet",'
    '"timestamp":"2026-01-01T00:00:00.000Z","error":"Authorization expired"}'
)


@dataclass(frozen=True, slots=True)
class Failure:
    """One way in which the facilitator fails: its name, and the fault that causes it."""

    name: str
    does: str
    more: dict[str, Any] = field(default_factory=dict)


def _says(name: str, status: int, body: str, *, work_done: bool = False) -> Failure:
    content_type = "text/html" if body.startswith("<") else "application/json"
    more = {"status": status, "body": body, "content_type": content_type, "work_done": work_done}
    return Failure(name, "answer", more)


BOTH = (
    Failure("it refuses connections", "refuse"),
    Failure("the request is lost", "lose request"),
    Failure("the answer is lost", "lose answer"),
    Failure("the answer is truncated", "truncate"),
    _says("it answers 500", 500, '{"error":"boom"}'),
    _says("it answers 503 with HTML", 503, "<h1>Service Unavailable</h1>"),
    _says("it answers 429", 429, '{"error":"Too Many Requests"}'),
    _says("it answers 200 with HTML", 200, "<h1>Welcome</h1>"),
    _says("it answers 200 without a body", 200, ""),
    _says("it answers 200 with null", 200, "null"),
    _says("it answers 200 with an array", 200, "[]"),
    _says("it answers 200 with an empty object", 200, "{}"),
)
VERIFY = (
    *BOTH,
    _says("it reports the payment as invalid", 200, '{"isValid":false,"invalidReason":"Invalid"}'),
    _says("it answers isValid null", 200, '{"isValid":null,"invalidReason":"x"}'),
    _says("it refuses with 400", 400, '{"isValid":false,"invalidReason":"Invalid"}'),
)
SETTLE = (
    *BOTH,
    _says("it says success false in a 200", 200, '{"success":false,"errorReason":"x"}'),
    _says("it says payment.failed in a 200", 200, FAILED),
    _says("it says payment.failed in a 400", 400, FAILED),
    _says("it answers 500 after the work was done", 500, "{}", work_done=True),
    _says("it answers HTML after the work was done", 200, "<h1>Done</h1>", work_done=True),
)


async def _holds(probe: Probe, path: str, failure: Failure, times: int | None) -> None:
    """Pay while the facilitator fails; fail if the answer contradicts the ledger."""
    challenge, payer, header = await probe.signed()
    aim = {"victim": "facilitator", "path": path, "times": times, "does": failure.does}
    await probe.world.fault({**aim, **failure.more}, of=payer)
    answer = await probe.settle(challenge, header, may_break=True)
    await probe.world.clear_faults()
    moved = [int(each["amountBase"]) for each in await probe.world.transfers(payer)]
    name = f"{path}: {failure.name}"
    require(f"at most one payment ({name})", len(moved) <= 1, moved)
    if answer.is_receipt:
        require(f"a receipt only for a transfer ({name})", bool(moved), answer.summary)
    require(f"an answer ({name})", not answer.broken, answer.summary)
    asked = await probe.ask(payment_id=challenge.payment_id)
    if not moved and not await probe.world.transfers(payer):
        expect_not_served(asked)
    await _recovers(probe, challenge, header, name)
    paid = len(await probe.world.transfers(payer))
    require(f"one payment in all ({name})", paid <= 1, f"{paid} transfers")


async def _recovers(probe: Probe, challenge: Challenge, header: str, name: str) -> None:
    """Send the payment again; fail if it is accepted and grants nothing."""
    answer = await probe.settle(challenge, header)
    if answer.is_receipt:
        served = await probe.opened(challenge, answer)
        require(f"access after a receipt ({name})", served.has_content, served.status)


@check("7/verify-trouble", ground=IN_TROUBLE, baseline="payment", needs="world")
async def verification_in_trouble(probe: Probe) -> None:
    """While verification fails, nothing is granted unpaid; afterwards payments work again."""
    for failure in VERIFY:
        await _holds(probe, "/verify", failure, times=None)
    await _works_again(probe)


@check("7/settle-trouble", ground=IN_TROUBLE, baseline="payment", needs="world")
async def settlement_in_trouble(probe: Probe) -> None:
    """While settlement fails, nothing is granted unpaid; afterwards payments work again."""
    for failure in SETTLE:
        await _holds(probe, "/settle", failure, times=None)
    await _works_again(probe)


@check("7/settle-trouble", ground=IN_TROUBLE, baseline="payment", needs="world")
async def settlement_in_trouble_once(probe: Probe) -> None:
    """The same if only the first call fails, so that a target that retries succeeds."""
    for failure in BOTH[:5]:
        await _holds(probe, "/settle", failure, times=1)
    await _works_again(probe)


async def _works_again(probe: Probe) -> None:
    paid = await probe.buy()
    await probe.world.expect_payments(paid.payer, paid.challenge.amount_base)
    expect_served(await probe.opened(paid.challenge, paid.receipt))
