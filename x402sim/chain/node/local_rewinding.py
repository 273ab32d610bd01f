"""Snapshots and reorganisations of a test node."""

from collections.abc import Collection, Mapping

from x402sim.chain.base import ChainError
from x402sim.chain.node.evm import JsonRpcNode
from x402sim.chain.node.local_mining import LocalMining, Resend, resends_of
from x402sim.protocol.crypto import ZERO_ADDRESS, Address, Hash, to_hex
from x402sim.protocol.rpc_values import quantity

MINER = b"x402sim/mine"
"""The beginning of the coinbase of a replacement block; a number completes it."""


class LocalRewinding:
    """Control over a test node's history and state; a `Rewinding`."""

    def __init__(
        self, rpc: JsonRpcNode, mining: LocalMining, *, genesis: int, native: Mapping[Address, int]
    ) -> None:
        """Take over a node in block 0, given the id of its snapshot and the native balances."""
        self._rpc, self._mining = rpc, mining
        self._genesis = genesis
        self._native = {account: (0, amount_wei) for account, amount_wei in native.items()}
        self._snapshots: dict[int, tuple[int, list[Resend]]] = {}
        """The height and the mempool of each snapshot: the node restores no mempool."""
        self._codes: dict[Address, tuple[bytes, Mapping[bytes, bytes]]] = {}
        self._reorgs = self.forced_reverts = 0

    async def snapshot(self) -> int:
        """Take a snapshot of the state; return its id."""
        async with self._mining.turn:
            saved = await self._mining.height(), await self._mining.waiting()
            snapshot = await self._take_snapshot()
            self._snapshots[snapshot] = saved
        return snapshot

    async def revert(self, snapshot: int) -> None:
        """Revert to a snapshot, and delete it and all later ones; raises `ChainError`."""
        async with self._mining.turn:
            if snapshot not in self._snapshots:
                known = ", ".join(map(str, self._snapshots)) or "none"
                raise ChainError(f"no snapshot {snapshot}; there are: {known}")
            await self._revert_to(snapshot)
            await self._restore_codes()
            await self._mining.replace_mempool(self._snapshots[snapshot][1])
            await self._mining.resume()
            self._snapshots = {n: it for n, it in self._snapshots.items() if n < snapshot}
        await self._mining.notify()

    async def reorg(self, depth: int, drop: Collection[Hash] = ()) -> None:
        """Replace the last `depth` blocks by as many new ones; raises `ChainError`. Unlike on the
        ledger, an account's transactions after a dropped one stay in the mempool until the missing
        nonce is sent, as on any real chain.
        """
        mining = self._mining
        async with mining.turn:
            height = await mining.height()
            base = height - depth
            if not 0 <= base < height:
                text = f"cannot replace the last {depth} blocks; the last {height} can be"
                raise ChainError(text)
            lost: list[Resend] = []
            for number in range(base + 1, height + 1):
                lost += await resends_of(self._rpc, number)
            lost += await mining.waiting()
            await self._rpc.ask("anvil_rollback", depth)
            self._snapshots = {n: it for n, it in self._snapshots.items() if it[0] <= base}
            self._reorgs += 1  # another coinbase, so that the new blocks differ from the old ones
            await self._rpc.ask("anvil_setCoinbase", to_hex(MINER + self._reorgs.to_bytes(8)))
            await self._restore_native(base)
            await self._restore_codes()
            await mining.replace_mempool([])
            if depth > 1:
                await mining.mine_blocks(depth - 1)
            await mining.replace_mempool([tx for tx in lost if tx.hash not in drop])
            await mining.mine_blocks(1)
            await mining.resume()
        await mining.notify()

    async def reset(self) -> None:
        """Revert to block 0. The automine setting is kept."""
        async with self._mining.turn:
            await self._revert_to(self._genesis)
            await self._rpc.ask("anvil_dropAllTransactions")
            nobody = to_hex(ZERO_ADDRESS)  # which has a price in gas
            await self._rpc.ask("anvil_setCoinbase", nobody)
            self._genesis = await self._take_snapshot()
            self._snapshots.clear()
            self._codes.clear()
        await self._mining.notify()

    async def drop(self) -> None:
        """Drop every transaction from the mempool, as a node short of memory does."""
        await self._rpc.ask("anvil_dropAllTransactions")
        await self._mining.notify()

    async def force_revert(self, calls: int) -> None:
        """Make the next `calls` calls of the token run out of gas, when they are sent."""
        self.forced_reverts = calls

    async def set_native_balance(self, account: Address, amount_wei: int) -> None:
        """Set an account's native balance, without a transaction."""
        self._native[account] = await self._mining.height(), amount_wei
        await self._write_native(account, amount_wei)

    async def set_code(
        self, account: Address, code: bytes, slots: Mapping[bytes, bytes] | None = None
    ) -> None:
        """Set an account's code and words of its storage, without a transaction."""
        self._codes[account] = code, slots or {}
        await self._write_code(account, *self._codes[account])

    async def _take_snapshot(self) -> int:
        return int(await self._rpc.ask("evm_snapshot"), 16)

    async def _revert_to(self, snapshot: int) -> None:
        if not await self._rpc.ask("evm_revert", hex(snapshot)):
            raise ChainError(f"the node has forgotten snapshot {snapshot}")

    async def _restore_native(self, base: int) -> None:
        """Set again the native balances that were set without a transaction, after block `base`."""
        for account, (height, amount_wei) in self._native.items():
            if height >= base:
                await self._write_native(account, amount_wei)

    async def _write_native(self, account: Address, amount_wei: int) -> None:
        await self._rpc.ask("anvil_setBalance", to_hex(account), quantity(amount_wei))

    async def _restore_codes(self) -> None:
        """Set again the contracts that were set without a transaction."""
        for account, (code, slots) in self._codes.items():
            await self._write_code(account, code, slots)

    async def _write_code(
        self, account: Address, code: bytes, slots: Mapping[bytes, bytes]
    ) -> None:
        await self._rpc.ask("anvil_setCode", to_hex(account), to_hex(code))
        for slot, word in slots.items():
            await self._rpc.ask("anvil_setStorageAt", to_hex(account), to_hex(slot), to_hex(word))
