"""What the chain does, written to the journal as it does it.

`mined` for each transaction with its gas and outcome, `transfer` for each movement of
the token, `authorization` for each one used up or cancelled, `undone` for each transaction
that a reorganisation takes back.
"""

from x402sim.chain import abi
from x402sim.chain.base import Block, Log
from x402sim.chain.ledger import Ledger
from x402sim.clock import Clock
from x402sim.journal import Journal
from x402sim.protocol.crypto import Address, checksum, to_hex

_USES = {abi.AUTHORIZATION_USED: "used", abi.AUTHORIZATION_CANCELED: "canceled"}


class Watch:
    """Follows a ledger's blocks; call it after every operation."""

    def __init__(self, ledger: Ledger, journal: Journal, clock: Clock) -> None:
        self._ledger, self._journal, self._clock = ledger, journal, clock
        self._seen: list[Block] = list(ledger.machine.state.blocks.values())

    def __call__(self) -> None:
        """Record what has changed since the last call."""
        blocks = self._ledger.machine.state.blocks
        while self._seen and self._is_gone(self._seen[-1], blocks):
            for tx_hash in self._seen.pop().tx_hashes:
                self._record("undone", tx=to_hex(tx_hash))
        for number in range(len(self._seen), len(blocks)):
            self._seen.append(blocks[number])
            self._tell(blocks[number])

    def _is_gone(self, block: Block, blocks: dict[int, Block]) -> bool:
        now_there = blocks.get(block.number)
        return now_there is None or now_there.hash != block.hash

    def _tell(self, block: Block) -> None:
        for tx_hash in block.tx_hashes:
            receipt = self._ledger.machine.state.receipts[tx_hash]
            self._record(
                "mined",
                tx=to_hex(tx_hash),
                block=block.number,
                block_time_s=block.timestamp_s,
                sender=checksum(receipt.call.sender),
                call=abi.NAMES.get(receipt.call.data[:4], ""),
                gas=receipt.gas_used,
                gas_price_wei=str(receipt.gas_price),
                revert_reason=receipt.revert_reason,
            )
            for log in receipt.logs:
                if log.topics[0] == abi.TRANSFER_EVENT:
                    self._tell_transfer(log)
                elif log.topics[0] in _USES:
                    self._tell_use(log)

    def _tell_transfer(self, log: Log) -> None:
        sender, to = (checksum(Address(topic[12:])) for topic in log.topics[1:3])
        self._record(
            "transfer",
            tx=to_hex(log.tx_hash),
            block=log.block_number,
            sender=sender,
            to=to,
            amount_base=str(int.from_bytes(log.data)),
        )

    def _tell_use(self, log: Log) -> None:
        self._record(
            "authorization",
            tx=to_hex(log.tx_hash),
            authorizer=checksum(Address(log.topics[1][12:])),
            authorization=log.topics[2].hex(),
            use=_USES[log.topics[0]],
        )

    def _record(self, event: str, **data: object) -> None:
        self._journal.record(self._clock.now_ms(), "chain", event, **data)
