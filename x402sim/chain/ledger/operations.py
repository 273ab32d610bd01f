"""What can be done to a ledger, by the names that its file logs."""

from collections.abc import Callable
from typing import Any

from x402sim.chain.base import Call, ChainError, ForcedReverts
from x402sim.chain.ledger.machine import Machine
from x402sim.chain.ledger.overrides import put_code
from x402sim.chain.ledger.storage import set_word
from x402sim.protocol.crypto import Address, Hash
from x402sim.protocol.raw_transaction import BadTransaction, SignedTransaction, read


def _send(machine: Machine, at_s: int, sender: bytes, to: bytes, data: bytes, value: str) -> Hash:
    return machine.send(at_s, Call(Address(sender), Address(to), data, int(value)))


def signed_of(raw: bytes) -> SignedTransaction:
    """Return a signed transaction; raises `ChainError`."""
    try:
        return read(raw)
    except BadTransaction as wrong:
        raise ChainError(str(wrong)) from wrong


def _automine(machine: Machine, at_s: int, on: bool) -> None:
    machine.automine = on
    if on and machine.state.waiting:
        machine.mine(at_s, 1)


def _force_revert(machine: Machine, _: int, calls: int, account: bytes | None = None) -> None:
    machine.forced_reverts = ForcedReverts(calls, None if account is None else Address(account))


def _set_native_balance(machine: Machine, _: int, account: bytes, amount_wei: str) -> None:
    machine.state.put(machine.state.native, Address(account), int(amount_wei))


def _set_gas_price(machine: Machine, _: int, price_wei: str) -> None:
    machine.gas_price_wei = int(price_wei)


def _set_code(
    machine: Machine, _: int, account: bytes, code: bytes, slots: dict[bytes, bytes]
) -> None:
    """Set a contract; no reorganisation and no snapshot takes it away."""
    machine.state.codes[Address(account)] = code
    machine.state.slots.update({(Address(account), slot): word for slot, word in slots.items()})


def _put_code(machine: Machine, _: int, account: bytes, code: bytes) -> None:
    put_code(machine.state, machine.token, Address(account), code)


def _set_word(machine: Machine, _: int, account: bytes, slot: bytes, word: bytes) -> None:
    set_word(machine.state, machine.token, Address(account), slot, word)


def _set_nonce(machine: Machine, _: int, account: bytes, nonce: int) -> None:
    for nonces in (machine.state.account_nonces, machine.state.next_nonces):
        machine.state.put(nonces, Address(account), nonce)


# These names are stored in files: renaming one makes older files unreadable.
OPERATIONS: dict[str, Callable[..., Any]] = {
    "send": _send,
    "raw": lambda machine, at_s, raw: machine.send_signed(at_s, signed_of(raw)),
    "automine": _automine,
    "mine": Machine.mine,
    "drop": lambda machine, _, *only: machine.drop(*map(Hash, only)),
    "force_revert": _force_revert,
    "set_native_balance": _set_native_balance,
    "gas_price": _set_gas_price,
    "code": _set_code,
    "put_code": _put_code,
    "word": _set_word,
    "nonce": _set_nonce,
    "snapshot": lambda machine, _: machine.snapshot(),
    "revert": lambda machine, _, snapshot: machine.revert(snapshot),
    "reorg": Machine.reorg,
}
