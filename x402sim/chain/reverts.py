"""Revert data as text, and the cause of a revert, the same for every token.

Circle's token reverts with sentences. OpenZeppelin's, which anvil runs, reverts with custom errors,
written like calls: `ERC3009UsedAuthorization(0x…, 0x…)`. `cause` gives both the same causes.
Permit2 and the x402 proxies revert with custom errors, too.
"""

from enum import Enum
from functools import cache

from x402sim.chain import contract
from x402sim.chain.base import Reverted
from x402sim.protocol import abi
from x402sim.protocol.crypto import Address, checksum, to_hex

PANIC = abi.selector("Panic(uint256)")
SENTENCE = abi.selector("Error(string)")
_PERMIT2 = (
    *("InvalidNonce()", "InvalidSignature()", "InvalidSigner()", "InvalidSignatureLength()"),
    *("InvalidContractSignature()", "InvalidAmount(uint256)", "SignatureExpired(uint256)"),
    *("InvalidAmount()", "InvalidOwner()", "InvalidDestination()", "PaymentTooEarly()"),
    *("Permit2612AmountMismatch()", "AmountExceedsPermitted()", "UnauthorizedFacilitator()"),
)
"""The custom errors of Permit2 and of the proxies."""


def data_of(reverted: Reverted) -> bytes:
    """Return the revert data, of a sentence or a custom error of Permit2; empty without data."""
    name, _, value = str(reverted).removesuffix(")").partition("(")
    signature = f"{name}(uint256)" if value.isdecimal() else f"{name}({value})"
    if signature in _PERMIT2:
        return abi.selector(signature) + (abi.word(int(value)) if value else b"")
    data = abi.revert_data(str(reverted)) if str(reverted) else b""
    return data[:-1] + bytes([reverted.last]) if reverted.last else data


def text_of(data: bytes) -> str:
    """Return revert data as text; empty for a revert without data."""
    selector, words = data[:4], data[4:]
    if selector == SENTENCE:
        return abi.read_text(words)
    if selector == PANIC:
        return f"Panic({hex(int.from_bytes(words[:32]))})"
    if selector in _errors():
        name, kinds = _errors()[selector]
        shown = (_shown(kind, words[32 * n : 32 * n + 32]) for n, kind in enumerate(kinds))
        return f"{name}({', '.join(shown)})"
    return f"custom error {to_hex(data)}" if data else ""


def _shown(kind: str, word: bytes) -> str:
    match kind:
        case "address":
            return checksum(Address(word[12:].ljust(20, b"\0")))
        case "bytes32":
            return to_hex(word)
        case _:
            return str(int.from_bytes(word))


@cache
def _errors() -> dict[bytes, tuple[str, list[str]]]:
    """Return name and types of the custom errors of Permit2, the proxies and our contract, if the
    values are single words.
    """
    found = {}
    for signature in (*_PERMIT2, *contract.artifact().errors):
        name, kinds = signature.removesuffix(")").split("(")
        if "string" not in kinds:
            found[abi.selector(signature)] = name, kinds.split(",") if kinds else []
    return found


class Cause(Enum):
    """The cause of a refused call, the same for every token."""

    EARLY = "the window has not opened"
    LATE = "the window has closed"
    WINDOW = "outside the window, early or late"
    NONCE = "the nonce is used or cancelled"
    SIGNATURE = "the signature does not prove consent"
    BALANCE = "the balance is too small"
    ALLOWANCE = "the allowance is too small"
    ADDRESS = "not with this account"
    OWNER = "the owner alone may do this"
    AMOUNT = "not this amount"
    PAUSED = "the token is paused"
    CALL = "no such function, or not with these arguments"
    OTHER = "something else"


_CAUSES = {
    "authorization is not yet valid": Cause.EARLY,
    "is expired": Cause.LATE,
    "authorization is used or canceled": Cause.NONCE,
    "invalid signature": Cause.SIGNATURE,
    "caller must be the payee": Cause.ADDRESS,
    "caller is not": Cause.OWNER,
    "zero address": Cause.ADDRESS,
    "account is blacklisted": Cause.ADDRESS,
    "amount not greater than 0": Cause.AMOUNT,
    "mint amount exceeds minterAllowance": Cause.AMOUNT,
    "Balance exceeds (2^255 - 1)": Cause.AMOUNT,
    "SafeMath: addition overflow": Cause.AMOUNT,
    "amount exceeds balance": Cause.BALANCE,
    "transfer amount exceeds allowance": Cause.ALLOWANCE,
    "decreased allowance below zero": Cause.ALLOWANCE,
    "Pausable: paused": Cause.PAUSED,
    "ERC3009InvalidAuthorizationTime": Cause.WINDOW,
    "ERC3009UsedAuthorization": Cause.NONCE,
    "InvalidSignature": Cause.SIGNATURE,
    "ERC20InsufficientBalance": Cause.BALANCE,
    "ERC20InsufficientAllowance": Cause.ALLOWANCE,
    "ERC20Invalid": Cause.ADDRESS,
    "OwnableUnauthorizedAccount": Cause.OWNER,
    "Panic": Cause.AMOUNT,
}
"""The cause of a reason that contains this text: of Circle's token, or of OpenZeppelin's."""


def cause(reason: str) -> Cause:
    """Return the cause that a revert reason states."""
    if not reason:
        return Cause.CALL
    return next((cause for text, cause in _CAUSES.items() if text in reason), Cause.OTHER)
