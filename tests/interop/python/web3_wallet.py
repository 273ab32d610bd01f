"""web3.py as a wallet and a facilitator use it: signs and sends, reads, and listens."""

import json
import sys
from typing import Any

from eth_account import Account
from eth_account.messages import encode_defunct
from typed_data import TYPES, fields, typed
from web3 import HTTPProvider, Web3
from web3.exceptions import ContractLogicError, Web3RPCError

SIGNATURE = "uint8 v,bytes32 r,bytes32 s"
FUNCTIONS = {
    "approve": ("address spender,uint256 value", "bool"),
    "allowance": ("address owner,address spender", "uint256"),
    "balanceOf": ("address account", "uint256"),
    "nonces": ("address owner", "uint256"),
    "name": ("", "string"),
    "transfer": ("address to,uint256 value", "bool"),
    "transferFrom": ("address from,address to,uint256 value", "bool"),
    "permit": (f"{TYPES['Permit'].replace('uint256 nonce,', '')},{SIGNATURE}", ""),
    "transferWithAuthorization": (f"{TYPES['TransferWithAuthorization']},{SIGNATURE}", ""),
}
VIEWS = ("allowance", "balanceOf", "nonces", "name")


def function(name: str) -> dict[str, Any]:
    inputs, output = FUNCTIONS[name]
    return {
        "type": "function",
        "name": name,
        "inputs": fields(inputs),
        "outputs": fields(f"{output} " if output else ""),
        "stateMutability": "view" if name in VIEWS else "nonpayable",
    }


def event(name: str, pairs: str) -> dict[str, Any]:
    inputs = [{**each, "indexed": n < 2} for n, each in enumerate(fields(pairs))]
    return {"type": "event", "name": name, "inputs": inputs, "anonymous": False}


ABI = [
    *map(function, FUNCTIONS),
    event("Transfer", "address from,address to,uint256 value"),
    event("Approval", "address owner,address spender,uint256 value"),
    event("AuthorizationUsed", "address authorizer,bytes32 nonce"),
]

given = json.load(sys.stdin)
w3 = Web3(HTTPProvider(given["rpc"]))
token = w3.eth.contract(address=given["token"], abi=ABI)
alice, bob, poor, first = (
    Account.from_key(given[who]) for who in ("alice", "bob", "poor", "first")
)
shop = given["shop"]
facts: dict[str, Any] = {}


def split(signed: Any) -> tuple[int, bytes, bytes]:
    return signed.v, signed.r.to_bytes(32, "big"), signed.s.to_bytes(32, "big")


def send(call: Any, by: Any, **more: Any) -> Any:
    """Sign what web3 builds, with its own choice of gas, fees and nonce; return the receipt."""
    start = {"from": by.address, "nonce": w3.eth.get_transaction_count(by.address), **more}
    raw = by.sign_transaction(call.build_transaction(start)).raw_transaction
    return w3.eth.wait_for_transaction_receipt(w3.eth.send_raw_transaction(raw), poll_latency=0.05)


def told(receipt: Any) -> dict[str, Any]:
    """Return what became of a transaction, without what differs from chain to chain."""
    logs = []
    for kind in (token.events.AuthorizationUsed, token.events.Transfer, token.events.Approval):
        for log in receipt["logs"]:
            if bytes(log["topics"][0]) == bytes.fromhex(kind().topic[2:]):
                values = kind().process_log(log)["args"].values()
                logs.append(
                    [kind().event_name, *(v.hex() if isinstance(v, bytes) else v for v in values)]
                )
    return {
        "status": receipt["status"],
        "type": receipt["type"],
        "gas": receipt["gasUsed"],
        "from": receipt["from"],
        "to": receipt["to"],
        "logs": logs,
    }


def refused(do: Any) -> str:
    try:
        do()
    except ContractLogicError as error:
        return f"revert: {error.message}"
    except Web3RPCError as error:
        text = (error.rpc_response or {})["error"]["message"].lower()
        return next((words for words in KNOWN if words in text), text)
    return "it was not refused"


