"""The gas of a call: the price of its calldata, plus a value measured on a real node.

`gas.json` holds the measured values of Circle's contract behind its proxy, and names the node.
`tests/evm/measure.py` writes it, and a test repeats the measurement. For every flow in the table
the ledger charges exactly the node's gas, so studies of cost need no node. A call without a row is
charged as the nearest one:

| call | row |
|---|---|
| a function without a row | view |
| refused for a reason without a row of its function | a payment refused for the same |
| refused for anything that has no row | refused: signature |
"""

from functools import cache
from importlib.resources import files

import msgspec

from x402sim.protocol import abi
from x402sim.protocol.raw_transaction import SignedTransaction

TRANSACTION = 21_000
CALLDATA_ZERO = 4
CALLDATA_NONZERO = 16
"""EIP-2028's prices of one byte."""
KNOWN_ACCOUNT = 2_500
"""EIP-2929: by how much it is cheaper to look at an account that the transaction has touched."""
KNOWN_SLOT = 2_000
"""EIP-2929: by how much it is cheaper to read a slot once more."""
FLOOR_ZERO = 10
FLOOR_NONZERO = 40
"""EIP-7623's prices of one byte, for a transaction that does little else."""
LISTED_ADDRESS, LISTED_SLOT = 2_400, 1_900
"""EIP-2930's prices of one entry of an access list."""

FLOWS = {
    abi.TRANSFER_WITH_AUTHORIZATION: "settlement",
    abi.TRANSFER_WITH_AUTHORIZATION_BYTES: "settlement as bytes",
    abi.RECEIVE_WITH_AUTHORIZATION: "receipt",
    abi.RECEIVE_WITH_AUTHORIZATION_BYTES: "receipt as bytes",
    abi.CANCEL_AUTHORIZATION: "cancellation",
    abi.CANCEL_AUTHORIZATION_BYTES: "cancellation as bytes",
    abi.TRANSFER: "transfer",
    abi.APPROVE: "approval",
    abi.INCREASE_ALLOWANCE: "increase",
    abi.DECREASE_ALLOWANCE: "decrease",
    abi.TRANSFER_FROM: "transfer from",
    abi.PERMIT: "permit",
    abi.PERMIT_BYTES: "permit as bytes",
    abi.MINT: "mint",
    abi.BURN: "burn",
    abi.CONFIGURE_MINTER: "minter configured",
    abi.REMOVE_MINTER: "minter removed",
    abi.PAUSE: "pause",
    abi.UNPAUSE: "unpause",
    abi.BLACKLIST: "blacklisting",
    abi.UNBLACKLIST: "unblacklisting",
}
"""The row of each function that writes, by selector."""


class Measured(msgspec.Struct, frozen=True):
    """One row: the gas that a flow used, without the price of its calldata."""

    execution: int
    function: str = ""
    """Of a refusal: the row of the function that was called."""
    reason: str = ""
    """Of a refusal: its revert reason, without values."""
    v: int = 27
    """The last byte of the signature, where one is accepted."""


class GasTable(msgspec.Struct, frozen=True):
    """The part of the table that holds the measured flows."""

    flows: dict[str, Measured]


class Prices:
    """The gas of the token's calls."""

    def __init__(self, rows: dict[str, Measured]) -> None:
        usual, view = rows["settlement"].execution, rows["view"].execution
        self.other_v = rows["settlement, other v"].execution - usual
        """The extra gas of a signature whose `v` is 28."""
        more = {27: 0, 28: self.other_v}
        costs = {name: row.execution - more[row.v] for name, row in rows.items()}
        self._view = view
        self._accepted = {function: costs.get(row, view) for function, row in FLOWS.items()}
        self._refused = {
            (row.function, row.reason): row.execution for row in rows.values() if row.function
        }
        self._unknown = rows["refused: signature"].execution
        self._first = costs["first settlement"] - usual
        self._last = costs["last settlement"] - usual
        self._unchanged = (costs["settlement of nothing"] - usual) // 2
        self.to_oneself = costs["settlement to oneself"] - usual
        """The extra gas of a payment to oneself, relative to one to another holder; negative."""
        self.of_wallet = costs["settlement of a wallet"] - usual
        """The extra gas of a payer that is a smart wallet."""
        self.endless_permit = costs["endless permit"] - costs["permit"]
        """The extra gas of a permit without a deadline, which is not compared; negative."""
        self.new_flag = self._first - self._unchanged
        """The extra gas of setting a flag, relative to writing one that is set."""

    def accepted(self, data: bytes) -> int:
        """Return the gas of running a call, as if it paid from one existing holder to another."""
        return self._accepted.get(data[:4], self._view)

    def refused(self, data: bytes, reason: str) -> int:
        """Return the gas of running a call until it reverts for a reason."""
        why = without_values(reason)
        payment = self._refused.get(("settlement", why), self._unknown)
        return self._refused.get((FLOWS.get(data[:4], "view"), why), payment)

    def amount(self, old_base: int, new_base: int) -> int:
        """Return the extra gas of writing one slot, such as a balance, relative to a usual change.
        A new holder's slot costs most; an emptied or unchanged slot costs less.
        """
        if old_base == new_base:
            return self._unchanged
        if not old_base:
            return self._first
        return 0 if new_base else self._last


def without_values(reason: str) -> str:
    """Return a revert reason without the values of a custom error."""
    return reason.partition("(")[0]


@cache
def prices() -> Prices:
    """Return the committed table."""
    text = files("x402sim.chain.ledger").joinpath("gas.json").read_bytes()
    return Prices(msgspec.json.decode(text, type=GasTable).flows)


def intrinsic(data: bytes) -> int:
    """Return a transaction's intrinsic gas, charged before any code runs."""
    zeros = data.count(0)
    return TRANSACTION + CALLDATA_ZERO * zeros + CALLDATA_NONZERO * (len(data) - zeros)


def floor(data: bytes) -> int:
    """Return the least gas of a transaction, whatever its code used (EIP-7623)."""
    zeros = data.count(0)
    return TRANSACTION + FLOOR_ZERO * zeros + FLOOR_NONZERO * (len(data) - zeros)


def total(data: bytes, execution: int = 0) -> int:
    """Return the gas of a call whose code used `execution`."""
    return max(intrinsic(data) + execution, floor(data))


def intrinsic_of(signed: SignedTransaction) -> int:
    """Return a signed transaction's intrinsic gas, its access list included."""
    slots = sum(len(slots) for _, slots in signed.access_list)
    listed = LISTED_ADDRESS * len(signed.access_list) + LISTED_SLOT * slots
    return intrinsic(signed.data) + listed
