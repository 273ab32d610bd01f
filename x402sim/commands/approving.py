"""`pay --approve`: a transaction of the payer's own, which lets Permit2 take an amount."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from threading import Event
from typing import Any

import httpx

from x402sim.clock import stopwatch
from x402sim.payer.core import PaymentFailed
from x402sim.payer.node import asked
from x402sim.payer.wallet import Wallet
from x402sim.protocol import abi
from x402sim.protocol.crypto import Address, checksum, to_hex
from x402sim.protocol.networks import Network
from x402sim.protocol.permit2 import PERMIT2
from x402sim.protocol.ways import object_in

_GAS = 100_000
"""The most gas of an approval; the tokens of our table need about half."""
_MINED_S, _LOOK_S = 60, 0.2


@dataclass(frozen=True, slots=True)
class Node:
    """A node of the payer's network: the URL, and what sends a request."""

    url: str
    send: Callable[[httpx.Request], httpx.Response]

    def ask(self, method: str, *params: Any) -> Any:
        """Return the result of a method; raises `PaymentFailed`."""
        try:
            response = self.send(asked(self.url, method, *params))
        except httpx.HTTPError as error:
            raise PaymentFailed(f"the node {self.url} does not answer: {error}") from error
        read = object_in(response.content) or {}
        if "result" not in read:
            told = str(read.get("error") or response.status_code)[:200]
            raise PaymentFailed(f"the node {self.url} answers {method} with an error: {told}")
        return read["result"]

    def number(self, method: str, *params: Any) -> int:
        """Return a result that is a number; raises `PaymentFailed`."""
        result = str(self.ask(method, *params))
        try:
            return int(result, 16)
        except ValueError:
            told = f"the node {self.url} answers {method} with no number"
            raise PaymentFailed(f"{told}: {result[:80]!r}") from None

    def call(self, to: Address, data: bytes) -> int:
        """Return the number that a contract returns; raises `PaymentFailed`."""
        return self.number("eth_call", {"to": to_hex(to), "data": to_hex(data)}, "latest")


def is_allowed(node: Node, wallet: Wallet, token: Address, amount_base: int, *, asks: bool) -> bool:
    """Tell whether Permit2 may take an amount, or by the payer's permit will, if a server `asks`
    for one and the token takes permits. Raises `PaymentFailed`.
    """
    owner = wallet.address_bytes
    if node.call(token, abi.allowance(owner, PERMIT2)) >= amount_base:
        return True
    with suppress(PaymentFailed):
        return asks and node.call(token, abi.calldata(abi.NONCES, owner)) >= 0
    return False


def approve(node: Node, wallet: Wallet, network: Network, amount_base: int) -> str:
    """Let Permit2 take an amount of the network's token; return the transaction once it is mined.

    Raises `PaymentFailed`.
    """
    tx: dict[str, Any] = {
        "chainId": network.chain_id,
        "nonce": node.number("eth_getTransactionCount", wallet.address, "pending"),
        "gasPrice": 2 * node.number("eth_gasPrice"),
        "gas": _GAS,
        "to": checksum(network.asset),
        "value": 0,
        "data": abi.approve(PERMIT2, amount_base),
    }
    signed = wallet.account.sign_transaction(tx)
    tx_hash, since = to_hex(bytes(signed.hash)), stopwatch()
    node.ask("eth_sendRawTransaction", to_hex(bytes(signed.raw_transaction)))
    while (receipt := node.ask("eth_getTransactionReceipt", tx_hash)) is None:
        if since() > _MINED_S:
            raise PaymentFailed(f"the approval {tx_hash} is not mined after {_MINED_S} s")
        Event().wait(_LOOK_S)
    if not isinstance(receipt, dict) or receipt.get("status") != "0x1":
        raise PaymentFailed(f"the approval {tx_hash} has failed on the chain")
    return tx_hash
