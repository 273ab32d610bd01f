"""web3.py over WebSocket, as its documentation shows it: `AsyncWeb3(WebSocketProvider(...))`."""

import asyncio
import json
import sys
from typing import Any

from eth_account import Account
from web3 import AsyncWeb3, WebSocketProvider

given = json.load(sys.stdin)
ABI = [
    {
        "type": "function",
        "name": "transfer",
        "inputs": [{"name": "to", "type": "address"}, {"name": "value", "type": "uint256"}],
        "outputs": [{"name": "", "type": "bool"}],
        "stateMutability": "nonpayable",
    }
]
TRANSFER = AsyncWeb3.keccak(text="Transfer(address,address,uint256)")


async def main() -> dict[str, Any]:
    facts: dict[str, Any] = {}
    alice, shop = Account.from_key(given["alice"]), given["shop"]
    async with AsyncWeb3(WebSocketProvider(given["rpc"].replace("http", "ws", 1))) as w3:
        token = w3.eth.contract(address=given["token"], abi=ABI)
        heads = await w3.eth.subscribe("newHeads")
        logs = await w3.eth.subscribe("logs", {"address": given["token"], "topics": [TRANSFER]})
        arriving = await w3.eth.subscribe("newPendingTransactions")
        before = await w3.eth.block_number

        async def send(value: int, **more: Any) -> Any:
            nonce = await w3.eth.get_transaction_count(alice.address)
            asked = {"from": alice.address, "nonce": nonce, **more}
            built = await token.functions.transfer(shop, value).build_transaction(asked)
            raw = alice.sign_transaction(built).raw_transaction
            return await w3.eth.wait_for_transaction_receipt(await w3.eth.send_raw_transaction(raw))

        first = await send(11)
        price = await w3.eth.gas_price
        second = await send(12, gasPrice=price, accessList=[])
        facts["sent"] = [[it["status"], it["type"], it["gasUsed"]] for it in (first, second)]
        place = await w3.eth.get_transaction_by_block(before + 1, 0)
        facts["place"] = place["hash"] == first["transactionHash"]
        facts["count"] = await w3.eth.get_block_transaction_count(before + 1)
        facts["listening"] = await w3.net.listening
        told: dict[str, list[Any]] = {heads: [], logs: [], arriving: []}
        async with asyncio.timeout(10):
            async for message in w3.socket.process_subscriptions():
                told[message["subscription"]].append(message["result"])
                if all(len(each) >= 2 for each in told.values()):
                    break
        facts["heads"] = next(head["number"] - before for head in told[heads])
        facts["heard"] = [int.from_bytes(log["data"]) for log in told[logs]]
        facts["timed"] = all(log["blockTimestamp"] for log in told[logs])
        hashes = {it["transactionHash"] for it in (first, second)}
        facts["arrived"] = hashes <= set(told[arriving])
        facts["ended"] = [await w3.eth.unsubscribe(each) for each in (heads, logs, arriving)]
    return facts


print(json.dumps(asyncio.run(main())))
