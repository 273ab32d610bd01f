"""Clients, servers and facilitators pay each other by EIP-3009, by Permit2 and in `upto`: ours, and
the official ones in Python and in JavaScript, in every pairing, on our chain.

The payments go over HTTP, and what moved is read from the chain. `pairings.py` makes the guide's
tables of what these tests show.
"""

import base64
import json
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from tests.interop import programs
from tests.interop.pairings import FACILITATOR, PAIRS, PARTS, PAYER, SERVICE, shows_routes
from tests.interop.table import ROOT, THOROUGH
from tests.serve.driver import READY_S, X402SIM, Running, Server
from x402sim import BASE_SEPOLIA, PaymentAuth, Wallet
from x402sim.clock import stopwatch
from x402sim.protocol import abi
from x402sim.protocol.crypto import checksum, to_hex
from x402sim.protocol.permit2 import PERMIT2
from x402sim.protocol.phrase import KNOWN, keys_of
from x402sim.protocol.x402 import json_in, to_base64

pytestmark = THOROUGH
ALICE, BOB, SHOP, SETTLER = (Wallet(key) for key in keys_of(KNOWN, 7)[3:])
MOST, USED = 20_000, 1_858
PATHS = ("eip3009", "permit2", f"upto/{USED}")
"""What a shop sells, one for each of `WAYS`."""
UPTO = f"GET /upto/{USED} 0.00{USED} upto 0.02"
CLIENTS = {"Python": "meter.py", "npm": "npm_v2/meter.mjs"}
SHOPS = {"Python": "metered.py", "npm": "npm_v2/metered.mjs"}
FACILITATORS = {
    "Python": (programs.in_python, "facilitator.py"),
    "npm": (programs.in_node, "facilitator.mjs"),
}
"""How each recipe of a facilitator is run."""


