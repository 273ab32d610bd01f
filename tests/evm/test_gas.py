"""What a flow costs: the committed table is what anvil says, and the ledger charges it."""

import json

import pytest

from tests.chain.helpers import ALICE, MALLORY, OWNER, RELAYER, SHOP
from tests.evm.helpers import ChainDriver, Town
from tests.evm.measure import FLOWS, TABLE, measure, paid
from x402sim.chain.ledger.profiles import PROFILES
from x402sim.protocol import abi

MEASURED = json.loads(TABLE.read_text())["flows"]


def test_the_gas_table_matches_anvil(anvil: ChainDriver):
    told = json.loads(TABLE.read_text())
    seen = measure(anvil)
    if seen["node"] == told["node"]:
        assert seen == told
    else:  # another release may be used; what it charges is Ethereum's to say, not its own
        assert seen["flows"] == told["flows"]


def test_the_table_has_every_flow():
    assert list(MEASURED) == [flow.name for flow in FLOWS]


def test_a_new_holder_costs_a_new_slot_and_an_emptied_one_gives_some_back():
    execution = {name: flow["execution"] for name, flow in MEASURED.items()}
    assert execution["first settlement"] - execution["settlement"] == 22_100 - 5_000
    assert execution["first transfer"] - execution["transfer"] == 22_100 - 5_000
    assert execution["settlement"] - execution["last settlement"] == 4_800
    assert execution["refund"] == execution["settlement"]


@pytest.mark.parametrize("profile", PROFILES)
def test_the_ledger_charges_what_anvil_does(town: Town, profile: str):
    ledger = town.driver(town.ledger(profile))
    used = {flow.name: ledger.send(flow.data, flow.sender).gas_used for flow in FLOWS}
    assert used == {name: flow["gas"] for name, flow in MEASURED.items()}


def test_calls_without_a_row_are_charged_exactly_too(town: Town):
    """Balances are written in the same way whatever wrote them, and so cost the same."""
    alice, mallory, shop = ALICE.address_bytes, MALLORY.address_bytes, SHOP.address_bytes
    calls = {
        "a mint to a new holder": (abi.mint(mallory, 5), OWNER),
        "a mint of nothing": (abi.mint(mallory, 0), OWNER),
        "a transfer to oneself": (abi.transfer(mallory, 5), MALLORY),
        "all of it to a new holder": (abi.transfer(shop, 5), MALLORY),
        "nothing to a new holder": (abi.transfer(mallory, 0), ALICE),
        "nothing to oneself": (abi.transfer(alice, 0), ALICE),
        "a receipt of all": (paid("1", SHOP, ALICE, 5, receive=True), ALICE),
        "a receipt by a new holder": (paid("2", ALICE, SHOP, 5, receive=True), SHOP),
        "all of it to oneself": (paid("3", SHOP, SHOP, 5), RELAYER),
    }
    anvil, ledger = town.driver(town.anvil), town.driver(town.ledger("openzeppelin"))
    for name, (data, sender) in calls.items():
        seen = anvil.send(data, sender)
        assert seen.succeeded, name
        assert ledger.send(data, sender).gas_used == seen.gas_used, name
