"""Section 5: a nonce of a payer is used once, in any encoding of its authorization.

With --world, transfers are counted on the ledger. A second answer 200 with the first receipt
is not a second payment.
"""

import asyncio
import base64
import json
from collections.abc import Callable, Iterator
from typing import Any

from x402sim.protocol.crypto import to_hex
from x402sim.protocol.header import Spelling, authorization_of, decode_header
from x402sim.protocol.messages import encode
from x402sim.spec.ground import derived
from x402sim.suite.report.results import DemandKey
from x402sim.suite.service import expect
from x402sim.suite.service.answers import Challenge, Paid, TargetAnswer
from x402sim.suite.service.case import case, fault_case, refusal_case, session_case
from x402sim.suite.service.control_api import HOLD_S, SETTLE, eventually
from x402sim.suite.service.inputs import high_s, in_header, upper
from x402sim.suite.service.probe import Probe
from x402sim.suite.verdict import Inconclusive, NotApplicable

REPEATED = 4
"""Encodings of an authorization that a facilitator reports as settled once more."""


def _reordered(body: Any) -> Any:
    if not isinstance(body, dict):
        return body
    return {key: _reordered(body[key]) for key in reversed(body)}


def _in_payload(change: Callable[[Any], Any], *names: str) -> Callable[[dict[str, Any]], Any]:
    def changed(body: dict[str, Any]) -> Any:
        payload = body["payload"]
        return {**body, "payload": {**payload, **{name: change(payload[name]) for name in names}}}

    return changed


def _high_s(signature: str) -> str:
    return to_hex(high_s(bytes.fromhex(signature[2:])))


REWRITTEN: dict[str, Callable[[dict[str, Any]], Any]] = {
    "its keys in another order": _reordered,
    "a field more": lambda body: {**body, "note": "again"},
    "a field more inside": lambda body: {**body, "payload": {**body["payload"], "note": "again"}},
    "addresses in lower case": _in_payload(str.lower, "from", "to", "asset"),
    "addresses in upper case": _in_payload(upper, "from", "to", "asset"),
    "the nonce in upper case": _in_payload(upper, "nonce"),
    "the signature in upper case": _in_payload(upper, "signature"),
    "the nonce without 0x": _in_payload(lambda text: text[2:], "nonce"),
    "times as strings": _in_payload(str, "validAfter", "validBefore"),
    "the value with a zero in front": _in_payload(lambda text: "0" + text, "value"),
    "the other form of its signature": _in_payload(_high_s, "signature"),
    "a broken signature": _in_payload(lambda text: _high_s(text)[:-2] + text[-2:], "signature"),
}
"""The same authorization, as another object."""


def rewritten(header: str, spelling: Spelling) -> Iterator[tuple[str, str]]:
    """Yield each way to write one authorization, with its name; the first is unchanged."""
    body = json.loads(encode(decode_header(header)))
    text = json.dumps(body, separators=(",", ":")).encode()
    yield "the same header", header
    for name, change in REWRITTEN.items():
        yield name, in_header(json.dumps(change(body), separators=(",", ":")).encode(), spelling)
    yield "white space", in_header(json.dumps(body, indent=1).encode() + b"\n", spelling)
    yield "an escaped letter", in_header(text.replace(b'"0x', rb'"\u0030x'), spelling)
    yield "the other spelling", in_header(text, "base64" if spelling == "hex" else "hex")
    yield "hex in upper case", "0x" + text.hex().upper()
    yield "hex after 0X", "0X" + text.hex()
    yield "base64 without padding", base64.b64encode(text).decode().rstrip("=")
    yield "white space around it", f" {header}\n"


def _receipts(probe: Probe, answers: list[TargetAnswer]) -> set[str]:
    """Return the distinct transactions of all receipts; a repeated receipt may name none."""
    place = probe.target.receipt.tx_hash
    shown = [answer.at(place) for answer in answers if answer.is_receipt]
    hashes = {each.lower() for each in shown if isinstance(each, str)}
    return hashes or {repr(each) for each in shown}


