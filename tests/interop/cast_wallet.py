"""Foundry's cast as a wallet and a facilitator use it, command by command.

The npm package @foundry-rs/cast ships the program; `npm_chain` pins it.
"""

import json
import subprocess
from pathlib import Path
from typing import Any

from tests import npm
from tests.interop.programs import RUN_TIMEOUT_S
from tests.interop.python.typed_data import typed

FOLDER = Path(__file__).parent / "npm_chain"
PAY = "transferWithAuthorization(address,address,uint256,uint256,uint256,bytes32,bytes)"
ALLOW = "permit(address,address,uint256,uint256,bytes)"
TRANSFER = "Transfer(address,address,uint256)"


def program() -> Path:
    """Return the path of the pinned cast, installed if need be."""
    found = sorted((npm.packages(FOLDER) / "@foundry-rs").glob("cast-*/bin/cast*"))
    if not found:
        raise npm.NotInstalled("npm has no cast for this machine")
    return found[0]


class Cast:
    """Runs cast on one chain."""

    def __init__(self, given: dict[str, Any]) -> None:
        self.given, self._program = given, program()

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


def use(given: dict[str, Any]) -> dict[str, Any]:
    """Do with cast what the programs of `npm_chain` do; return what it found."""
    cast, token, shop = Cast(given), given["token"], given["shop"]
    alice, bob = (cast.run("wallet", "address", given[who]) for who in ("alice", "bob"))
    before = int(cast.ask("block-number"))
    topics = [cast.run("sig-event", TRANSFER)]
    filters = [
        cast.rpc("eth_newFilter", json.dumps({"address": token, "topics": topics})),
        cast.rpc("eth_newBlockFilter"),
    ]
    plain = ("transfer(address,uint256)", shop)
    facts: dict[str, Any] = {
        "chain": cast.ask("chain-id"),
        "name": cast.ask("call", token, "name()(string)"),
        "transfer": cast.mined("alice", token, *plain, "11"),
        "legacy": cast.mined("alice", "--legacy", token, *plain, "12"),
        "coin": cast.mined("alice", shop, "--value", "13"),
    }
    values = [alice, shop, 14, 0, given["end"], given["nonce"]]
    signature = cast.sign("alice", "TransferWithAuthorization", values)
    pay = (token, PAY, *map(str, values), signature)
    facts["authorized"] = cast.mined("bob", *pay)
    facts["usedTwice"] = cast.refused("bob", *pay)
    nonce = int(cast.ask("call", token, "nonces(address)(uint256)", alice))
    permit = [alice, bob, 20, nonce, given["end"]]
    signature = cast.sign("alice", "Permit", permit)
    allow = (token, ALLOW, alice, bob, "20", str(given["end"]), signature)
    facts["permit"] = cast.mined("bob", *allow)
    facts["permitTwice"] = cast.refused("bob", *allow)
    take = (token, "transferFrom(address,address,uint256)", alice, shop, "15")
    facts["taken"] = cast.mined("bob", *take)
    facts["tooMuch"] = cast.refused("bob", *take)
    allowance = "allowance(address,address)(uint256)"
    facts["allowed"] = cast.ask("call", token, allowance, alice, bob)
    used = int(cast.ask("nonce", alice)) - 1
    facts["nonceTooLow"] = cast.refused(
        "alice", "--nonce", str(used), "--gas-limit", "99999", token, *plain, "1"
    )
    facts["poor"] = cast.refused("poor", "--gas-limit", "21000", shop, "--value", "1")
    since = ("--json", "--from-block", str(before + 1), "--address", token)
    facts["logs"] = len(json.loads(cast.ask("logs", *since, TRANSFER)))
    facts["storage"] = cast.ask("storage", token, "11")
    old, new = (
        int(cast.ask("call", *at, token, "balanceOf(address)(uint256)", shop).split()[0])
        for at in (("--block", str(before)), ())
    )
    facts["moved"] = new - old
    logs, blocks = (cast.rpc("eth_getFilterChanges", each) for each in filters)
    facts["heard"] = [int(log["data"], 16) for log in logs]
    facts["blocks"] = len(blocks)
    facts["uninstalled"] = [cast.rpc("eth_uninstallFilter", each) for each in filters]
    return facts
