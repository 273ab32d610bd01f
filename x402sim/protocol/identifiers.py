"""The extension payment-identifier: a payer names its payment, and gets a lost answer again.

Decision: 5/payment-identifier.
"""

import re
from typing import Any

from x402sim.protocol.messages import BadMessage

PAYMENT_IDENTIFIER = "payment-identifier"
"""The extension by which a payer names a payment, and gets a lost answer again."""
_CHARACTERS, _LEAST, _MOST = "[a-zA-Z0-9_-]", 16, 128
_IDENTIFIER = re.compile(f"{_CHARACTERS}{{{_LEAST},{_MOST}}}")
IDENTIFIER_OFFER: dict[str, Any] = {
    PAYMENT_IDENTIFIER: {
        "info": {"required": False},
        "schema": {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "type": "object",
            "properties": {
                "required": {"type": "boolean"},
                "id": {
                    "type": "string",
                    "minLength": _LEAST,
                    "maxLength": _MOST,
                    "pattern": f"^{_CHARACTERS}+$",
                },
            },
            "required": ["required"],
        },
    }
}
"""What a 402 says of the extension."""


def identifier_in(extensions: dict[str, Any] | None) -> str | None:
    """Return the id in a payment's extensions; raises `BadMessage` for one that is none."""
    said = (extensions or {}).get(PAYMENT_IDENTIFIER)
    info = said.get("info") if isinstance(said, dict) else None
    named = info.get("id") if isinstance(info, dict) else None
    if named is None:  # who echoes the extension without an id names nothing
        return None
    if not (isinstance(named, str) and _IDENTIFIER.fullmatch(named)):
        wanted = f"{_LEAST} to {_MOST} letters, digits, - and _"
        raise BadMessage(f"{PAYMENT_IDENTIFIER}: wanted {wanted}, got {str(named)[:40]!r}")
    return named


def named(identifier: str) -> dict[str, Any]:
    """Return the extensions of a payment with this id."""
    offer = IDENTIFIER_OFFER[PAYMENT_IDENTIFIER]
    return {PAYMENT_IDENTIFIER: offer | {"info": offer["info"] | {"id": identifier}}}
