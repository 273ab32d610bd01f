"""Other people's libraries use the chain as wallets and facilitators do, on ledger and on anvil.

Each signs and sends transfers, authorizations and permits, is refused, reads the past and listens
with filters. What it finds must be the same on both, gas and words included: the token on anvil is
Circle's own, and the accounts are the same.
"""

from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any

import pytest

from tests.interop import cast_wallet, onchain, programs
from tests.interop.table import THOROUGH, shows
from tests.serve.driver import Server

pytestmark = THOROUGH
TRANSFERS = [11, 12, 14, 15]
"""The amounts that each program moves to its shop, in order."""


PROGRAMS = {
    "ethers-6.17.0": "npm_chain/ethers.mjs",
    "viem-2.57.20": "npm_chain/viem.mjs",
    "web3.py-8.0.0": "web3_wallet.py",
    "cast-1.7.1": "cast",
}
PACKAGES = {
    "ethers-6.17.0": "npm ethers",
    "viem-2.57.20": "npm viem",
    "web3.py-8.0.0": "PyPI web3",
    "cast-1.7.1": "npm @foundry-rs/cast",
}
"""The others are npm packages of their own, which take a while to install."""
SUCCEEDED = (1, "success", "0x1")


@pytest.fixture(scope="module")
def ledger() -> Iterator[Server]:
    with onchain.chain("ledger") as server:
        yield server


@pytest.fixture(scope="module")
def anvil() -> Iterator[Server]:
    with onchain.chain("anvil") as server:
        yield server


def use(server: Server, name: str) -> dict[str, Any]:
    """Return what a program finds; two of the accounts are its own."""
    number = 2 * list(PROGRAMS).index(name) + 1
    given, program = onchain.told(server, number, number + 1), PROGRAMS[name]
    facts: dict[str, Any]
    facts = cast_wallet.use(given) if program == "cast" else programs.run(program, given)
    return facts


@pytest.fixture(scope="module")
def found(ledger: Server) -> Callable[[str], dict[str, Any]]:
    """What each program finds on the ledger; it is run when it is asked for first."""
    return cache(partial(use, ledger))


@shows("wallet", PACKAGES, "JSON-RPC", "ledger")
@pytest.mark.parametrize("name", PROGRAMS, ids=lambda name: f"{name}-ledger")
def test_a_wallet_does_everything_on_the_ledger(
    found: Callable[[str], dict[str, Any]], name: str
) -> None:
    facts = found(name)
    for done in ("transfer", "legacy", "authorized", "permit", "taken"):
        assert facts[done]["status"] in SUCCEEDED, done
    assert facts["transfer"]["type"] in (2, "eip1559", "0x2")
    assert facts["legacy"]["type"] in (0, "legacy", "0x0")
    assert len(facts["authorized"]["logs"]) == 2
    assert facts["moved"] == sum(TRANSFERS)
    assert facts["heard"][:4] == TRANSFERS
    assert "FiatTokenV2: authorization is used or canceled" in str(facts["usedTwice"])
    assert "EIP2612: invalid signature" in str(facts["permitTwice"])
    assert "ERC20: transfer amount exceeds allowance" in str(facts["tooMuch"])
    if name.startswith("cast"):  # which signs itself, never through the node
        return
    assert facts["typed"] is facts["message"] is True
    assert facts["sent"]["status"] in SUCCEEDED


@shows("wallet", PACKAGES, "JSON-RPC", "anvil")
@pytest.mark.parametrize("name", PROGRAMS, ids=lambda name: f"{name}-anvil")
def test_a_wallet_finds_the_same_on_anvil(
    found: Callable[[str], dict[str, Any]], anvil: Server, name: str
) -> None:
    assert found(name) == use(anvil, name)


SOCKETS = {
    "ethers-6.17.0": ("npm_chain/ethers_socket.mjs", [11, 12]),
    "viem-2.57.20": ("npm_chain/viem_socket.mjs", [11, 12, 13, 20, 21, 22, 23, 24]),
    "web3.py-8.0.0": ("web3_socket.py", [11, 12]),
}


def use_socket(server: Server, name: str) -> dict[str, Any]:
    number = list(SOCKETS).index(name)
    given = onchain.told(server, 2 * number + 1, 2 * number + 2) | {
        "controls": name.startswith("viem")
    }
    facts: dict[str, Any] = programs.run(SOCKETS[name][0], given)
    return facts


@pytest.fixture(scope="module")
def heard(ledger: Server) -> Callable[[str], dict[str, Any]]:
    return cache(partial(use_socket, ledger))


@shows("wallet", PACKAGES, "JSON-RPC by WebSocket", "ledger")
@pytest.mark.parametrize("name", SOCKETS, ids=lambda name: f"{name}-ledger")
def test_a_wallet_listens_by_websocket_on_the_ledger(
    heard: Callable[[str], dict[str, Any]], name: str
) -> None:
    assert heard(name)["heard"] == SOCKETS[name][1]


@shows("wallet", PACKAGES, "JSON-RPC by WebSocket", "anvil")
@pytest.mark.parametrize("name", SOCKETS, ids=lambda name: f"{name}-anvil")
def test_a_wallet_hears_the_same_on_anvil(
    heard: Callable[[str], dict[str, Any]], anvil: Server, name: str
) -> None:
    assert heard(name) == use_socket(anvil, name)


MULTICALL3 = "0xca11bde05977b3631167028862be2a173976ca11"


@shows("wallet of a page, default client", "npm @wagmi/core", "JSON-RPC, Multicall3", "{chain}")
@pytest.mark.parametrize("chain", ["ledger", "anvil"])
def test_wagmi_batches_its_reads_and_pays(chain: str, request: pytest.FixtureRequest) -> None:
    given = onchain.told(request.getfixturevalue(chain), 9, 0)
    facts = programs.run("npm_chain/wagmi.mjs", given)
    assert facts["read"] == ["USDC", "2", "0", "0"]
    assert facts["batched"] == [MULTICALL3]
    assert facts["transfer"] == {"status": "success", "gas": "62135", "logs": 1}
    assert facts["authorized"] == {"status": "success", "gas": "83184", "logs": 2}
    assert (facts["estimate"], facts["count"]) == ("45252", 2)
    assert "authorization is used or canceled" in facts["usedTwice"][1]
    assert "transfer amount exceeds balance" in facts["tooMuch"][1]
    assert facts["after"] == [["success", "25"], ["success", "0"], ["failure", None]]
