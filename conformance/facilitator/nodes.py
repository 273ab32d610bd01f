"""A node that fails, lies, hangs or is late, and its blocks.

Success means this transfer, on the chain, once. A settlement that may still be mined is answered as
pending, with its hash.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial

from x402sim.chain.base import TxReceipt
from x402sim.protocol.crypto import Hash, checksum, to_hex
from x402sim.protocol.raw_transaction import read
from x402sim.suite import texts
from x402sim.suite.facilitator.case import Demand, FacilitatorRow, case, demand, only, told
from x402sim.suite.facilitator.node import Call, Go, Twist, fails, hangs, on
from x402sim.suite.facilitator.payment import STANDARD, STANDARD_REASONS, Answer, Draft
from x402sim.suite.facilitator.play import LONG_S, Observed, Play
from x402sim.suite.facilitator.room import ROUGH
from x402sim.suite.facilitator.truth import (
    hash_is_named,
    is_final_no,
    must_not_settle,
    success_is_this_transfer,
    truthful,
    wastes_no_gas,
)
from x402sim.suite.verdict import Inconclusive, Violation
from x402sim.suite.wire import How, Reply, late, says

SEND = ("eth_sendRawTransaction", "eth_sendRawTransactionSync")
RECEIPT = ("eth_getTransactionReceipt",)
READS = ("eth_call", "eth_estimateGas")
SAME = "in the dialect of Cronos verify looks at no chain, and the settlement is the standard's"
BOUND_S = 60.0
"""The most seconds until an answer while no node answers."""

_standard = partial(case, kind=ROUGH, absent=only(STANDARD, SAME))
Plays = Callable[[Play], Awaitable[Observed]]

# --- verify ----------------------------------------------------------------------------------


def _verified(twist: Twist) -> Plays:
    """Verify a hopeless payment, while the node hides the reason."""

    async def play_it(play: Play) -> Observed:
        draft = await play.draft(await play.room.payer(0))
        with play.room.node.twisted(twist):
            verified = await play.verify(draft)
        return replace(await play.observe(), verified=verified)

    return play_it


def _fails_closed(_: Play, observed: Observed) -> Violation | None:
    answer = observed.verified
    if answer is None or not answer.is_valid:
        return None
    return Violation(demand="fails-closed", actual=f"verify: {answer.how}")


def _closed(title: str) -> list[Demand]:
    return [
        demand(
            title,
            texts.derived(
                texts.BALANCE,
                texts.SIMULATE,
                so="what could not be confirmed is not valid; this payer has nothing",
            ),
        )(_fails_closed)
    ]


# --- settle ----------------------------------------------------------------------------------


def _settled(twist: Twist, patience_s: float = LONG_S) -> Plays:
    """Settle a good payment while the node has a twist; the twist ends with the settlement."""

    async def play_it(play: Play) -> Observed:
        draft = await play.draft()
        with play.room.node.twisted(twist):
            answer = await play.settle(draft, patience_s=patience_s)
            early = await play.money()
        await play.room.tidy()
        return await play.observe((draft, answer), early=early)

    return play_it


@demand(
    "The node hangs: an answer comes within a minute all the same",
    texts.ours(
        because="the caller has given up by then, and learned nothing, while a payment may be "
        "made (daydreamsai/facilitator#48)"
    ),
)
def _bounded(_: Play, observed: Observed) -> Violation | None:
    for answer in observed.all_answers:
        if not answer.status or answer.seconds > BOUND_S:
            return Violation(demand="answers-in-time", actual=answer.how)
    return None


@demand(
    "The answer to a receipt with success and without a transfer",
    texts.silent(
        texts.TRANSFER_IS_CORRECT,
        why="a look at the event is wise, but nobody sees through a node of his own that lies",
    ),
)
def _said(_: Play, observed: Observed) -> str:
    (answer,) = observed.all_answers
    if answer.succeeded:
        return "settled: it believes its node"
    return "pending" if answer.is_pending else f"not settled: {answer.how}"


@demand(
    "The receipt comes at the fourth look: the payment is settled, or pending",
    texts.derived(
        texts.SUCCESS_FIELD, so="a receipt that is not there yet says nothing of the settlement"
    ),
    suffix="found",
)
def _late_is_found(_: Play, observed: Observed) -> Violation | None:
    answer = observed.all_answers[0]
    if answer.succeeded or (answer.is_pending and answer.transaction):
        return None
    return Violation(demand="late-is-no-failure", actual=observed.summary)


def _receipt_comes(after: int) -> Twist:
    """Return a twist that hides receipts at the first `after` looks."""
    looks = 0

    async def twist(call: Call, _: Go) -> dict[str, object] | None:
        nonlocal looks
        if call.method not in RECEIPT:
            return None
        looks += 1
        return call.result(None) if looks <= after else None

    return twist


# --- transactions that are not mined ---------------------------------------------------------


@demand(
    "A transaction not yet mined is called pending, with the hash",
    texts.ours(
        texts.TRANSACTION,
        because="what was sent can be mined until its window ends; told as a failure it is "
        "paid twice (x402-foundation/x402#1062, #3083, #3214)",
    ),
    suffix="pending",
)
def _pending_is_said(_: Play, observed: Observed) -> Violation | None:
    answer = observed.all_answers[0]
    if not answer.status:
        return Violation(demand="answers-with-hash", actual=answer.how)
    sent = {each.tx_hash for each in observed.money.sent}
    is_failed = is_final_no(answer) and answer.reason in STANDARD_REASONS
    if answer.transaction in sent and not is_failed:  # its own word may mean pending
        return None
    return Violation(
        expected=f"no failure, but pending, by the hash {', '.join(sorted(sent))}",
        actual=f"settle: {answer.how}",
        demand="unmined-is-pending",
    )


async def _sent(play: Play, draft: Draft) -> asyncio.Task[Answer]:
    """Begin a settlement, and wait for the relayer's transaction."""
    task = asyncio.create_task(play.settle(draft, patience_s=LONG_S))
    if not await play.until_sent(task):
        raise Inconclusive(f"it sent nothing for a good payment: {(await task).how}")
    return task


