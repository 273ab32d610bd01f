"""Calls of contracts other than the token. The ledger runs no code; it knows one such contract,
the smart wallet of `chain/contract`, which an account has itself or by delegation
(EIP-7702). Any other code reverts.
"""

from x402sim.chain import contract
from x402sim.chain.base import Reverted
from x402sim.chain.ledger.arguments import Arguments
from x402sim.chain.ledger.state import LedgerState
from x402sim.protocol import abi
from x402sim.protocol.crypto import Address, BadSignature, recover

DELEGATED = bytes.fromhex("ef0100")
"""How the code of an account begins that uses the code of another (EIP-7702)."""
INVALID = b"\xff" * 4 + bytes(28)


def call(state: LedgerState, account: Address, data: bytes) -> bytes:
    """Return what an account's contract answers; empty without one. Raises `Reverted`."""
    code = state.codes.get(account, b"")
    if code[:3] == DELEGATED:
        code = state.codes.get(Address(code[3:]), b"")
    if not code:
        return b""
    if code != contract.wallet_code() or data[:4] != abi.IS_VALID_SIGNATURE:
        raise Reverted("")
    arguments = Arguments(data[4:])
    digest, signature = arguments.bytes32(0), arguments.tail(1)
    owner = state.slots.get((account, bytes(32)), bytes(32))[12:]
    try:
        signer = recover(digest, signature)
    except BadSignature:
        return INVALID
    return abi.VALID_SIGNATURE if signer in (owner, account) else INVALID


def accepts(state: LedgerState, account: Address, digest: bytes, signature: bytes) -> bool:
    """Whether an account's contract says that a signature is the account's (EIP-1271)."""
    try:
        answer = call(state, account, abi.is_valid_signature(digest, signature))
    except Reverted:
        return False
    return answer[:32] == abi.VALID_SIGNATURE
