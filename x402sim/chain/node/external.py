"""A chain on somebody else's node: we have keys, and no power over it.

It keeps the whole seam, so that a world can stand on it: what needs keys it does in
transactions, and what needs power over the node it refuses.
"""

from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import Never

from x402sim.chain.base import Block, Call, ChainError, Receipt, Reverted
from x402sim.chain.node.evm import Node
from x402sim.chain.node.evm_chain import EvmChain
from x402sim.clock import Clock
from x402sim.protocol import abi
from x402sim.protocol.crypto import ZERO_ADDRESS, Address, Hash, checksum
from x402sim.protocol.networks import Network

MINED_WITHIN_S = 120
"""How long a mint may wait for its block."""


class ExternalChain(EvmChain):
    """A token on a node of somebody else; `open` makes one."""

    is_ours = False
    owner = ZERO_ADDRESS
    """Who may mint; nobody we know, if the token does not say."""
    _at_first: tuple[list[Block], int]

    @classmethod
    async def open(
        cls,
        url: str,
        network: Network,
        clock: Clock,
        keys: Iterable[bytes],
        *,
        deploy: bool = False,
    ) -> "ExternalChain":
        """Return the chain behind a URL, with the network's token on it.

        With `deploy` a new token is put there first, by the first of the keys, which owns
        it; `chain.network` then has its address. Raises `ChainError` and `TimeoutError`.
        """
        chain = cls(Node(url), network, clock, keys)
        try:
            await chain._begin(deploy=deploy)
        except BaseException:
            chain.close()
            raise
        return chain

    async def _begin(self, *, deploy: bool) -> None:
        if not self.keys:
            raise ChainError("without a key nothing can be settled")
        if deploy:
            await self.check_id(self.network)
            token = await self.deploy(self.network, self.keys[0], self.keys[0])
            self.token, self.network = token, replace(self.network, asset=token)
        await self.check(self.network)
        head = await self.block(await self.height())
        self._at_first = [head] if head else [], await self.supply()
        try:
            self.owner = Address((await self.call(Call(self.token, self.token, abi.OWNER)))[12:])
        except Reverted:
            return

    @property
    def automine(self) -> bool:
        """Whether every transaction is mined at once: the node mines when it does."""
        return True

    @property
    def can_mint(self) -> bool:
        """Whether we have the key of the token's owner."""
        return self.owner in self.keys

    def at_first(self) -> tuple[list[Block], int]:
        """Return the newest block when it was opened, and the supply then."""
        return self._at_first

    async def waiting(self) -> int:
        """Return how many of our own transactions are not known to be mined."""
        return self.unmined

    async def fund(self, account: Address, amount_base: int) -> None:
        """Mint tokens, if we have the owner's key; raises `ChainError` and `TimeoutError`."""
        if not self.can_mint:
            who = checksum(self.owner)
            raise ChainError(f"only {who} can mint {checksum(self.token)}, and we have not its key")
        await self._send_and_check(Call(self.owner, self.token, abi.mint(account, amount_base)))

    async def fund_native(self, account: Address, amount_wei: int) -> None:
        """Send native currency from the first key's account; raises `ChainError`."""
        await self._send_and_check(Call(self.keys[0], account, b"", amount_wei))

    async def wait(self, tx_hash: Hash, timeout_s: float) -> Receipt:
        """Return the receipt once the transaction is mined; whoever watches knows by then.

        Raises `TimeoutError` and `ChainError`.
        """
        receipt = await super().wait(tx_hash, timeout_s)
        await self.tell()
        return receipt

    async def _send_and_check(self, call: Call) -> None:
        receipt = await self.wait(await self.send(call), MINED_WITHIN_S)
        if receipt.revert_reason is not None:
            raise ChainError(receipt.revert_reason)

    # --- what needs power over the node ----------------------------------------------

    def _refuse(self, what: str) -> Never:
        raise ChainError(f"{self.node.name} is not ours: we cannot {what}")

    async def mine(self, blocks: int = 1) -> int:
        """Refused: the node mines when it does."""
        self._refuse("mine")

    async def set_automine(self, on: bool) -> None:
        """Refused, unless nothing is to change."""
        if not on:
            self._refuse("stop it from mining")

    async def snapshot(self) -> int:
        """Refused."""
        self._refuse("take snapshots")

    async def revert(self, snapshot: int) -> None:
        """Refused."""
        self._refuse("rewind it")

    async def reorg(self, depth: int, drop: Collection[Hash] = ()) -> None:
        """Refused."""
        self._refuse("replace blocks")

    async def drop(self) -> None:
        """Refused."""
        self._refuse("empty its mempool")

    async def endow(self, account: Address, amount_wei: int) -> None:
        """Refused."""
        self._refuse("make native currency")

    async def doom(self, calls: int) -> None:
        """Refused, unless nothing is to fail."""
        if calls:
            self._refuse("let calls fail")

    async def reset(self) -> None:
        """Refused."""
        self._refuse("begin again")
