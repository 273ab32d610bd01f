"""A payer's questions to a node, by JSON-RPC: what Permit2 may take, and the nonce of a permit."""

from collections.abc import Generator
from typing import Any, NamedTuple

import httpx

from x402sim.payer.core import PaymentFailed
from x402sim.payer.flow import Send, Step, send
from x402sim.protocol import abi
from x402sim.protocol.crypto import Address, to_hex
from x402sim.protocol.messages import encode
from x402sim.protocol.permit2 import PERMIT2
from x402sim.protocol.permit2_payments import SPONSORED_PERMIT, SponsoredPermit, sponsored_permit_in
from x402sim.protocol.ways import object_in
from x402sim.protocol.x402 import RequiredV2, json_in


class Allowance(NamedTuple):
    """What Permit2 may take of a payer's tokens, in base units, and the nonce of the payer's next
    permit (EIP-2612); None for a token without permits.
    """

    base: int
    permit_nonce: int | None


def asked(url: str, method: str, *params: Any) -> httpx.Request:
    """Return a request to a node."""
    call = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    return httpx.Request("POST", url, content=encode(call), headers=_JSON)


_JSON = {"Content-Type": "application/json"}


def called(url: str, to: Address, data: bytes) -> httpx.Request:
    """Return the request of a call of a contract, in the newest state."""
    return asked(url, "eth_call", {"to": to_hex(to), "data": to_hex(data)}, "latest")


def number_in(response: httpx.Response) -> int | None:
    """Return the number in a node's answer; None without a number."""
    try:
        return int(str((object_in(response.content) or {}).get("result")), 16)
    except ValueError:
        return None


def ask_allowance(
    url: str, token: Address, owner: Address
) -> Generator[Step, httpx.Response | None, Allowance]:
    """Ask a node about a payer; raises `PaymentFailed` without an answer."""
    found = list[int | None]()
    for data in (abi.allowance(owner, PERMIT2), abi.calldata(abi.NONCES, owner)):
        try:
            found.append(number_in((yield from send(Send(called(url, token, data), True)))))
        except httpx.HTTPError as error:
            raise PaymentFailed(f"the node {url} does not answer: {error}") from error
    base, permit_nonce = found
    if base is None:
        raise PaymentFailed(f"the node {url} does not say what Permit2 may take; is it a node?")
    return Allowance(base, permit_nonce)


def sponsors_permits(required: object) -> bool:
    """Tell whether a 402 offers to send the payer's permit for Permit2."""
    return isinstance(required, RequiredV2) and SPONSORED_PERMIT in (required.extensions or {})


def permit_in(header: str | None) -> SponsoredPermit | None:
    """Return the payer's permit for Permit2 beside a payment that the payer has made."""
    return sponsored_permit_in((json_in(header) or {}).get("extensions"))
