"""The gas of a call: the price of its calldata, plus a value measured on a real node.

`gas_measured.json` holds the measured values, and names the node, contract and compiler.
`tests/evm/measure.py` writes it, and a test repeats the measurement. For every flow in the table
the ledger charges exactly the node's gas, so studies of cost need no node. A call without a row is
charged as the nearest one:

| call | row |
|---|---|
| Circle's overloads with a signature as bytes | the same call with v, r and s |
| Circle's pause and blacklist | cancellation: one slot, one event |
| any function that only reads | view |
| a cancellation that is refused | the payment refused for the same |
| refused for anything that has no row | refused: signature, the cheapest |

The measured contract is OpenZeppelin's, and every profile of the ledger is charged the same.
Circle's own contract costs more: it is behind a proxy and makes more checks, some in another
order.
"""

from functools import cache
from importlib.resources import files

import msgspec

from x402sim.chain.reverts import Cause, cause
from x402sim.protocol import abi
from x402sim.protocol.raw_transaction import SignedTransaction

TRANSACTION = 21_000
CALLDATA_ZERO = 4
CALLDATA_NONZERO = 16
"""EIP-2028's prices of one byte."""
LISTED_ADDRESS, LISTED_SLOT = 2_400, 1_900
"""EIP-2930's prices of one entry of an access list."""

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
"""The row of each revert reason that is not charged as a bad signature."""


class Measured(msgspec.Struct, frozen=True):
    """One row: the gas that a flow used, without the price of its calldata."""

    execution: int


class Table(msgspec.Struct, frozen=True):
    """The part of the table that holds the measured flows."""

    flows: dict[str, Measured]


@cache
def table() -> Table:
    """Return the committed table."""
    text = files("x402sim.chain.ledger").joinpath("gas_measured.json").read_bytes()
    return msgspec.json.decode(text, type=Table)


def intrinsic(data: bytes) -> int:
    """Return a transaction's intrinsic gas, charged before any code runs."""
    zeros = data.count(0)
    return TRANSACTION + CALLDATA_ZERO * zeros + CALLDATA_NONZERO * (len(data) - zeros)


def intrinsic_of(signed: SignedTransaction) -> int:
    """Return a signed transaction's intrinsic gas, its access list included."""
    slots = sum(len(slots) for _, slots in signed.access_list)
    listed = LISTED_ADDRESS * len(signed.access_list) + LISTED_SLOT * slots
    return intrinsic(signed.data) + listed


def accepted(data: bytes) -> int:
    """Return the gas of running a call, as if it paid from one existing holder to another."""
    return _measured(FLOWS.get(data[:4], "view"))


def refused(data: bytes, reason: str) -> int:
    """Return the gas of running a call until it reverts for a reason."""
    row = REFUSALS.get(cause(reason), "refused: signature")
    is_plain = data[:4] == abi.TRANSFER and row == "refused: balance"
    return _measured("refused: transfer" if is_plain else row)


def amount(old_base: int, new_base: int) -> int:
    """Return the extra gas of writing a balance (or the supply), relative to a usual change. A new
    holder's slot costs most; an emptied or unchanged slot costs less.
    """
    if old_base == new_base:
        return _more("settlement of nothing") // 2
    if not old_base:
        return _more("first settlement")
    return 0 if new_base else _more("last settlement")


def to_oneself() -> int:
    """Return the extra gas of a payment to oneself, relative to one to another holder; negative."""
    return _more("settlement to oneself")


def _more(row: str) -> int:
    return _measured(row) - _measured("settlement")


def _measured(row: str) -> int:
    return table().flows[row].execution
