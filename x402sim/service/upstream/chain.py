"""The service's calls about the chain: to a node's JSON-RPC, and to the chain explorer.

The node reports nonces and transactions; the explorer, in Etherscan's proxy dialect, transactions.
Receipts of both are read alike; logs of other contracts are ignored.
Clauses: 8/indexer-query.
"""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, TypeVar
from urllib.parse import urlencode

import httpx
import msgspec

from x402sim.http.bounded import Limits
from x402sim.http.exchange import Headers, Request, Transport, Url
from x402sim.protocol import abi
from x402sim.protocol.crypto import Address, from_hex, to_hex
from x402sim.protocol.messages import encode
from x402sim.protocol.permit2 import PERMIT2, Permit2Authorization
from x402sim.service.upstream.calls import JsonRpcError, Unavailable, post, result_in, send

AT_ONCE, MOST_QUERIES = 10_000, 20
"""The blocks of one query at a node with a limit, and the most queries."""
_HEADERS: Headers = [(b"content-type", b"application/json")]
_USES = (abi.AUTHORIZATION_USED, abi.AUTHORIZATION_CANCELED)
Read = TypeVar("Read")
Found = TypeVar("Found")


Moved = tuple[Address, Address, int]
"""A transfer: from, to, base units."""
Used = tuple[Address, bytes]
"""A used authorization: authorizer, nonce of 32 bytes."""


class OnChain(msgspec.Struct, frozen=True):
    """A mined transaction, and the token's events in the receipt.

    `used` has the transfer of each used authorization: one transaction may use many authorizations,
    and each transfer pays once. `others` are the transfers without an authorization.
    """

    block_number: int
    succeeded: bool
    used: dict[Used, Moved | None] = {}
    others: tuple[Moved, ...] = ()


def read_receipt(receipt: Any, token: Address) -> OnChain | None:
    """Read a receipt; None without a receipt or without a block."""
    if not receipt or receipt.get("blockNumber") is None:
        return None
    moves: dict[int, Moved] = {}
    uses: dict[int, Used] = {}
    for log in receipt.get("logs") or ():
        if from_hex(log["address"], 20) != token or not log["topics"]:
            continue
        event, *indexed = (from_hex(topic, 32) for topic in log["topics"])
        place = len(moves) + len(uses)
        if event == abi.TRANSFER_EVENT:
            sender, to = (Address(word[12:]) for word in indexed)
            moves[place] = sender, to, int(log["data"], 16)
        elif event == abi.AUTHORIZATION_USED:
            authorizer, nonce = indexed
            uses[place] = Address(authorizer[12:]), nonce
    # Circle's token writes a use, and immediately the transfer; other tokens write the transfer
    # first. Any transfer of the transaction would not do: the payer may have used many
    # authorizations there, with a single transfer (tests/evm/test_one_transfer.py).
    after, before = (
        {n: n + step for n, use in uses.items() if moves.get(n + step, (None,))[0] == use[0]}
        for step in (1, -1)
    )
    places = after if len(after) >= len(before) else before
    return OnChain(
        block_number=block_number(receipt["blockNumber"]),
        succeeded={"0x1": True, "0x0": False}[receipt["status"]],
        used={use: moves.pop(places[n]) if n in places else None for n, use in uses.items()},
        others=tuple(moves.values()),
    )


def block_number(text: str) -> int:
    """Return a block number; raises `ValueError` for a number beyond any chain."""
    number = int(text, 16)
    if not 0 <= number < 2**63:
        raise ValueError(f"block {text}")
    return number


class NonceUse(msgspec.Struct, frozen=True):
    """The use of a nonce, the block, and the transfer of this token; None for a canceled nonce."""

    tx_hash: str
    canceled: bool
    block_number: int
    transfer: Moved | None


class NonceState(msgspec.Struct, frozen=True):
    """One node's state of a nonce: used or not, at the height and time of the newest block.

    `use` is None if the node does not find the event.
    """

    height: int
    head_s: int
    is_used: bool
    use: NonceUse | None


class Settled(msgspec.Struct, frozen=True):
    """The settlement of a message of Permit2: transaction, base units, block.

    `transfers` is the number of equal transfers: calldata may name more messages than it settles.
    """

    tx_hash: str
    amount_base: int
    block_number: int
    transfers: int


class PermitState(msgspec.Struct, frozen=True):
    """One node's state of a message of Permit2, as `NonceState`.

    `use` is None for another use of the nonce, such as a cancellation.
    """

    height: int
    head_s: int
    is_used: bool
    use: Settled | None


