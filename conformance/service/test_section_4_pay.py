"""Section 4.1: the steps of a settlement, their order, and the failures of each step."""

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from msgspec.structs import replace

from x402sim.events import AnswerSent, Transfer
from x402sim.journal import Entry
from x402sim.spec.ground import derived, explicit
from x402sim.suite.service import expect
from x402sim.suite.service.answers import Challenge
from x402sim.suite.service.case import case, fault_case, refusal_case, unpaid_case
from x402sim.suite.service.control_api import NOT_SETTLED, SETTLE, VERIFY
from x402sim.suite.service.inputs import examples, random_json
from x402sim.suite.service.probe import Probe
from x402sim.world.faults import Fault

INVALID_SIGNATURE = "Invalid signature"
NOT_VALID = '{"isValid": false, "invalidReason": "Invalid EIP-3009 signature"}'
SAYS = partial(VERIFY, does="answer", status=200)
NO_VERDICT: dict[str, Fault] = {
    "the connection is refused": VERIFY(does="refuse"),
    "the answer is lost": VERIFY(does="lose answer"),
    "500 without a body": VERIFY(does="answer", status=500),
    "200 with HTML": SAYS(content_type="text/html", body="<html>Bad Gateway</html>"),
    "200 with an empty object": SAYS(body="{}"),
    "200, cut off in the middle": VERIFY(does="truncate"),
    "200 with half of the JSON": VERIFY(does="shorten"),
    "the word false": SAYS(body=NOT_VALID.replace("false", '"false"')),
}
"""Answers to a verification that do not call the signature valid."""
PARAMETERS = ("paymentId", "paymentHeader", "paymentRequirements")
REQUIRED = explicit(
    "4.1: Validate the parameters",
    "4.1: paymentId | string | yes",
    "4.1: paymentHeader",
    "4.1: paymentRequirements",
)
UNSETTLED = derived(
    "5: X-Payment-Id",
    "5: Otherwise the response is 402",
    so="Access is granted for the id of a settled payment; what did not settle is none.",
)
UNDER_WAY_S = 0.5
RANDOM_INPUTS = 9
"""The characters of random text."""


def _calls(entries: list[Entry]) -> dict[int, str]:
    """Return the calls of the world's facilitator in a journal: "verify 200", "settle 200"."""
    return {
        entry.seq: f"{entry.event.path.rsplit('/', 1)[-1]} {entry.event.status}"
        for entry in entries
        if isinstance(entry.event, AnswerSent) and entry.event.actor == "facilitator"
    }


async def _asked_nothing(probe: Probe, verb: str, attempt: Callable[[], Awaitable[None]]) -> None:
    """Fail if an attempt calls the facilitator.

    A target may call for another reason at the same moment, such as an earlier payment that it
    settles late; but not three times in a row.
    """
    for is_last in (False, False, True):
        since = await probe.world.next_event()
        await attempt()
        every = _calls(await probe.world.journal(since)).values()
        calls = [call for call in every if call.startswith(verb)]
        if not calls or is_last:
            expect.equal(f"calls of the facilitator's {verb}", calls, [])
            return


# --- the order -----------------------------------------------------------------------


@refusal_case(
    "4.1/order",
    title="The service verifies the signature before money moves, and then sends the receipt.",
    needs="funds, world",
    decisive=False,
)
async def verified_before_settled_before_answered(probe: Probe) -> None:
    challenge, payer = await probe.challenge(), await probe.wallets.payer()
    since = await probe.world.next_event()
    await probe.settles(challenge, probe.wallets.sign(challenge, payer))
    await probe.world.expect_payments(payer, challenge.amount_base)
    entries = await probe.world.journal(since)
    verified = next((seq for seq, call in _calls(entries).items() if "verify" in call), None)
    transfers = {each.seq: each.event for each in entries if isinstance(each.event, Transfer)}
    moved = next(seq for seq, event in transfers.items() if event.sender == payer.address)
    in_order = verified is not None and verified < moved
    seen = f"events of the world's journal: verified {verified}, transferred {moved}"
    expect.holds("a verification before the transfer", in_order, seen)


