"""Reads a server's answers for a payer.

A server may be hostile or broken, so every field is checked before it is used or shown.
"""

import re
from typing import Any

import httpx

from x402sim.payer.errors import PaymentFailed
from x402sim.protocol.crypto import checksum
from x402sim.protocol.messages import BadMessage, PaymentRequired, Receipt, Wire, decode
from x402sim.protocol.networks import Network
from x402sim.protocol.refusals import Refusal, is_final, refusal_named

UNKNOWN = "it is not known whether the payment was made"
AGAIN = "Repeat the request: it sends the same authorization again and signs no other."
_HEADER_VALUE = re.compile(r"[!-~]{1,256}")


class AttemptOver(PaymentFailed):
    """The server says that this payment was not made, and that this header never will be."""


class _Refused(Wire, frozen=True):
    """An error as any server may answer it: a `final` that is no boolean says nothing."""

    error: str
    reason: str | None = None
    final: Any = None


def read_offer(
    request: httpx.Request, response: httpx.Response, network: Network
) -> PaymentRequired:
    """Return the requirements of a 402, if a payer on this network can pay them.

    Raises `PaymentFailed`.
    """
    try:
        offer: PaymentRequired = decode(response.content, PaymentRequired)
    except BadMessage as error:
        raise PaymentFailed(f"the 402 has no readable payment requirements: {error}") from error
    asked = offer.payment_requirements
    for field, seen, wanted, remedy in (
        ("scheme", asked.scheme, "exact", "This payer knows no other scheme."),
        ("network", asked.network, network.name, "Pass the server's network as `network`."),
        (
            "asset",
            asked.asset.lower(),
            checksum(network.asset).lower(),
            f"Only the stablecoin of {network.name} is paid.",
        ),
        ("resource", asked.resource, request.url.path, "Only the requested path is paid for."),
    ):
        if seen != wanted:
            raise PaymentFailed(f"the 402 asks for {field} {seen!r}, not {wanted!r}. {remedy}")
    if not is_header_value(offer.payment_id):
        raise PaymentFailed(
            f"the 402 has no usable payment id: {offer.payment_id[:80]!r} cannot be a header"
        )
    if not 1 <= asked.max_timeout_seconds < 2**31:
        raise PaymentFailed(
            f"the 402 allows {asked.max_timeout_seconds} seconds to pay; at least 1 is needed"
        )
    return offer


def read_settlement(response: httpx.Response) -> Receipt | None:
    """Return the receipt of a settled payment, or None if it had been settled before.

    Raises `AttemptOver` if the payment was refused and is over, and `PaymentFailed` if it
    was not made or may still be, and the same header should be sent again.
    """
    if response.status_code == 200:
        receipt: Receipt = decode_or_fail(response, Receipt)
        if not receipt.success:
            raise PaymentFailed(f"{UNKNOWN}: the server answered {quoted(response)}. {AGAIN}")
        return receipt
    error: _Refused = decode_or_fail(response, _Refused)
    stated = error.final if isinstance(error.final, bool) else None
    refusal = refusal_named(error.error)
    if refusal is Refusal.ALREADY_SETTLED:
        return None
    details = f": {error.reason}" if error.reason else ""
    seen = f"{response.status_code} {error.error}{details}"
    if not is_final(error.error, stated):
        if refusal is Refusal.INSUFFICIENT_BALANCE:
            raise PaymentFailed(f"the payment was not made yet: {seen}. Fund the wallet. {AGAIN}")
        raise PaymentFailed(f"{UNKNOWN}: the server answered {seen}. {AGAIN}")
    if refusal is not None and refusal.row.resend:
        raise PaymentFailed(f"the payment was not made: {seen}. {AGAIN}")
    remedy = f" {refusal.row.remedy}" if refusal else ""
    raise AttemptOver(f"the payment was refused: {seen}.{remedy}")


def decode_or_fail(response: httpx.Response, kind: type[Any]) -> Any:
    """Return the answer as a message; raises `PaymentFailed` for anything else."""
    try:
        return decode(response.content, kind)
    except BadMessage as error:
        seen = f"{response.status_code} {quoted(response)}"
        raise PaymentFailed(f"{UNKNOWN}: the server answered {seen}. {AGAIN}") from error


def quoted(response: httpx.Response) -> str:
    """Return the beginning of a body for an error's text, whatever charset the server names."""
    return repr(response.content[:800].decode("utf-8", "replace")[:200])


def is_header_value(text: str) -> bool:
    """Tell whether an id can be sent as a header: 1 to 256 visible ASCII characters."""
    return _HEADER_VALUE.fullmatch(text) is not None
