"""The service's calls to the chain explorer, in Etherscan's proxy dialect.

Clauses: 8/indexer-query.
"""

from typing import Any
from urllib.parse import quote

import httpx
import msgspec

from x402sim.http.bounded import Limits
from x402sim.http.exchange import Request, Transport, Url
from x402sim.protocol.crypto import Address
from x402sim.service.upstream.calls import NONSENSE, Unavailable, json_rpc
from x402sim.service.upstream.transactions import OnChain, block_number, read_receipt


class ExplorerClient:
    """One explorer, asked about the transactions of one token."""

    def __init__(self, to: Transport, url: str, token: Address, limits: Limits) -> None:
        self._to, self._url = to, Url.of(httpx.URL(f"{url}/api"))
        self._token, self._limits = token, limits

    async def transaction(self, tx_hash: str) -> OnChain | None:
        """Ask for a transaction's block (8/indexer-query); raises `Unavailable`.

        None if the explorer does not know it, or it is not in a block yet.
        """
        try:
            found = await self._get("eth_getTransactionByHash", tx_hash)
            if not found or found.get("blockNumber") is None:
                return None
            receipt = await self._get("eth_getTransactionReceipt", tx_hash)
            if not receipt:
                return None
            mined = read_receipt(receipt, self._token)
            return msgspec.structs.replace(mined, block_number=block_number(found["blockNumber"]))
        except NONSENSE as error:
            raise Unavailable(f"the explorer's answer makes no sense: {error!r}") from error

    async def _get(self, action: str, tx_hash: str) -> dict[str, Any] | None:
        query = f"module=proxy&action={action}&txhash={quote(tx_hash)}"
        text, raw = f"{self._url}?{query}", query.encode()
        url = msgspec.structs.replace(self._url, text=text, query=raw)
        request = Request("GET", url, [(b"host", url.netloc)])
        found = await json_rpc(self._to, request, self._limits)
        if found is not None and not isinstance(found, dict):
            raise Unavailable(f"the explorer answered {str(found)[:200]!r}")
        return found
