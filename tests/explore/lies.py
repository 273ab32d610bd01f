"""The faults that make the facilitator and the explorer lie."""

from typing import Any, assert_never

from tests.explore.book import Book
from tests.explore.case import Lie
from x402sim.protocol import cronos
from x402sim.protocol.messages import encode
from x402sim.world.live import LiveWorld
from x402sim.world.transport.faults import Fault

_AT = "2027-01-15T08:00:00.000Z"
_ON_CHAIN = {"blockNumber": "0x1", "status": "0x1", "blockHash": "0x" + "ab" * 32}


def fault_of(world: LiveWorld, book: Book, payer: str, lie: Lie) -> Fault:
    """Return the fault that tells a lie; `payer` is the address that it is about."""

    def fault(victim: str, body: Any, contains: str = "", path: str = "", **how: Any) -> Fault:
        text = encode(body).decode()
        common = {"does": "answer", "status": 200, "body": text, "times": lie.times}
        return Fault(victim=victim, path=path, contains=contains, **common, **how)

    def on_chain(action: str, result: Any) -> Fault:
        return fault("explorer", {"jsonrpc": "2.0", "id": 1, "result": result}, action)

    match lie.lie:
        case "valid is invalid":
            answer = cronos.VerifyAnswer(False, "Invalid EIP-3009 signature")
            return fault("facilitator", answer, path="/verify")
        case "invalid is valid":
            return fault("facilitator", cronos.VerifyAnswer(True, None), path="/verify")
        case "invented hash" | "hash of another payment":
            settled = _settled(world, book, payer, lie)
            return fault("facilitator", settled, f'"{lie.amount_base}"', "/settle")
        case "failed though moved" | "failed and not moved":
            failed = cronos.Failed(
                x402_version=cronos.VERSION,
                network=world.network.name,
                timestamp=_AT,
                error=lie.error,
            )
            moved = lie.lie == "failed though moved"
            return fault("facilitator", failed, path="/settle", work_done=moved)
        case "transaction unknown":
            return on_chain("eth_get", None)
        case "transaction reverted":
            return on_chain("eth_getTransactionReceipt", _ON_CHAIN | {"status": "0x0"})
        case "wrong block":
            return on_chain("eth_getTransactionReceipt", _ON_CHAIN)
        case _ as unknown:
            assert_never(unknown)


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
        timestamp=_AT,
    )
