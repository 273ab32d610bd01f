"""The service's calls to a node's JSON-RPC: the state of a nonce, and transactions."""

from typing import Any

import httpx
import msgspec

from x402sim.http.bounded import Limits
from x402sim.http.exchange import Headers, Transport, Url
from x402sim.protocol import abi
from x402sim.protocol.crypto import Address, from_hex, to_hex
from x402sim.protocol.messages import encode
from x402sim.service.upstream.calls import NONSENSE, Declined, Unavailable, json_rpc, post
from x402sim.service.upstream.transactions import OnChain, block_number, read_receipt

_HEADERS: Headers = [(b"content-type", b"application/json")]


class NonceUse(msgspec.Struct, frozen=True):
    """How a nonce was used up, and in which block.

    `transfers` are its transaction's, of this token: (from, to, base units).
    """

    tx_hash: str
    canceled: bool
    block_number: int
    transfers: tuple[tuple[Address, Address, int], ...]


class NonceState(msgspec.Struct, frozen=True):
    """What one node says of a nonce: its newest block and its time, and whether it is used up.

    `use` tells how, if the event was found.
    """

    height: int
    head_s: int
    is_used: bool
    use: NonceUse | None


class RpcClient:
    """One node, asked about one token."""

    def __init__(self, to: Transport, url: str, token: Address, limits: Limits) -> None:
        self._to, self._url = to, Url.of(httpx.URL(url))
        self._token, self._limits = token, limits

    async def is_used(self, authorizer: Address, nonce: bytes) -> bool:
        """Tell whether a nonce is used up in the newest state; raises `Unavailable`."""
        try:
            return await self._is_used(authorizer, nonce, "latest")
        except NONSENSE as error:
            raise Unavailable(f"the RPC's answer makes no sense: {error!r}") from error

    async def nonce_state(self, authorizer: Address, nonce: bytes) -> NonceState:
        """Ask the chain about a nonce; raises `Unavailable`.

        The token's state tells only that it was used up; its events tell how.
        """
        try:
            return await self._nonce_state(authorizer, nonce)
        except Declined:  # many nodes keep the newest state only, and a block may have come
            return await self._nonce_state(authorizer, nonce)

    async def _nonce_state(self, authorizer: Address, nonce: bytes) -> NonceState:
        """Ask once, for the state at the head's own block: no older node can answer for it."""
        try:
            head = await self._rpc("eth_getBlockByNumber", "latest", False)
            is_used = await self._is_used(authorizer, nonce, head["number"])
            use = await self._find_use(authorizer, nonce) if is_used else None
            head_s = int(head["timestamp"], 16)
            return NonceState(block_number(head["number"]), head_s, is_used, use)
        except NONSENSE as error:
            raise Unavailable(f"the RPC's answer makes no sense: {error!r}") from error

    async def transaction(self, tx_hash: str) -> OnChain | None:
        """Return a transaction, or None if it is in no block; raises `Unavailable`."""
        try:
            receipt = await self._rpc("eth_getTransactionReceipt", tx_hash)
            return read_receipt(receipt, self._token) if receipt else None
        except NONSENSE as error:
            raise Unavailable(f"the RPC's answer makes no sense: {error!r}") from error

    async def accepts(self, account: Address, digest: bytes, signature: bytes) -> bool:
        """Tell whether a contract calls a signature its own (EIP-1271); raises `Unavailable`.

        False for an account without a contract.
        """
        call = {"to": to_hex(account), "data": to_hex(abi.is_valid_signature(digest, signature))}
        try:
            answer = await self._rpc("eth_call", call, "latest")
            return from_hex(answer, (len(answer) - 2) // 2)[:32] == abi.VALID_SIGNATURE
        except Declined:  # it reverts
            return False
        except NONSENSE as error:
            raise Unavailable(f"the RPC's answer makes no sense: {error!r}") from error

    async def height(self) -> int:
        """Return the number of the newest block; raises `Unavailable`."""
        try:
            return block_number(await self._rpc("eth_blockNumber"))
        except NONSENSE as error:
            raise Unavailable(f"the RPC's answer makes no sense: {error!r}") from error

    async def _is_used(self, authorizer: Address, nonce: bytes, block: str) -> bool:
        call = to_hex(abi.authorization_state(authorizer, nonce))
        asked = {"to": to_hex(self._token), "data": call}
        return int(await self._rpc("eth_call", asked, block), 16) != 0

    async def _find_use(self, authorizer: Address, nonce: bytes) -> NonceUse | None:
        """Find the event of a nonce's use, and what else its transaction did."""
        events = [abi.AUTHORIZATION_USED, abi.AUTHORIZATION_CANCELED]
        wanted = {
            "address": to_hex(self._token),
            "topics": [[to_hex(e) for e in events], to_hex(abi.word(authorizer)), to_hex(nonce)],
            "fromBlock": "0x0",
            "toBlock": "latest",
        }
        logs = await self._rpc("eth_getLogs", wanted)
        if not logs:
            return None
        tx_hash = to_hex(from_hex(logs[0]["transactionHash"], 32))
        receipt = await self._rpc("eth_getTransactionReceipt", tx_hash)
        mined = read_receipt(receipt, self._token)
        return NonceUse(
            tx_hash=tx_hash,
            canceled=from_hex(logs[0]["topics"][0], 32) == abi.AUTHORIZATION_CANCELED,
            block_number=mined.block_number,
            transfers=mined.transfers,
        )

    async def _rpc(self, method: str, *params: Any) -> Any:
        call = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        request = post(self._url, encode(call), _HEADERS)
        return await json_rpc(self._to, request, self._limits)
