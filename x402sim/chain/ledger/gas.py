"""The gas of a call: the price of its calldata, plus values measured on a real node.

`gas.json` holds the measured values of Circle's contract behind its proxy, and names the node.
`tests/evm/measure.py` writes it, and a test repeats the measurement: the cost of each function when
accepted, and when refused for each reason. The ledger adds what depends on the state: slots that
are new, emptied or touched before, and accounts that the transaction has touched. A refusal without
a row is charged as a payment refused for the same reason, else for its signature.

Where a node charges more or less, because the ledger runs no code (`tests/evm/test_gas.py` tests
the rows of signatures and of delegations):

| call | difference |
|---|---|
| refused for a signature of another length than 65 bytes | below 400 less, 78 more a word above 3 |
| `bytes` or a string that does not fit into the calldata | below 300 |
| refused by a payer's smart wallet | below 7,000 less, 50 more, and 200 more a word above 3 |
| a payer with a contract that is not the smart wallet here | what its code does |
| what the access list names, or a payer that is a precompile | at most 2,500 each |
| the administration of the token and of its proxy, which the ledger lacks | all of it |
| Permit2 and the x402 proxies | at most 5,200, of a payment 700 |
| a delegation (EIP-7702) of an account that was never there | anvil refunds 12,500, geth nothing |
"""

from bisect import bisect
from functools import cache

import msgspec

from x402sim.chain.base import GAS_LIMIT, ChainError
from x402sim.protocol import abi
from x402sim.protocol.raw_transaction import SignedTransaction

TRANSACTION = 21_000
CALLDATA_ZERO = 4
CALLDATA_NONZERO = 16
"""EIP-2028's prices of one byte."""
KNOWN_ACCOUNT = 2_500
"""EIP-2929: the discount for an account that the transaction has touched already."""
KNOWN_SLOT = 2_000
"""EIP-2929: the discount for a slot that the transaction has read already."""
CLEARED, RESTORED = 4_800, 2_800
"""EIP-3529: the refunds for an emptied slot, and for a slot with the former value again."""
REFUND_QUOTIENT = 5
"""EIP-3529: at most this part of the gas is refunded."""
COPIED_WORD = 6
"""The gas of copying a word to new memory."""
SENTRY = 2_301
"""EIP-2200: a write needs at least this rest of gas, whatever the price of the write."""
FLOOR_ZERO = 10
FLOOR_NONZERO = 40
"""EIP-7623's prices of a byte, for a transaction that does little else."""
LISTED_ADDRESS, LISTED_SLOT = 2_400, 1_900
"""EIP-2930's prices of one entry of an access list."""
DELEGATION, DELEGATION_OF_KNOWN = 25_000, 12_500
"""EIP-7702: the price of a delegation, and the refund for an account that existed before."""
PERMIT2_ENTERED, PERMIT2_CALLED, PERMIT2_SIGNED, PERMIT2_TOKEN = 3_700, 6_000, 6_900, 3_900
PERMITTED_BEFORE, PERMIT_REFUSED, NEW_WORD, CHANGED_WORD = -11_900, 3_500, 22_100, 5_000
"""The gas of Permit2 and the proxies, measured on anvil: to enter, a proxy's call of Permit2, the
signature, the call of the token; the saving by a permit in the same transaction; more for a permit
that fails; the write of a word of nonces.
"""
REWRITTEN, NOTHING_AGAIN = -2_800, 15_100
"""EIP-3529: a word that the transaction has changed is changed again, and gets back its former 0:
less gas, and more refund than for an emptied slot.
"""
GIVING_UP = 39
"""The gas of the proxy for passing on that the implementation ran out of gas."""
LENT = 64
"""EIP-150: a call can use all gas but one part of 64."""
SHORT, WITH_VALUE, NOT_SIGNED = "arguments cut off", "with value", "FiatTokenV2: invalid signature"


class Measured(msgspec.Struct, frozen=True):
    """One flow: the used gas, without the price of the calldata."""

    execution: int
    v: int = 27
    """The last byte of the signature, if any."""


class Function(msgspec.Struct, frozen=True):
    """One function, without the price of calldata and of copying calldata in the proxy."""

    accepted: int = 0
    """All of it, refunds not counted."""
    before: int = 0
    """The part of `accepted` that the proxy uses before calling the implementation."""
    after: int = 0
    """The part of `accepted` that the proxy uses after the implementation has returned."""
    tail: int = 0
    """The part of `accepted` from the last write of storage on; 0 if the function writes nothing.

    A write needs a rest of `SENTRY` gas, so the call needs more than it uses (see `least`). Of a
    write in an inner call, which is lent only 63/64 of the gas, `measure.py` stores less.
    """
    refused: dict[str, int] = {}
    """The gas of a refusal, by the name of its row."""


NOTHING = Function()


class GasTable(msgspec.Struct, frozen=True):
    """The committed table. The keys of `unknown` and `with_value` are selectors in ascending order:
    a cost holds up to the next one, because the contract's dispatcher searches in halves.
    """

    flows: dict[str, Measured]
    functions: dict[str, Function]
    unknown: dict[str, int]
    """The gas of a call whose selector no function has."""
    with_value: dict[str, int]
    """The gas of a call that carries native currency."""


