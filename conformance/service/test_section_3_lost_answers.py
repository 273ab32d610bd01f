"""Section 3: the facilitator has moved the money, and its answer was lost.

The payer must get the paid goods, and must not pay twice. A target may resolve the
outcome at once, on the next request, or in the background.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from itertools import product
from typing import Any

from x402sim.payer.wallet import Wallet
from x402sim.protocol.crypto import to_hex
from x402sim.protocol.header import authorization_of
from x402sim.protocol.refusals import Refusal
from x402sim.spec.ground import derived, silent
from x402sim.spec.needs import Need
from x402sim.suite.service import expect
from x402sim.suite.service.answers import Challenge
from x402sim.suite.service.case import fault_case, session_case, trouble_case
from x402sim.suite.service.control_api import NOT_SETTLED, SETTLE, VERIFY, eventually
from x402sim.suite.service.inputs import low_v, one_bit_changed
from x402sim.suite.service.probe import Probe
from x402sim.suite.verdict import CheckFailed, Inconclusive, Skipped
from x402sim.world.faults import Fault

DONE = partial(SETTLE, does="answer", work_done=True)
HTML = partial(DONE, content_type="text/html", body="<html>Bad Gateway</html>")
LOST: dict[str, Fault] = {
    "the connection breaks": SETTLE(does="lose answer"),
    "500 without a body": DONE(status=500),
    "502 with HTML": HTML(status=502),
    "504 with JSON": DONE(status=504, body='{"error": "Settlement timed out"}'),
    "200 with HTML": HTML(status=200),
    "200 with an empty object": DONE(status=200, body="{}"),
    "200, cut off in the middle": SETTLE(does="truncate"),
    "200 with half of the JSON": SETTLE(does="shorten"),
}
"""Ways to lose the answer to a settlement that was executed."""
UNKNOWN = ("the connection breaks", "504 with JSON", "200 with an empty object")
"""One of each sort: no answer, an error, an answer without an outcome. A target may take its time
to answer a second payment meanwhile."""
CHAIN_UNREACHABLE = [
    Fault(victim="rpc", does="refuse", times=None),
    Fault(victim="explorer", does="refuse", times=None),
]
BUSY = json.dumps(
    {"jsonrpc": "2.0", "id": 1, "error": {"code": -32005, "message": "rate limit exceeded"}}
)
NODE_BUSY = partial(Fault, victim="rpc", does="answer", body=BUSY, times=None)
BUSY_NODES = {
    f"the chain's node answers {status} with error -32005": [
        NODE_BUSY(status=status),
        *CHAIN_UNREACHABLE[1:],
    ]
    for status in (200, 429)
}
"""A node's answers after too many requests, which tell nothing about the nonce."""
FALSE: dict[str, Callable[[bytes], bytes]] = {
    "a false signature": one_bit_changed,
    "v of 0 or 1": low_v,
    "half a signature": lambda signature: signature[:32],
}
"""Signatures that no token accepts, or that only some tokens accept."""
UNREADABLE = "0xdeadbeef"
NEXT_BLOCK_S = 0.5
"""Seconds to wait for an answer that may need the next block."""
MINED_S = 0.1
"""Seconds to wait between blocks for an answer that needs several."""
UNDER_WAY_S = 10
"""How long to wait until a target has asked the facilitator to settle."""
RETRIED_S = 15
"""How long a payer retries where no clock turns: a target may look at the chain now and then."""
A_WHILE_S = 400
"""Longer than any authorization is valid, and longer than the indexer's interval."""


@trouble_case(
    "3/pending-resolved",
    title="After any loss of the facilitator's answer, one payment serves a payer who retries.",
)
async def a_lost_answer_is_resolved(probe: Probe) -> None:
    for how, fault in LOST.items():
        challenge, payer, header = await probe.signed()
        await probe.world.fault(fault, of=payer)
        await probe.settle(challenge, header, may_break=True)
        await _require_moved(probe, payer, how)
        await _let_in(probe, challenge, payer, header, how)


