"""What a payer signed, and what became of it on the ledger of its case.

Everything that a payer sends anywhere is searched for authorizations. One that nobody has used yet
is *exposed*: whoever holds it can still take the money. One for another token or chain is lost in
that other money; here it counts by its amount.
"""

import base64
import binascii
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from x402sim.protocol.crypto import BadSignature, checksum, parse_address, recover, to_hex
from x402sim.protocol.eip3009 import Authorization, Domain, transfer_digest
from x402sim.protocol.messages import decoded
from x402sim.protocol.money import to_decimal
from x402sim.suite.wire import Request

_FIELDS = ("from", "to", "value", "validAfter", "validBefore", "nonce")
MOST_DEPTH = 12
"""How deep a payment is looked for in JSON."""


@dataclass(frozen=True, slots=True)
class Signed:
    """An authorization, its signature, and the domain it was signed for: None if it fits none."""

    auth: Authorization
    signature: bytes
    domain: Domain | None

    @property
    def by(self) -> str:
        """Whose money it moves."""
        return checksum(self.auth.from_)

    def summary(self, decimals: int) -> str:
        """Return it in a line."""
        value = self.auth.value
        amount = to_decimal(value, decimals) if value < 10**30 else "10^30 base units or more"
        ends = f"until {self.auth.valid_before}"
        return (
            f"{amount} to {checksum(self.auth.to)}, nonce {to_hex(self.auth.nonce)[:12]}…, {ends}"
        )


def payments_in(request: Request) -> list[Any]:
    """Return what looks like a payment in a request: JSON that holds an authorization."""
    found = [value for value in map(_json_of, request.headers.values()) if _holds(value)]
    if _holds(body := request.json):
        found.append(body)
    return found


def _json_of(text: str) -> Any:
    """Return the JSON in the text of a header, in base64, hex or as it is; None if it is none."""
    text = text.strip()
    if len(text) < 20:
        return None
    with suppress(ValueError, binascii.Error):
        if text[:2] in ("0x", "0X"):
            return decoded(bytes.fromhex(text[2:]))
        if text[0] == "{":
            return decoded(text.encode())
        padded = text.replace("-", "+").replace("_", "/")
        return decoded(base64.b64decode(padded + "=" * (-len(padded) % 4)))
    return None


def _holds(value: Any) -> bool:
    return next(authorizations_in(value), None) is not None


def authorizations_in(value: Any, depth: int = 0) -> Iterator[tuple[dict[str, Any], str]]:
    """Yield the fields of each authorization in JSON, and its signature."""
    if depth > MOST_DEPTH:
        return
    if isinstance(value, str) and depth and len(value) > 100:  # a header in a body, or JSON in text
        if isinstance(inner := _json_of(value), dict | list):
            yield from authorizations_in(inner, depth + 1)
    elif isinstance(value, list):
        for each in value:
            yield from authorizations_in(each, depth + 1)
    elif isinstance(value, dict):
        if all(name in value for name in _FIELDS):
            yield value, str(value.get("signature", ""))
        inner = value.get("authorization")
        if isinstance(inner, dict) and all(name in inner for name in _FIELDS):
            yield inner, str(value.get("signature", ""))
            value = {name: each for name, each in value.items() if name != "authorization"}
        for each in value.values():
            yield from authorizations_in(each, depth + 1)


def read(fields: dict[str, Any], signature: str, domains: Iterable[Domain]) -> Signed | None:
    """Read an authorization, and find the domain it is signed for; None if it is unreadable."""
    try:
        auth = Authorization(
            parse_address(str(fields["from"])),
            parse_address(str(fields["to"])),
            int(str(fields["value"])),
            int(str(fields["validAfter"])),
            int(str(fields["validBefore"])),
            bytes.fromhex(str(fields["nonce"]).removeprefix("0x")).rjust(32, b"\0")[:32],
        )
        raw = bytes.fromhex(signature.removeprefix("0x"))
    except ValueError:
        return None
    small = all(0 <= each < 2**256 for each in (auth.value, auth.valid_after, auth.valid_before))
    if not small:
        return None
    for domain in domains:
        with suppress(BadSignature, ValueError):
            if recover(transfer_digest(auth, domain), raw) == auth.from_:
                return Signed(auth, raw, domain)
    return Signed(auth, raw, None)


def is_usable(signed: Signed, token: Domain, now_s: float) -> bool:
    """Tell whether the token would still take it now, if its nonce is unused."""
    return signed.domain == token and signed.auth.valid_before > now_s


def is_elsewhere(signed: Signed, token: Domain) -> bool:
    """Tell whether it moves another money: another token, or the same on another chain."""
    other = signed.domain
    return other is not None and (other.chain_id, other.verifying_contract) != (
        token.chain_id,
        token.verifying_contract,
    )