@pytest.fixture(scope="module")
def facilitator(
    request: pytest.FixtureRequest, server: Server, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """The URL of a facilitator: our world's, or a program with an account of the world."""
    if request.param == "ours":
        yield server.ready["facilitator"]
        return
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    env = {
        "PORT": str(port),
        "RPC_URL": server.ready["rpc"],
        "X402SIM_PRIVATE_KEY": SETTLER.private_key,
        "X402SIM_NETWORK": BASE_SEPOLIA.caip2,
        "METERED": "yes",
    }
    command, recipe = FACILITATORS[request.param]
    text = (ROOT / "conformance" / "recipes" / recipe).read_text("utf-8")
    program = command(text, tmp_path_factory.mktemp("facilitator"))
    with Running(program=program, env=env | programs.NO_PROXY) as running:
        elapsed, url = stopwatch(), f"http://127.0.0.1:{port}"
        while not _answers(f"{url}/supported"):
            assert running.process.poll() is None, running.errors()
            assert elapsed() < READY_S
        yield url


def _answers(url: str) -> bool:
    try:
        return httpx.get(url, trust_env=False, timeout=READY_S).is_success
    except httpx.TransportError:
        return False


@dataclass(frozen=True)
class Metered:
    """A shop, the world, and the account that its facilitator settles by."""

    server: Server
    url: str
    account: str

    def approve(self, wallet: Wallet, amount_base: int) -> None:
        """Let an account of the world approve Permit2."""
        data = to_hex(abi.approve(PERMIT2, amount_base))
        call = {"from": wallet.address, "to": checksum(BASE_SEPOLIA.asset), "data": data}
        self.server.rpc("eth_sendTransaction", call)

    def allowance(self, wallet: Wallet) -> int:
        """Return what Permit2 may still take from a wallet."""
        data = to_hex(abi.allowance(wallet.address_bytes, PERMIT2))
        call = {"to": checksum(BASE_SEPOLIA.asset), "data": data}
        return int(self.server.rpc("eth_call", call, "latest"), 16)

    @property
    def earned(self) -> int:
        return self.server.balance(SHOP.address)

    def buy(self, client: str, wallet: Wallet, *paths: str, **more: str) -> list[dict[str, Any]]:
        """Let a client pay for what is at some paths; return status, receipt and error of each."""
        urls = [f"{self.url}/{path}" for path in paths]
        if client != "ours":
            told = {"key": wallet.private_key, "network": BASE_SEPOLIA.caip2, "urls": urls}
            return programs.run(CLIENTS[client], told | more)
        may = {"approve": "0.02", "rpc_url": more["rpc"]} if "rpc" in more else {}
        auth = PaymentAuth(wallet, network=BASE_SEPOLIA, version=2, permit2=True, **may)
        hooks = {"response": [_without_eip3009]}
        with httpx.Client(auth=auth, trust_env=False, timeout=30, event_hooks=hooks) as http:
            answers = [http.get(url) for url in urls]
        return [
            {
                "status": answer.status_code,
                "receipt": json.loads(base64.b64decode(answer.headers["PAYMENT-RESPONSE"])),
            }
            for answer in answers
        ]


def _without_eip3009(response: httpx.Response) -> None:
    """Keep the offer by Permit2 of a 402 that has both: our payer takes the other first."""
    required = json_in(response.headers.get("PAYMENT-REQUIRED"))
    if required and len(required["accepts"]) == 2:
        del required["accepts"][0]
        response.headers["PAYMENT-REQUIRED"] = to_base64(required)


@pytest.fixture(scope="module")
def shop(request: pytest.FixtureRequest, server: Server, facilitator: str) -> Iterator[Metered]:
    """A shop that settles at the facilitator."""
    (account,) = httpx.get(f"{facilitator}/supported").json()["signers"]["eip155:*"]
    if request.param == "ours":
        env = {"PRIVATE_KEY": SHOP.private_key, "RPC_URL": server.ready["rpc"]}
        sells = "GET /eip3009 0.02", "GET /permit2 permit2 0.02", UPTO
        given = [f"--sell={good}" for good in sells] + [f"--facilitator={facilitator}"]
        network = f"--network={BASE_SEPOLIA.name}"
        words = ["service", "--port=0", network, *given]
        with Running(*words, program=X402SIM, env=env) as running:
            url = running.first_line().split("; ")[0].split(" at ")[1]
            yield Metered(server, url, account)
        return
    told = {
        "facilitator": facilitator,
        "payTo": SHOP.address,
        "network": BASE_SEPOLIA.caip2,
        "asset": checksum(BASE_SEPOLIA.asset),
        "name": BASE_SEPOLIA.token_name,
        "version": BASE_SEPOLIA.token_version,
    }
    with programs.serving(SHOPS[request.param], told) as url:
        yield Metered(server, url, account)


def paired(*pairs: tuple[str, ...], more: str = "") -> pytest.MarkDecorator:
    """Run a test with a chain, facilitator, shop, client, and perhaps more, of each of these."""
    names = ("server", "facilitator", "shop", "client", *more.split())
    return pytest.mark.parametrize(names, pairs, indirect=names[:3])


ON_ANVIL = [("anvil", part, part, client) for part in PARTS for client in PARTS]
OURS_TO_THEIRS = [("ledger", "ours", "Python", client) for client in CLIENTS]


@shows_routes(FACILITATOR, "/exact/evm/eip3009", "/exact/evm/permit2", "/upto/evm/permit2")
@shows_routes(SERVICE, "/exact/evm/eip3009", "/exact/evm/permit2", "/upto/evm/permit2")
@shows_routes(PAYER, "/exact/evm/eip3009", "/exact/evm/permit2", "/upto/evm/permit2")
@paired(*(("ledger", *pair) for pair in PAIRS), *ON_ANVIL)
def test_they_pay_each_other(shop: Metered, client: str) -> None:
    shop.approve(ALICE, 10 * MOST)
    before = shop.earned
    answers = shop.buy(client, ALICE, *PATHS)
    assert [answer["status"] for answer in answers] == [200, 200, 200], answers
    receipts = [answer["receipt"] for answer in answers]
    assert receipts[-1]["amount"] == str(USED)
    assert shop.earned - before == USED + 2 * MOST
    assert shop.allowance(ALICE) == 10 * MOST - MOST - USED, "all but the first by Permit2"
    for receipt in receipts:
        mined = shop.server.rpc("eth_getTransactionReceipt", receipt["transaction"])
        assert (mined["status"], mined["from"]) == ("0x1", shop.account.lower())


@paired(*OURS_TO_THEIRS)
def test_their_payer_must_approve_first_and_nothing_used_is_free(
    shop: Metered, client: str
) -> None:
    shop.approve(BOB, 0)
    (refused,) = shop.buy(client, BOB, f"upto/{USED}")
    assert (refused["status"], refused["error"]) == (402, "permit2_allowance_required")
    shop.approve(BOB, 10 * MOST)
    before = shop.earned
    nothing, all_of_it = shop.buy(client, BOB, "upto/0", f"upto/{MOST}")
    assert (nothing["status"], all_of_it["status"]) == (200, 200)
    assert (nothing["receipt"]["transaction"], nothing["receipt"]["amount"]) == ("", "0")
    assert shop.earned - before == MOST


@shows_routes(FACILITATOR, "/exact/evm/eip3009/upfront", "/exact/evm/permit2/upfront")
@shows_routes(PAYER, "/exact/evm/eip3009/upfront", "/exact/evm/permit2/upfront")
@paired(*OURS_TO_THEIRS, ("ledger", "ours", "Python", "ours"))
def test_they_pay_before_the_shop_works(shop: Metered, client: str) -> None:
    shop.approve(BOB, MOST)
    before = shop.earned
    answers = shop.buy(client, BOB, "upfront/eip3009", "upfront/permit2")
    assert [answer["status"] for answer in answers] == [200, 200], answers
    assert shop.earned - before == 2 * MOST


SPONSORINGS = {"eip2612": "eip2612", "erc20": "erc20Approval"}
"""The first part of a path, and the extension in the route."""


@shows_routes(
    SERVICE,
    *(f"/exact/evm/permit2-{name}GasSponsoring" for name in SPONSORINGS.values()),
    *(f"/upto/evm/permit2-{name}GasSponsoring" for name in SPONSORINGS.values()),
)
@paired(*(("ledger", "ours", "ours", client) for client in PARTS), ("anvil", "ours", "ours", "npm"))
def test_our_service_passes_on_what_its_facilitator_sponsors(
    server: Server, shop: Metered, client: str
) -> None:
    """A permit where the token takes permits, as on the ledger; else an approval."""
    before, rpc = shop.earned, server.ready["rpc"]
    for path in ("permit2", f"upto/{USED}"):
        (answer,) = shop.buy(client, server.payer().wallet, path, rpc=rpc)
        assert answer["status"] == 200, answer
    assert shop.earned - before == MOST + USED


@shows_routes(
    FACILITATOR,
    *(f"/exact/evm/permit2-{name}GasSponsoring" for name in SPONSORINGS.values()),
    *(f"/upto/evm/permit2-{name}GasSponsoring" for name in SPONSORINGS.values()),
)
@shows_routes(
    PAYER, *(f"/{scheme}/evm/permit2-eip2612GasSponsoring" for scheme in ("exact", "upto"))
)
@paired(
    ("ledger", "ours", "Python", "ours", "eip2612"),
    *((*pair, kind) for kind in SPONSORINGS for pair in OURS_TO_THEIRS),
    *(("anvil", *pair[1:], "erc20") for pair in OURS_TO_THEIRS),
    more="kind",
)
def test_a_payer_without_gas_signs_a_permit_or_an_approval(
    shop: Metered, client: str, kind: str
) -> None:
    """On anvil the world's token takes no permits."""
    before, rpc = shop.earned, shop.server.ready["rpc"]
    for path in (f"{kind}/permit2", f"{kind}/upto/{USED}"):
        payer = shop.server.payer()
        assert shop.server.rpc("eth_getBalance", payer.address, "latest") == "0x0"
        (answer,) = shop.buy(client, payer.wallet, path, rpc=rpc)
        assert answer["status"] == 200, answer
    assert shop.earned - before == MOST + USED