@demand(
    "A reverted transaction is no success",
    texts.derived(
        texts.SUCCESS_FIELD, texts.TRANSFER_IS_CORRECT, so="it is mined, and nothing has moved"
    ),
)
def _reverted_is_no_success(play: Play, observed: Observed) -> Violation | None:
    if not observed.money.reverted:
        raise Inconclusive("no transaction of the relayer reverted")
    return must_not_settle(play, observed)


@demand(
    "The hash in the answer about a reverted transaction",
    texts.silent(
        texts.TRANSACTION,
        why="the hash of a failure is empty, says the text; the public libraries tell "
        "it, which helps",
    ),
)
def _hash_of_reverted(_: Play, observed: Observed) -> str:
    says = [answer.transaction or "none" for answer in observed.all_answers]
    return f"a transaction that reverted is told with the hash: {', '.join(says)}"


# --- reorganisations -------------------------------------------------------------------------


@demand(
    "The fate of a settlement in an undone block",
    texts.silent(why="no text names a depth after which it is final"),
)
def _undone_observed(_: Play, observed: Observed) -> str:
    (draft, answer) = observed.pairs[0]
    moved = "it is on the chain again" if observed.moved(draft) else "it is not on the chain"
    says = "settled" if answer.succeeded else "pending" if answer.is_pending else "refused"
    return f"asked again after its block was undone: {says}; {moved}"


async def _receipt(play: Play, answer: Answer) -> TxReceipt:
    tx_hash = Hash(bytes.fromhex(answer.transaction.removeprefix("0x")))
    receipt = await play.room.chain.receipt(tx_hash)
    if receipt is None:
        raise Inconclusive("what it calls settled is not on the chain")
    return receipt


# --- gas -------------------------------------------------------------------------------------


_LOST = Reply(how=How.LOST)
_502 = Reply(status=502)


def _row(slug: str, play: Plays, title: str, *more: Demand, waits_s: float = 0) -> FacilitatorRow:
    return _standard(
        f"node/{slug}",
        success_is_this_transfer(f"{title}: the answer is true"),
        hash_is_named(f"{title}: the answer has the transaction hash"),
        *more,
        waits_s=waits_s,
    )(play)


