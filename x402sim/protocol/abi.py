"""Calldata and event topics of the token, Permit2 and the x402 proxies: Solidity's ABI, for the
types in use.

An argument is one 32-byte word, except `bytes`, which follows the words. eth-abi takes a tenth of a
millisecond longer for each call, which the row `direct` of `tests/bench` has no room for: a payment
is encoded once and decoded three times. The vectors and `tests/evm` compare both.
"""

from functools import partial

from msgspec.structs import astuple

from x402sim.protocol.crypto import Address, keccak256, words
from x402sim.protocol.eip3009 import Authorization, Permit
from x402sim.protocol.permit2 import Permit2Authorization

word = words
_AUTH = "address,address,uint256,uint256,uint256,bytes32"
_PERMITTED = "((address,uint256),uint256,uint256)"
_EXACT = f"{_PERMITTED},address,(address,uint256),bytes"
_UPTO = f"{_PERMITTED},uint256,address,(address,address,uint256),bytes"
_EIP2612 = "(uint256,uint256,bytes32,bytes32,uint8)"


def selector(signature: str) -> bytes:
    """Return the first four bytes of a function signature's hash."""
    return keccak256(signature.encode())[:4]


NAMES: dict[bytes, str] = {}
"""The name of each function that changes state, by selector."""


def _changing(signature: str) -> bytes:
    """Return the selector of a state-changing function, and note the name."""
    found = selector(signature)
    NAMES[found] = signature.partition("(")[0]
    return found


def topic(signature: str) -> bytes:
    """Return the first topic of an event."""
    return keccak256(signature.encode())


TRANSFER_EVENT = topic("Transfer(address,address,uint256)")
AUTHORIZATION_USED = topic("AuthorizationUsed(address,bytes32)")
AUTHORIZATION_CANCELED = topic("AuthorizationCanceled(address,bytes32)")
APPROVAL_EVENT = topic("Approval(address,address,uint256)")
MINT_EVENT = topic("Mint(address,address,uint256)")

TRANSFER = _changing("transfer(address,uint256)")
MINT = _changing("mint(address,uint256)")
APPROVE = _changing("approve(address,uint256)")
INCREASE_ALLOWANCE = _changing("increaseAllowance(address,uint256)")
DECREASE_ALLOWANCE = _changing("decreaseAllowance(address,uint256)")
TRANSFER_FROM = _changing("transferFrom(address,address,uint256)")
PERMIT = _changing("permit(address,address,uint256,uint256,uint8,bytes32,bytes32)")
PERMIT_BYTES = _changing("permit(address,address,uint256,uint256,bytes)")
PAUSE = _changing("pause()")
UNPAUSE = _changing("unpause()")
BLACKLIST = _changing("blacklist(address)")
UNBLACKLIST = _changing("unBlacklist(address)")
TRANSFER_WITH_AUTHORIZATION = _changing(f"transferWithAuthorization({_AUTH},uint8,bytes32,bytes32)")
RECEIVE_WITH_AUTHORIZATION = _changing(f"receiveWithAuthorization({_AUTH},uint8,bytes32,bytes32)")
CANCEL_AUTHORIZATION = _changing("cancelAuthorization(address,bytes32,uint8,bytes32,bytes32)")
TRANSFER_WITH_AUTHORIZATION_BYTES = _changing(f"transferWithAuthorization({_AUTH},bytes)")
RECEIVE_WITH_AUTHORIZATION_BYTES = _changing(f"receiveWithAuthorization({_AUTH},bytes)")
CANCEL_AUTHORIZATION_BYTES = _changing("cancelAuthorization(address,bytes32,bytes)")