def _ways(paid: Paid, spelling: Spelling) -> Iterator[tuple[str, str]]:
    """Yield the spellings of a payment that differ on the wire, each with its name."""
    sent = set()
    for name, header in rewritten(paid.header, spelling):
        if header not in sent:
            sent.add(header)
            yield name, header


# --- replay --------------------------------------------------------------------------


@refusal_case(
    "5/nonce-once",
    title="A settled authorization, in any encoding, pays for no second id.",
)
async def it_pays_for_no_other_id(probe: Probe) -> None:
    paid = await probe.buy()
    for name, header in _ways(paid, probe.target.pay.spelling):
        challenge = await probe.challenge()
        answer = await probe.settle(challenge, header)
        expect.holds(f"a refusal ({name})", not answer.is_receipt, answer.summary)
        expect.refused(answer)
        expect.not_served(await probe.ask(payment_id=challenge.payment_id), is_402=True)
    await probe.world.expect_payments(paid.payer, paid.challenge.amount_base)


@refusal_case(
    "5/nonce-once",
    title="A settled authorization that is sent again moves no money, and buys nothing new.",
    decisive=False,
)
async def it_pays_once_for_its_own_id(probe: Probe) -> None:
    paid = await probe.buy()
    answers = [paid.receipt]
    for _, header in _ways(paid, probe.target.pay.spelling):
        answers.append(await probe.settle(paid.challenge, header))
    expect.equal("different receipts", len(_receipts(probe, answers)), 1)
    await probe.world.expect_payments(paid.payer, paid.challenge.amount_base)


@session_case(
    "5/nonce-once",
    title="A settled authorization does not pay a session's deposit of the same amount.",
    pays=1,
    decisive=False,
)
async def it_pays_for_no_session(probe: Probe) -> None:
    paid = await probe.buy()
    _, deposit = await probe.deposit(1)
    if deposit.amount_base != paid.challenge.amount_base:
        raise NotApplicable("no deposit has the amount of a request's price")
    if deposit.requirements.get("payTo") != paid.challenge.requirements.get("payTo"):
        raise NotApplicable("deposits go to another account")
    expect.refused(await probe.settle(deposit, paid.header))
    await probe.world.expect_payments(paid.payer, paid.challenge.amount_base)


@case(
    "5/nonce-once",
    title="Another payer can use the same nonce: the token has nonces per address.",
    needs="world",
    decisive=False,
)
async def a_nonce_belongs_to_its_payer(probe: Probe) -> None:
    paid, payer = await probe.buy(), await probe.wallets.payer()
    auth, _ = authorization_of(paid.header)
    challenge = await probe.challenge()
    await probe.settles(challenge, probe.wallets.sign(challenge, payer, nonce=auth.nonce))
    await probe.world.expect_payments(payer, challenge.amount_base)


@fault_case(
    "5/nonce-once",
    title="A nonce that is cancelled during the settlement pays for nothing, though it is used.",
    ground=derived(
        "5: X-Payment-Id",
        "5: The token contract keeps",
        so="A cancelled nonce has moved no money, so there is no settled payment.",
    ),
)
async def a_cancelled_authorization_is_no_payment(probe: Probe) -> None:
    challenge, payer, header = await probe.signed()
    await probe.world.fault(SETTLE(does="lose request", times=None), of=payer)
    await probe.settle(challenge, header)
    await probe.wallets.cancel(challenge, header, payer)
    await probe.world.clear_faults()
    answer = await probe.settle(challenge, header)
    expect.holds(
        "no receipt for a cancelled nonce",
        not answer.is_receipt,
        answer.summary,
        demand=DemandKey.CANCELLED_NONCE,
    )
    await probe.expect_nothing(challenge, payer, answer, is_402=True)


@refusal_case(
    "5/nonce-once",
    title=("The nonce of a payment that was refused, as its signature was false, is still good."),
    ground=derived(
        "5: The token contract keeps",
        so="A transfer uses a nonce, a refusal does not: else anybody could use up others' nonces.",
    ),
    needs="world",
)
async def a_nonce_is_not_used_by_what_was_refused(probe: Probe) -> None:
    challenge, payer, header = await probe.signed()
    nonce = authorization_of(header)[0].nonce
    forged = probe.wallets.sign(challenge, payer, by=probe.wallets.stranger(), nonce=nonce)
    expect.refused(await probe.settle(challenge, forged))
    await probe.settles(challenge, header)
    expect.served(await probe.opened(challenge))


