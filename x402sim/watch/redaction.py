"""What a recording of real money leaves out: what could be spent, or shown as a proof.

A signature, and the payload of a scheme that nobody here knows, lose their middle; a payment id and
a session id become digests, the same in every message, so that a lane keeps its parts.
"""

import hashlib
from collections.abc import Iterable
from typing import Any

from x402sim.protocol.header import json_of_header
from x402sim.protocol.messages import BadMessage, decoded, encode
from x402sim.protocol.x402 import PAYMENT_HEADERS, RESPONSE_HEADERS, to_base64
from x402sim.watch.proxy import RawHeaders

_PAYMENTS = frozenset(name.lower() for name in PAYMENT_HEADERS.values())
_MESSAGES = _PAYMENTS | {name.lower() for name in RESPONSE_HEADERS.values()} | {"payment-required"}
_IDS = frozenset({"x-payment-id", "x-session-id"})
_SIGNED_IN = frozenset(
    {"sign-in-with-x", "authorization", "proxy-authorization", "cookie", "set-cookie"}
)
_ID_FIELDS = frozenset({"paymentId", "sessionId", "payment_id", "session_id"})
_PLAIN = frozenset({"authorization", "signature"})
"""What a payload of scheme exact has; of another scheme anything may be spent."""
HIDDEN = "***"
_DEEPEST = 40


def digest(proof: str) -> str:
    """Return what stands for a proof of payment: its kind, and a digest."""
    kind = proof[: proof.find("_") + 1] if proof.find("_") in range(1, 12) else ""
    return f"{kind}{hashlib.sha256(proof.encode()).hexdigest()[:12]}"


def without_middle(signature: str) -> str:
    """Return the beginning of a signature, and its length."""
    return f"{signature[:6]}…({len(signature)} characters)"


def hidden_headers(headers: Iterable[tuple[bytes, bytes]]) -> RawHeaders:
    """Return headers of which nothing can be spent."""
    return [(name, _header(name.decode("latin-1").lower(), value)) for name, value in headers]


def _header(name: str, value: bytes) -> bytes:
    if name in _IDS:
        return digest(value.decode("latin-1")).encode()
    if name in _SIGNED_IN:
        return HIDDEN.encode()
    if name not in _MESSAGES:
        return value
    return hidden_message(value.decode("latin-1")).encode()


def hidden_message(text: str) -> str:
    """Return a message in a header of which nothing can be spent."""
    try:
        read = decoded(json_of_header(text))
    except BadMessage:
        read = None
    return to_base64(hidden(read)) if isinstance(read, dict) else HIDDEN


def hidden_body(body: bytes, *, is_cut: bool) -> bytes:
    """Return a body of which nothing can be spent; one that was cut and may be JSON is left out."""
    read = decoded(body)
    if isinstance(read, dict | list):
        return encode(hidden(read))
    looks_like_json = body.lstrip()[:1] in (b"{", b"[")
    return HIDDEN.encode() if looks_like_json or is_cut else body


def hidden(value: Any, depth: int = 0) -> Any:
    """Return JSON without signatures, and with digests of proofs."""
    if depth > _DEEPEST:
        return HIDDEN
    if isinstance(value, list):
        return [hidden(each, depth + 1) for each in value]
    if not isinstance(value, dict):
        return value
    return {name: _field(name, each, depth + 1) for name, each in value.items()}


def _field(name: str, value: Any, depth: int) -> Any:
    if name == "signature":
        return without_middle(value) if isinstance(value, str) else HIDDEN
    if name == "paymentHeader":
        return hidden_message(value) if isinstance(value, str) else hidden(value, depth)
    if name == "payload":
        return _payload(value, depth)
    if name in _ID_FIELDS and isinstance(value, str):
        return digest(value)
    return hidden(value, depth)


def _payload(value: Any, depth: int) -> Any:
    if not isinstance(value, dict):
        return HIDDEN
    if not _PLAIN.isdisjoint(value) or "nonce" in value:  # also flat, as Cronos has it
        return {
            name: _field(name, each, depth) if name in _KEPT else HIDDEN
            for name, each in value.items()
        }
    return HIDDEN


_KEPT = frozenset(
    {
        *("authorization", "signature", "from", "to", "value", "validAfter", "validBefore"),
        *("nonce", "asset"),
    }
)
