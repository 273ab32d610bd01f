"""A chain on an existing node, with our keys and no control over blocks or history."""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace

from x402sim.chain.base import Block, Call, ChainError, Reverted, TxReceipt
from x402sim.chain.node import objects
from x402sim.chain.node.evm import JsonRpcNode
from x402sim.chain.node.evm_chain import EvmChain
from x402sim.clock import Clock
from x402sim.protocol import abi
from x402sim.protocol.crypto import ZERO_ADDRESS, Address, Hash, checksum
from x402sim.protocol.networks import Network
from x402sim.protocol.rpc_values import read_bytes

MINED_WITHIN_S = 120
"""How long a mint may wait for its block."""


class ExternalChain(EvmChain):
    """A token on an existing node; `open` makes one. It mints with the key of a minter."""

    owner = ZERO_ADDRESS
    """The account that may mint: the first of our keys that may, else the token's owner; the zero
    address if the token has no owner().
    """
    at_first: tuple[list[Block], int]
    """The newest block and the supply at the time of opening."""
    mining = rewinding = None
    """An existing node mines by itself, and cannot be rewound."""

    @classmethod
    async def open(
        cls,
        url: str,
        network: Network,
        clock: Clock,
        keys: Iterable[bytes],
        *,
        deploy: bool = False,
        read: bool = False,
    ) -> "ExternalChain":
        """Return the chain behind a URL, with the network's token on it. The first of the keys is
        that of the account that pays for gas.

        With `deploy`, the first key deploys and owns a new token first. With `read`, the token is
        what its contract says, else it must be what the network says. `chain.network` has the
        token. Raises `ChainError` and `TimeoutError`.
        """
        chain = cls(JsonRpcNode(url), network, clock, keys)
        try:
            await chain._begin(deploy=deploy, read=read)
        except BaseException:
            chain.close()
            raise
        return chain

    async def _begin(self, *, deploy: bool, read: bool) -> None:
        if deploy:
            await self.check_id(self.network)
            token = await self.deploy(self.network, self.keys[0], self.keys[0])
            self.token, self.network = token, replace(self.network, asset=token)
        self.network = await self.check(self.network, read=read)
        head = await self.block(await self.height())
        self.at_first = [head] if head else [], await self.supply()
        self.owner = await self._find_minter()

    async def _find_minter(self) -> Address:
        """Return the first of our accounts that may mint, else the token's owner."""
        for account in self.keys:
            try:
                await self.call(Call(account, self.token, abi.mint(account, 1)))
            except Reverted:
                continue
            return account
        try:
            return Address((await self.call(Call(self.token, self.token, abi.OWNER)))[12:32])
        except Reverted:
            return ZERO_ADDRESS

    async def waiting(self) -> int:
        """Return how many of our transactions are not known to be mined."""
        return len(self._sender.sent)

    async def fund(self, account: Address, amount_base: int) -> None:
        """Mint tokens with the minter's key; raises `ChainError` and `TimeoutError`."""
        if self.owner not in self.keys:
            owner, token = checksum(self.owner), checksum(self.token)
            raise ChainError(f"only {owner} can mint {token}, and its key is not configured")
        call = Call(self.owner, self.token, abi.mint(account, amount_base))
        receipt = await self.wait(await self.send(call), MINED_WITHIN_S)
        if receipt.revert_reason is not None:
            raise ChainError(receipt.revert_reason)

    async def call(self, call: Call, block: int | None = None) -> bytes:
        """Run a call and discard its effects; raises `Reverted`, and `ChainError` for the block.

        What would change the token is tried in the block that is mined next, as the newest block's
        time may be long ago; a node without a pending block tries it in the newest.
        """
        if block is None and call.data[:4] in abi.NAMES:
            with suppress(ChainError):
                asked = objects.call_object(call), "pending"
                return await self.node.read(read_bytes, "eth_call", *asked)
        return await super().call(call, block)

    async def wait(self, tx_hash: Hash, timeout_s: float) -> TxReceipt:
        """Return the receipt once the transaction is mined and the watchers have been called.

        Raises `TimeoutError` and `ChainError`.
        """
        receipt = await super().wait(tx_hash, timeout_s)
        await self.notify()
        return receipt
