"""Section 7, and a demand of the kit itself: correct answers while the facilitator fails.

Each failure affects one call of the target, or all. Money may have moved or not, as the ledger
shows. A receipt requires a transfer, and so does access; the payer pays once; and
afterwards payments work again.
"""

from functools import partial

from msgspec.structs import replace

from x402sim.spec.ground import ours
from x402sim.suite.service import expect
from x402sim.suite.service.case import fault_case
from x402sim.suite.service.control_api import NOT_SETTLED
from x402sim.suite.service.probe import Probe
from x402sim.suite.verdict import amounts
from x402sim.world.faults import Fault

IN_TROUBLE = ours(
    because="A failing facilitator should give nothing away, charge nobody twice, and end."
)
FAILED = NOT_SETTLED.replace("Transaction failed on-chain", "Authorization expired")


ANY = partial(Fault, victim="facilitator", times=None)


def _says(status: int, body: str, *, work_done: bool = False) -> Fault:
    kind = "text/html" if body.startswith("<") else "application/json"
    return ANY(does="answer", status=status, body=body, content_type=kind, work_done=work_done)


BOTH: dict[str, Fault] = {
    "it refuses connections": ANY(does="refuse"),
    "the request is lost": ANY(does="lose request"),
    "the answer is lost": ANY(does="lose answer"),
    "the answer is truncated": ANY(does="truncate"),
    "it answers 500": _says(500, '{"error":"boom"}'),
    "it answers 503 with HTML": _says(503, "<h1>Service Unavailable</h1>"),
    "it answers half of its JSON": ANY(does="shorten"),
    "it answers 429": _says(429, '{"error":"Too Many Requests"}'),
    "it answers 200 with HTML": _says(200, "<h1>Welcome</h1>"),
    "it answers 200 without a body": _says(200, ""),
    "it answers 200 with null": _says(200, "null"),
    "it answers 200 with an array": _says(200, "[]"),
    "it answers 200 with an empty object": _says(200, "{}"),
}
VERIFYING = BOTH | {
    "it reports the payment as invalid": _says(200, '{"isValid":false,"invalidReason":"Invalid"}'),
    "it answers isValid null": _says(200, '{"isValid":null,"invalidReason":"x"}'),
    "it refuses with 400": _says(400, '{"isValid":false,"invalidReason":"Invalid"}'),
}
SETTLING = BOTH | {
    "it says success false in a 200": _says(200, '{"success":false,"errorReason":"x"}'),
    "it says payment.failed in a 200": _says(200, FAILED),
    "it says payment.failed in a 400": _says(400, FAILED),
    "it answers 500 after the work was done": _says(500, "{}", work_done=True),
    "it answers HTML after the work was done": _says(200, "<h1>Done</h1>", work_done=True),
}
ONCE = {f"{name} once": replace(BOTH[name], times=1) for name in list(BOTH)[:5]}
"""A target that retries succeeds."""


async def _holds(probe: Probe, path: str, failures: dict[str, Fault]) -> None:
    """Pay while the facilitator fails, in each way; fail if an answer contradicts the ledger."""
    for how, fault in failures.items():
        challenge, payer, header = await probe.signed()
        await probe.world.fault(replace(fault, path=path), of=payer)
        answer = await probe.settle(challenge, header, may_break=True)
        await probe.world.clear_faults()
        moved, name = await probe.world.payments_base(payer), f"{path}: {how}"
        expect.holds(f"at most one payment ({name})", len(moved) <= 1, amounts(moved))
        if answer.is_receipt:
            expect.holds(f"a receipt only for a transfer ({name})", bool(moved), answer.summary)
        expect.holds(f"an answer ({name})", not answer.broken, answer.summary)
        asked = await probe.ask(payment_id=challenge.payment_id)
        if not moved and not await probe.world.transfers(payer):
            expect.not_served(asked)
        again = await probe.settle(challenge, header)
        if again.is_receipt:
            served = await probe.opened(challenge)
            expect.holds(f"access after a receipt ({name})", served.has_content, served.status)
        paid = len(await probe.world.transfers(payer))
        expect.holds(f"one payment in all ({name})", paid <= 1, f"{paid} transfers")
    works = await probe.buy()
    await probe.world.expect_payments(works.payer, works.challenge.amount_base)
    expect.served(await probe.opened(works.challenge))


@fault_case(
    "7/verify-trouble",
    title=("While verification fails, nothing is granted unpaid; afterwards payments work again."),
    ground=IN_TROUBLE,
)
async def verification_in_trouble(probe: Probe) -> None:
    await _holds(probe, "/verify", VERIFYING)


@fault_case(
    "7/settle-trouble",
    title="While settlement fails, nothing is granted unpaid; afterwards payments work again.",
    ground=IN_TROUBLE,
)
async def settlement_in_trouble(probe: Probe) -> None:
    await _holds(probe, "/settle", SETTLING | ONCE)
