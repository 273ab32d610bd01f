"""What is signed for the token: EIP-712 data as JSON, which any wallet takes."""

from typing import Any

TYPES = {
    "EIP712Domain": "string name,string version,uint256 chainId,address verifyingContract",
    "TransferWithAuthorization": "address from,address to,uint256 value,uint256 validAfter,"
    "uint256 validBefore,bytes32 nonce",
    "Permit": "address owner,address spender,uint256 value,uint256 nonce,uint256 deadline",
}


def fields(pairs: str) -> list[dict[str, str]]:
    """Return types and names, with commas between them, as an ABI or EIP-712 has them."""
    split = (pair.split(" ") for pair in pairs.split(",") if pair)
    return [{"name": name, "type": kind} for kind, name in split]


def typed(given: dict[str, Any], primary: str, values: list[Any]) -> dict[str, Any]:
    """Return a message for the token of `given`, with these values."""
    types = {name: fields(TYPES[name]) for name in ("EIP712Domain", primary)}
    domain = {name: given[name] for name in ("name", "version", "chainId")}
    return {
        "types": types,
        "primaryType": primary,
        "domain": {**domain, "verifyingContract": given["token"]},
        "message": dict(zip((field["name"] for field in types[primary]), values, strict=True)),
    }