KNOWN = ("nonce too low", "insufficient funds for gas * price + value")

filters = [
    token.events.Transfer.create_filter(from_block="latest"),
    w3.eth.filter("latest"),
    w3.eth.filter("pending"),
]
for each in filters:
    each.get_new_entries()  # anvil begins with the events of the newest block, geth after it
before = w3.eth.block_number

facts["chainId"] = w3.eth.chain_id
facts["name"] = token.functions.name().call()
facts["transfer"] = told(send(token.functions.transfer(shop, 11), alice))
legacy = {"gasPrice": w3.eth.gas_price}
facts["legacy"] = told(send(token.functions.transfer(shop, 12), alice, **legacy))

nonce = bytes.fromhex(given["nonce"][2:])
authorization = [alice.address, shop, 14, 0, given["end"], nonce]
asked = typed(given, "TransferWithAuthorization", authorization)
pay = token.functions.transferWithAuthorization(
    *authorization, *split(alice.sign_typed_data(full_message=asked))
)
facts["authorized"] = told(send(pay, bob))
facts["usedTwice"] = refused(lambda: pay.call({"from": bob.address}))
facts["reverts"] = told(send(pay, bob, gas=200_000))
permit_nonce = token.functions.nonces(alice.address).call()
permit = typed(given, "Permit", [alice.address, bob.address, 20, permit_nonce, given["end"]])
signed = alice.sign_typed_data(full_message=permit)
permits = token.functions.permit(alice.address, bob.address, 20, given["end"], *split(signed))
facts["permit"] = told(send(permits, bob))
facts["permitTwice"] = refused(lambda: permits.call({"from": bob.address}))
facts["allowed"] = token.functions.allowance(alice.address, bob.address).call()
take = token.functions.transferFrom(alice.address, shop, 15)
facts["taken"] = told(send(take, bob))
facts["tooMuch"] = refused(lambda: take.call({"from": bob.address}))
facts["approved"] = told(send(token.functions.approve(bob.address, 5), alice))
count = w3.eth.get_transaction_count(alice.address, "pending")
spare = token.functions.transfer(shop, 1)
facts["nonceTooLow"] = refused(lambda: send(spare, alice, nonce=count - 1, gas=99_999))
facts["poor"] = refused(lambda: send(spare, poor, gas=60_000))

facts["block"] = w3.eth.get_block("pending")["number"] - w3.eth.block_number
past = token.functions.balanceOf(shop).call(block_identifier=before)
facts["moved"] = token.functions.balanceOf(shop).call() - past
facts["storage"] = int.from_bytes(w3.eth.get_storage_at(given["token"], 11))
logs = token.events.Transfer.get_logs(from_block=before + 1)
facts["logs"] = [[log["blockNumber"] - before, *log["args"].values()] for log in logs]
facts["receipts"] = len(w3.eth.get_block_receipts(before + 1))
heard, blocks, arrived = (each.get_new_entries() for each in filters)
facts["heard"] = [log["args"]["value"] for log in heard]
facts["blocks"] = [w3.eth.get_block(each)["number"] - before for each in blocks]
facts["arrived"] = len(set(map(bytes, arrived)))
facts["uninstalled"] = [w3.eth.uninstall_filter(each.filter_id) for each in filters]

facts["owner"] = w3.eth.accounts[0] == first.address
as_json = {**asked, "message": {**asked["message"], "nonce": given["nonce"]}}
by_node = w3.manager.request_blocking("eth_signTypedData_v4", [first.address, as_json])
facts["typed"] = Web3.to_bytes(hexstr=by_node) == bytes(
    first.sign_typed_data(full_message=asked).signature
)
by_node = w3.eth.sign(first.address, hexstr="0x1234")
facts["message"] = bytes(by_node) == bytes(
    first.sign_message(encode_defunct(b"\x12\x34")).signature
)
sent = token.functions.transfer(shop, 16).transact({"from": first.address})
facts["sent"] = told(w3.eth.wait_for_transaction_receipt(sent, poll_latency=0.05))
print(json.dumps(facts))
