"""The guide's workflow for the SDKs' end-to-end tests: valid, with the world's own accounts and commands that exist."""

import json
import re
import shlex
from typing import Any

import httpx
import yaml
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tests.house import blocks
from tests.house.test_guide import options_of, text
from x402sim import BASE_SEPOLIA, LocalServer
from x402sim.protocol import abi
from x402sim.protocol.crypto import checksum, to_hex
from x402sim.protocol.money import MAX_UINT256
from x402sim.protocol.permit2 import PERMIT2

WORKFLOW: Any = yaml.safe_load(blocks(text("e2e"), "yaml")[0])
(JOB,) = WORKFLOW["jobs"].values()
STEPS = {step["name"]: step["run"] for step in JOB["steps"] if "run" in step}
BASE58 = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"


def from_base58(written: str) -> bytes:
    number = 0
    for letter in written:
        number = number * 58 + BASE58.index(letter)
    return number.to_bytes((number.bit_length() + 7) // 8)


def test_the_keys_are_those_of_the_funded_accounts_and_the_approval_is_permit2s() -> None:
    env = WORKFLOW["env"]
    sent = json.loads(re.findall(r"-d '(.+?)'", STEPS["Pay"], re.DOTALL)[0])
    with LocalServer(network=BASE_SEPOLIA) as server:
        facilitator, client, shop = server.wallets[:3]
        found = httpx.post(server.url + "/rpc", json=sent, timeout=60).json()
    assert env["FACILITATOR_EVM_PRIVATE_KEY"] == facilitator.private_key
    assert env["CLIENT_EVM_PRIVATE_KEY"] == client.private_key
    assert env["SERVER_EVM_ADDRESS"] == shop.address
    assert env["BASE_SEPOLIA_RPC_URL"] == env["EVM_RPC_URL"] == "http://127.0.0.1:4020/rpc"
    assert sent["params"] == [
        {
            "from": client.address,
            "to": checksum(BASE_SEPOLIA.asset),
            "data": to_hex(abi.approve(PERMIT2, MAX_UINT256)),
        }
    ]
    assert "result" in found, found
    pair = from_base58(env["CLIENT_SVM_PRIVATE_KEY"])
    public = Ed25519PrivateKey.from_private_bytes(pair[:32]).public_key().public_bytes_raw()
    assert pair[32:] == public == from_base58(env["SERVER_SVM_ADDRESS"])
    assert env["FACILITATOR_SVM_PRIVATE_KEY"] == env["CLIENT_SVM_PRIVATE_KEY"]


def test_its_commands_exist() -> None:
    assert list(STEPS) == ["World", "Build", "Pay"]
    called = re.findall(r"^x402sim (.+)$", "\n".join(STEPS.values()), re.MULTILINE)
    assert called
    for line in called:
        words = shlex.split(line)
        known = options_of(words)
        assert known is not None, line
        assert {word for word in words if word.startswith("--")} <= known
