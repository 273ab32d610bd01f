"""A payer's questions to a node, by JSON-RPC: what Permit2 may take, and the nonce of a permit."""

import re
from collections.abc import Generator
from typing import Any, NamedTuple

import httpx

from x402sim.payer.core import PaymentFailed
from x402sim.payer.flow import Send, Step, send
from x402sim.protocol import abi
from x402sim.protocol.crypto import Address, to_hex
from x402sim.protocol.messages import encode
from x402sim.protocol.networks import Network
from x402sim.protocol.permit2 import PERMIT2
from x402sim.protocol.permit2_payments import SPONSORED_PERMIT
from x402sim.protocol.ways import object_in
from x402sim.protocol.x402 import RequiredV2


class Allowance(NamedTuple):
    """What Permit2 may take of a payer's tokens, in base units, and the nonce of the payer's next
    permit (EIP-2612); None for a token without permits.
    """

    base: int
    permit_nonce: int | None


def ask_allowance(
    url: str, network: Network, owner: Address
) -> Generator[Step, httpx.Response | None, Allowance]:
    """Ask a node about a payer.

    Raises `PaymentFailed` without an answer, for numbers that are none, and for a node of another
    chain.
    """
    chain_id = yield from _number(url, "eth_chainId")
    if chain_id != network.chain_id:
        raise PaymentFailed(
            f"rpc_url is a node of the chain {chain_id}, and the payment is for "
            f"{network.name}, chain {network.chain_id}; nothing was signed"
        )
    found = list[int | None]()
    for data in (abi.allowance(owner, PERMIT2), abi.calldata(abi.NONCES, owner)):
        call = {"to": to_hex(network.asset), "data": to_hex(data)}
        found.append((yield from _number(url, "eth_call", call, "latest")))
    base, permit_nonce = found
    if base is None:
        raise PaymentFailed("rpc_url does not say what Permit2 may take; is it a node?")
    return Allowance(base, permit_nonce)


def _number(
    url: str, method: str, *params: Any
) -> Generator[Step, httpx.Response | None, int | None]:
    """Ask a node for a number below 2^256; None for any other answer."""
    call = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    headers = {"Content-Type": "application/json"}
    try:
        request = httpx.Request("POST", url, content=encode(call), headers=headers)
        response = yield from send(Send(request, True))
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        # without the URL, which may hold the caller's key
        raise PaymentFailed(f"rpc_url: the node does not answer: {error}") from error
    text = str((object_in(response.content) or {}).get("result"))
    return int(text, 16) if re.fullmatch(r"0x[0-9a-fA-F]{1,64}", text) else None


def sponsors_permits(required: object) -> bool:
    """Tell whether a 402 offers to send the payer's permit for Permit2."""
    return isinstance(required, RequiredV2) and SPONSORED_PERMIT in (required.extensions or {})