class RpcClient:
    """One node, asked about one token; every method raises `Unavailable`."""

    def __init__(self, to: Transport, url: str, token: Address, limits: Limits) -> None:
        self._to, self._url = to, Url.of(httpx.URL(url))
        self._token, self._limits = token, limits

    async def is_used(self, authorizer: Address, nonce: bytes, block: str = "latest") -> bool:
        """Tell whether a nonce is used in the state of a block."""
        call = to_hex(abi.authorization_state(authorizer, nonce))
        query = {"to": to_hex(self._token), "data": call}
        return await self._call(lambda word: int(word, 16) != 0, "eth_call", query, block)

    async def nonce_state(self, authorizer: Address, nonce: bytes) -> NonceState:
        """Ask the chain about a nonce.

        The token's state shows only the use; the token's events show the transaction.
        """
        return await _twice(partial(self._nonce_state, authorizer, nonce))

    async def _nonce_state(self, authorizer: Address, nonce: bytes) -> NonceState:
        """Ask once, for the state at the head's own block, which no node behind the head has."""
        number, head_s = await self._call(_head, "eth_getBlockByNumber", "latest", False)
        is_used = await self.is_used(authorizer, nonce, number)
        use = await self._find_use(authorizer, nonce) if is_used else None
        return NonceState(block_number(number), head_s, is_used, use)

    async def transaction(self, tx_hash: str) -> OnChain | None:
        """Return a transaction, or None without a block."""
        read = partial(read_receipt, token=self._token)
        return await self._call(read, "eth_getTransactionReceipt", tx_hash)

    async def permit_state(
        self, auth: Permit2Authorization, since_block: int | None
    ) -> PermitState:
        """Ask the chain about a message of Permit2, settled in no earlier block than `since_block`.

        Permit2's bitmap shows only the use of the nonce; the transaction's calldata names the
        message and the amount. None looks for no transaction.
        """
        return await _twice(partial(self._permit_state, auth, since_block))

    async def _permit_state(
        self, auth: Permit2Authorization, since_block: int | None
    ) -> PermitState:
        number, head_s = await self._call(_head, "eth_getBlockByNumber", "latest", False)
        call = to_hex(abi.nonce_bitmap(auth.from_, auth.nonce))
        query = {"to": to_hex(PERMIT2), "data": call}
        bits = await self._call(lambda word: int(word, 16), "eth_call", query, number)
        is_used = bool(bits >> (auth.nonce & 255) & 1)
        is_wanted = is_used and since_block is not None
        use = await self._find_settled(auth, since_block or 0) if is_wanted else None
        return PermitState(block_number(number), head_s, is_used, use)

    async def _find_settled(self, auth: Permit2Authorization, since_block: int) -> Settled | None:
        """Find the transaction that has settled a message, among the payer's to the payee."""
        topics = [
            to_hex(word) for word in (abi.TRANSFER_EVENT, *map(abi.word, (auth.from_, auth.to)))
        ]

        async def settled(hashes: list[str]) -> Settled | None:
            for tx_hash in hashes:
                data = await self._call(
                    lambda tx: _bytes(tx["input"]), "eth_getTransactionByHash", tx_hash
                )
                if (amount_base := abi.settled_amount(auth, data)) is None:
                    continue
                mined = await self.transaction(tx_hash)
                if mined is None or not mined.succeeded:
                    continue
                if times := mined.others.count((auth.from_, auth.to, amount_base)):
                    return Settled(tx_hash, amount_base, mined.block_number, times)
            return None

        return await self._in_logs(_hashes, settled, topics, max(0, since_block))

    async def accepts(self, account: Address, digest: bytes, signature: bytes) -> bool:
        """Tell whether a contract accepts a signature (EIP-1271).

        False for an account without a contract, and if the contract reverts. Raises `Unavailable`
        for any other error: a busy node must not turn a good payment into a bad payment.
        """
        call = {"to": to_hex(account), "data": to_hex(abi.is_valid_signature(digest, signature))}
        try:
            answer = await self._call(_bytes, "eth_call", call, "latest")
        except JsonRpcError as error:
            if error.is_revert:
                return False
            raise
        return answer[:32] == abi.VALID_SIGNATURE

    async def has_code(self, account: Address) -> bool:
        """Tell whether an account is a contract, or delegates to a contract (EIP-7702)."""
        return bool(await self._call(_bytes, "eth_getCode", to_hex(account), "latest"))

    async def height(self) -> int:
        """Return the number of the newest block."""
        return await self._call(block_number, "eth_blockNumber")

    async def _find_use(self, authorizer: Address, nonce: bytes) -> NonceUse | None:
        """Find the event of a nonce's use, and the transfer."""
        topics = [[to_hex(e) for e in _USES], to_hex(abi.word(authorizer)), to_hex(nonce)]

        async def used(event: tuple[bytes, str] | None) -> NonceUse | None:
            if event is None:
                return None
            kind, tx_hash = event
            mined = await self.transaction(tx_hash)
            if mined is None:
                raise Unavailable(f"the RPC's answer makes no sense: no receipt of {tx_hash}")
            is_canceled = kind == abi.AUTHORIZATION_CANCELED
            moved = mined.used.get((authorizer, nonce))
            return NonceUse(tx_hash, is_canceled, mined.block_number, moved)

        return await self._in_logs(_first_event, used, topics, 0)

    async def _in_logs(
        self,
        read: Callable[[Any], Read],
        find: Callable[[Read], Awaitable[Found | None]],
        topics: list[Any],
        first: int,
    ) -> Found | None:
        """Return what `find` finds in the token's logs since a block, read by `read`; None without.

        Public nodes limit the blocks of one query, usually to 10,000, and refuse a longer query:
        then the newest blocks are queried first. Raises `Unavailable` if `MOST_QUERIES` queries
        find nothing.
        """
        wanted = {"address": to_hex(self._token), "topics": topics}
        query = {**wanted, "fromBlock": hex(first), "toBlock": "latest"}
        try:
            logs = await self._call(read, "eth_getLogs", query)
        except JsonRpcError:
            last, size = await self.height(), AT_ONCE
        else:
            return await find(logs)
        for _ in range(MOST_QUERIES):
            start = max(first, last - size + 1)
            query = {**wanted, "fromBlock": hex(start), "toBlock": hex(last)}
            try:
                logs = await self._call(read, "eth_getLogs", query)
            except JsonRpcError:
                if size == 1:
                    raise
                size //= 10
                continue
            if (found := await find(logs)) is not None or start == first:
                return found
            last = start - 1
        raise Unavailable(f"the RPC shows no such event in the newest blocks, down to {last + 1}")

    async def _call(self, read: Callable[[Any], Read], method: str, *params: Any) -> Read:
        call = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        answer = await post(self._to, self._url, encode(call), _HEADERS, self._limits)
        return result_in(answer, self._url, "the RPC", read)


