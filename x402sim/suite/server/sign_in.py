"""Signing in with a wallet: the challenge of a 402, and a proof of it, right or wrong."""

import base64
import json
from collections.abc import Mapping
from typing import Any

from x402sim.payer.wallet import Wallet
from x402sim.protocol.crypto import PrivateKey, from_hex, keccak256, sign, to_hex

SIGN_IN = "sign-in-with-x"
HEADER = "SIGN-IN-WITH-X"
_PREFIX = b"\x19Ethereum Signed Message:\n"
_LINES = {
    "uri": "URI",
    "version": "Version",
    "chainId": "Chain ID",
    "nonce": "Nonce",
    "issuedAt": "Issued At",
    "expirationTime": "Expiration Time",
    "notBefore": "Not Before",
    "requestId": "Request ID",
}


def message(fields: Mapping[str, Any]) -> str:
    """Return the text that a wallet signs (EIP-4361)."""
    shown = {**fields, "chainId": str(fields["chainId"]).rpartition(":")[2]}
    statement = [shown["statement"]] if shown.get("statement") else []
    lines = [
        f"{shown['domain']} wants you to sign in with your Ethereum account:",
        shown["address"],
        "",
        *statement,
        "",
        *(f"{title}: {shown[name]}" for name, title in _LINES.items() if shown.get(name)),
    ]
    if shown.get("resources"):
        lines += ["Resources:", *(f"- {each}" for each in shown["resources"])]
    return "\n".join(lines)


def digest(text: str) -> bytes:
    """Return what is signed of a text (ERC-191)."""
    content = text.encode()
    return keccak256(_PREFIX + str(len(content)).encode() + content)


def proof(fields: Mapping[str, Any], signer: Wallet, address: str = "") -> tuple[str, str]:
    """Return the header by which a wallet signs in; `address` is that of another one."""
    claim = {**fields, "address": address or signer.address}
    key = PrivateKey(from_hex(signer.private_key, 32))
    claim["signature"] = to_hex(sign(digest(message(claim)), key))
    return HEADER, base64.b64encode(json.dumps(claim).encode()).decode()
