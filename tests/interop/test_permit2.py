"""The official SDKs' shop and payers of `upto`, and of `exact` by Permit2, in this world.

Their shop settles what its handler used, by our facilitator, on the ledger and on anvil; their
payers, in Python and in JavaScript, and ours pay there.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import httpx
import pytest

from tests.interop import programs
from tests.interop.table import THOROUGH
from tests.serve.driver import Server
from x402sim import BASE_SEPOLIA, PaymentAuth, Wallet
from x402sim.protocol import abi
from x402sim.protocol.crypto import checksum, to_hex
from x402sim.protocol.permit2 import PERMIT2
from x402sim.protocol.phrase import KNOWN, keys_of

pytestmark = THOROUGH
ALICE, BOB, SHOP = (Wallet(key) for key in keys_of(KNOWN, 6)[3:])
MOST = 20_000


@dataclass(frozen=True)
class Metered:
    """The shop of the SDK, and the world with its facilitator."""

    server: Server
    url: str

    def approve(self, wallet: Wallet, amount_base: int) -> None:
        """Let an account of the world approve Permit2."""
        data = to_hex(abi.approve(PERMIT2, amount_base))
        call = {"from": wallet.address, "to": checksum(BASE_SEPOLIA.asset), "data": data}
        self.server.rpc("eth_sendTransaction", call)

    @property
    def earned(self) -> int:
        return self.server.balance(SHOP.address)


@pytest.fixture(scope="module")
def shop(server: Server) -> Iterator[Metered]:
    told = {
        "facilitator": server.ready["facilitator"],
        "payTo": SHOP.address,
        "network": BASE_SEPOLIA.caip2,
        "asset": checksum(BASE_SEPOLIA.asset),
        "name": BASE_SEPOLIA.token_name,
        "version": BASE_SEPOLIA.token_version,
    }
    with programs.serving("metered.py", told) as url:
        yield Metered(server, url)


@pytest.mark.parametrize("program", ["meter.py", "npm_v2/meter.mjs"])
def test_their_payer_pays_what_was_used_and_must_approve_first(shop: Metered, program: str) -> None:
    paths = ["upto/1858", "upto/0", "upto/20000", "exact"]
    told = {
        "key": ALICE.private_key,
        "network": BASE_SEPOLIA.caip2,
        "urls": [f"{shop.url}/{path}" for path in paths],
    }
    shop.approve(ALICE, 0)
    (refused,) = programs.run(program, told | {"urls": told["urls"][:1]})
    assert (refused["status"], refused["error"]) == (402, "permit2_allowance_required")

    before = shop.earned
    shop.approve(ALICE, 10 * MOST)
    answers = programs.run(program, told)
    used = ["1858", "0", "20000", "20000"]
    assert [answer["status"] for answer in answers] == [200] * 4, answers
    assert [answer["body"]["used"] for answer in answers] == used
    receipts = [answer["receipt"] for answer in answers]
    assert [receipt.get("amount") for receipt in receipts] == ["1858", "0", "20000", None]
    assert [bool(receipt["transaction"]) for receipt in receipts] == [True, False, True, True]
    assert shop.earned - before == 1_858 + 2 * MOST


def test_our_payer_pays_their_shop(shop: Metered) -> None:
    shop.approve(BOB, 10 * MOST)
    before = shop.earned
    payer = PaymentAuth(BOB, network=BASE_SEPOLIA, permit2=True)
    for path in ("upto/1858", "exact"):
        answer = httpx.get(f"{shop.url}/{path}", auth=payer)
        assert answer.status_code == 200, answer.text
    assert shop.earned - before == 1_858 + MOST
    assert payer.signed_base == 2 * MOST