@fault_case(
    "5/nonce-once",
    title=("A settled authorization pays for no second id if the facilitator repeats its answer."),
    ground=derived(
        "5: The token contract keeps",
        "4.1: Settle on-chain",
        so="One transfer pays for one id; a facilitator that is asked again may repeat its answer.",
    ),
)
async def it_pays_once_whatever_the_facilitator_says(probe: Probe) -> None:
    paid = await probe.buy()
    wanted = paid.challenge.requirements
    tx_hash = paid.receipt.at(probe.target.receipt.tx_hash)
    for name, header in list(_ways(paid, probe.target.pay.spelling))[:REPEATED]:
        challenge = await probe.challenge()
        await probe.world.accept_all(paid.payer, wanted, tx_hash, paid.payer.address)
        answered = await probe.settle(challenge, header, may_break=True)
        expect.holds(f"no receipt ({name})", not answered.is_receipt, answered.summary)
        expect.not_served(await probe.ask(payment_id=challenge.payment_id))
        await probe.world.clear_faults()
    await probe.world.expect_payments(paid.payer, paid.challenge.amount_base)


# --- at the same time ----------------------------------------------------------------


@refusal_case(
    "5/nonce-once",
    title="One authorization sent concurrently, for an id or several, pays for a single id.",
    pays=2,
)
async def one_authorization_at_the_same_time(probe: Probe) -> None:
    for ids, copies in ((1, 5), (4, 1)):
        payer, asked = await probe.wallets.payer(), [await probe.challenge() for _ in range(ids)]
        header = probe.wallets.sign(asked[0], payer)
        answers = await asyncio.gather(*(probe.settle(each, header) for each in asked * copies))
        _one_of(probe, answers)
        if ids > 1:
            accepted = [answer for answer in answers if answer.is_receipt]
            expect.holds("one receipt", len(accepted) == 1, [each.summary for each in answers])
            await _opens_one(probe, asked)
        else:
            expect.served(await probe.opened(asked[0]))
        await probe.world.expect_payments(payer, asked[0].amount_base)


@refusal_case(
    "5/nonce-once",
    title="While the answer to one settlement is held back, its header pays for nothing else.",
    needs="world",
    decisive=False,
)
async def two_ids_while_the_answer_is_held(probe: Probe) -> None:
    payer, challenges = await probe.wallets.payer(), [await probe.challenge() for _ in range(4)]
    header = probe.wallets.sign(challenges[0], payer)
    await probe.world.hold(payer)

    def send(*numbers: int) -> list[asyncio.Task[TargetAnswer]]:
        paying = (probe.settle(challenges[each], header) for each in numbers)
        return [asyncio.create_task(each) for each in paying]

    sent = send(0, 1)

    async def has_moved() -> bool:
        return bool(await probe.world.transfers(payer)) or all(each.done() for each in sent)

    await eventually(probe.clock, has_moved, within_s=2 * HOLD_S)
    answers = await asyncio.gather(*sent, *send(2, 3))
    _one_of(probe, answers)
    await _opens_one(probe, challenges)
    await probe.world.expect_payments(payer, challenges[0].amount_base)


async def _opens_one(probe: Probe, challenges: list[Challenge]) -> None:
    answers = [await probe.ask(payment_id=each.payment_id) for each in challenges]
    opened = sum(answer.has_content for answer in answers)
    expect.holds("one payment that opens the resource", opened <= 1, f"{opened} of them")


def _one_of(probe: Probe, answers: list[TargetAnswer]) -> None:
    """Fail if there is more than one receipt; raises `Inconclusive` without any."""
    found = _receipts(probe, answers)
    expect.holds("one receipt", len(found) <= 1, [each.summary for each in answers])
    if not found:
        raise Inconclusive(f"nothing was settled: {[each.summary for each in answers]}")
