"""A page in headless Chromium pays with the wallet that its user has: an EIP-1193 provider.

The wallet's requests go to `/rpc` from the origin of an extension. Chromium is an npm package.
"""

from collections.abc import Iterator

import pytest

from tests.interop import programs
from tests.interop.conftest import base_sepolia
from tests.interop.table import THOROUGH, shows
from tests.serve.driver import ORDER, PRICE, QUOTE, Server
from x402sim.protocol.crypto import checksum

PAGE = "http://localhost:3000"
WALLET = "chrome-extension://nkbihfbeogaeaoehlefnkodbefgpgknn"
SHOP = checksum(bytes([7]) * 20)
ORIGINS = ("--allow-origin", PAGE, "--rpc-origin", "chrome-extension://*")


@pytest.fixture(params=["ledger", "anvil"])
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    with base_sepolia(request.param, *ORIGINS) as running:
        yield running


@shows("browser of a paying page", "npm @sparticuz/chromium", "EIP-1193 {by}, x402 version 2")
@THOROUGH  # npm installs Chromium, of 65 MB
@pytest.mark.parametrize("by", ["by HTTP", "by WebSocket"])
def test_a_page_pays_with_an_injected_wallet(server: Server, by: str) -> None:
    told = {
        "socket": by == "by WebSocket",
        "page": PAGE,
        "wallet": WALLET,
        "rpc": server.ready["rpc"],
        "url": server.ready["service"] + QUOTE,
        "body": ORDER,
        "token": server.ready["asset"],
        "shop": SHOP,
    }
    found = programs.run("npm_page/pay.mjs", told)
    bought, payer = found["bought"], server.ready["accounts"][0]["address"]
    assert (bought["asked"], bought["status"]) == (402, 200)
    assert bought["body"]["quote"]["pair"] == ORDER["pair"]
    assert bought["settled"]["success"] is True
    assert bought["payer"] == payer
    moved = server.transfers(sender=payer)
    shops = server.ready["payTo"], SHOP
    assert moved == [
        (payer.lower(), to.lower(), value) for to, value in zip(shops, (PRICE, 7), strict=True)
    ]
    for tx_hash in (bought["settled"]["transaction"], found["sent"]):
        assert server.rpc("eth_getTransactionReceipt", tx_hash)["status"] == "0x1"
    used = {"eth_requestAccounts", "eth_signTypedData_v4", "eth_sendTransaction"}
    assert used <= set(found["asked"])