@case("node/receipt-lies", _said, kind=ROUGH, absent=only(STANDARD, SAME), waits_s=10)
async def _receipt_lies(play: Play) -> Observed:
    """Nothing is mined, and the node lies: a receipt without the transfer's event."""
    head = await play.room.chain.block(await play.room.chain.height())
    assert head is not None

    async def twist(call: Call, _: Go) -> dict[str, object] | None:
        if call.method not in RECEIPT or not call.params:
            return None
        return call.result(
            {
                "transactionHash": call.params[0],
                "transactionIndex": "0x0",
                "blockHash": to_hex(head.hash),
                "blockNumber": hex(head.number),
                "from": play.room.relayer.address,
                "to": checksum(play.room.network.asset),
                "contractAddress": None,
                "cumulativeGasUsed": "0xc350",
                "gasUsed": "0xc350",
                "effectiveGasPrice": "0x3b9aca00",
                "logs": [],
                "logsBloom": "0x" + "00" * 256,
                "status": "0x1",
                "type": "0x0",
            }
        )

    draft = await play.draft()
    async with play.unmined():
        with play.room.node.twisted(twist):
            answer = await play.settle(draft, patience_s=LONG_S)
            early = await play.money()
    return await play.observe((draft, answer), early=early)


@_standard(
    "node/dear",
    demand(
        "The gas price offered if the node reports a million times the usual price",
        texts.silent(why="no text bounds the price of gas; a node that lies does"),
    )(told),
)
async def _dear(play: Play) -> str:
    """The node reports a gas price of a million times the usual price."""
    price = 10**15

    async def twist(call: Call, go: Go) -> dict[str, object] | None:
        match call.method:
            case "eth_gasPrice" | "eth_maxPriorityFeePerGas":
                return call.result(hex(price))
            case "eth_feeHistory":
                answer = await go()
                found = dict(answer["result"])
                found["baseFeePerGas"] = [hex(price)] * len(found["baseFeePerGas"])
                return call.result(found)
            case _:
                return None

    draft = await play.draft()
    with play.room.node.twisted(twist):
        answer = await play.settle(draft)
    bids = [read(bytes.fromhex(raw[2:])) for raw in play.room.node.raw[-1:]]
    most = max((bid.max_fee_wei * bid.gas_limit for bid in bids), default=0)
    said = "settled" if answer.succeeded else f"not settled: {answer.how}"
    return f"{said}; it offered up to {most / 10**18:g} coins for the gas of one settlement"


@_standard(
    "chain/not-mined",
    success_is_this_transfer(
        "A transaction not yet mined is no success, and no failure without a hash"
    ),
    _pending_is_said,
    wastes_no_gas(
        "A pending payment, sent again, makes no second transaction",
        "a server asks once more for what is pending: another transaction can only revert",
    ),
    waits_s=10,
)
async def _not_mined(play: Play) -> Observed:
    """Nothing is mined until the answer; then the block comes, and the same payment again."""
    draft = await play.draft()
    async with play.unmined():
        answer = await play.settle(draft, patience_s=LONG_S)
        early = await play.money()
    if not play.room.node.sent[play.sent_before :]:
        raise Inconclusive(f"it sent nothing for a good payment: {answer.how}")
    again = await play.settle(draft)
    observed = await play.observe((draft, answer), (draft, again))
    return replace(observed, early=early)


@_standard(
    "chain/dropped",
    success_is_this_transfer("The node drops the transaction: the answer is true"),
    hash_is_named("The node drops the transaction: the answer has the transaction hash"),
    waits_s=10,
)
async def _dropped(play: Play) -> Observed:
    """The node loses the transaction, and then works again; the same payment comes again."""
    draft = await play.draft()
    async with play.unmined():
        task = await _sent(play, draft)
        await play.room.controls.drop()
        answer = await task
        early = await play.money()
    again = await play.settle(draft, patience_s=LONG_S)
    return replace(await play.observe((draft, answer), (draft, again)), early=early)