@fault_case(
    "4.1/order",
    title="During the settlement, the payment's id grants nothing.",
    ground=derived(
        "4.1: Settle on-chain",
        "4.1: Store the payment record",
        "4.1: Cache the entitlement",
        "5: X-Payment-Id",
        so=("The payment is stored and cached after its settlement: before, nothing opens."),
    ),
)
async def no_access_before_the_transfer(probe: Probe) -> None:
    challenge, payer, header = await probe.signed()
    await probe.world.fault(SETTLE(does="delay request", seconds=UNDER_WAY_S), of=payer)
    settling = asyncio.create_task(probe.settle(challenge, header))
    while not settling.done():
        early = await probe.ask(payment_id=challenge.payment_id)
        if not await probe.world.transfers(payer):
            expect.not_served(early)
        await probe.clock.sleep(UNDER_WAY_S / 5)
    await settling


# --- step 1 --------------------------------------------------------------------------


@unpaid_case(
    "4.1/validate",
    title="An unfunded settlement with a parameter missing, wrong, or of random JSON is refused.",
    ground=REQUIRED,
    decisive=False,
)
async def parameters_that_are_missing_are_refused(probe: Probe) -> None:
    challenge = await probe.challenge()
    header = probe.wallets.sign(challenge, probe.wallets.stranger())
    for body in _bad_parameters(challenge, header, *PARAMETERS):
        expect.refused(await probe.send("POST", probe.target.pay.path, json=body))
    for content in (b"", b"{", b"null", b"[]"):
        expect.refused(await probe.send("POST", probe.target.pay.path, content=content))
    good = challenge.settlement(header)
    found = examples("settlements", RANDOM_INPUTS, random_json)
    for nonsense, name in zip(found, itertools.cycle(good), strict=False):
        for body in (nonsense, {**good, name: nonsense}):
            expect.refused(await probe.send("POST", probe.target.pay.path, json=body))


@refusal_case(
    "4.1/validate",
    title="Without a payment id or header of the right type, the facilitator is not called.",
    ground=REQUIRED,
    needs="funds, world",
)
async def parameters_are_validated_first(probe: Probe) -> None:
    challenge, payer, header = await probe.signed()

    async def attempt() -> None:
        for body in _bad_parameters(challenge, header, "paymentId", "paymentHeader"):
            expect.refused(await probe.send("POST", probe.target.pay.path, json=body))

    await _asked_nothing(probe, "verify", attempt)
    await probe.world.expect_payments(payer)


@refusal_case(
    "4.1/validate",
    title="Without requirements of the right type, nothing is settled but the issued ones.",
    ground=derived(
        "4.1: paymentRequirements",
        "4.1: Validate the parameters",
        "5: The amount must equal",
        so="Any requirements that come back lead to a refusal, or to the terms as issued.",
    ),
    decisive=False,
)
async def requirements_that_are_missing_settle_nothing_else(probe: Probe) -> None:
    challenge, payer, header = await probe.signed()
    for body in _bad_parameters(challenge, header, "paymentRequirements"):
        answer = await probe.send("POST", probe.target.pay.path, json=body)
        if await probe.expect_nothing_or_as_issued(challenge, payer, answer):
            return


def _bad_parameters(challenge: Challenge, header: str, *names: str) -> list[dict[str, Any]]:
    good = challenge.settlement(header)
    missing = [{name: good[name] for name in good if name != left} for left in names]
    other_types: tuple[Any, ...] = (None, 5, [])
    wrong = [{**good, name: value} for name in names for value in other_types]
    empty = [{**good, name: {}} for name in names if name == "paymentRequirements"]
    return [*missing, *wrong, *empty]


# --- steps 2 and 3 -------------------------------------------------------------------


@case(
    "4.1/build-verify",
    title="The service asks the facilitator to verify a payment, in a valid request.",
    needs="funds, world",
)
async def the_facilitator_understands_the_request(probe: Probe) -> None:
    since = await probe.world.next_event()
    await probe.buy()
    calls = [*_calls(await probe.world.journal(since)).values()]
    expect.holds("a verification that is answered 200", "verify 200" in calls, calls)