SETTLE_EXACT = _changing(f"settle({_EXACT})")
SETTLE_UPTO = _changing(f"settle({_UPTO})")
SETTLE_EXACT_WITH_PERMIT = _changing(f"settleWithPermit({_EIP2612},{_EXACT})")
SETTLE_UPTO_WITH_PERMIT = _changing(f"settleWithPermit({_EIP2612},{_UPTO})")
PERMIT_TRANSFER_FROM = _changing(
    f"permitTransferFrom({_PERMITTED},(address,uint256),address,bytes)"
)
PERMIT_WITNESS_TRANSFER_FROM = _changing(
    f"permitWitnessTransferFrom({_PERMITTED},(address,uint256),address,bytes32,string,bytes)"
)
INVALIDATE_NONCES = _changing("invalidateUnorderedNonces(uint256,uint256)")
SETTLED = topic("Settled()")
SETTLED_WITH_PERMIT = topic("SettledWithPermit()")
PERMIT_FAILED = topic("EIP2612PermitFailedWithReason(address,address,string)")
PERMIT_FAILED_WITH_DATA = topic("EIP2612PermitFailedWithData(address,address,bytes)")
NONCES_INVALIDATED = topic("UnorderedNonceInvalidation(address,uint256,uint256)")

NAME = selector("name()")
SYMBOL = selector("symbol()")
DECIMALS = selector("decimals()")
VERSION = selector("version()")
TOTAL_SUPPLY = selector("totalSupply()")
OWNER = selector("owner()")
BALANCE_OF = selector("balanceOf(address)")
IS_VALID_SIGNATURE = selector("isValidSignature(bytes32,bytes)")
AUTHORIZATION_STATE = selector("authorizationState(address,bytes32)")
DOMAIN_SEPARATOR = selector("DOMAIN_SEPARATOR()")
ALLOWANCE = selector("allowance(address,address)")
NONCES = selector("nonces(address)")
NONCE_BITMAP = selector("nonceBitmap(address,uint256)")

VALID_SIGNATURE = IS_VALID_SIGNATURE + bytes(28)
"""A contract's answer to isValidSignature for an own signature (EIP-1271)."""
_ERROR = selector("Error(string)")


def text(value: str) -> bytes:
    """Return an ABI-encoded string result."""
    raw = value.encode()
    return words(32, len(raw)) + raw + bytes(-len(raw) % 32)


def read_text(data: bytes) -> str:
    """Return an ABI-encoded string; what is cut off is left out."""
    return data[64 : 64 + int.from_bytes(data[32:64])].decode(errors="replace")


def revert_data(reason: str) -> bytes:
    """Return the data of `revert(reason)`: Error(string)."""
    return _ERROR + text(reason)


def calldata(function: bytes, *arguments: int | bytes) -> bytes:
    """Return the calldata of a function whose arguments are all single words."""
    return function + words(*arguments)


balance_of = partial(calldata, BALANCE_OF)
authorization_state = partial(calldata, AUTHORIZATION_STATE)
transfer = partial(calldata, TRANSFER)
mint = partial(calldata, MINT)
approve = partial(calldata, APPROVE)
allowance = partial(calldata, ALLOWANCE)


def is_valid_signature(digest: bytes, signature: bytes) -> bytes:
    """Return the calldata of EIP-1271's isValidSignature."""
    return calldata(IS_VALID_SIGNATURE, digest, 2 * 32) + _tail(signature)


def transfer_with_authorization(
    auth: Authorization, signature: bytes, *, receive: bool = False
) -> bytes:
    """Return the calldata of transferWithAuthorization, or with `receive` of receive…."""
    functions = TRANSFER_WITH_AUTHORIZATION, TRANSFER_WITH_AUTHORIZATION_BYTES
    if receive:
        functions = RECEIVE_WITH_AUTHORIZATION, RECEIVE_WITH_AUTHORIZATION_BYTES
    return _signed(functions, signature, *astuple(auth))


def cancel_authorization(authorizer: Address, nonce: bytes, signature: bytes) -> bytes:
    """Return the calldata of cancelAuthorization."""
    functions = CANCEL_AUTHORIZATION, CANCEL_AUTHORIZATION_BYTES
    return _signed(functions, signature, authorizer, nonce)