class Prices:
    """The gas of the token's calls."""

    def __init__(self, table: GasTable) -> None:
        rows = table.flows
        self.other_v = rows["settlement, other v"].execution - rows["settlement"].execution
        """The extra gas of a signature whose `v` is 28."""
        costs = {name: row.execution - self.other_v * (row.v == 28) for name, row in rows.items()}
        usual = costs["settlement"]
        self._functions = {abi.selector(name): row for name, row in table.functions.items()}
        self._accepted = {function: row.accepted for function, row in self._functions.items()}
        self._unknown, self._with_value = table.unknown, table.with_value
        self._payment = self._functions[abi.TRANSFER_WITH_AUTHORIZATION].refused
        self._first = costs["first settlement"] - usual
        self._unchanged = (costs["settlement of nothing"] - usual) // 2
        self.to_oneself = costs["settlement to oneself"] - usual
        """The extra gas of a payment to oneself, relative to one to another holder; negative."""
        self.of_wallet = rows["settlement of a wallet"].execution - usual
        """The extra gas of a payer that is a smart wallet."""
        self.of_delegate = rows["settlement of a delegate"].execution - usual
        """The same, of an account that delegates to a smart wallet's code (EIP-7702) and signs
        itself.
        """
        self.endless_permit = costs["endless permit"] - costs["permit"]
        """The extra gas of a permit without a deadline, which is not compared; negative."""
        self.new_flag = self._first - self._unchanged
        """The extra gas of setting a flag, relative to writing a set flag again."""

    def accepted(self, data: bytes) -> int:
        """Return the gas of running a call, as if for a payment between two existing holders."""
        words = (len(data) + 31) >> 5
        memory = words if words > 3 else 3
        return self._accepted.get(data[:4], 0) + 3 * (words + memory) + (memory * memory >> 9)

    def refused(self, data: bytes, key: str, reason: str) -> int:
        """Return the gas of running a call until it reverts; `key` names its row."""
        row = self._functions.get(data[:4], NOTHING)
        if key in row.refused:
            cost = row.refused[key]
        elif key == WITH_VALUE:
            cost = _by_selector(self._with_value, data)
        elif row is NOTHING:
            cost = _by_selector(self._unknown, data)
        else:
            cost = self._payment.get(key, self._payment[NOT_SIGNED])
        return cost + copied(data, 3 + (len(reason) + 31) // 32 if reason else 0)

    def _lent(self, data: bytes) -> int:
        """Return the gas that the proxy uses before calling the implementation."""
        return self._functions.get(data[:4], NOTHING).before + copied(data)

    def wasted(self, data: bytes, left: int) -> int:
        """Return the gas of a call that runs out of gas: all but the rest of the proxy's part."""
        kept = max(0, left - self._lent(data)) // LENT
        return left - max(0, kept - GIVING_UP)

    def least(self, data: bytes, execution: int, last: int) -> int:
        """Return the gas that an accepted call needs. Some gas is left in the end: the proxy keeps
        a 64th, and a write needs more than the price of the write. `last` is the extra gas of the
        last write.
        """
        row, lent = self._functions.get(data[:4], NOTHING), self._lent(data)
        inner = execution - lent - row.after
        if row.tail:
            inner += max(0, SENTRY - row.tail - last)
        return max(execution, lent + inner + (inner - 1) // (LENT - 1))

    def amount(self, old_base: int, new_base: int) -> int:
        """Return the extra gas of writing one slot, such as a balance, relative to a usual change.
        A new holder's slot costs most; an unchanged slot costs less.
        """
        if old_base == new_base:
            return self._unchanged
        return 0 if old_base else self._first


def _by_selector(costs: dict[str, int], data: bytes) -> int:
    """Return the cost of the last selector that is not above the call's own."""
    own = data[:4].hex() if len(data) >= 4 else ""
    return [*costs.values()][bisect([*costs], own) - 1]


def copied(data: bytes, returned: int = 0) -> int:
    """Return the proxy's price for copying calldata, and for the memory of calldata and of an
    answer of some words.
    """
    words = (len(data) + 31) // 32
    memory = max(3, words, returned)
    return 3 * (words + memory) + memory * memory // 512


@cache
def prices() -> Prices:
    """Return the committed table."""
    from importlib.resources import files

    text = files("x402sim.chain.ledger").joinpath("gas.json").read_bytes()
    return Prices(msgspec.json.decode(text, type=GasTable))


def intrinsic(data: bytes) -> int:
    """Return a transaction's intrinsic gas, charged before any code runs."""
    zeros = data.count(0)
    return TRANSACTION + CALLDATA_ZERO * zeros + CALLDATA_NONZERO * (len(data) - zeros)


def require_fit(data: bytes) -> None:
    """Raise `ChainError` if a call's data alone costs more than `GAS_LIMIT`."""
    if intrinsic(data) > GAS_LIMIT:
        raise ChainError(f"intrinsic gas too high: {len(data)} bytes of calldata")


def floor(data: bytes) -> int:
    """Return the least gas of a transaction, whatever its code used (EIP-7623)."""
    zeros = data.count(0)
    return TRANSACTION + FLOOR_ZERO * zeros + FLOOR_NONZERO * (len(data) - zeros)


def intrinsic_of(signed: SignedTransaction) -> int:
    """Return a signed transaction's intrinsic gas, its lists included."""
    slots = sum(len(slots) for _, slots in signed.access_list)
    lists = of_lists(len(signed.access_list), slots, len(signed.delegations))
    return intrinsic(signed.data) + lists


def of_lists(addresses: int, slots: int, delegations: int) -> int:
    """Return the gas of a transaction's lists, given the number of their entries."""
    return LISTED_ADDRESS * addresses + LISTED_SLOT * slots + DELEGATION * delegations
