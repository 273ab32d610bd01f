"""The official Python facilitator settles on our `/rpc`, with its own signer and its own checks."""

from collections.abc import Iterator

import pytest

from tests.interop import onchain, venv
from tests.serve.driver import Server

VERSIONS = {"v1": ("base-sepolia", 101), "v2": ("eip155:84532", 102)}


@pytest.fixture(params=["ledger", pytest.param("anvil", marks=pytest.mark.thorough)])
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    with onchain.chain(request.param) as running:
        yield running


def test_it_verifies_and_settles_and_refuses_to_settle_twice(server: Server) -> None:
    given = onchain.told(server, 1, 2)
    found = venv.run("be_facilitator.py", given)
    payer, facilitator = (server.ready["accounts"][n]["address"] for n in (1, 2))
    for version, (network, _) in VERSIONS.items():
        steps = found[version]
        assert steps["verified"]["isValid"] is True
        settled = steps["settled"]
        assert (settled["success"], settled["network"]) == (True, network)
        receipt = server.rpc("eth_getTransactionReceipt", settled["transaction"])
        assert (receipt["status"], receipt["from"]) == ("0x1", facilitator.lower())
        again = steps["again"]
        assert (again["success"], again["errorReason"]) == (False, "transaction_failed")
        reverted = server.rpc("eth_getTransactionReceipt", again["transaction"])
        assert reverted["status"] == "0x0"
        assert steps["checked again"]["isValid"] is False
    assert found["v2"]["checked again"]["invalidReason"] == "invalid_exact_evm_nonce_already_used"
    assert server.transfers(sender=payer) == [
        (payer.lower(), given["shop"].lower(), amount) for _, amount in VERSIONS.values()
    ]