def permit(permitted: Permit, signature: bytes, *, packed: bool = False) -> bytes:
    """Return the calldata of permit, with the signature as (v, r, s) or, `packed`, as bytes."""
    owner, spender, value, _, deadline = astuple(permitted)
    function = PERMIT_BYTES if packed else PERMIT
    return _signed((function, PERMIT_BYTES), signature, owner, spender, value, deadline)


def nonce_bitmap(owner: Address, nonce: int) -> bytes:
    """Return the calldata of nonceBitmap, for the word with a nonce's bit."""
    return calldata(NONCE_BITMAP, owner, nonce >> 8)


def settle(
    auth: Permit2Authorization,
    amount_base: int,
    signature: bytes,
    permitted: tuple[Permit, bytes] | None = None,
) -> bytes:
    """Return the calldata of a proxy's settle, for the authorization's scheme; with an EIP-2612
    permit for Permit2 and the permit's 65-byte signature, of settleWithPermit.
    """
    head: list[int | bytes] = [auth.token, auth.amount, auth.nonce, auth.deadline]
    if auth.facilitator is None:
        functions = SETTLE_EXACT, SETTLE_EXACT_WITH_PERMIT
        head += [auth.from_, auth.to, auth.valid_after]
    else:
        functions = SETTLE_UPTO, SETTLE_UPTO_WITH_PERMIT
        head += [amount_base, auth.from_, auth.to, auth.facilitator, auth.valid_after]
    if permitted is not None:
        permit2612, proof = permitted
        parts = proof[:32], proof[32:64], proof[64]
        head = [permit2612.value, permit2612.deadline, *parts, *head]
    function = functions[permitted is not None]
    return calldata(function, *head, 32 * (len(head) + 1)) + _tail(signature)


_TO_OWNER = {
    SETTLE_EXACT: (2, 4),
    SETTLE_UPTO: (2, 5),
    SETTLE_EXACT_WITH_PERMIT: (7, 9),
    SETTLE_UPTO_WITH_PERMIT: (7, 10),
}
"""Where the nonce and the owner stand in calldata of each settlement, in words."""


def settled_nonce(data: bytes) -> tuple[Address, int] | None:
    """Return owner and nonce in calldata of a proxy's settlement; None for other calldata."""
    if (places := _TO_OWNER.get(data[:4])) is None:
        return None
    nonce, owner = (data[4 + 32 * place :][:32] for place in places)
    return Address(owner[12:]), int.from_bytes(nonce)


def settled_amount(auth: Permit2Authorization, data: bytes) -> int | None:
    """Return the amount that calldata of a proxy's `settle` moves for a message; None for other
    calldata. The call may stand inside another contract's call.
    """
    _, found, rest = data.partition(words(auth.token, auth.amount, auth.nonce, auth.deadline))
    amount_base, tail = auth.amount, words(auth.from_, auth.to, auth.valid_after)
    if auth.facilitator is not None:
        amount_base, rest = int.from_bytes(rest[:32]), rest[32:]
        tail = words(auth.from_, auth.to, auth.facilitator, auth.valid_after)
    return amount_base if found and rest.startswith(tail) else None


def _signed(functions: tuple[bytes, bytes], signature: bytes, *arguments: int | bytes) -> bytes:
    """A signature of 65 bytes goes as (v, r, s), any other as `bytes`, for the token to refuse."""
    in_three, packed = functions
    if len(signature) == 65 and in_three != packed:
        parts = signature[64], signature[:32], signature[32:64]
        return calldata(in_three, *arguments, *parts)
    return calldata(packed, *arguments, 32 * (len(arguments) + 1)) + _tail(signature)


def _tail(value: bytes) -> bytes:
    return word(len(value)) + value + bytes(-len(value) % 32)
