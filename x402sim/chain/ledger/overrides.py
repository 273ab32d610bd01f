"""The state and block overrides of `eth_call`: what a call finds instead of the state."""

from collections.abc import Mapping

import msgspec

from x402sim.chain.base import Call, ChainError
from x402sim.chain.ledger.frame import Token
from x402sim.chain.ledger.state import LedgerState
from x402sim.chain.ledger.storage import set_word
from x402sim.protocol.crypto import Address


class Account(msgspec.Struct, frozen=True):
    """What is overridden of an account; None is as it is. `words` are of its storage, all there
    are if it `is_whole`.
    """

    native_wei: int | None
    code: bytes | None
    words: Mapping[bytes, bytes]
    is_whole: bool


class Overrides(msgspec.Struct, frozen=True):
    """What is overridden, by account, and the time of the block; the token reads nothing else."""

    accounts: Mapping[Address, Account]
    time_s: int | None = None

    def apply(self, state: LedgerState, token: Token, call: Call) -> None:
        """Write them into a state; raises `ChainError` for what the ledger cannot override."""
        words = (call.data[at + 12 : at + 32] for at in range(4, len(call.data) - 31, 32))
        named = (call.sender, *map(Address, words), *self.accounts)
        for account, override in self.accounts.items():
            if override.native_wei is not None:
                state.put(state.native, account, override.native_wei)
            if override.code is not None:
                put_code(state, token, account, override.code)
            if override.is_whole:
                require_other(token, account, "the whole storage")
                for key in [key for key in state.slots if key[0] == account]:
                    state.remove(state.slots, key)
            for slot, word in override.words.items():
                set_word(state, token, account, slot, word, named)


def put_code(state: LedgerState, token: Token, account: Address, code: bytes) -> None:
    """Set an account's code: the smart wallet's, a delegation, none, or any that nobody calls."""
    require_other(token, account, "the code")
    if code:
        state.put(state.codes, account, code)
    elif account in state.codes:
        state.remove(state.codes, account)


def require_other(token: Token, account: Address, what: str) -> None:
    """Raise `ChainError` for the token's own account."""
    if account == token.network.asset:
        raise ChainError(f"{what} of the token: the ledger has no other; use --chain anvil")
