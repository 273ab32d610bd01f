"""The service's calls to the chain explorer, in Etherscan's proxy dialect.

Clauses: 8/indexer-query.
"""

from functools import partial
from urllib.parse import urlencode

import httpx
import msgspec

from x402sim.http.bounded import Limits
from x402sim.http.exchange import Request, Transport, Url
from x402sim.protocol.crypto import Address
from x402sim.service.upstream.calls import json_rpc
from x402sim.service.upstream.rpc import OnChain, read_receipt


class ExplorerClient:
    """One explorer, asked about the transactions of one token."""

    def __init__(self, to: Transport, url: str, token: Address, limits: Limits) -> None:
        self._to, self._url = to, Url.of(httpx.URL(f"{url}/api"))
        self._token, self._limits = token, limits

    async def transaction(self, tx_hash: str) -> OnChain | None:
        """Ask for a transaction's block (8/indexer-query); raises `Unavailable`.

        None if the explorer does not know it, or it is not in a block yet.
        """
        asked = {"module": "proxy", "action": "eth_getTransactionReceipt", "txhash": tx_hash}
        query = urlencode(asked)
        url = msgspec.structs.replace(self._url, text=f"{self._url}?{query}", query=query.encode())
        request = Request("GET", url, [(b"host", url.netloc)])
        read = partial(read_receipt, token=self._token)
        return await json_rpc(self._to, request, self._limits, "the explorer", read)
