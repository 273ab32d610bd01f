"""What a flow costs: the committed table is what anvil says, and how near the ledger is."""

import json

import pytest

from tests.evm.helpers import Bench, Town
from tests.evm.measure import FLOWS, TABLE, measure

MEASURED = json.loads(TABLE.read_text())["flows"]


def test_the_table_is_what_anvil_says(anvil: Bench):
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


@pytest.mark.parametrize("profile", ["fiat_token", "openzeppelin"])
def test_the_ledger_is_near(town: Town, profile: str):
    """Within 4% for what a payment needs; a mint and a refusal are modelled roughly."""
    ledger = town.bench(town.ledger(profile))
    used = {flow.name: ledger.send(flow.data, flow.sender).gas_used for flow in FLOWS}
    needed = ("first settlement", "settlement", "receipt", "cancellation", "refund", "transfer")
    for name in needed:
        assert used[name] == pytest.approx(MEASURED[name]["gas"], rel=0.04), name
