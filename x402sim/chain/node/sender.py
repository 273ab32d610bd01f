"""Sends our transactions, assigns their nonces, and sends them again if the node drops them. A
node mines nothing behind a gap in an account's nonces, so each nonce is used once and a dropped
transaction is sent again. A send without an answer counts as sent, as it may have arrived; the
wait for its receipt decides.
"""

import asyncio
import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass

from eth_account import Account

from x402sim.chain.base import ChainError
from x402sim.chain.node import objects
from x402sim.chain.node.any_node import AnyNode, NodeGone
from x402sim.protocol.crypto import Address, Hash, checksum, keccak256, parse_address, to_hex
from x402sim.protocol.rpc_values import Json, read_quantity

GAS_HEADROOM = 1.25
"""The factor by which we bid above the base fee, in case it rises before the next block. A price
that the node advises is not raised: it may be our own last bid, and would grow forever."""
REPLACED_AFTER = 3
"""How often in a row a node must report a transaction as replaced, as it may lag behind."""
NONCE_TRIES = 3
_NONCE_USED = re.compile("nonce too low|invalid nonce|invalid sequence|underpriced")
_KNOWN = re.compile("already known|already imported|known transaction|already in mempool")


class Replaced(ChainError):
    """Another transaction has the nonce of one of ours, which can never be mined."""


@dataclass(slots=True)
class _Sent:
    """A transaction of ours that may not be mined yet."""

    sender: Address
    nonce: int
    raw: str
    seen_replaced: int = 0


class Sender:
    """The accounts whose keys we have, on one node, or on several at one address, which may lag.

    Of one that `may_lag` the nonces are remembered; any other counts them itself, also when it is
    set back.
    """

    def __init__(
        self, node: AnyNode, chain_id: int, keys: Iterable[bytes], *, may_lag: bool = True
    ) -> None:
        self._node, self._chain_id, self._may_lag = node, chain_id, may_lag
        self.keys = {parse_address(Account.from_key(key).address): key for key in keys}
        self._turn = asyncio.Lock()
        """Held from taking a nonce until its transaction is sent."""
        self._nonces: dict[Address, int] = {}
        self.sent: dict[Hash, _Sent] = {}
        """The transactions that are not known to be mined."""

    async def send(self, sender: Address, request: Json) -> Hash:
        """Sign a transaction and send it to the node; return its hash.

        Raises `ChainError` without a key for the account, or if the node rejects it.
        """
        if sender not in self.keys:
            raise ChainError(f"no key for {checksum(sender)}, so it cannot send")
        async with self._turn:
            price = await self._bid()
            for _ in range(NONCE_TRIES):
                nonce = await self._next_nonce(sender)
                place = {"chainId": self._chain_id, "nonce": nonce, "gasPrice": price}
                signed = Account.sign_transaction({**request, **place}, self.keys[sender])
                tx_hash, raw = Hash(bytes(signed.hash)), to_hex(signed.raw_transaction)
                accepted = await self._offer(raw)
                self._nonces[sender] = nonce + 1
                if accepted:
                    self.sent[tx_hash] = _Sent(sender, nonce, raw)
                    return tx_hash
        raise ChainError(f"{NONCE_TRIES} nonces of {checksum(sender)} in a row are used")

    async def _bid(self) -> int:
        """Return the gas price to bid, in wei."""
        advised = await self._node.read(read_quantity, "eth_gasPrice")
        newest = await self._node.read(objects.block, "eth_getBlockByNumber", "latest", False)
        return max(advised, int(newest.base_fee_wei * GAS_HEADROOM))

    async def _next_nonce(self, sender: Address) -> int:
        """Return an account's next nonce.

        Our transactions that the node has dropped are sent again first, to leave no gap in the
        nonces.
        """
        known = await self._count(sender, "pending")
        missing = [s for s in self.sent.values() if s.sender == sender and s.nonce >= known]
        for sent in missing:
            with suppress(ChainError):
                await self._offer(sent.raw)
        if not self._may_lag:
            return await self._count(sender, "pending") if missing else known
        return max(known, self._nonces.get(sender, 0))

    async def _offer(self, raw: str) -> bool:
        """Send a signed transaction to the node; False if its nonce is used already. A send
        without an answer counts as accepted: it may have arrived, and `see_to` repeats it if not.
        Raises `ChainError`.
        """
        try:
            await self._node.ask("eth_sendRawTransaction", raw)
        except NodeGone:
            return True
        except ChainError as refused:
            if _KNOWN.search(str(refused)):
                return True
            if _NONCE_USED.search(str(refused)):
                return False
            if await self._has(raw):
                return True
            raise
        return True

    async def _has(self, raw: str) -> bool:
        """Ask whether the node knows a transaction all the same: behind one address it may have
        been passed on, and then something failed.
        """
        with suppress(ChainError):
            tx_hash = to_hex(keccak256(bytes.fromhex(raw.removeprefix("0x"))))
            return await self._node.ask("eth_getTransactionByHash", tx_hash) is not None
        return False

    async def see_to(self, tx_hash: Hash) -> None:
        """Send an unmined transaction again, if the node has dropped it. Raises `Replaced` if it
        was replaced, and `ChainError`. One answer does not prove that, as one address often serves
        several nodes, and one may lag.
        """
        sent = self.sent.get(tx_hash)
        if sent is None:
            return
        if await self._node.ask("eth_getTransactionByHash", to_hex(tx_hash)):
            sent.seen_replaced = 0
        elif await self._count(sent.sender, "latest") > sent.nonce:
            sent.seen_replaced += 1
        else:
            sent.seen_replaced = 0
            with suppress(ChainError):
                await self._offer(sent.raw)
        if sent.seen_replaced >= REPLACED_AFTER:
            who = f"nonce {sent.nonce} of {checksum(sent.sender)}"
            raise Replaced(f"{to_hex(tx_hash)} was replaced by another transaction with {who}")

    def forget(self, tx_hash: Hash) -> None:
        """Stop tracking a transaction: it is mined."""
        self.sent.pop(tx_hash, None)

    async def _count(self, account: Address, block: str) -> int:
        params = to_hex(account), block
        return await self._node.read(read_quantity, "eth_getTransactionCount", *params)
