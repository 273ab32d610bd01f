"""Multicall3 at its well-known address: the ledger's, our contract's on anvil, and the real one.

The real one's code is `multicall3.hex`; `tests/interop/test_wallets.py` compares the file with the npm package viem.
"""

from pathlib import Path

import pytest
from eth_abi import encode
from eth_abi.abi import decode

from tests.chain.helpers import ALICE, MALLORY, NOW_S, RELAYER, SHOP, TOKEN
from tests.evm import circle
from tests.evm.helpers import ChainDriver
from x402sim.chain import reverts
from x402sim.chain.base import Call, Reverted
from x402sim.chain.contract import MULTICALL
from x402sim.chain.ledger.multicall import MAX_BYTES
from x402sim.protocol import abi
from x402sim.protocol.crypto import Address, checksum, to_hex

REAL = Path(__file__).parent / "multicall3.hex"
TOKEN_TEXT, SELF, WALLET = checksum(TOKEN), checksum(MULTICALL), SHOP.address
BALANCE, NO_FUNCTION = abi.balance_of(ALICE.address_bytes), b"\xde\xad\xbe\xef"
TOO_MUCH = abi.transfer(SHOP.address_bytes, 5)
PERMIT_NOTHING = abi.calldata(abi.APPROVE, SHOP.address_bytes, 7)
ALLOWANCE = abi.selector("allowance(address,address)")
ALLOWED = abi.calldata(ALLOWANCE, MULTICALL, SHOP.address_bytes)
ETH_BALANCE = abi.selector("getEthBalance(address)") + abi.word(MALLORY.address_bytes)
CALLS = [(TOKEN_TEXT, BALANCE), (TOKEN_TEXT, abi.NAME), (WALLET, b"\x01"), (SELF, ETH_BALANCE)]
FAILING = [*CALLS, (TOKEN_TEXT, TOO_MUCH), (TOKEN_TEXT, NO_FUNCTION)]
WRITING = [(TOKEN_TEXT, PERMIT_NOTHING), (TOKEN_TEXT, ALLOWED)]


def three(calls, *, may_fail: bool) -> bytes:
    function = abi.selector("aggregate3((address,bool,bytes)[])")
    return function + encode(
        ["(address,bool,bytes)[]"], [[(to, may_fail, data) for to, data in calls]]
    )


def some(name: str, calls, *required: bool) -> bytes:
    kinds = [*(["bool"] if required else []), "(address,bytes)[]"]
    return abi.selector(f"{name}({','.join(kinds)})") + encode(kinds, [*required, calls])


ASKED = {
    "nothing": three([], may_fail=True),
    "reads": three(CALLS, may_fail=False),
    "some fail": three(FAILING, may_fail=True),
    "one must not fail": three(FAILING, may_fail=False),
    "aggregate": some("aggregate", CALLS),
    "aggregate, one fails": some("aggregate", FAILING),
    "tryAggregate": some("tryAggregate", FAILING, False),
    "tryAggregate, all must do": some("tryAggregate", FAILING, True),
    "getEthBalance": ETH_BALANCE,
    **{
        name: abi.selector(f"{name}()")
        for name in ("getBlockNumber", "getChainId", "getCurrentBlockTimestamp")
    },
    "no such function": NO_FUNCTION,
    "no argument": ETH_BALANCE[:4],
    "an array cut off": three(CALLS, may_fail=True)[:-64],
}


def answer(chain: ChainDriver, data: bytes, to: Address = MULTICALL) -> bytes | str:
    """Return a chain's answer in the newest block, or the refusal."""
    call = {"from": RELAYER.address, "to": to_hex(to), "input": to_hex(data)}
    told = chain.rpc.ask("eth_call", call, hex(chain.height()))
    if "error" in told:
        return reverts.text_of(bytes.fromhex(told["error"]["data"][2:]))
    return bytes.fromhex(told["result"][2:])


@pytest.fixture
def real(two: list[ChainDriver]) -> Address:
    """The real Multicall3 on anvil; both chains have as many blocks."""
    code = bytes.fromhex(REAL.read_text())
    chain = two[0].chain
    ask = chain.node.ask_now
    two[0].town.run(two[1].chain.controls.mine())
    ask("evm_setNextBlockTimestamp", NOW_S)
    return circle.create(ask, code, RELAYER.address_bytes)


def test_it_answers_as_the_real_one(two: list[ChainDriver], real: Address):
    for name, data in ASKED.items():
        wanted = answer(two[0], data, real)
        assert answer(two[0], data) == wanted, name
        assert answer(two[1], data) == wanted, name
    assert answer(two[0], ASKED["one must not fail"], real) == "Multicall3: call failed"
    (results,) = decode(["(bool,bytes)[]"], answer(two[1], ASKED["some fail"]))
    assert [done for done, _ in results] == [True, True, True, True, False, False]
    written = three(WRITING, may_fail=False)  # from the address of the one that is asked
    assert answer(two[1], written) == answer(two[0], written) != answer(two[0], written, real)
    assert two[1].view(ALLOWED) == abi.word(0)


def test_the_ledger_answers_calls_only_and_of_some_size(two: list[ChainDriver]):
    """The real Multicall3 has more: nested calls, transactions, any size."""
    ledger = two[1]
    nested = three([(SELF, three(CALLS, may_fail=True))], may_fail=True)
    (results,) = decode(["(bool,bytes)[]"], answer(ledger, nested))
    assert results == ((False, b""),)
    assert answer(ledger, three(CALLS, may_fail=True) + bytes(MAX_BYTES)) == ""
    reason = "Multicall3: the ledger answers its calls, and takes no transactions of it"
    sent = ledger.put(three(WRITING, may_fail=False), to=MULTICALL)
    assert ledger.run(ledger.chain.receipt(sent)).revert_reason == reason
    with pytest.raises(Reverted, match="takes no transactions"):
        ledger.run(ledger.chain.estimate_gas(Call(RELAYER.address_bytes, MULTICALL, nested)))
