"""Multicall3 for `eth_call`: several calls in one, as wagmi, viem and others read by default.

On anvil `Multicall.sol` of `chain/contract` has the same functions, and some that few clients call.
On the ledger a transaction to Multicall3 reverts.
"""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from x402sim.chain.base import Call, Reverted
from x402sim.chain.contract import MULTICALL
from x402sim.chain.ledger.frame import Token
from x402sim.chain.ledger.permit2 import called
from x402sim.chain.ledger.state import LedgerState
from x402sim.chain.reverts import data_of
from x402sim.http.limits import MAX_CALLS, MAX_TRANSACTION_BYTES
from x402sim.protocol import abi
from x402sim.protocol.crypto import Address

FAILED = "Multicall3: call failed"
NO_TRANSACTIONS = "Multicall3: the ledger answers its calls, and takes no transactions of it"
MAX_BYTES = MAX_TRANSACTION_BYTES
"""The largest calldata, and the largest sum of the parts, which may overlap."""
CALLS, CALLS3, RESULTS = "(address,bytes)[]", "(address,bool,bytes)[]", "(bool,bytes)[]"
Result = tuple[bool, bytes]


class Multicall(msgspec.Struct, frozen=True):
    """One call: token, state and time."""

    token: Token
    state: LedgerState
    now_s: int
    is_inner: bool = False
    """Whether Multicall3 called itself, which is allowed once, for a balance or the block."""

    def answer(self, data: bytes) -> bytes:
        """Return the answer; raises `Reverted`."""
        function = _FUNCTIONS.get(data[:4])
        if function is None or len(data) > MAX_BYTES:
            raise Reverted("")
        kinds, do, results = function
        if self.is_inner and any(kind.endswith("[]") for kind in kinds):
            raise Reverted("")
        from eth_abi.abi import encode  # which takes a while

        return encode(results, do(self, *_decoded(kinds, data[4:])))

    def _all(self, calls: Sequence[tuple[str, bool, bytes]]) -> list[Result]:
        if sum(len(data) for *_, data in calls) > MAX_BYTES:
            raise Reverted("")
        return [self._one(Address(bytes.fromhex(to[2:])), may, data) for to, may, data in calls]

    def _one(self, target: Address, may_fail: bool, data: bytes) -> Result:
        mark = self.state.mark()
        try:
            return True, (
                replace(self, is_inner=True).answer(data)
                if target == MULTICALL
                else called(self.token, self.state, Call(MULTICALL, target, data), self.now_s)[0]
            )
        except Reverted as reverted:
            self.state.undo(mark)
            if not may_fail:
                raise Reverted(FAILED) from reverted
            return False, data_of(reverted)

    def _some(self, required: bool, calls: Sequence[tuple[str, bytes]]) -> list[Result]:
        return self._all([(to, not required, data) for to, data in calls])


def _head(m: Multicall) -> int:
    return m.state.head.number


def _values(m: Multicall, calls: Sequence[tuple[str, bytes]]) -> list[Any]:
    return [_head(m), [data for _, data in m._some(True, calls)]]


def _balance(m: Multicall, account: str) -> list[int]:
    return [m.state.native.get(Address(bytes.fromhex(account[2:])), 0)]


_FUNCTIONS: dict[bytes, tuple[tuple[str, ...], Callable[..., Sequence[Any]], tuple[str, ...]]] = {
    abi.selector(f"{name}({','.join(kinds)})"): (kinds, do, results)
    for name, kinds, do, results in (
        ("aggregate3", (CALLS3,), lambda m, calls: [m._all(calls)], (RESULTS,)),
        ("tryAggregate", ("bool", CALLS), lambda m, *arguments: [m._some(*arguments)], (RESULTS,)),
        ("aggregate", (CALLS,), _values, ("uint256", "bytes[]")),
        ("getBlockNumber", (), lambda m: [_head(m)], ("uint256",)),
        ("getCurrentBlockTimestamp", (), lambda m: [m.now_s], ("uint256",)),
        ("getEthBalance", ("address",), _balance, ("uint256",)),
        ("getChainId", (), lambda m: [m.token.network.chain_id], ("uint256",)),
    )
}
"""Each function by selector: types of the arguments, implementation, types of the answer."""


def _decoded(kinds: Sequence[str], data: bytes) -> Sequence[Any]:
    from eth_abi.abi import decode
    from eth_abi.exceptions import DecodingError

    def word(at: int) -> int:
        return int.from_bytes(data[at : at + 32])

    if kinds and kinds[-1].endswith("[]") and word(word(32 * len(kinds) - 32)) > MAX_CALLS:
        raise Reverted("")  # before it is decoded, which takes long
    try:
        return decode(kinds, data, strict=False)
    except (DecodingError, OverflowError) as wrong:
        raise Reverted("") from wrong