@trouble_case(
    "3/pending-resolved",
    title="While the outcome of the first payment is unknown, a second one moves no money.",
)
async def no_payer_is_charged_twice(probe: Probe) -> None:
    for how in UNKNOWN:
        fault = LOST[how]
        challenge, payer, header = await probe.signed()
        await _lose(probe, challenge, payer, header, fault)
        await _require_moved(probe, payer, how)
        await probe.settle(challenge, probe.wallets.sign(challenge, payer), may_break=True)
        await probe.world.expect_payments(payer, challenge.amount_base)
        await probe.world.clear_faults()
        await _let_in(probe, challenge, payer, header, f"{how}, and the chain is unreachable")


@trouble_case(
    "3/pending-resolved",
    title="While the transfer of the first payment is not mined, a second one moves no money.",
)
async def a_transaction_that_waits_is_not_forgotten(probe: Probe) -> None:
    challenge, payer, header = await probe.signed()
    nonce = to_hex(authorization_of(header)[0].nonce)
    await probe.world.post("mining", {"automine": False})
    await probe.world.fault(SETTLE(does="answer", status=504, times=None, contains=nonce))
    await probe.wallets.submit(challenge, header, probe.wallets.stranger())
    if await probe.world.transfers(payer):
        raise Inconclusive("the world mines what is sent at once: start it without --block-time")
    attempts = set()
    for each in (header, probe.wallets.sign(challenge, payer)):
        attempts.add(asyncio.create_task(probe.settle(challenge, each, may_break=True)))
        await asyncio.wait(attempts, timeout=NEXT_BLOCK_S)
    while not all(attempt.done() for attempt in attempts):
        await probe.world.post("mine")
        await probe.clock.sleep(NEXT_BLOCK_S)
    await probe.world.post("mine")
    await probe.world.expect_payments(payer, challenge.amount_base)


@fault_case(
    "3/pending-resolved",
    title="A nonce that the payer used to pay himself, or to pay less, grants nothing.",
)
async def a_nonce_used_for_something_else_is_no_payment(probe: Probe) -> None:
    for pays_less, chain in product((False, True), ([], CHAIN_UNREACHABLE)):
        challenge, payer, header = await probe.signed()
        await probe.world.fault(SETTLE(does="lose request", times=None), of=payer)
        for fault in chain:
            await probe.world.fault(fault)
        await probe.settle(challenge, header, may_break=True)
        auth, _ = authorization_of(header)
        change: dict[str, Any] = {"value": 1} if pays_less else {"to": payer.address}
        other = probe.wallets.sign(challenge, payer, nonce=auth.nonce, **change)
        await probe.wallets.submit(challenge, other, probe.wallets.stranger())
        await probe.world.clear_faults()
        await probe.settle(challenge, header, may_break=True)
        expect.withheld(await probe.ask(payment_id=challenge.payment_id))
        if not probe.setting.missing(Need.CLOCK):
            await probe.wait(A_WHILE_S)
            expect.withheld(await probe.ask(payment_id=challenge.payment_id))


@trouble_case(
    "3/pending-resolved",
    title="A node that answers with errors after a lost answer ends no payment that was charged.",
)
async def a_busy_node_says_nothing_of_a_payment(probe: Probe) -> None:
    for how, chain in BUSY_NODES.items():
        challenge, payer, header = await probe.signed()
        await _lose(probe, challenge, payer, header, SETTLE(does="lose answer"), chain)
        await _require_moved(probe, payer, how)
        await probe.settle(challenge, header, may_break=True)
        await probe.world.clear_faults()
        await _let_in(probe, challenge, payer, header, how)