@refusal_case(
    "4.1/build-verify",
    title="A header with another amount or payee is not sent to settlement.",
    ground=derived(
        "4.1: Build the facilitator",
        "4.1: Verify the EIP-3009",
        "5: The signature proves",
        so="Header and requirements are verified together: what does not fit is not settled.",
    ),
    needs="funds, world",
)
async def header_and_requirements_are_verified_together(probe: Probe) -> None:
    payer = await probe.wallets.payer()
    changes: tuple[dict[str, Any], ...] = ({"value": 1}, {"to": payer.address})
    for change in changes:

        async def attempt(change: dict[str, Any] = change) -> None:
            challenge = await probe.challenge()
            answer = await probe.settle(challenge, probe.wallets.sign(challenge, payer, **change))
            expect.refused(answer)

        await _asked_nothing(probe, "settle", attempt)
    await probe.world.expect_payments(payer)


@refusal_case(
    "4.1/verify-signature",
    title='An authorization that its payer did not sign is refused as "Invalid signature".',
)
async def a_signature_by_another_key_is_invalid(probe: Probe) -> None:
    challenge, payer, header = await probe.signed(by=probe.wallets.stranger())
    answer = await probe.settle(challenge, header)
    await probe.expect_nothing(challenge, payer, answer, INVALID_SIGNATURE)


@fault_case(
    "4.1/verify-signature",
    title='A payment that the facilitator calls invalid is refused as "Invalid signature".',
)
async def the_facilitators_no_is_final(probe: Probe) -> None:
    challenge, payer, header = await probe.signed()
    await probe.world.fault(SAYS(body=NOT_VALID, times=None), of=payer)
    answer = await probe.settle(challenge, header)
    await probe.expect_nothing(challenge, payer, answer, INVALID_SIGNATURE)


@fault_case(
    "4.1/verify-signature",
    title='Without a clear "valid" from the facilitator, no money moves.',
    ground=derived(
        "4.1: Processing order",
        "4.1: Verify the EIP-3009",
        "4.1: Settle on-chain",
        "1: The service has an external facilitator",
        so="Settling comes after verifying; what nobody called valid is not verified.",
    ),
)
async def without_a_verdict_nothing_is_settled(probe: Probe) -> None:
    for fault in NO_VERDICT.values():
        await _settle_nothing(probe, fault)


# --- step 4 --------------------------------------------------------------------------


@case(
    "4.1/settle-on-chain",
    title="A settled payment is one transfer of the amount from the payer to the payee.",
    needs="funds, world",
    decisive=False,
)
async def the_transfer_is_on_the_ledger(probe: Probe) -> None:
    paid = await probe.buy()
    await probe.world.expect_paid("transfers of the payer", paid.challenge, paid.payer)


@fault_case(
    "4.1/settle-on-chain",
    title="A settlement that fails, is not made, is pending or is reverted grants nothing.",
    ground=UNSETTLED,
)
async def what_was_not_settled_grants_nothing(probe: Probe) -> None:
    said_no = SETTLE(does="answer", status=200, body=NOT_SETTLED)
    unlike = replace(said_no, body='{"success": false}')
    for fault in (said_no, unlike, SETTLE(does="refuse"), *NOT_YET, None):
        await _settle_nothing(probe, fault)


PENDING = (
    '{"success":false,"errorReason":"settlement_pending","network":"cronos-testnet",'
    f'"transaction":"0x{"ab" * 32}"}}'
)
NOT_YET: tuple[Fault, ...] = (
    SETTLE(does="answer", status=200, body=PENDING),
    SETTLE(does="answer", status=202, body=PENDING),
    SETTLE(
        does="answer",
        status=200,
        body='{"x402Version":1,"event":"payment.pending","network":"cronos-testnet",'
        f'"txHash":"0x{"ab" * 32}"}}',
    ),
)
"""Answers to a settlement that is not mined yet, in two dialects; its transaction never will be."""


async def _settle_nothing(probe: Probe, fault: Fault | None) -> None:
    """Fail if a payment gets a receipt or grants anything while a fault lasts; None reverts it.

    A final refusal is not required: a target that answers "pending" breaks nothing.
    """
    challenge, payer, header = await probe.signed()
    await probe.world.hinder(payer, fault)
    answer = await probe.settle(challenge, header, may_break=True)
    expect.holds("no receipt", not answer.is_receipt, answer.summary)
    expect.not_served(await probe.ask(payment_id=challenge.payment_id))
    await probe.world.expect_payments(payer)
    await probe.world.clear_faults()
