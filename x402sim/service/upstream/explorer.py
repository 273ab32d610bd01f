"""The service's calls to the chain explorer, in Etherscan's proxy dialect.

Clauses: 8/indexer-query.
"""

from typing import Any

import httpx
import msgspec

from x402sim.service.setup import Setup
from x402sim.service.upstream.calls import NONSENSE, Unavailable, json_rpc
from x402sim.service.upstream.transactions import OnChain, block_number, read_receipt


class ExplorerClient:
    """One explorer, at the URL of the settings."""

    def __init__(self, http: httpx.AsyncClient, setup: Setup) -> None:
        self._http = http
        self._setup = setup
        self._limits = setup.limits(setup.settings.explorer_timeout_s)

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
            mined = read_receipt(receipt, self._setup.network.asset)
            return msgspec.structs.replace(mined, block_number=block_number(found["blockNumber"]))
        except NONSENSE as error:
            raise Unavailable(f"the explorer's answer makes no sense: {error!r}") from error

    async def _get(self, action: str, tx_hash: str) -> dict[str, Any] | None:
        query = {"module": "proxy", "action": action, "txhash": tx_hash}
        url = f"{self._setup.explorer_url}/api"
        request = self._http.build_request("GET", url, params=query)
        found = await json_rpc(self._http, request, self._limits)
        if found is not None and not isinstance(found, dict):
            raise Unavailable(f"the explorer answered {str(found)[:200]!r}")
        return found