@trouble_case(
    "3/pending-resolved",
    title="A lost answer is resolved, too, if a header that is false or unreadable came before.",
)
async def what_was_false_before_takes_nothing(probe: Probe) -> None:
    for name, is_verified in product([*FALSE, "an unreadable header"], (True, False)):
        challenge, payer, header = await probe.signed()
        false = UNREADABLE
        if name in FALSE:
            false = probe.wallets.resigned(challenge, header, FALSE[name])
        if not is_verified:
            await probe.world.fault(VERIFY(does="lose answer"), of=payer)
        await probe.settle(challenge, false, may_break=True)
        await probe.world.clear_faults()
        await probe.world.fault(SETTLE(does="lose answer"), of=payer)
        await probe.settle(challenge, header, may_break=True)
        await probe.world.clear_faults()
        if await probe.world.transfers(payer):  # else the service charged nothing
            await _let_in(probe, challenge, payer, header, f"after {name}")


@fault_case(
    "5/nonce-once",
    title="After a lost answer, an authorization sent for a second id opens one of the two ids.",
    ground=derived(
        "5: The token contract keeps",
        "4.1: Store the payment record",
        so="One transfer has been made, so one payment is recorded, for one of the ids.",
    ),
)
async def a_lost_answer_opens_one_of_two_ids(probe: Probe) -> None:
    each_lost = SETTLE(does="lose answer", times=None)
    for how in ("one after the other", "while the chain is unreachable", "at the same time"):
        challenges = [await probe.challenge(), await probe.challenge()]
        payer = await probe.wallets.payer()
        header = probe.wallets.sign(challenges[0], payer)
        sent = [partial(probe.settle, each, header, may_break=True) for each in challenges]
        match how:
            case "at the same time":
                await probe.world.fault(each_lost, of=payer)
                await asyncio.gather(*(each() for each in sent))
            case "while the chain is unreachable":
                await _lose(probe, challenges[0], payer, header, SETTLE(does="lose answer"))
                await sent[1]()
            case _:
                await probe.world.fault(each_lost, of=payer)
                await sent[0]()
                await sent[1]()
        await _require_moved(probe, payer, how)
        await probe.world.clear_faults()
        for each in sent:
            await each()
        if not probe.setting.missing(Need.CLOCK):
            await probe.wait(A_WHILE_S)
        answers = [await probe.opened(each) for each in challenges]
        opened = sum(each.has_content for each in answers)
        expect.holds(
            f"one payment that opens the resource ({how})", opened <= 1, f"{opened} of them"
        )
        await probe.world.expect_payments(payer, challenges[0].amount_base)


@trouble_case(
    "3/pending-resolved",
    title="A payer who never resends the header is served, too, even after a crash.",
    needs="funds, world, clock",
)
async def a_lost_answer_is_resolved_by_itself(probe: Probe) -> None:
    for fault in (SETTLE(does="lose answer"), SETTLE(does="crash after")):
        challenge, payer, header = await probe.signed()
        await _lose(probe, challenge, payer, header, fault)
        await _require_moved(probe, payer, fault.does)
        await probe.world.clear_faults()
        await probe.wait(A_WHILE_S)
        expect.served(await probe.ask(payment_id=challenge.payment_id))
        await probe.world.expect_payments(payer, challenge.amount_base)


@session_case(
    "3/pending-resolved",
    title="A deposit whose answer was lost still opens its session, and is paid once.",
    needs="funds, world, sessions",
    disturbs=True,
)
async def a_lost_deposit_makes_its_session(probe: Probe) -> None:
    (max_spend, challenge), payer = await probe.deposit(1), await probe.wallets.payer()
    header = probe.wallets.sign(challenge, payer)
    await probe.world.fault(SETTLE(does="lose answer"), of=payer)
    await probe.settle(challenge, header, may_break=True)
    await _require_moved(probe, payer, "a deposit")

    async def is_served() -> bool:
        claimed = await probe.ask_session(max_spend, payment_id=challenge.payment_id)
        again = await probe.settle(challenge, header, may_break=True)
        session_id = claimed.session_id or again.session_id
        found.append(session_id)
        return bool(session_id) and (await probe.ask(session_id=session_id)).has_content

    found: list[str | None] = []
    try:
        await _in_the_end(probe, is_served, "the answer to a deposit is lost")
    except Inconclusive as unclear:
        if not any(found) and probe.target.sessions.claim == "receipt":
            raise Skipped("the receipt, which was lost, is the only place of an id") from unclear
        raise
    await probe.world.expect_payments(payer, challenge.amount_base)


