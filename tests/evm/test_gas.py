"""The gas of a flow: the committed table is anvil's, and the ledger charges the same."""

import json
from typing import Any

import pytest
from eth_account import Account

from tests.chain.helpers import ALICE, MALLORY, OWNER, RELAYER, SHOP, TOKEN
from tests.evm import circle
from tests.evm.flows import WALLET, Flow, flows, paid, prepare, refusals
from tests.evm.helpers import ChainDriver, Town, estimate
from tests.evm.measure import TABLE, measure
from x402sim.chain.base import Call, Reverted, TxReceipt
from x402sim.protocol import abi
from x402sim.protocol.crypto import Hash, checksum, to_hex
from x402sim.protocol.networks import TESTNET


@pytest.mark.thorough
def test_the_gas_table_matches_anvil(circle_town: Town):
    told, seen = json.loads(TABLE.read_text()), measure(circle_town.driver(circle_town.anvil))
    if seen["node"] == told["node"]:
        assert seen == told
    else:  # another release may be used: Ethereum sets the prices, not the release
        assert {**seen, "node": told["node"]} == told


def estimated(driver: ChainDriver, flow: Flow) -> int | str:
    """Return the gas that a call needs, or why it would be refused."""
    try:
        call = Call(flow.sender.address_bytes, TOKEN, flow.data)
        return driver.run(estimate(driver.chain, call))
    except Reverted as reverted:
        return str(reverted)


def revert_data(driver: ChainDriver, flow: Flow) -> str:
    """Return the data with which a chain refuses a call."""
    call = {"from": flow.sender.address, "to": to_hex(TOKEN), "input": to_hex(flow.data)}
    data: str = driver.rpc.ask("eth_call", call, "latest")["error"]["data"]
    return data


def test_the_ledger_charges_estimates_and_refuses_as_circles_contract(two: list[ChainDriver]):
    """To the last byte: three sentences end with a letter that the compiler has left there."""
    for driver in two:
        prepare(driver)
    accepted, refused = flows(two[0].domain), refusals(two[0].domain)
    for number, flow in enumerate([*accepted, *refused]):
        is_refused = bool(flow.name) and number >= len(accepted)
        if not is_refused or number % 8 == 0:  # an estimate takes a node longer than a call
            assert estimated(two[1], flow) == estimated(two[0], flow), flow
        if is_refused:
            assert revert_data(two[1], flow) == revert_data(two[0], flow), flow
        real, ours = (driver.send(flow.data, flow.sender) for driver in two)
        assert ours.succeeded is not is_refused, flow
        assert (ours.gas_used, ours.revert_reason) == (real.gas_used, real.revert_reason), flow


@pytest.mark.thorough
def test_a_reorganisation_before_costs_nothing_once_all_is_reset(circle_town: Town):
    """It changes the coinbase, which is warm: calls that name the zero address cost less."""
    ask = circle_town.driver(circle_town.anvil)
    cancel = abi.selector("cancelAuthorization(address,bytes32,uint8,bytes32,bytes32)") + bytes(160)

    def cost() -> int:
        return ask.send(cancel, OWNER).gas_used

    before = cost()
    ask.run(ask.chain.controls.reorg(1))
    assert cost() == before + 2500
    ask.run(ask.chain.controls.reset())
    assert cost() == before


WORD = 32
LENGTHS = (0, 1, 31, 32, 63, 64, 66, 96, 97, 128, 200, 1000, 4000)


@pytest.mark.thorough
@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("receive", [True, False])
def test_refused_signatures_cost_what_the_table_of_differences_says(
    two: list[ChainDriver], packed: bool, receive: bool
):
    """A node charges so much more than the ledger, for the words of the signature above three."""
    for driver in two:
        prepare(driver)
        assert driver.refusal(abi.transfer(WALLET, 50), ALICE) is None
    how: dict[str, Any] = {"packed": packed, "receive": receive, "domain": two[0].domain}
    by, limits = SHOP if receive else RELAYER, {}
    for length in LENGTHS if packed else ():
        how["spoil"] = lambda given, length=length: (given + bytes(5000))[:length]
        above = max(0, (length + WORD - 1) // WORD - 3)
        for payer, (least, most, a_word) in {
            ALICE.address_bytes: (-400, 0, 78),
            WALLET: (-7000, 50, 200),
        }.items():
            data = paid(f"{length} {payer.hex()}", ALICE, SHOP, 5, from_=payer, **how)
            limits[data] = least, most + a_word * above
    how.pop("spoil", None)
    limits[paid("another", ALICE, SHOP, 5, by=MALLORY, from_=WALLET, **how)] = -7000, 50
    for data, (least, most) in limits.items():
        real, ours = (driver.send(data, by) for driver in two)
        assert ours.revert_reason == real.revert_reason
        assert real.revert_reason is not None
        assert least <= real.gas_used - ours.gas_used <= most, data.hex()


@pytest.mark.thorough
def test_every_function_costs_the_same_with_any_words(two: list[ChainDriver]):
    """As a transaction, views too: without arguments, with more than are needed, with money."""
    compared = 0
    for name in sorted(circle.functions()):
        words = name.count(",") + (not name.endswith("()"))
        selector, alice = abi.selector(name), abi.word(ALICE.address_bytes)
        calls = [selector, selector + alice * words + bytes(33), selector + bytes(32 * words)]
        for data, value in ((calls[0], 1), *((each, 0) for each in calls)):
            real, ours = (driver.send(data, OWNER, value) for driver in two)
            assert ours.revert_reason == real.revert_reason, (name, data.hex())
            has_tail = "string" in name or name.endswith("bytes)")
            if len(data) == 4 or not has_tail:
                assert ours.gas_used == real.gas_used, (name, data.hex())
                compared += 1
    assert compared > 150


LIMITED = ("settlement", "last settlement", "settlement to oneself", "transfer", "last approval")


def test_an_estimate_is_enough_and_one_less_is_not(two: list[ChainDriver]):
    """The proxy keeps one part of 64: what is used is not what is needed."""
    for driver in two:
        prepare(driver)
    sent = 0
    for flow in flows(two[0].domain):
        if flow.name not in LIMITED:
            assert {driver.refusal(flow.data, flow.sender) for driver in two} == {None}
            continue
        needed = estimated(two[1], flow)
        assert isinstance(needed, int)
        for limit in (needed // 2 + 12_000, needed - 1, needed):
            receipts = [sent_with(driver, flow, limit) for driver in two]
            real, ours = ((it.gas_used, it.revert_reason) for it in receipts)
            assert ours[0] == real[0], (flow.name, limit)
            assert ours[1] == (None if limit == needed else "out of gas"), (flow.name, limit)
            assert str(real[1]).startswith(str(ours[1])), (flow.name, limit)
            sent += 1
    assert sent == 3 * len(LIMITED)


def sent_with(driver: ChainDriver, flow: Flow, limit: int) -> TxReceipt:
    """Send a call with a gas limit; return its receipt."""
    sender = flow.sender.address_bytes
    transaction = {
        "chainId": TESTNET.chain_id,
        "nonce": driver.account_nonce(sender),
        "gasPrice": TESTNET.base_fee_wei,
        "gas": limit,
        "to": checksum(TOKEN),
        "value": 0,
        "data": flow.data,
    }
    raw = Account.sign_transaction(transaction, flow.sender.private_key).raw_transaction
    mined = driver.rpc.result("eth_sendRawTransactionSync", to_hex(raw))  # answers once it is mined
    return driver.receipt(Hash(bytes.fromhex(mined["transactionHash"][2:])))
