"""Other people's libraries use the chain as wallets and facilitators do, on ledger and on anvil.

Each signs and sends transfers, authorizations and permits, is refused, reads the past and listens
with filters. What it finds must be the same on both, gas and words included: the token on anvil is
Circle's own, and the accounts are the same.
"""

import json
import subprocess
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest

from tests import npm
from tests.evm.test_multicall import REAL
from tests.interop import onchain, programs
from tests.interop.programs import RUN_TIMEOUT_S
from tests.interop.python.typed_data import typed
from tests.interop.table import THOROUGH, shows
from tests.serve.driver import Server

FOLDER = Path(__file__).parent / "npm_chain"
PAY = "transferWithAuthorization(address,address,uint256,uint256,uint256,bytes32,bytes)"
ALLOW = "permit(address,address,uint256,uint256,bytes)"
TRANSFER = "Transfer(address,address,uint256)"


# --- cast of Foundry, command by command; @foundry-rs/cast ships it -----------------------


def cast_program() -> Path:
    """Return the path of the pinned cast, installed if need be."""
    found = sorted((npm.packages(FOLDER) / "@foundry-rs").glob("cast-*/bin/cast*"))
    if not found:
        raise npm.NotInstalled("npm has no cast for this machine")
    return found[0]


class Cast:
    """Runs cast on one chain."""

    def __init__(self, given: dict[str, Any]) -> None:
        self.given, self._program = given, cast_program()

    def run(self, *args: str, fails: bool = False) -> str:
        """Return what a command prints; with `fails`, what it says against it."""
        done = subprocess.run(
            [str(self._program), *args], capture_output=True, text=True, timeout=RUN_TIMEOUT_S
        )
        assert (done.returncode != 0) == fails, done.stdout + done.stderr
        return (done.stderr if fails else done.stdout).strip()

    def ask(self, *args: str) -> str:
        """Return what a command that reads the chain prints."""
        return self.run(*args, "--rpc-url", self.given["rpc"])

    def rpc(self, method: str, *params: str) -> Any:
        """Return what a node answers."""
        return json.loads(self.ask("rpc", method, *params))

    def _send(self, by: str, *args: str) -> list[str]:
        rpc = ("--rpc-url", self.given["rpc"], "--private-key", self.given[by])
        return ["send", *rpc, "--json", *args]

    def mined(self, by: str, *args: str) -> dict[str, Any]:
        """Send a transaction; return what became of it."""
        receipt = json.loads(self.run(*self._send(by, *args)))
        return {
            **{name: receipt[name] for name in ("status", "type", "gasUsed", "from", "to")},
            "logs": [[*log["topics"], log["data"]] for log in receipt["logs"]],
        }

    def refused(self, by: str, *args: str) -> str:
        """Send a transaction that is refused; return the first of the known words for it."""
        text = self.run(*self._send(by, *args), fails=True)
        return next((words for words in KNOWN if words.lower() in text.lower()), text)

    def sign(self, by: str, primary: str, values: list[Any]) -> str:
        """Return a signature of typed data for the token."""
        data = json.dumps(typed(self.given, primary, values))
        return self.run("wallet", "sign", "--private-key", self.given[by], "--data", data)


KNOWN = (
    "FiatTokenV2: authorization is used or canceled",
    "EIP2612: invalid signature",
    "ERC20: transfer amount exceeds allowance",
    "nonce too low",
    "Insufficient funds for gas * price + value",
)