@trouble_case(
    "3/said-failed-but-paid",
    title=("What happens if the facilitator reports a settlement as failed although it was mined."),
    ground=silent(
        why=(
            "The specification does not say what becomes of a transfer that is reported as failed."
        )
    ),
    needs="funds, world",
)
async def a_facilitator_that_is_wrong(probe: Probe) -> None:
    challenge, payer = await probe.challenge(), await probe.wallets.payer()
    await probe.world.fault(DONE(status=200, body=NOT_SETTLED), of=payer)
    answer = await probe.settle(challenge, probe.wallets.sign(challenge, payer), may_break=True)
    after = await probe.ask(payment_id=challenge.payment_id)
    access = "has access" if after.has_content else "has no access"
    probe.observe(f"{answer.summary}; the payer {access}")


async def _lose(
    probe: Probe,
    challenge: Challenge,
    payer: Wallet,
    header: str,
    fault: Fault,
    chain: Sequence[Fault] = CHAIN_UNREACHABLE,
) -> None:
    """Settle a payment whose answer is lost, with the chain unreachable from the settlement on.

    Before that a target may need the chain, to see whether the authorization is unused.
    """
    await probe.world.post("mining", {"automine": False})
    await probe.world.fault(fault, of=payer)
    settling = asyncio.create_task(probe.settle(challenge, header, may_break=True))

    async def is_queried() -> bool:
        return settling.done() or await probe.world.was_queried_about(payer)

    await eventually(probe.clock, is_queried, within_s=UNDER_WAY_S)
    for each in chain:
        await probe.world.fault(each)
    while not settling.done():
        await probe.world.post("mine")
        await asyncio.wait({settling}, timeout=MINED_S)
    await probe.world.post("mining", {"automine": True})


async def _require_moved(probe: Probe, payer: Wallet, how: str) -> None:
    """Raise `Inconclusive` unless the money has moved, despite the lost answer."""
    if not await probe.world.transfers(payer):
        raise Inconclusive(f"no settlement reached the world's facilitator ({how})")


async def _let_in(probe: Probe, challenge: Challenge, payer: Wallet, header: str, how: str) -> None:
    """Act as a payer without an answer: repeat the request, and resend the same header.

    Fail, too, if the final answer is that the nonce was used: this payment itself has used it; and
    unless the payer has paid once.
    """
    said = ""

    async def is_let_in() -> bool:
        nonlocal said
        answer = await probe.ask(payment_id=challenge.payment_id)
        if answer.has_content:
            return True
        said = (await probe.settle(challenge, header, may_break=True)).summary
        return False

    try:
        await _in_the_end(probe, is_let_in, how)
    except Inconclusive as unclear:
        if Refusal.NONCE_USED.text in said:
            what = f"{how}: the same header again, after {RETRIED_S} s"
            raise CheckFailed(what, "access to what was paid for", said) from unclear
        raise
    await probe.world.expect_payments(payer, challenge.amount_base)


async def _in_the_end(probe: Probe, is_let_in: Callable[[], Awaitable[bool]], how: str) -> None:
    """Fail unless a payer gets access, at once or after minutes of retrying."""
    has_clock = not probe.setting.missing(Need.CLOCK)
    if await eventually(probe.clock, is_let_in, within_s=1 if has_clock else RETRIED_S):
        return
    if not has_clock:
        within = f"within {RETRIED_S} s of retrying"
        raise Inconclusive(f"{how}: the payer has paid; access was not granted {within}")
    await probe.wait(A_WHILE_S)
    if not await eventually(probe.clock, is_let_in):
        raise CheckFailed(how, "access to what was paid for", "no access after minutes of retrying")
