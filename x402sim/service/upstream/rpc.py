"""The service's calls to a node's JSON-RPC: what became of a nonce, or of a transaction."""

from collections.abc import Iterator
from typing import Any

import httpx
import msgspec

from x402sim.protocol import abi
from x402sim.protocol.crypto import Address, from_hex, to_hex
from x402sim.protocol.messages import encode
from x402sim.service.settings import Settings
from x402sim.service.upstream.calls import NONSENSE, Declined, Unavailable, json_rpc


class NonceUse(msgspec.Struct, frozen=True):
    """How a nonce was used up, and when (Unix seconds of its block).

    `transfers` are its transaction's, of this token: (from, to, base units).
    """

    tx_hash: str
    canceled: bool
    mined_s: int
    transfers: tuple[tuple[Address, Address, int], ...]


class NonceState(msgspec.Struct, frozen=True):
    """What one node says of a nonce: the time of its newest block, and whether it is used up.

    `use` tells how, if the event was found.
    """

    head_s: int
    is_used: bool
    use: NonceUse | None


class RpcClient:
    """One node, at the URL of the settings."""

    def __init__(self, http: httpx.AsyncClient, settings: Settings) -> None:
        self._http = http
        self._settings = settings

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
            head_s = int(head["timestamp"], 16)
            call = to_hex(abi.authorization_state(authorizer, nonce))
            token = to_hex(self._settings.network.asset)
            state = await self._rpc("eth_call", {"to": token, "data": call}, head["number"])
            if int(state, 16) == 0:
                return NonceState(head_s, is_used=False, use=None)
            return NonceState(head_s, is_used=True, use=await self._find_use(authorizer, nonce))
        except NONSENSE as error:
            raise Unavailable(f"the RPC's answer makes no sense: {error!r}") from error

    async def reverted(self, tx_hash: str) -> bool:
        """Tell whether a transaction reverted; raises `Unavailable` if it is not in a block."""
        try:
            receipt = await self._rpc("eth_getTransactionReceipt", tx_hash)
            return {"0x1": False, "0x0": True}[receipt["status"]]
        except NONSENSE as error:
            raise Unavailable(f"{tx_hash} is not in a block, says the node") from error

    async def _find_use(self, authorizer: Address, nonce: bytes) -> NonceUse | None:
        """Find the event of a nonce's use, and what else its transaction did."""
        events = [abi.AUTHORIZATION_USED, abi.AUTHORIZATION_CANCELED]
        wanted = {
            "address": to_hex(self._settings.network.asset),
            "topics": [[to_hex(e) for e in events], to_hex(abi.word(authorizer)), to_hex(nonce)],
            "fromBlock": await self._search_from(),
            "toBlock": "latest",
        }
        logs = await self._rpc("eth_getLogs", wanted)
        if not logs:
            return None
        tx_hash = to_hex(from_hex(logs[0]["transactionHash"], 32))
        receipt = await self._rpc("eth_getTransactionReceipt", tx_hash)
        block = await self._rpc("eth_getBlockByNumber", receipt["blockNumber"], False)
        return NonceUse(
            tx_hash=tx_hash,
            canceled=from_hex(logs[0]["topics"][0], 32) == abi.AUTHORIZATION_CANCELED,
            mined_s=int(block["timestamp"], 16),
            transfers=tuple(self._transfers(receipt["logs"])),
        )

    def _transfers(self, logs: list[dict[str, Any]]) -> Iterator[tuple[Address, Address, int]]:
        """Yield the transfers of this token; another token's are worth nothing here."""
        for log in logs:
            if from_hex(log["address"], 20) != self._settings.network.asset:
                continue
            event, *indexed = (from_hex(topic, 32) for topic in log["topics"])
            if event == abi.TRANSFER_EVENT:
                sender, to = (Address(word[12:]) for word in indexed)
                yield sender, to, int(log["data"], 16)

    async def _search_from(self) -> str:
        if self._settings.log_search_blocks is None:
            return "0x0"
        height = int(await self._rpc("eth_blockNumber"), 16)
        return hex(max(0, height - self._settings.log_search_blocks))

    async def _rpc(self, method: str, *params: Any) -> Any:
        call = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        request = self._http.build_request(
            "POST",
            self._settings.rpc_url,
            content=encode(call),
            headers={"Content-Type": "application/json"},
        )
        return await json_rpc(self._http, request, self._settings.explorer_limits)
