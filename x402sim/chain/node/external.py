"""A chain on an existing node, with our keys and no control over blocks or history.

Name, version and decimals are read from the token's contract. The EIP-712 domain must equal the
domain computed from these three, or no signature would be valid.
"""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace

from x402sim.chain import contract
from x402sim.chain.base import Block, Call, Chain, ChainError, Reverted, TxReceipt
from x402sim.chain.node import objects
from x402sim.chain.node.evm import JsonRpcNode
from x402sim.chain.node.evm_chain import EvmChain
from x402sim.clock import Clock
from x402sim.protocol import abi
from x402sim.protocol.crypto import ZERO_ADDRESS, Address, Hash, checksum, to_hex
from x402sim.protocol.eip3009 import separator
from x402sim.protocol.networks import Network
from x402sim.protocol.rpc_values import read_address, read_bytes, read_quantity

MINED_WITHIN_S = 120
"""How long a mint or the deployment of a token may wait for its block."""


class ExternalChain(EvmChain):
    """A token on an existing node; `open` makes one. It mints with the key of a minter."""

    owner = ZERO_ADDRESS
    """The account that may mint: the first of our keys that may, else the token's owner; the zero
    address if the token has no owner().
    """
    at_first: tuple[list[Block], int]
    """The newest block and the supply at the time of opening."""
    controls = None
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
        """Return the chain behind a URL, with the network's token on it. The first key's account
        pays for gas.

        With `deploy`, the first key deploys and owns a new token first. With `read`, the network's
        token becomes that of the contract; without, the contract must match the network.
        `chain.network` has the token. Raises `ChainError` and `TimeoutError`.
        """
        chain = cls(JsonRpcNode(url), network, clock, keys)
        try:
            await chain._begin(deploy=deploy, read=read)
        except BaseException:
            chain.close()
            raise
        return chain

    @property
    def keys(self) -> list[Address]:
        """The accounts whose keys we have, in the order of the keys."""
        return list(self._sender.keys)

    async def _begin(self, *, deploy: bool, read: bool) -> None:
        actual = await self.node.read(read_quantity, "eth_chainId")
        if actual != self.chain_id:
            wanted = f"{self.chain_id} ({self.network.name})"
            raise ChainError(f"{self.node.name} is chain {actual}, not {wanted}")
        if deploy:
            # use a new token from now on; the owner pays for the deployment, and mints
            owner = self.keys[0]
            code = contract.creation_code(self.network, owner)
            call = {"from": to_hex(owner), "input": to_hex(code)}
            needed = await self.node.read(read_quantity, "eth_estimateGas", call)
            tx_hash = await self._sender.send(owner, None, code, gas_limit=needed)
            if not (await self.wait(tx_hash, MINED_WITHIN_S)).succeeded:
                raise ChainError(f"the token could not be deployed: {to_hex(tx_hash)}")
            params = "eth_getTransactionReceipt", to_hex(tx_hash)
            self.token = await self.node.read(
                lambda made: read_address(made["contractAddress"]), *params
            )
            self.network = replace(self.network, asset=self.token)
        await self.check(read=read)
        head = await self.block(await self.height())
        self.at_first = [head] if head else [], await self.supply()
        self.owner = await self._find_minter()

    async def check(self, *, read: bool = False) -> None:
        """Raise `ChainError` unless the contract at our address is the network's token; with
        `read`, take the token as the contract describes it.
        """
        if not await self.code(self.token):
            raise ChainError(f"no contract at {checksum(self.token)} on {self.node.name}")
        self.network = await described(self, self.node.name, self.network, read=read)

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
            owner, minted = checksum(self.owner), checksum(self.token)
            raise ChainError(f"only {owner} can mint {minted}, and its key is not configured")
        call = Call(self.owner, self.token, abi.mint(account, amount_base))
        receipt = await self.wait(await self.send(call), MINED_WITHIN_S)
        if receipt.revert_reason is not None:
            raise ChainError(receipt.revert_reason)

    async def call(self, call: Call) -> bytes:
        """Run a call and discard its effects; raises `Reverted`.

        A call that would change the token runs in the pending block, because the newest block's
        time may be long ago; on a node without a pending block it runs in the newest.
        """
        if call.data[:4] in abi.NAMES:
            with suppress(ChainError):
                params = objects.call_object(call), "pending"
                return await self.node.read(read_bytes, "eth_call", *params)
        return await super().call(call)

    async def wait(self, tx_hash: Hash, timeout_s: float) -> TxReceipt:
        """Return the receipt once the transaction is mined and the watchers have been called.

        Raises `TimeoutError` and `ChainError`.
        """
        receipt = await super().wait(tx_hash, timeout_s)
        await self.notify()
        return receipt


# --- the token, as its contract describes it --------------------------------------------

MOST_DECIMALS = 36
"""As in a file of networks."""


async def described(chain: Chain, where: str, network: Network, *, read: bool) -> Network:
    """Return the network with the token as the contract describes itself; the network's fields
    stand where the contract is silent.

    Raises `ChainError` unless the contract describes the network's own token, or with `read` any
    EIP-3009 token.
    """
    name, decimals = await _text(chain, abi.NAME), await _number(chain, abi.DECIMALS)
    says = replace(
        network,
        token_name=network.token_name if name is None or not (name or read) else name,
        token_version=await _text(chain, abi.VERSION) or network.token_version,
        decimals=network.decimals if decimals is None else decimals,
    )
    address = checksum(chain.token)
    if read:
        if name is None or decimals is None or decimals > MOST_DECIMALS:
            lacking = "name() and decimals(): it is no ERC-20 token"
            raise ChainError(f"{address} on {where} has no {lacking}")
        if await _number(chain, abi.authorization_state(ZERO_ADDRESS, bytes(32))) is None:
            lacking = "authorizationState(): it is no EIP-3009 token"
            raise ChainError(f"{address} on {where} has no {lacking}")
        says = replace(says, token_symbol=await _text(chain, abi.SYMBOL) or network.token_symbol)
    elif says != network:
        raise ChainError(
            f"the token {address} on {where} says {_shown(says)}; wanted {_shown(network)}, "
            f"as of {network.name}; take what it says with --token {address}, or describe it in a "
            "--network-file"
        )
    await _check_domain(chain, says)
    return says


async def _check_domain(chain: Chain, network: Network) -> None:
    """Raise `ChainError` for another EIP-712 domain; a token need not have DOMAIN_SEPARATOR()."""
    actual = await _answer(chain, abi.DOMAIN_SEPARATOR)
    wanted = separator(network.domain)
    if actual is not None and actual != wanted:
        raise ChainError(
            f"the EIP-712 domain of {checksum(chain.token)} is not name {network.token_name!r} and "
            f"version {network.token_version!r} on chain {network.chain_id}: DOMAIN_SEPARATOR() is "
            f"{to_hex(actual)}, wanted {to_hex(wanted)}; describe the token in a --network-file"
        )


def _shown(network: Network) -> str:
    name, version = network.token_name, network.token_version
    return f"name {name!r}, version {version!r}, {network.decimals} decimals"


async def _answer(chain: Chain, data: bytes) -> bytes | None:
    """Return what a function answers; None if the contract lacks it."""
    try:
        return await chain.call(Call(chain.token, chain.token, data)) or None
    except Reverted:
        return None


async def _number(chain: Chain, data: bytes) -> int | None:
    answer = await _answer(chain, data)
    return None if answer is None or len(answer) < 32 else int.from_bytes(answer[:32])


async def _text(chain: Chain, function: bytes) -> str | None:
    answer = await _answer(chain, function)
    return None if answer is None or len(answer) < 64 else abi.read_text(answer)
