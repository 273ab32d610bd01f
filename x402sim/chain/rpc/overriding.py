"""Reads state and block overrides of a call, as geth names them."""

from typing import Any

from x402sim.chain.ledger.overrides import Account, Overrides
from x402sim.protocol.crypto import Address
from x402sim.protocol.rpc_values import (
    BadParams,
    Json,
    read_address,
    read_bytes,
    read_hash,
    read_object,
    read_quantity,
    read_slot,
)

OF_ACCOUNT = ("balance", "nonce", "code", "state", "stateDiff")
OF_BLOCK = (
    *("number", "time", "gasLimit", "difficulty", "withdrawals"),
    *("coinbase", "feeRecipient", "random", "prevRandao", "baseFee", "baseFeePerGas"),
    *("blobBaseFee", "parentBeaconBlockRoot"),
)
"""All are taken, and only the time can matter to the token."""


def read_overrides(accounts: Any, block: Any) -> Overrides | None:
    """Return the overrides of a call; None for nothing. Raises `BadParams`."""
    if accounts is None and block is None:
        return None
    of_block = _fields(block, "block overrides", OF_BLOCK)
    time_s = read_quantity(of_block["time"], "time") if "time" in of_block else None
    given = read_object(accounts, "state overrides") if accounts is not None else {}
    return Overrides(dict(_account(name, each) for name, each in given.items()), time_s)


def _account(name: str, given: Any) -> tuple[Address, Account]:
    fields = _fields(given, "an override", OF_ACCOUNT)
    if fields.keys() >= {"state", "stateDiff"}:
        raise BadParams(f"an override: expected state or stateDiff, not both, of {name}")
    if "nonce" in fields:
        read_quantity(fields["nonce"], "nonce")
    words = read_object(fields.get("state", fields.get("stateDiff", {})), "the storage")
    return read_address(name), Account(
        native_wei=read_quantity(fields["balance"], "balance") if "balance" in fields else None,
        code=read_bytes(fields["code"], "code") if "code" in fields else None,
        words={read_slot(slot): read_hash(word, "a word") for slot, word in words.items()},
        is_whole="state" in fields,
    )


def _fields(given: Any, what: str, names: tuple[str, ...]) -> Json:
    fields = read_object({} if given is None else given, what)
    if unknown := fields.keys() - set(names):
        raise BadParams(f"{what}: expected {', '.join(names)}, got {min(unknown)}")
    return fields