async def _twice(ask: Callable[[], Awaitable[Read]]) -> Read:
    """Ask, and once more after an error: many nodes keep the newest state only, and a block may
    have come meanwhile.
    """
    try:
        return await ask()
    except JsonRpcError:
        return await ask()


def _head(block: Any) -> tuple[str, int]:
    """Return a block's number, as sent, and the time in Unix seconds."""
    block_number(block["number"])
    return block["number"], int(block["timestamp"], 16)


def _first_event(logs: Any) -> tuple[bytes, str] | None:
    if not logs:
        return None
    return from_hex(logs[0]["topics"][0], 32), to_hex(from_hex(logs[0]["transactionHash"], 32))


def _hashes(logs: Any) -> list[str]:
    """Return the transactions of logs, each once."""
    return list(dict.fromkeys(to_hex(from_hex(log["transactionHash"], 32)) for log in logs))


def _bytes(text: str) -> bytes:
    return from_hex(text, len(text) // 2 - 1)


class ExplorerClient:
    """One explorer, asked about the transactions of one token."""

    def __init__(self, to: Transport, url: str, token: Address, limits: Limits) -> None:
        self._to, self._url = to, Url.of(httpx.URL(f"{url}/api"))
        self._token, self._limits = token, limits

    async def transaction(self, tx_hash: str) -> OnChain | None:
        """Ask for a transaction's block (8/indexer-query); raises `Unavailable`.

        None for an unknown transaction, or before the transaction is in a block.
        """
        fields = {"module": "proxy", "action": "eth_getTransactionReceipt", "txhash": tx_hash}
        query = urlencode(fields)
        url = msgspec.structs.replace(self._url, text=f"{self._url}?{query}", query=query.encode())
        request = Request("GET", url, [(b"host", url.netloc)])
        read = partial(read_receipt, token=self._token)
        answer = await send(self._to, request, self._limits)
        return result_in(answer, url, "the explorer", read)