@_standard(
    "chain/replaced",
    success_is_this_transfer(
        "Another transaction takes the place of the transaction: the answer is true"
    ),
    waits_s=10,
)
async def _replaced(play: Play) -> Observed:
    """Another transaction of the relayer's key replaces the sent transaction."""
    room, draft = play.room, await play.draft()
    async with play.unmined():
        task = await _sent(play, draft)
        await room.controls.drop()
        await room.transact(room.relayer.address_bytes, play.payee(), b"")
        await room.controls.mine()
        answer = await task
        early = await play.money()
    return await play.observe((draft, answer), early=early)


@case("chain/reverted", _reverted_is_no_success, _hash_of_reverted, kind=ROUGH)
async def _reverted(play: Play) -> Observed:
    """The token accepts the simulation, and refuses the mined transaction."""
    draft = await play.draft()
    await play.room.controls.force_revert(1)
    answer = await play.settle(draft, patience_s=LONG_S)
    await play.room.controls.force_revert(0)
    return await play.observe((draft, answer))


@_standard(
    "chain/undone",
    demand(
        "A settlement in an undone block is no success any more, unless mined again",
        texts.ours(
            texts.SUCCESS_FIELD,
            texts.TRANSFER_IS_CORRECT,
            because="an answer that is remembered says what is not so any more; the "
            "same payment may be answered as before, and no text names a depth",
        ),
    )(truthful),
    _undone_observed,
)
async def _undone(play: Play) -> Observed:
    """Another block, without the payment, replaces the settled one's; the payment comes again."""
    room, draft = play.room, await play.draft()
    first = await play.settled_once(draft)
    receipt = await _receipt(play, first)
    depth = await room.chain.height() - receipt.block_number + 1
    await room.controls.reorg(depth, [receipt.tx_hash])
    play.say("the block was replaced by one without this payment")
    return await play.observe((draft, await play.settle(draft, patience_s=LONG_S)))


@_standard(
    "chain/moved-to-another-block",
    success_is_this_transfer(
        "Another block with the same payment replaces a settlement's block: a single "
        "transfer, and no success with another hash"
    ),
)
async def _elsewhere_in_the_chain(play: Play) -> Observed:
    """Another block with the same payment replaces the block of a settled payment."""
    room, draft = play.room, await play.draft()
    first = await play.settled_once(draft)
    receipt = await _receipt(play, first)
    await room.controls.reorg(await room.chain.height() - receipt.block_number + 1)
    again = await play.settle(draft, patience_s=LONG_S)
    return await play.observe((draft, first), (draft, again))


ROWS = [
    case(
        "node/verify-call-fails",
        *_closed("The node's calls fail: nothing is called valid"),
        absent=only(STANDARD, SAME),
    )(_verified(on(*READS, do=fails("internal error")))),
    case(
        "node/verify-down",
        *_closed("The node is down: nothing is called valid"),
        absent=only(STANDARD, SAME),
    )(_verified(says(_502))),
    _row("reads-fail", _settled(on(*READS, do=fails("internal error"))), "The node's calls fail"),
    _row(
        "send-refused",
        _settled(on(*SEND, do=fails("internal error"))),
        "The node refuses the transaction with an error",
    ),
    _row(
        "send-lost",
        _settled(on(*SEND, do=says(_LOST, after=True))),
        "The node takes the transaction, and the node's answer is lost",
    ),
    _row(
        "send-late",
        _settled(on(*SEND, do=late(4.0, after=False))),
        "The node takes the transaction four seconds late",
        waits_s=4,
    ),
    _row(
        "receipt-fails",
        _settled(on(*RECEIPT, do=fails("internal error"))),
        "The node has errors instead of a receipt",
        waits_s=10,
    ),
    _row(
        "receipt-lost",
        _settled(on(*RECEIPT, do=says(_502))),
        "The node is down when the receipt is asked for",
        waits_s=10,
    ),
    _row(
        "receipt-late",
        _settled(_receipt_comes(3)),
        "The receipt comes at the fourth look",
        _late_is_found,
    ),
    _standard("node/hangs", _bounded, waits_s=10)(_settled(hangs())),
]
