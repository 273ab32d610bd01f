"""Decodes revert data into text, and classifies the text by cause.

Circle's token reverts with sentences. OpenZeppelin's, which anvil runs, reverts with custom errors,
written like calls: `ERC3009UsedAuthorization(0x…, 0x…)`. `cause` gives both the same causes.
"""

from enum import Enum
from functools import cache

from x402sim.chain.base import Reverted
from x402sim.chain.contract import artifact
from x402sim.protocol import abi
from x402sim.protocol.crypto import Address, checksum, to_hex

PANIC = abi.selector("Panic(uint256)")
SENTENCE = abi.selector("Error(string)")


def data_of(reverted: Reverted) -> bytes:
    """Return the data with which Circle's token reverts; empty for a revert without data."""
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
        return error(name, *(_read(kind, words[32 * n :]) for n, kind in enumerate(kinds)))
    return f"custom error {to_hex(data)}" if data else ""


def error(name: str, *values: Address | bytes | int) -> str:
    """Return a custom error as text, with its values as a block explorer shows them."""
    return f"{name}({', '.join(map(_shown, values))})"


def _shown(value: Address | bytes | int) -> str:
    if isinstance(value, int):
        return str(value)
    return checksum(Address(value)) if len(value) == 20 else to_hex(value)


def _read(kind: str, words: bytes) -> bytes | int:
    match kind:
        case "address":
            return words[12:32]
        case "bytes32":
            return words[:32]
        case _:
            return int.from_bytes(words[:32])


@cache
def _errors() -> dict[bytes, tuple[str, list[str]]]:
    """Return name and types of our contract's custom errors whose values are single words."""
    found = {}
    for signature in artifact().signatures("error"):
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
    "FiatTokenV2: authorization is not yet valid": Cause.EARLY,
    "FiatTokenV2: authorization is expired": Cause.LATE,
    "FiatTokenV2: authorization is used or canceled": Cause.NONCE,
    "FiatTokenV2: invalid signature": Cause.SIGNATURE,
    "FiatTokenV2: caller must be the payee": Cause.ADDRESS,
    "FiatToken: caller is not a minter": Cause.OWNER,
    "FiatToken: mint to the zero address": Cause.ADDRESS,
    "FiatToken: mint amount not greater than 0": Cause.AMOUNT,
    "FiatToken: mint amount exceeds minterAllowance": Cause.AMOUNT,
    "FiatToken: burn amount not greater than 0": Cause.AMOUNT,
    "FiatToken: burn amount exceeds balance": Cause.BALANCE,
    "FiatToken: caller is not the masterMinter": Cause.OWNER,
    "FiatTokenV2_2: Balance exceeds (2^255 - 1)": Cause.AMOUNT,
    "ECRecover": Cause.SIGNATURE,
    "ERC20: transfer amount exceeds balance": Cause.BALANCE,
    "ERC20: transfer to the zero address": Cause.ADDRESS,
    "ERC20: transfer from the zero address": Cause.ADDRESS,
    "Pausable: paused": Cause.PAUSED,
    "Pausable: caller is not the pauser": Cause.OWNER,
    "Blacklistable: account is blacklisted": Cause.ADDRESS,
    "Blacklistable: caller is not the blacklister": Cause.OWNER,
    "ERC20: transfer amount exceeds allowance": Cause.ALLOWANCE,
    "ERC20: decreased allowance below zero": Cause.ALLOWANCE,
    "ERC20: approve to the zero address": Cause.ADDRESS,
    "ERC20: approve from the zero address": Cause.ADDRESS,
    "Ownable: caller is not the owner": Cause.OWNER,
    "Ownable: new owner is the zero address": Cause.ADDRESS,
    "Pausable: new pauser is the zero address": Cause.ADDRESS,
    "Blacklistable: new blacklister is the zero address": Cause.ADDRESS,
    "FiatToken: new masterMinter is the zero address": Cause.ADDRESS,
    "Rescuable: new rescuer is the zero address": Cause.ADDRESS,
    "Rescuable: caller is not the rescuer": Cause.OWNER,
    "Address: call to non-contract": Cause.ADDRESS,
    "SafeERC20": Cause.CALL,
    "FiatToken: contract is already initialized": Cause.CALL,
    "Cannot call fallback function from the proxy admin": Cause.CALL,
    "FiatTokenV2: permit is expired": Cause.LATE,
    "EIP2612: invalid signature": Cause.SIGNATURE,
    "SafeMath: addition overflow": Cause.AMOUNT,
    "ERC3009InvalidAuthorizationTime": Cause.WINDOW,
    "ERC3009UsedAuthorization": Cause.NONCE,
    "ERC3009InvalidSignature": Cause.SIGNATURE,
    "ECDSAInvalidSignature": Cause.SIGNATURE,
    "ERC20InsufficientBalance": Cause.BALANCE,
    "ERC20InsufficientAllowance": Cause.ALLOWANCE,
    "ERC20InvalidApprover": Cause.ADDRESS,
    "ERC20InvalidSpender": Cause.ADDRESS,
    "ERC20InvalidReceiver": Cause.ADDRESS,
    "ERC20InvalidSender": Cause.ADDRESS,
    "OwnableUnauthorizedAccount": Cause.OWNER,
    "Panic": Cause.AMOUNT,
}


def cause(reason: str) -> Cause:
    """Return the cause that a revert reason states."""
    if not reason:
        return Cause.CALL
    return next((cause for text, cause in _CAUSES.items() if reason.startswith(text)), Cause.OTHER)
