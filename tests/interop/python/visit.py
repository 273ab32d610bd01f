"""Someone gets a page that costs money: unpaid, paid, and with the same payment once more.

It reads {"url", "key"} from stdin and prints each answer, as JSON.
"""

import asyncio
import json
import sys

import httpx
from eth_account import Account
from x402 import x402Client
from x402.http import x402HTTPClient
from x402.mechanisms.evm import EthAccountSigner
from x402.mechanisms.evm.exact.register import register_exact_evm_client

told = json.load(sys.stdin)
PAYMENT = "PAYMENT-SIGNATURE"


def shown(answer: httpx.Response) -> dict[str, object]:
    headers = {name.lower(): value for name, value in answer.headers.items()}
    return {"status": answer.status_code, "headers": headers, "text": answer.text}


async def main() -> None:
    payer = x402Client()
    register_exact_evm_client(payer, EthAccountSigner(Account.from_key(told["key"])))
    wallet = x402HTTPClient(payer)
    async with httpx.AsyncClient() as http:
        unpaid = await http.get(told["url"])
        headers = dict(unpaid.headers)
        proof, _ = await wallet.handle_402_response(headers, unpaid.content, told["url"])
        paid = await http.get(told["url"], headers=proof)
        again = await http.get(told["url"], headers=proof)
        unreadable = await http.get(told["url"], headers={PAYMENT: "nonsense"})
    answers = {"unpaid": unpaid, "paid": paid, "again": again, "unreadable": unreadable}
    print(json.dumps({name: shown(answer) for name, answer in answers.items()}))


asyncio.run(main())
