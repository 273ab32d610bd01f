"""The official Python servers and their facilitator client, unmodified, behind our facilitator.

The servers (FastAPI, Flask) of this package speak version 2; its facilitator client both versions.
Every payment is looked up on the chain.
"""

import base64
import json
from typing import Any

import pytest

from tests.interop import programs
from tests.interop.table import THOROUGH, shows
from tests.serve.driver import PRICE, QUOTE, Server, started
from x402sim import BASE_SEPOLIA
from x402sim.protocol import x402
from x402sim.protocol.crypto import checksum

pytestmark = THOROUGH
NAMES = {1: "base-sepolia", 2: "eip155:84532"}
USED = {1: "invalid_transaction_state", 2: "invalid_exact_evm_nonce_already_used"}


@shows("server, {shop}", "PyPI x402", "x402 version 2")
@pytest.mark.parametrize("version", ["v2"])
@pytest.mark.parametrize("shop", ["fastapi", "flask"])
def test_servers_settle_at_our_facilitator(server: Server, shop: str, version: str) -> None:
    merchant, payer = server.payer(funds=None), server.payer()
    sells = programs.sale(shop, server.ready["facilitator"], merchant.address, NAMES[2])
    with programs.serving("sell.py", sells) as url:
        got = programs.run("visit.py", {"url": f"{url}/weather", "key": payer.wallet.private_key})
    assert got["unpaid"]["status"] == 402
    assert (got["paid"]["status"], json.loads(got["paid"]["text"])) == (200, {"weather": "sunny"})
    told = json.loads(base64.b64decode(got["paid"]["headers"]["payment-response"]))
    assert (told["success"], told["network"]) == (True, NAMES[2])
    payer.assert_paid(merchant.address, told["transaction"])
    assert got["again"]["status"] == 402, "the same payment buys nothing twice"
    assert got["unreadable"]["status"] in (400, 402)


@shows("server", "PyPI fastapi-x402", "x402 version 1")
def test_a_facilitator_request_without_version_is_answered(server: Server) -> None:
    """It sends no `x402Version` beside `paymentPayload`, which has one."""
    merchant, payer = server.payer(funds=None), server.payer()
    sells = programs.sale("fastapi-x402", server.ready["facilitator"], merchant.address, NAMES[1])
    with programs.serving("sell.py", sells) as url:
        buys = {"client": "fetch", "url": f"{url}/weather", "key": payer.wallet.private_key}
        got = programs.run("npm_v1/buy.mjs", buys)
    assert (got["status"], got["body"]) == (200, {"weather": "sunny"})
    told = json.loads(base64.b64decode(got["headers"]["x-payment-response"]))
    assert (told["success"], told["network"], told["payer"]) == (True, NAMES[1], payer.address)
    payer.assert_paid(merchant.address, told["transaction"])


@shows("server on two networks, fastapi", "PyPI x402", "x402 version 2", "ledger")
def test_a_shop_on_two_networks_is_paid_on_either() -> None:
    """The client takes the first network that is offered."""
    with started("--network", "base-sepolia", "--network", "base") as server:
        merchant, payer = server.payer(funds=None), server.account()
        for first, name in (("eip155:8453", "base"), (NAMES[2], "base-sepolia")):
            networks = sorted(["eip155:8453", NAMES[2]], key=lambda each: each != first)
            shop = "fastapi", server.ready["facilitator"], merchant.address
            with programs.serving("sell.py", programs.sale(*shop, *networks)) as url:
                got = programs.run(
                    "visit.py", {"url": f"{url}/weather", "key": payer.wallet.private_key}
                )
            told = json.loads(base64.b64decode(got["paid"]["headers"]["payment-response"]))
            assert (got["paid"]["status"], told["network"]) == (200, first)
            got = server.http.get(f"/_sim/transfers?network={name}&account={merchant.address}")
            assert [(each["sender"], each["amountBase"]) for each in got.json()] == [
                (payer.address, str(PRICE))
            ]


@shows("client of discovery", "PyPI x402", "x402 version 2")
def test_what_is_sold_here_is_found(server: Server) -> None:
    asked = {"facilitator": server.ready["facilitator"], "query": "market snapshot"}
    got = programs.run("discover.py", asked)
    base = server.ready["service"]
    urls = {each["resource"] for each in got["listed"]}
    assert {f"{base}/api/perp/quote", f"{base}/api/perp/market"} <= urls
    assert got["found"][0] == f"{base}/api/perp/market"
    quote = next(each for each in got["listed"] if each["resource"].endswith("quote"))
    asks = quote["extensions"]["bazaar"]["info"]["input"]
    assert (asks["method"], server.http.post(QUOTE, json=asks["body"]).status_code) == ("POST", 402)


def requirements(version: x402.Version, to: str) -> dict[str, Any]:
    common = {
        "scheme": "exact", "network": NAMES[version], "payTo": to, "maxTimeoutSeconds": 300,
        "asset": checksum(BASE_SEPOLIA.asset), "extra": x402.domain_of(BASE_SEPOLIA),
    }  # fmt: skip
    if version == 2:
        return {**common, "amount": str(PRICE)}
    shown = {"resource": "http://127.0.0.1/weather", "description": "", "mimeType": "text/plain"}
    return {**common, **shown, "maxAmountRequired": str(PRICE)}


@shows("facilitator client", "PyPI x402", "x402 version {version}")
@pytest.mark.parametrize("version", [1, 2], ids=["v1", "v2"])
def test_the_facilitator_client_is_answered(server: Server, version: x402.Version) -> None:
    merchant, payer = server.payer(funds=None), server.payer()
    got = programs.run(
        "facilitate.py",
        {
            "facilitator": server.ready["facilitator"],
            "version": version,
            "requirements": requirements(version, merchant.address),
            "key": payer.wallet.private_key,
        },
    )
    kinds = {(kind["x402Version"], kind["network"]) for kind in got["supported"]["kinds"]}
    assert kinds == set(NAMES.items())
    assert got["supported"]["extensions"] == ["bazaar"]
    (signer,) = got["supported"]["signers"]["eip155:*"]
    assert got["verified"]["isValid"] is True
    assert got["verified"]["payer"] == payer.address
    mismatch = "invalid_exact_evm_payload_recipient_mismatch"
    assert (got["mismatch"]["isValid"], got["mismatch"]["invalidReason"]) == (False, mismatch)
    settled = got["settled"]
    assert (settled["success"], settled["network"]) == (True, NAMES[version])
    payer.assert_paid(merchant.address, settled["transaction"])
    mined = server.rpc("eth_getTransactionReceipt", settled["transaction"])
    assert mined["from"].lower() == signer.lower()
    assert (got["again"]["success"], got["again"]["errorReason"]) == (False, USED[version])
    assert (got["used"]["isValid"], got["used"]["invalidReason"]) == (False, USED[version])
