"""`doctor` says of each public client what the client does, which is asked here itself."""

import base64
import json
from typing import Any

import httpx
import msgspec
import pytest

from tests.cli.test_decode import SOLANA, USDC_V1, USDC_V2, YEN
from tests.interop import programs
from tests.interop.table import THOROUGH
from x402sim.payer.diagnosis import CLIENTS, DEFAULT_TOKENS, Client, examine
from x402sim.protocol.crypto import checksum
from x402sim.protocol.networks import NETWORKS

pytestmark = THOROUGH
PROGRAMS = {
    "x402 v1, npm": "npm_v1/choose.mjs",
    "x402 v1, Python": "choose.py",
    "x402 v2, npm": "npm_v2/choose.mjs",
    "x402 v2, Python": "choose.py",
}
LEFT_OUT = object()
CHANGES: list[dict[str, Any]] = [
    {},
    {"amount": "100001"},
    {"amount": "1000000"},
    {"amount": "1000001"},
    {"amount": 10000},
    {"payTo": 5},
    {"payTo": "me"},
    {"network": "solana"},
    {"network": "cronos-testnet"},
    {"network": "eip155:137"},
    {"scheme": "upto"},
    {"maxTimeoutSeconds": "60"},
    {"maxTimeoutSeconds": 60.0},
    {"maxTimeoutSeconds": 60.5},
    {"extra": None},
    {"extra": LEFT_OUT},
    {"description": LEFT_OUT},
    {"mimeType": LEFT_OUT},
    {"resource": "/page"},
    {"asset": "0x" + "12" * 20},
]
IN_VAIN = {
    ("x402 v1, npm", "extra"),
    ("x402 v1, npm", "asset"),
    ("x402 v1, npm", "payTo"),
    ("x402 v2, npm", "amount"),
    ("x402 v2, npm", "maxTimeoutSeconds"),
    ("x402 v2, npm", "payTo"),
    ("x402 v2, Python", "payTo"),
    ("x402 v1, Python", "payTo"),
}
"""Changes with which a client may sign what no facilitator takes: `doctor` says no."""


def offers(version: int) -> list[tuple[str, list[dict[str, Any]]]]:
    """Lists of offers, each with what is changed in its first one."""
    right: dict[str, Any] = msgspec.to_builtins(USDC_V1 if version == 1 else USDC_V2)
    found = []
    for change in CHANGES:
        named = {
            "maxAmountRequired" if (name, version) == ("amount", 1) else name: each
            for name, each in change.items()
        }
        first = {k: v for k, v in (right | named).items() if v is not LEFT_OUT}
        found += [(next(iter(change), ""), [first]), (next(iter(change), ""), [first, right])]
    if version == 2:
        found += [("", [SOLANA, right]), ("", [YEN, right]), ("", [YEN])]
    return found


@pytest.mark.parametrize("client", PROGRAMS)
def test_doctor_says_what_a_client_does(client: str) -> None:
    (version,) = (each.dialect.version for each in CLIENTS if each.name == client)
    assert version is not None
    told = offers(version)
    about = {"resource": {"url": "http://shop.example/page"}} if version == 2 else {}
    required = [{"x402Version": version, **about, "accepts": accepts} for _, accepts in told]
    answers = programs.run(PROGRAMS[client], {"key": "0x" + "11" * 32, "required": required})
    wrong = []
    for (changed, accepts), said, answer in zip(told, required, answers, strict=True):
        header = base64.b64encode(json.dumps(said).encode()).decode()
        response = httpx.Response(402, json=said)
        if version == 2:
            response = httpx.Response(402, headers={"PAYMENT-REQUIRED": header})
        asked = httpx.Request("GET", "http://shop.example/page")
        found = examine(asked, response, NETWORKS, now_s=1_800_000_000)
        (payer,) = (each for each in found.payers if each.name == client)
        in_vain = (client, changed) in IN_VAIN and not payer.can_pay
        if payer.can_pay != (answer == "yes") and not in_vain:
            wrong.append((changed, len(accepts), payer.why, answer))
    assert not wrong
    assert 5 < sum(answer == "yes" for answer in answers) < len(answers) - 5


@pytest.mark.parametrize("client", [each for each in CLIENTS if each.dialect.version == 2])
def test_the_default_tokens_are_those_of_the_library(client: Client) -> None:
    """A token that is none of them is refused, whatever it costs."""
    offer = msgspec.to_builtins(USDC_V2) | {"amount": "1"}
    tokens = [
        offer | {"network": f"eip155:{chain_id}", "asset": checksum(asset)}
        for chain_id, asset in DEFAULT_TOKENS
    ]
    about = {"x402Version": 2, "resource": {"url": "http://shop.example"}}
    required = [about | {"accepts": [each]} for each in tokens]
    told = {"key": "0x" + "11" * 32, "required": required}
    answers = programs.run(PROGRAMS[client.name], told)
    for (chain_id, _), answer in zip(DEFAULT_TOKENS, answers, strict=True):
        assert (answer == "yes") == (chain_id not in client.lacks), (chain_id, answer)
