"""The official Python facilitator settles on our `/rpc`, with its own signer and its own checks."""

from collections.abc import Iterator

import pytest

from tests.interop import onchain, programs
from tests.interop.programs import NETWORKS
from tests.interop.table import THOROUGH, shows
from tests.serve.driver import Server

pytestmark = THOROUGH
REFUSED = "invalid_exact_evm_nonce_already_used"
"""Why it does not verify a payment again that it has settled; it asks by Multicall3."""
AMOUNT_BASE = 101


@pytest.fixture(scope="module", params=["ledger", "anvil"])
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    with onchain.chain(request.param) as running:
        yield running


@shows("facilitator", "PyPI x402", "JSON-RPC, x402 version {version}")
@pytest.mark.parametrize("version", [1, 2], ids=["v1", "v2"])
def test_it_verifies_and_settles_and_refuses_to_settle_twice(server: Server, version: int) -> None:
    given = onchain.told(server, 2 * version - 1, 2 * version)
    payer, facilitator = (
        server.ready["accounts"][n]["address"].lower() for n in (2 * version - 1, 2 * version)
    )
    steps = programs.run("facilitate.py", {**given, "x402": version, "amount": AMOUNT_BASE})
    assert steps["verified"]["isValid"] is True
    settled, again, checked = (steps[name] for name in ("settled", "again", "used"))
    assert (settled["success"], settled["network"]) == (True, NETWORKS[version])
    receipt = server.rpc("eth_getTransactionReceipt", settled["transaction"])
    assert (receipt["status"], receipt["from"]) == ("0x1", facilitator)
    assert (again["success"], again["errorReason"]) == (False, "transaction_failed")
    assert server.rpc("eth_getTransactionReceipt", again["transaction"])["status"] == "0x0"
    assert (checked["isValid"], checked["invalidReason"]) == (False, REFUSED)
    assert server.transfers(sender=payer) == [(payer, given["shop"].lower(), AMOUNT_BASE)]
