"""Records each new block's events in the journal when the block is mined."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Literal

from x402sim import events
from x402sim.chain.base import Block, Chain, TxReceipt
from x402sim.clock import Clock
from x402sim.journal import Journal
from x402sim.protocol import abi
from x402sim.protocol.crypto import Address, checksum, to_hex
from x402sim.spilling import Spilling

_USES: dict[bytes, Literal["used", "canceled"]] = {
    abi.AUTHORIZATION_USED: "used",
    abi.AUTHORIZATION_CANCELED: "canceled",
}
_Recorded = tuple[bytes, tuple[bytes, ...]]
"""The hash of a block, and those of its transactions."""


class ChainRecorder:
    """Follows a chain's blocks; the chain calls it after every operation."""

    def __init__(
        self, chain: Chain, journal: Journal, clock: Clock, network: str | None = None
    ) -> None:
        """`network` is the name of a further network, which its events then carry."""
        self._actor = "chain" if network is None else f"chain {network}"
        self._chain, self._journal, self._clock = chain, journal, clock
        blocks, self.supply_base = chain.at_first
        """`supply_base` is the token's supply at the last call, in base units."""
        self._recorded = Spilling[int, _Recorded](int, _Recorded)
        """What is recorded, by number: one block follows the other."""
        self._newest = -1
        for block in blocks:
            self._note(block)
        self.on_block: list[Callable[[Block], None]] = []
        """Called with each new block once its events are recorded."""
        self._lock = asyncio.Lock()
        chain.watchers.append(self)

    async def __call__(self) -> None:
        """Record what has changed since the last call."""
        async with self._lock:
            height = await self._chain.height()
            while (newest := self._recorded.get(self._newest)) is not None:
                block_hash, tx_hashes = newest
                there = await self._chain.block(self._newest) if self._newest <= height else None
                if there is not None and there.hash == block_hash:
                    break
                del self._recorded[self._newest]
                self._newest -= 1
                for tx_hash in tx_hashes:
                    self._record(
                        events.TransactionUndone(actor=self._actor, tx_hash=to_hex(tx_hash))
                    )
            first = 0 if newest is None else self._newest + 1
            for number in range(first, height + 1):
                block = await self._chain.block(number)
                receipts = (
                    [await self._chain.receipt(tx) for tx in block.tx_hashes] if block else []
                )
                if block is None or None in receipts:
                    break  # a reorg replaced it meanwhile and calls again
                self._note(block)
                for receipt in filter(None, receipts):
                    for event in receipt_events(self._actor, self._chain.token, block, receipt):
                        self._record(event)
                for hook in self.on_block:
                    hook(block)
            self.supply_base = await self._chain.supply()

    def _note(self, block: Block) -> None:
        self._newest = block.number
        self._recorded[block.number] = block.hash, block.tx_hashes

    def _record(self, event: events.ChainEvent) -> None:
        self._journal.record(self._clock.now_ms(), event)


def receipt_events(
    actor: str, token: Address, block: Block, receipt: TxReceipt
) -> Iterator[events.ChainEvent]:
    """Yield the events of a mined transaction: itself, and what it did to the token."""
    yield events.TransactionMined(
        actor=actor,
        tx_hash=to_hex(receipt.tx_hash),
        block=block.number,
        block_time_s=block.timestamp_s,
        sender=checksum(receipt.call.sender),
        call=abi.NAMES.get(receipt.call.data[:4], ""),
        gas=receipt.gas_used,
        gas_price_wei=str(receipt.gas_price),
        revert_reason=receipt.revert_reason,
    )
    for log in receipt.logs:
        if log.address != token or not log.topics:
            continue  # a log of another contract
        account = checksum(Address(log.topics[1][12:])) if len(log.topics) > 1 else ""
        if log.topics[0] == abi.TRANSFER_EVENT:
            yield events.Transfer(
                actor=actor,
                tx_hash=to_hex(log.tx_hash),
                block=log.block_number,
                sender=account,
                to=checksum(Address(log.topics[2][12:])),
                amount_base=str(int.from_bytes(log.data)),
            )
        elif log.topics[0] in _USES:
            yield events.AuthorizationConsumed(
                actor=actor,
                tx_hash=to_hex(log.tx_hash),
                authorizer=account,
                authorization=log.topics[2].hex(),
                use=_USES[log.topics[0]],
            )
