"""Section 4.1: the steps of a settlement, their order, and what ends it at each."""

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from msgspec.structs import replace

from x402sim.events import AnswerSent, Transfer
from x402sim.journal import Entry
from x402sim.payer.wallet import Wallet
from x402sim.spec.ground import derived, explicit
from x402sim.suite.service.answers import Challenge
from x402sim.suite.service.check import check
from x402sim.suite.service.control_api import NOT_SETTLED, SETTLE, VERIFY, paid_to
from x402sim.suite.service.expect import (
    expect,
    expect_not_served,
    expect_refused,
    expect_transfers,
    require,
)
from x402sim.suite.service.inputs import examples
from x402sim.suite.service.payment_outcome import expect_nothing, expect_nothing_or_as_issued
from x402sim.suite.service.probe import Probe
from x402sim.world.transport.faults import Fault

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
"""Answers to a verification that do not say that the signature is valid."""
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
LETTERS = "pay_0xAZ09{}[]\"\\'%/.:,;- \0\n\u20ac\U0001f4b6"
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

    A target may have something else to ask at the same moment, such as an earlier payment that it
    settles late; not three times in a row.
    """
    for is_last in (False, False, True):
        since = await probe.world.next_event()
        await attempt()
        every = _calls(await probe.world.journal(since)).values()
        calls = [call for call in every if call.startswith(verb)]
        if not calls or is_last:
            expect(f"calls of the facilitator's {verb}", calls, [])
            return


# --- the order -----------------------------------------------------------------------


@check(
    "4.1/order",
    title=(
        "The service verifies the signature before money moves, and sends the receipt afterwards."
    ),
    baseline="payment",
    needs="funds, world",
    pays=1,
)
async def verified_before_settled_before_answered(probe: Probe) -> None:
    challenge, payer = await probe.challenge(), await probe.wallets.payer()
    since = await probe.world.next_event()
    answer = await probe.settle(challenge, probe.wallets.sign(challenge, payer))
    probe.wallets.expect_settled(answer)
    await probe.world.expect_payments(payer, challenge.amount_base)
    entries = await probe.world.journal(since)
    verified = next((seq for seq, call in _calls(entries).items() if "verify" in call), None)
    transfers = {each.seq: each.event for each in entries if isinstance(each.event, Transfer)}
    moved = next(seq for seq, event in transfers.items() if event.sender == payer.address)
    in_order = verified is not None and verified < moved
    seen = f"events of the world's journal: verified {verified}, transferred {moved}"
    require("a verification before the transfer", in_order, seen)


@check(
    "4.1/order",
    title="During the settlement, the payment's id grants nothing.",
    ground=derived(
        "4.1: Settle on-chain",
        "4.1: Store the payment record",
        "4.1: Cache the entitlement",
        "5: X-Payment-Id",
        so=("The payment is stored and cached after it is settled, so before that nothing grants."),
    ),
    baseline="payment",
    needs="funds, world",
    pays=1,
    decisive=True,
    disturbs=True,
)
async def no_access_before_the_transfer(probe: Probe) -> None:
    challenge, payer, header = await probe.signed()
    await probe.world.fault(SETTLE(does="delay request", seconds=UNDER_WAY_S), of=payer)
    settling = asyncio.create_task(probe.settle(challenge, header))
    while not settling.done():
        early = await probe.ask(payment_id=challenge.payment_id)
        if not await probe.world.transfers(payer):
            expect_not_served(early)
        await probe.clock.sleep(UNDER_WAY_S / 5)
    await settling


# --- step 1 --------------------------------------------------------------------------


@check(
    "4.1/validate",
    title="An unfunded settlement with a parameter missing or of the wrong type is refused.",
    ground=REQUIRED,
    baseline="unpaid",
)
async def parameters_that_are_missing_are_refused(probe: Probe) -> None:
    challenge = await probe.challenge()
    header = probe.wallets.sign(challenge, probe.wallets.stranger())
    for body in _bad_parameters(challenge, header, *PARAMETERS):
        expect_refused(await probe.send("POST", probe.target.pay.path, json=body))
    for content in (b"", b"{", b"null", b"[]"):
        expect_refused(await probe.send("POST", probe.target.pay.path, content=content))


@check(
    "4.1/validate",
    title="Without a payment id or header of the right type, the facilitator is not called.",
    ground=REQUIRED,
    baseline="payment",
    needs="funds, world",
    pays=1,
    decisive=True,
)
async def parameters_are_validated_first(probe: Probe) -> None:
    challenge, payer, header = await probe.signed()

    async def attempt() -> None:
        for body in _bad_parameters(challenge, header, "paymentId", "paymentHeader"):
            expect_refused(await probe.send("POST", probe.target.pay.path, json=body))

    await _asked_nothing(probe, "verify", attempt)
    await probe.world.expect_payments(payer)


@check(
    "4.1/validate",
    title="Without requirements of the right type, nothing is settled but the issued ones.",
    ground=derived(
        "4.1: paymentRequirements",
        "4.1: Validate the parameters",
        "5: The amount must equal",
        so=(
            "Whatever is sent as requirements, a payment is refused, or settled on the terms "
            "that were issued."
        ),
    ),
    baseline="payment",
    needs="funds",
    pays=1,
)
async def requirements_that_are_missing_settle_nothing_else(probe: Probe) -> None:
    challenge, payer, header = await probe.signed()
    for body in _bad_parameters(challenge, header, "paymentRequirements"):
        answer = await probe.send("POST", probe.target.pay.path, json=body)
        if await expect_nothing_or_as_issued(probe, challenge, payer, answer):
            return


@check(
    "4.1/validate",
    title=(
        "Random JSON instead of an unfunded settlement, or of one of its parameters, is refused."
    ),
    ground=REQUIRED,
    baseline="unpaid",
)
async def any_nonsense_is_refused(probe: Probe) -> None:
    challenge = await probe.challenge()
    good = challenge.settlement(probe.wallets.sign(challenge, probe.wallets.stranger()))
    for nonsense, name in zip(examples(RANDOM_INPUTS, _json), itertools.cycle(good), strict=False):
        for body in (nonsense, {**good, name: nonsense}):
            expect_refused(await probe.send("POST", probe.target.pay.path, json=body))


def _json(st: Any) -> Any:
    """Return the strategy of small JSON values."""
    text = st.text(LETTERS, max_size=12)
    scalars = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | text
    return st.recursive(
        scalars,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
        max_leaves=5,
    )


def _bad_parameters(challenge: Challenge, header: str, *names: str) -> list[dict[str, Any]]:
    """Return settlement requests with one of these parameters missing or of another type."""
    good = challenge.settlement(header)
    missing = [{name: good[name] for name in good if name != left} for left in names]
    other_types: tuple[Any, ...] = (None, 5, [])
    wrong = [{**good, name: value} for name in names for value in other_types]
    empty = [{**good, name: {}} for name in names if name == "paymentRequirements"]
    return [*missing, *wrong, *empty]


# --- steps 2 and 3 -------------------------------------------------------------------


@check(
    "4.1/build-verify",
    title="The service asks the facilitator to verify a payment, in a valid request.",
    needs="funds, world",
    pays=1,
    decisive=True,
)
async def the_facilitator_understands_the_request(probe: Probe) -> None:
    since = await probe.world.next_event()
    await probe.buy()
    calls = [*_calls(await probe.world.journal(since)).values()]
    require("a verification that is answered 200", "verify 200" in calls, calls)


@check(
    "4.1/build-verify",
    title="A header with another amount or payee is not sent to settlement.",
    ground=derived(
        "4.1: Build the facilitator",
        "4.1: Verify the EIP-3009",
        "5: The signature proves",
        so="Header and requirements are verified together: what does not fit is not settled.",
    ),
    baseline="payment",
    needs="funds, world",
    pays=4,
    decisive=True,
)
async def header_and_requirements_are_verified_together(probe: Probe) -> None:
    payer = await probe.wallets.payer()
    changes: tuple[dict[str, Any], ...] = ({"value": 1}, {"to": payer.address})
    for change in changes:

        async def attempt(change: dict[str, Any] = change) -> None:
            challenge = await probe.challenge()
            answer = await probe.settle(challenge, probe.wallets.sign(challenge, payer, **change))
            expect_refused(answer)

        await _asked_nothing(probe, "settle", attempt)
    await probe.world.expect_payments(payer)


@check(
    "4.1/verify-signature",
    title='An authorization that its payer did not sign is refused as "Invalid signature".',
    baseline="payment",
    needs="funds",
    pays=1,
    decisive=True,
)
async def a_signature_by_another_key_is_invalid(probe: Probe) -> None:
    challenge, payer = await probe.challenge(), await probe.wallets.payer()
    header = probe.wallets.sign(challenge, payer, by=probe.wallets.stranger())
    answer = await probe.settle(challenge, header)
    await expect_nothing(probe, challenge, payer, answer, INVALID_SIGNATURE)


@check(
    "4.1/verify-signature",
    title='A payment that the facilitator calls invalid is refused as "Invalid signature".',
    baseline="payment",
    needs="funds, world",
    pays=1,
    decisive=True,
    disturbs=True,
)
async def the_facilitators_no_is_final(probe: Probe) -> None:
    challenge, payer, header = await probe.signed()
    await probe.world.fault(SAYS(body=NOT_VALID, times=None), of=payer)
    answer = await probe.settle(challenge, header)
    await expect_nothing(probe, challenge, payer, answer, INVALID_SIGNATURE)


@check(
    "4.1/verify-signature",
    title='Without a clear "valid" from the facilitator, no money moves.',
    ground=derived(
        "4.1: Processing order",
        "4.1: Verify the EIP-3009",
        "4.1: Settle on-chain",
        "1: The service has an external facilitator",
        so="Settling comes after verifying; what nobody called valid is not verified.",
    ),
    baseline="payment",
    needs="funds, world",
    pays=len(NO_VERDICT),
    decisive=True,
    disturbs=True,
)
async def without_a_verdict_nothing_is_settled(probe: Probe) -> None:
    await _settle_nothing(probe, *NO_VERDICT.values())


# --- step 4 --------------------------------------------------------------------------


@check(
    "4.1/settle-on-chain",
    title="A settled payment is one transfer of the amount from the payer to the payee.",
    needs="funds, world",
    pays=1,
)
async def the_transfer_is_on_the_ledger(probe: Probe) -> None:
    paid = await probe.buy()
    wanted = paid_to(str(paid.challenge.requirements["payTo"]), paid.challenge.amount_base)
    expect_transfers("transfers of the payer", await probe.world.payments(paid.payer), [wanted])


@check(
    "4.1/settle-on-chain",
    title="A transaction that was mined and reverted grants nothing.",
    ground=UNSETTLED,
    baseline="payment",
    needs="funds, world",
    pays=1,
    disturbs=True,
)
async def a_transfer_that_reverts_grants_nothing(probe: Probe) -> None:
    challenge, payer, header = await probe.signed()
    await probe.world.post("force-revert", {"calls": 1, "account": payer.address})
    await _is_not_settled(probe, challenge, payer, header)


@check(
    "4.1/settle-on-chain",
    title=(
        'A facilitator that answers "failed" with status 200, or is unreachable, settles nothing.'
    ),
    ground=UNSETTLED,
    baseline="payment",
    needs="funds, world",
    pays=3,
    decisive=True,
    disturbs=True,
)
async def what_was_not_settled_grants_nothing(probe: Probe) -> None:
    said_no = SETTLE(does="answer", status=200, body=NOT_SETTLED)
    unlike = replace(said_no, body='{"success": false}')
    await _settle_nothing(probe, said_no, unlike, SETTLE(does="refuse"))


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


@check(
    "4.1/settle-on-chain",
    title=(
        "A settlement that the facilitator calls pending, with a hash of no transaction, is none."
    ),
    ground=UNSETTLED,
    baseline="payment",
    needs="funds, world",
    pays=len(NOT_YET),
    disturbs=True,
    decisive=True,
)
async def what_is_pending_grants_nothing(probe: Probe) -> None:
    await _settle_nothing(probe, *NOT_YET)


async def _settle_nothing(probe: Probe, *faults: Fault) -> None:
    """Fail if a payment is settled while one of these faults lasts."""
    for fault in faults:
        challenge, payer, header = await probe.signed()
        await probe.world.fault(replace(fault, times=None), of=payer)
        await _is_not_settled(probe, challenge, payer, header)
        await probe.world.clear_faults()


async def _is_not_settled(probe: Probe, challenge: Challenge, payer: Wallet, header: str) -> None:
    """Fail if a payment that cannot be settled now gets a receipt, or grants anything.

    It need not be refused for good: a target that says "pending" breaks nothing.
    """
    answer = await probe.settle(challenge, header, may_break=True)
    require("no receipt", not answer.is_receipt, answer.summary)
    expect_not_served(await probe.ask(payment_id=challenge.payment_id))
    await probe.world.expect_payments(payer)
