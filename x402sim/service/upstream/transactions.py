"""Reads a transaction's receipt: its block, whether it succeeded, and the token's events.

Receipts of the node and of the explorer are read alike; logs of other contracts are ignored.
"""

from typing import Any

import msgspec

from x402sim.protocol import abi
from x402sim.protocol.crypto import Address, from_hex


class OnChain(msgspec.Struct, frozen=True):
    """A mined transaction, and the token's events in it.

    `transfers` are (from, to, base units), `used` are (authorizer, nonce of 32 bytes).
    """

    block_number: int
    succeeded: bool
    transfers: tuple[tuple[Address, Address, int], ...] = ()
    used: tuple[tuple[Address, bytes], ...] = ()


def read_receipt(receipt: Any, token: Address) -> OnChain | None:
    """Read a receipt: None if there is none, or if it is in no block yet."""
    if not receipt or receipt.get("blockNumber") is None:
        return None
    transfers: list[tuple[Address, Address, int]] = []
    used: list[tuple[Address, bytes]] = []
    for log in receipt.get("logs") or ():
        if from_hex(log["address"], 20) != token or not log["topics"]:
            continue
        event, *indexed = (from_hex(topic, 32) for topic in log["topics"])
        if event == abi.TRANSFER_EVENT:
            sender, to = (Address(word[12:]) for word in indexed)
            transfers.append((sender, to, int(log["data"], 16)))
        elif event == abi.AUTHORIZATION_USED:
            authorizer, nonce = indexed
            used.append((Address(authorizer[12:]), nonce))
    return OnChain(
        block_number=block_number(receipt["blockNumber"]),
        succeeded={"0x1": True, "0x0": False}[receipt["status"]],
        transfers=tuple(transfers),
        used=tuple(used),
    )


def block_number(text: str) -> int:
    """Return a block number; raises `ValueError` if no chain could be that long."""
    number = int(text, 16)
    if not 0 <= number < 2**63:
        raise ValueError(f"block {text}")
    return number
