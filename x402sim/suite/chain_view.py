"""A check's view of the target's chain, through a node's JSON-RPC."""

import re
from typing import Any

import httpx

from x402sim.protocol.messages import BadMessage, decode
from x402sim.suite import redact
from x402sim.suite.answers import Paid
from x402sim.suite.control_api import eventually
from x402sim.suite.setting import Setting
from x402sim.suite.verdict import Inconclusive, Skipped

TX_HASH = re.compile(r"0x[0-9a-fA-F]{64}")


class ChainView:
    """One check's read access to the chain."""

    def __init__(self, setting: Setting) -> None:
        self._setting = setting

    async def call(self, method: str, *params: Any) -> Any:
        """Call a JSON-RPC method; raises `Inconclusive` if there is no result."""
        if self._setting.rpc is None:
            raise Skipped("it needs read access to the chain: give --rpc-url or --world")
        call = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        try:
            answer = decode((await self._setting.rpc.post("", json=call)).content, Any)
        except (httpx.TransportError, BadMessage) as error:
            raise Inconclusive(f"the chain's node did not answer: {error!r}") from error
        if not isinstance(answer, dict) or "result" not in answer:
            raise Inconclusive(f"the chain's node has no result: {redact.cut(str(answer), 200)}")
        return answer["result"]

    async def mined(self, paid: Paid) -> dict[str, Any] | None:
        """Return the chain's receipt of a payment's transaction; None if there is none."""
        found: list[dict[str, Any]] = []

        async def is_known() -> bool:
            receipt = await self.call("eth_getTransactionReceipt", tx_hash)
            found.extend([receipt] if receipt else [])
            return bool(receipt)

        tx_hash = paid.receipt.at(self._setting.target.receipt.tx_hash)
        is_hash = isinstance(tx_hash, str) and TX_HASH.fullmatch(tx_hash)
        return found[0] if is_hash and await eventually(self._setting.clock, is_known) else None
