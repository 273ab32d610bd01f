"""The storage slots of FiatToken v2.2, read by JSON-RPC, and the code of accounts.

The ledger has values and no storage. A read of a slot computes the slot of each value until one
matches, so the time grows with the number of values; an unknown slot is zero.
"""

from collections.abc import Iterator

from x402sim.chain.base import ChainError
from x402sim.chain.contract import text_word
from x402sim.chain.ledger.frame import Token
from x402sim.chain.ledger.state import LedgerState
from x402sim.protocol import abi
from x402sim.protocol.crypto import Address, keccak256
from x402sim.protocol.eip3009 import separator

OWNER, PAUSER, BLACKLISTER, NAME, SYMBOL, DECIMALS, CURRENCY, MASTER_MINTER = 0, 1, 2, 4, 5, 6, 7, 8
BALANCES, ALLOWANCES, SUPPLY, MINTERS, MINTER_ALLOWANCES = 9, 10, 11, 12, 13
SEPARATOR, USED, PERMIT_NONCES, INITIALIZED = 15, 16, 17, 18
VERSION = 3
"""How often the token was initialized: up to version 2.2."""
BLACKLISTED = 1 << 255
"""The bit of a balance that blacklists the account."""


def word_at(state: LedgerState, token: Token, account: Address, slot: bytes) -> bytes:
    """Return the word in a slot of an account; zero if nothing is there."""
    if account != token.network.asset:
        return state.slots.get((account, slot), bytes(32))
    return next((word for at, word in _words(state, token) if at == slot), bytes(32))


def _words(state: LedgerState, token: Token) -> Iterator[tuple[bytes, bytes]]:
    owner, network, word = token.owner, token.network, abi.word
    paused = bytes([bool(state.switches.get("paused"))])
    yield word(OWNER), word(owner)
    yield word(PAUSER), word(paused + owner)
    yield word(BLACKLISTER), word(owner)
    yield word(SEPARATOR), separator(network.domain)
    yield word(INITIALIZED), word(VERSION)
    yield word(NAME), text_word(network.token_name)
    yield word(SYMBOL), text_word(network.token_symbol)
    yield word(DECIMALS), word(network.decimals)
    yield word(CURRENCY), text_word("USD")
    yield word(MASTER_MINTER), word(b"\1" + owner)
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
    return keccak256(abi.word(key) + abi.word(mapping))


def put_code(state: LedgerState, token: Token, account: Address, code: bytes) -> None:
    """Set an account's code: the smart wallet's, a delegation, none, or any that nobody calls."""
    if account == token.network.asset:
        raise ChainError("the code of the token: the ledger has no other; use --chain anvil")
    if code:
        state.put(state.codes, account, code)
    elif account in state.codes:
        state.remove(state.codes, account)
