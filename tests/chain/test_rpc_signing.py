"""Signatures over JSON-RPC: those of eth-account, only of the server's accounts."""

import json
from typing import Any

import pytest
from eth_account import Account
from eth_account.messages import encode_defunct, encode_typed_data

from tests.chain.asking import ALICE, OWNER_KEY, Http, Rpc
from x402sim.chain.rpc.app import rpc_app
from x402sim.protocol.crypto import checksum, to_hex
from x402sim.protocol.networks import TESTNET

OWNER = checksum(OWNER_KEY.address)
TYPED: dict[str, Any] = {
    "types": {
        "EIP712Domain": [
            {"name": "name", "type": "string"},
            {"name": "version", "type": "string"},
            {"name": "chainId", "type": "uint256"},
            {"name": "verifyingContract", "type": "address"},
        ],
        "Order": [
            {"name": "from", "type": "address"},
            {"name": "value", "type": "uint256"},
            {"name": "nonce", "type": "bytes32"},
        ],
    },
    "primaryType": "Order",
    "domain": {
        "name": "USDC",
        "version": "2",
        "chainId": 338,
        "verifyingContract": checksum(TESTNET.asset),
    },
    "message": {"from": OWNER, "value": "10000", "nonce": "0x" + "7" * 64},
}


def signed_by_eth_account(typed: dict[str, Any]) -> str:
    return to_hex(
        Account.sign_message(encode_typed_data(full_message=typed), OWNER_KEY.secret).signature
    )


@pytest.mark.parametrize("number", [338, "338", "0x152"])
@pytest.mark.parametrize("write", [dict, json.dumps], ids=["object", "text"])
def test_a_number_of_typed_data_may_be_text(unlocked: Rpc, number: Any, write: Any) -> None:
    wanted = {**TYPED, "message": {**TYPED["message"], "value": 338}}
    asked = {
        **TYPED,
        "domain": {**TYPED["domain"], "chainId": number},
        "message": {**TYPED["message"], "value": number},
    }
    got = unlocked.result("eth_signTypedData_v4", OWNER, write(asked))
    assert got == signed_by_eth_account(wanted)


def test_messages(unlocked: Rpc) -> None:
    message = b"hello, \xff"
    wanted = to_hex(Account.sign_message(encode_defunct(message), OWNER_KEY.secret).signature)
    assert unlocked.result("eth_sign", OWNER, to_hex(message)) == wanted
    assert unlocked.result("personal_sign", to_hex(message), OWNER) == wanted
    assert unlocked.result("personal_sign", to_hex(message), OWNER, "a password") == wanted
    assert unlocked.error("personal_sign", "hello", OWNER)["code"] == -32602


@pytest.mark.parametrize(
    "typed",
    [
        5,
        "{",
        "[]",
        {},
        {**TYPED, "primaryType": "Nothing"},
        {**TYPED, "types": {}},
        {**TYPED, "types": []},
        {**TYPED, "message": []},
        {**TYPED, "domain": 5},
        {**TYPED, "domain": {"chainId": "many"}},
        {**TYPED, "message": {**TYPED["message"], "nonce": "0x" + "7" * 66}},
        {**TYPED, "message": {**TYPED["message"], "value": -1}},
        {**TYPED, "message": {**TYPED["message"], "value": []}},
    ],
)
def test_typed_data_that_is_none_is_refused(unlocked: Rpc, typed: Any) -> None:
    error = unlocked.error("eth_signTypedData_v4", OWNER, typed)
    assert error["code"] == -32602, error
    assert error["message"]


METHODS = [
    ("eth_sign", [checksum(ALICE), "0x00"]),
    ("personal_sign", ["0x00", checksum(ALICE)]),
    ("eth_signTypedData_v4", [checksum(ALICE), TYPED]),
    ("eth_sendTransaction", [{"from": checksum(ALICE), "to": OWNER}]),
]


@pytest.mark.parametrize(("method", "params"), METHODS)
def test_nothing_is_signed_for_others_nor_by_a_locked_server(
    unlocked: Rpc, method: str, params: list[Any]
) -> None:
    locked = Rpc(ledger=unlocked.ledger)
    locked.http = Http(rpc_app(locked.ledger, keys=[OWNER_KEY.secret]))
    assert locked.result("eth_accounts") == [OWNER.lower()]
    own = json.loads(json.dumps(params).replace(checksum(ALICE), OWNER))
    for rpc, asked, says in (
        (unlocked, params, "is not unlocked; see eth_accounts"),
        (locked, own, "signs nothing over JSON-RPC"),
    ):
        error = rpc.error(method, *asked)
        assert error["code"] == -32000
        assert says in error["message"]


@pytest.mark.parametrize(
    ("types", "message"),
    [
        ({"Order": [{"name": "all", "type": "uint256[]"}]}, {"all": [1] * 40_000}),
        (
            {
                "Order": [{"name": "all", "type": "T0[]"}],
                **{f"T{n}": [{"name": "next", "type": f"T{n + 1}"}] for n in range(400)},
                "T400": [{"name": "value", "type": "uint256"}],
            },
            {"all": [{"next": None}] * 800},
        ),
    ],
)
def test_typed_data_that_takes_long_is_refused(unlocked: Rpc, types: Any, message: Any) -> None:
    long = TYPED | {"types": TYPED["types"] | types, "message": message}
    error = unlocked.error("eth_signTypedData_v4", OWNER, long)
    assert "at most 32768 bytes, 256 objects and lists" in error["message"]
