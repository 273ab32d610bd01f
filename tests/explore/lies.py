"""The faults that make the facilitator and the explorer lie."""

from typing import Any, assert_never

from tests.explore.book import Book
from tests.explore.case import Lie
from x402sim.protocol import cronos
from x402sim.protocol.messages import encode
from x402sim.world.story.live import LiveWorld
from x402sim.world.transport.faults import Fault

_WRONG_BLOCK = "0x1"


def fault_of(world: LiveWorld, book: Book, payer: str, lie: Lie) -> Fault:
    """Return the fault that tells a lie; `payer` is the address that it is about."""

    def facilitator(verb: str, body: Any, *, moved: bool = False, contains: str = "") -> Fault:
        return Fault(
            victim="facilitator",
            does="answer",
            path=f"/{verb}",
            status=200,
            body=encode(body).decode(),
            times=lie.times,
            work_done=moved,
            contains=contains,
        )

    match lie.lie:
        case "valid is invalid" | "invalid is valid":
            is_valid = lie.lie == "invalid is valid"
            reason = None if is_valid else "Invalid EIP-3009 signature"
            answer = cronos.VerifyAnswer(is_valid=is_valid, invalid_reason=reason)
            return facilitator("verify", answer)
        case "invented hash" | "hash of another payment":
            body = _settled(world, book, payer, lie)
            return facilitator("settle", body, contains=f'"{lie.amount_base}"')
        case "failed though moved" | "failed and not moved":
            return facilitator(
                "settle", _failed(world, lie), moved=lie.lie.endswith("though moved")
            )
        case "transaction unknown":
            return _explorer(lie, "eth_get", None)
        case "transaction reverted":
            return _explorer(lie, "eth_getTransactionReceipt", _ON_CHAIN | {"status": "0x0"})
        case "wrong block":
            return _explorer(lie, "eth_getTransactionReceipt", _ON_CHAIN)
        case _ as unknown:
            assert_never(unknown)


_ON_CHAIN = {"blockNumber": _WRONG_BLOCK, "status": "0x1", "blockHash": "0x" + "ab" * 32}


def _explorer(lie: Lie, action: str, result: Any) -> Fault:
    body = encode({"jsonrpc": "2.0", "id": 1, "result": result}).decode()
    return Fault(
        victim="explorer",
        does="answer",
        status=200,
        body=body,
        times=lie.times,
        contains=action,
    )


def _failed(world: LiveWorld, lie: Lie) -> cronos.Failed:
    return cronos.Failed(
        x402_version=cronos.VERSION,
        network=world.network.name,
        timestamp="2027-01-15T08:00:00.000Z",
        error=lie.error,
    )


def _settled(world: LiveWorld, book: Book, payer: str, lie: Lie) -> cronos.Settled:
    tx_hash = "0x" + world.rng(f"lie at {lie.at_s}").randbytes(32).hex()
    receipts = [each.body for shown in book.presented for each in shown.answers]
    earlier = [str(each["txHash"]) for each in receipts if "txHash" in each]
    if lie.lie == "hash of another payment" and earlier:
        tx_hash = earlier[-1]
    sender, to = payer, world.merchant
    if lie.is_refund:
        sender, to = to, sender
    return cronos.Settled(
        x402_version=cronos.VERSION,
        tx_hash=tx_hash,
        from_=sender,
        to=to,
        value=str(lie.amount_base),
        block_number=1,
        network=world.network.name,
        timestamp="2027-01-15T08:00:00.000Z",
    )
