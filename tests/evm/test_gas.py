"""What a flow costs: the committed table is what anvil says, and the ledger charges it."""

import json
from typing import Any

import pytest

from tests.chain.helpers import ALICE, MALLORY, OWNER, RELAYER, SHOP, cancel_call, nonce
from tests.evm.helpers import Town
from tests.evm.measure import TABLE, flows, measure, paid, prepare, with_v
from x402sim.protocol import abi


@pytest.fixture
def told() -> dict[str, Any]:
    """The committed table."""
    table: dict[str, Any] = json.loads(TABLE.read_text())
    return table


def test_the_gas_table_matches_anvil(circle_town: Town, told: dict[str, Any]):
    seen = measure(circle_town.driver(circle_town.anvil))
    if seen["node"] == told["node"]:
        assert seen == told
    else:  # another release may be used; what it charges is Ethereum's to say, not its own
        assert seen["flows"] == told["flows"]


def test_the_ledger_charges_what_anvil_does(circle_town: Town, told: dict[str, Any]):
    ledger = circle_town.driver(circle_town.ledger())
    prepare(ledger)
    used = {
        flow.name: ledger.send(flow.data, flow.sender).gas_used for flow in flows(ledger.domain)
    }
    assert used == {name: flow["gas"] for name, flow in told["flows"].items()}


def test_calls_without_a_row_are_charged_exactly_too(circle_town: Town):
    """Slots are written in the same way whatever wrote them, and so cost the same."""
    town, domain = circle_town, circle_town.network.domain
    alice, mallory, shop = ALICE.address_bytes, MALLORY.address_bytes, SHOP.address_bytes

    def pay(name: str, payer=ALICE, to=SHOP, value=5, **changes) -> bytes:
        return paid(name, payer, to, value, domain=domain, **changes)

    calls = {
        "a mint to a new holder": (abi.mint(mallory, 5), OWNER),
        "a transfer to oneself": (abi.transfer(mallory, 5), MALLORY),
        "all of it to a new holder": (abi.transfer(shop, 5), MALLORY),
        "nothing to a new holder": (abi.transfer(mallory, 0), ALICE),
        "nothing to oneself": (abi.transfer(alice, 0), ALICE),
        "a receipt of all": (pay("1", SHOP, ALICE, receive=True), ALICE),
        "a receipt by a new holder": (pay("2", receive=True), SHOP),
        "all of it to oneself": (pay("3", SHOP, SHOP), MALLORY),
        "a payment that the payer sends": (pay("4"), ALICE),
        "a receipt that the payer sends": (pay("5", to=ALICE, receive=True), ALICE),
        "a cancellation that the payer sends": (cancel_call(nonce("6"), domain=domain), ALICE),
        **{f"v of {v}": (pay(with_v(v, pay)), MALLORY) for v in (27, 28)},
        "a payment as bytes that the payer sends": (pay("7", packed=True), ALICE),
        "a new minter": (abi.calldata(abi.CONFIGURE_MINTER, shop, 7), OWNER),
        "a mint to a new holder who is no minter": (abi.mint(RELAYER.address_bytes, 7), OWNER),
        "all that a minter may": (abi.mint(alice, 7), SHOP),
        "paused": (abi.PAUSE, OWNER),
        "paused again": (abi.PAUSE, OWNER),
        "unpaused": (abi.UNPAUSE, OWNER),
        "unpaused again": (abi.UNPAUSE, OWNER),
        "nobody blacklisted": (abi.calldata(abi.BLACKLIST, b"\1" * 20), OWNER),
        "nobody blacklisted again": (abi.calldata(abi.BLACKLIST, b"\1" * 20), OWNER),
        "nobody unblacklisted": (abi.calldata(abi.UNBLACKLIST, b"\1" * 20), OWNER),
    }
    anvil, ledger = town.driver(town.anvil), town.driver(town.ledger())
    for name, (data, sender) in calls.items():
        seen = anvil.send(data, sender)
        assert seen.succeeded, name
        assert ledger.send(data, sender).gas_used == seen.gas_used, name
