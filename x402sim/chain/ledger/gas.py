"""What a call costs in gas: its calldata's price, and what was measured on a real node.

`gas_measured.json` is the table, with the node, the contract and the compiler it comes
from. `tests/evm/measure.py` writes it, and a test measures it again. Studies of cost so
need no node, and the ledger charges what the node would: for every flow in the table to
the unit. What the table lacks is charged as the row that is nearest:

| call | row |
|---|---|
| Circle's overloads with a signature as bytes | the same call with v, r and s |
| Circle's pause and blacklist | cancellation: one slot, one event |
| any function that only reads | view |
| a cancellation that is refused | the payment refused for the same |
| refused for anything that has no row | refused: signature, the cheapest |

The measured contract is OpenZeppelin's, and every profile of the ledger is charged the
same. Circle's own contract differs: it is behind a proxy, it keeps more checks, and
some come in another order, so that its payments cost more than the default profile says.
"""

from functools import cache
from importlib.resources import files

import msgspec

from x402sim.chain.reverts import Cause, cause
from x402sim.protocol import abi

TRANSACTION = 21_000
CALLDATA_ZERO = 4
CALLDATA_NONZERO = 16
"""EIP-2028's prices of one byte."""

FLOWS = {
    abi.TRANSFER_WITH_AUTHORIZATION: "settlement",
    abi.TRANSFER_WITH_AUTHORIZATION_BYTES: "settlement",
    abi.RECEIVE_WITH_AUTHORIZATION: "receipt",
    abi.RECEIVE_WITH_AUTHORIZATION_BYTES: "receipt",
    abi.CANCEL_AUTHORIZATION: "cancellation",
    abi.CANCEL_AUTHORIZATION_BYTES: "cancellation",
    abi.TRANSFER: "transfer",
    abi.MINT: "mint",
    abi.PAUSE: "cancellation",
    abi.UNPAUSE: "cancellation",
    abi.BLACKLIST: "cancellation",
    abi.UNBLACKLIST: "cancellation",
}
"""The row of each function that writes, by selector."""

REFUSALS = {
    Cause.NONCE: "refused: used nonce",
    Cause.EARLY: "refused: expired",
    Cause.LATE: "refused: expired",
    Cause.WINDOW: "refused: expired",
    Cause.BALANCE: "refused: balance",
}
"""The row of each refusal that is not charged as a bad signature."""


class Measured(msgspec.Struct, frozen=True):
    """One row: what a flow used, without what any transaction pays for its calldata."""

    execution: int


class Table(msgspec.Struct, frozen=True):
    """The part of the table that says what is charged."""

    flows: dict[str, Measured]


@cache
def table() -> Table:
    """Return the committed table."""
    text = files("x402sim.chain.ledger").joinpath("gas_measured.json").read_bytes()
    return msgspec.json.decode(text, type=Table)


def intrinsic(data: bytes) -> int:
    """Return the gas a transaction costs before anything runs."""
    zeros = data.count(0)
    return TRANSACTION + CALLDATA_ZERO * zeros + CALLDATA_NONZERO * (len(data) - zeros)


def accepted(data: bytes) -> int:
    """Return the gas of running a call, as if what it pays went from one holder to another."""
    return _measured(FLOWS.get(data[:4], "view"))


def refused(data: bytes, reason: str) -> int:
    """Return the gas of running a call until it reverts for a reason."""
    row = REFUSALS.get(cause(reason), "refused: signature")
    is_plain = data[:4] == abi.TRANSFER and row == "refused: balance"
    return _measured("refused: transfer" if is_plain else row)


def amount(old_base: int, new_base: int) -> int:
    """Return what writing a balance (or the supply) costs beyond changing it as usual.

    A new holder's slot costs most; one that is emptied, or unchanged, costs less.
    """
    if old_base == new_base:
        return _more("settlement of nothing") // 2
    if not old_base:
        return _more("first settlement")
    return 0 if new_base else _more("last settlement")


def to_oneself() -> int:
    """Return what a payment to oneself costs beyond one to another: less, so negative."""
    return _more("settlement to oneself")


def _more(row: str) -> int:
    return _measured(row) - _measured("settlement")


def _measured(row: str) -> int:
    return table().flows[row].execution
