"""The storage slots of FiatToken v2.2, read and set by JSON-RPC; and the overrides of `eth_call`.

The ledger has values and no storage. To read a slot, it computes the slot of each value until one
matches, so a read takes as long as there are values; an unknown slot is zero. Setting a slot sets
the value that would be there, of an account that the ledger knows or the caller names.
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, product

import msgspec

from x402sim.chain.base import Call, ChainError
from x402sim.chain.contract import text_word
from x402sim.chain.ledger.frame import Token
from x402sim.chain.ledger.state import LedgerState
from x402sim.chain.ledger.token import PROXY_SLOTS
from x402sim.protocol import abi
from x402sim.protocol.crypto import ZERO_ADDRESS, Address, keccak256, to_hex
from x402sim.protocol.eip3009 import separator

OWNER, PAUSER, BLACKLISTER, NAME, SYMBOL, DECIMALS, CURRENCY, MASTER_MINTER = 0, 1, 2, 4, 5, 6, 7, 8
BALANCES, ALLOWANCES, SUPPLY, MINTERS, MINTER_ALLOWANCES, RESCUER = 9, 10, 11, 12, 13, 14
SEPARATOR, USED, PERMIT_NONCES, INITIALIZED = 15, 16, 17, 18
ROLES = {
    OWNER: "owner",
    PAUSER: "pauser",
    BLACKLISTER: "blacklister",
    MASTER_MINTER: "masterMinter",
    RESCUER: "rescuer",
}
MAX_PAIRED = 100
"""With more accounts than these, only allowances that are there already are found by their slot."""
VERSION = 3
"""How often the token was initialized: up to version 2.2."""
BLACKLISTED = 1 << 255
"""The bit of a balance that blacklists its account."""


def word_at(state: LedgerState, token: Token, account: Address, slot: bytes) -> bytes:
    """Return the word in a slot of an account; zero if nothing is there."""
    if account != token.network.asset:
        return state.slots.get((account, slot), bytes(32))
    return next((word for at, word in _words(state, token) if at == slot), bytes(32))


def set_word(
    state: LedgerState,
    token: Token,
    account: Address,
    slot: bytes,
    word: bytes,
    named: Iterable[Address] = (),
) -> None:
    """Set the word in a slot of an account; of the token, a role, whether it is paused, a balance,
    a minter, an allowance, or the number of permits. Raises `ChainError` for any other.
    """
    if account != token.network.asset:
        state.put(state.slots, (account, slot), word)
    elif not (_set_role(state, slot, word) or _set_value(state, slot, int.from_bytes(word), named)):
        raise ChainError(
            f"slot {to_hex(slot)} of the token: the ledger has values and no storage, and knows "
            "no account of which something is there; give it coins first, or use --chain anvil"
        )


def _set_role(state: LedgerState, slot: bytes, word: bytes) -> bool:
    role = ROLES.get(int.from_bytes(slot))
    if role is None:
        return False
    state.put(state.roles, role, Address(word[12:]))
    if role == "pauser":
        state.put(state.switches, "paused", bool(word[11]))
    return True


def _set_value(state: LedgerState, slot: bytes, value: int, named: Iterable[Address]) -> bool:
    names = (named, state.native, state.balances, state.account_nonces, state.minter_allowances)
    known = dict.fromkeys(chain.from_iterable(names))
    for account in known:
        if slot == _entry(BALANCES, account):
            state.put(state.balances, account, value & ~BLACKLISTED)
            state.put(state.blacklisted, account, bool(value & BLACKLISTED))
        elif slot == _entry(PERMIT_NONCES, account):
            state.put(state.permit_nonces, account, value)
        elif slot == _entry(MINTERS, account):
            if value:
                allowed_base = state.minter_allowances.get(account, 0)
                state.put(state.minter_allowances, account, allowed_base)
            elif account in state.minter_allowances:
                state.remove(state.minter_allowances, account)
        elif slot == _entry(MINTER_ALLOWANCES, account):
            state.put(state.minter_allowances, account, value)
        else:
            continue
        return True
    pairs = state.allowances if len(known) > MAX_PAIRED else product(known, known)
    for holder, spender in pairs:
        if slot == _entry(int.from_bytes(_entry(ALLOWANCES, holder)), spender):
            state.put(state.allowances, (holder, spender), value)
            return True
    return False


def _words(state: LedgerState, token: Token) -> Iterator[tuple[bytes, bytes]]:
    """Yield each slot that is not zero, and its word."""
    roles, network, word = state.roles, token.network, abi.word
    paused = bytes([bool(state.switches.get("paused"))])
    yield from PROXY_SLOTS.items()
    yield word(OWNER), word(roles["owner"])
    yield word(PAUSER), word(paused + roles["pauser"])
    yield word(BLACKLISTER), word(roles["blacklister"])
    yield word(RESCUER), word(roles.get("rescuer", ZERO_ADDRESS))
    yield word(SEPARATOR), separator(network.domain)
    yield word(INITIALIZED), word(VERSION)
    yield word(NAME), text_word(network.token_name)
    yield word(SYMBOL), text_word(network.token_symbol)
    yield word(DECIMALS), word(network.decimals)
    yield word(CURRENCY), text_word("USD")
    yield word(MASTER_MINTER), word(b"\1" + roles["masterMinter"])
    yield word(SUPPLY), word(state.supply)
    for minter, allowance_base in state.minter_allowances.items():
        yield _entry(MINTERS, minter), word(1)
        yield _entry(MINTER_ALLOWANCES, minter), word(allowance_base)
    for account in dict.fromkeys((*state.balances, *state.blacklisted)):
        flag = BLACKLISTED if state.blacklisted.get(account) else 0
        yield _entry(BALANCES, account), word(state.balances.get(account, 0) | flag)
    for (holder, spender), amount_base in state.allowances.items():
        allowed = int.from_bytes(_entry(ALLOWANCES, holder))
        yield _entry(allowed, spender), word(amount_base)
    for holder, used in state.permit_nonces.items():
        yield _entry(PERMIT_NONCES, holder), word(used)
    for authorizer, nonce in state.authorizations:
        yield _entry(int.from_bytes(_entry(USED, authorizer)), nonce), word(1)


def _entry(mapping: int, key: bytes) -> bytes:
    """Return the slot of one entry of a mapping."""
    return keccak256(abi.word(key) + abi.word(mapping))


# --- overrides --------------------------------------------------------------------------


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