def cast(given: dict[str, Any]) -> dict[str, Any]:
    """Do with cast what the programs of `npm_chain` do; return what it found."""
    foundry, token, shop = Cast(given), given["token"], given["shop"]
    alice, bob = (foundry.run("wallet", "address", given[who]) for who in ("alice", "bob"))
    before = int(foundry.ask("block-number"))
    topics = [foundry.run("sig-event", TRANSFER)]
    filters = [
        foundry.rpc("eth_newFilter", json.dumps({"address": token, "topics": topics})),
        foundry.rpc("eth_newBlockFilter"),
    ]
    plain = ("transfer(address,uint256)", shop)
    facts: dict[str, Any] = {
        "chain": foundry.ask("chain-id"),
        "name": foundry.ask("call", token, "name()(string)"),
        "transfer": foundry.mined("alice", token, *plain, "11"),
        "legacy": foundry.mined("alice", "--legacy", token, *plain, "12"),
        "coin": foundry.mined("alice", shop, "--value", "13"),
    }
    values = [alice, shop, 14, 0, given["end"], given["nonce"]]
    signature = foundry.sign("alice", "TransferWithAuthorization", values)
    pay = (token, PAY, *map(str, values), signature)
    facts["authorized"] = foundry.mined("bob", *pay)
    facts["usedTwice"] = foundry.refused("bob", *pay)
    nonce = int(foundry.ask("call", token, "nonces(address)(uint256)", alice))
    permit = [alice, bob, 20, nonce, given["end"]]
    signature = foundry.sign("alice", "Permit", permit)
    allow = (token, ALLOW, alice, bob, "20", str(given["end"]), signature)
    facts["permit"] = foundry.mined("bob", *allow)
    facts["permitTwice"] = foundry.refused("bob", *allow)
    take = (token, "transferFrom(address,address,uint256)", alice, shop, "15")
    facts["taken"] = foundry.mined("bob", *take)
    facts["tooMuch"] = foundry.refused("bob", *take)
    allowance = "allowance(address,address)(uint256)"
    facts["allowed"] = foundry.ask("call", token, allowance, alice, bob)
    used = int(foundry.ask("nonce", alice)) - 1
    facts["nonceTooLow"] = foundry.refused(
        "alice", "--nonce", str(used), "--gas-limit", "99999", token, *plain, "1"
    )
    facts["poor"] = foundry.refused("poor", "--gas-limit", "21000", shop, "--value", "1")
    since = ("--json", "--from-block", str(before + 1), "--address", token)
    facts["logs"] = len(json.loads(foundry.ask("logs", *since, TRANSFER)))
    facts["storage"] = foundry.ask("storage", token, "11")
    old, new = (
        int(foundry.ask("call", *at, token, "balanceOf(address)(uint256)", shop).split()[0])
        for at in (("--block", str(before)), ())
    )
    facts["moved"] = new - old
    logs, blocks = (foundry.rpc("eth_getFilterChanges", each) for each in filters)
    facts["heard"] = [int(log["data"], 16) for log in logs]
    facts["blocks"] = len(blocks)
    facts["uninstalled"] = [foundry.rpc("eth_uninstallFilter", each) for each in filters]
    return facts


# --- the tests ----------------------------------------------------------------------


pytestmark = THOROUGH
TRANSFERS = [11, 12, 14, 15]
"""The amounts that each program moves to its shop, in order."""


PROGRAMS = {
    "npm ethers": "npm_chain/ethers.mjs",
    "npm viem": "npm_chain/viem.mjs",
    "PyPI web3": "web3_wallet.py",
    "npm @foundry-rs/cast": "cast",
}
"""By the package. The others are npm packages of their own, which take a while to install."""
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
    facts = cast(given) if program == "cast" else programs.run(program, given)
    return facts


@pytest.fixture(scope="module")
def found(ledger: Server) -> Callable[[str], dict[str, Any]]:
    """What each program finds on the ledger; it is run when it is asked for first."""
    return cache(partial(use, ledger))


@shows("wallet", "{name}", "JSON-RPC", "ledger")
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
    if PROGRAMS[name] == "cast":  # which signs itself, never through the node
        return
    assert facts["typed"] is facts["message"] is True
    assert facts["sent"]["status"] in SUCCEEDED


@shows("wallet", "{name}", "JSON-RPC", "anvil")
@pytest.mark.parametrize("name", PROGRAMS, ids=lambda name: f"{name}-anvil")
def test_a_wallet_finds_the_same_on_anvil(
    found: Callable[[str], dict[str, Any]], anvil: Server, name: str
) -> None:
    assert found(name) == use(anvil, name)


SOCKETS = {
    "npm ethers": ("npm_chain/ethers_socket.mjs", [11, 12]),
    "npm viem": ("npm_chain/viem_socket.mjs", [11, 12, 13, 20, 21, 22, 23, 24]),
    "PyPI web3": ("web3_socket.py", [11, 12]),
}


def use_socket(server: Server, name: str) -> dict[str, Any]:
    number = list(SOCKETS).index(name)
    given = onchain.told(server, 2 * number + 1, 2 * number + 2)
    given["controls"] = name == "npm viem"
    facts: dict[str, Any] = programs.run(SOCKETS[name][0], given)
    return facts


@pytest.fixture(scope="module")
def heard(ledger: Server) -> Callable[[str], dict[str, Any]]:
    return cache(partial(use_socket, ledger))


@shows("wallet", "{name}", "JSON-RPC by WebSocket", "ledger")
@pytest.mark.parametrize("name", SOCKETS, ids=lambda name: f"{name}-ledger")
def test_a_wallet_listens_by_websocket_on_the_ledger(
    heard: Callable[[str], dict[str, Any]], name: str
) -> None:
    assert heard(name)["heard"] == SOCKETS[name][1]


@shows("wallet", "{name}", "JSON-RPC by WebSocket", "anvil")
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


def test_the_real_multicall3_of_the_quick_tests_is_that_of_viem() -> None:
    text = (npm.packages(FOLDER) / "viem/_cjs/constants/contracts.js").read_text()
    code = "".join(REAL.read_text().split())
    assert f"multicall3Bytecode = '0x{code}'" in text
