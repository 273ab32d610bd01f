"""A purchase by a client in Python: `python payer.py CLIENT`, one of `CLIENTS`.

X402SIM_TASK_FILE names the file of the task. It prints the goods and exits 0, or exits 75, to be
started again: no client retries by itself.
"""

import asyncio
import json
import os
import sys
from typing import Any

from eth_account import Account

AGAIN, DEADLINE_S = 75, 9


def client(kind: Any, task: dict[str, Any]) -> Any:
    """Return a client that pays on the task's network, up to the task's cap.

    Versions without spend controls have policies, which choose among offers.
    """
    from x402.mechanisms.evm.exact import ExactEvmScheme

    made = kind()
    if hasattr(made, "set_spend_controls"):
        made.set_spend_controls({"max_amount_per_payment": f"${task['max_amount']}"})
    else:
        asset, cap = task["asset"].lower(), int(task["max_amount_base_units"])
        made.register_policy(
            lambda _, offers: [
                each
                for each in offers
                if each.asset.lower() == asset and int(each.get_amount()) <= cap
            ]
        )
    return made.register(task["network"], ExactEvmScheme(Account.from_key(task["private_key"])))


def by_requests(task: dict[str, Any]) -> tuple[int, str]:
    """Buy with requests."""
    from x402 import x402ClientSync
    from x402.http.clients.requests import x402_requests

    session = x402_requests(client(x402ClientSync, task))
    answer = session.request(task["method"], task["url"], timeout=DEADLINE_S)
    return answer.status_code, answer.text


async def by_httpx(task: dict[str, Any]) -> tuple[int, str]:
    """Buy with httpx."""
    from x402 import x402Client
    from x402.http.clients.httpx import x402HttpxClient

    async with x402HttpxClient(client(x402Client, task), timeout=DEADLINE_S) as http:
        async with asyncio.timeout(DEADLINE_S):
            answer = await http.request(task["method"], task["url"])
            return answer.status_code, answer.text


def by_x402_client(task: dict[str, Any]) -> tuple[int, str]:
    """Buy with x402-client, which takes no cap."""
    from x402_client import X402Client

    with X402Client(account=Account.from_key(task["private_key"]), timeout=DEADLINE_S) as http:
        answer = http.get(task["url"])
        return answer.status_code, answer.text


def by_requests_v1(task: dict[str, Any]) -> tuple[int, str]:
    """Buy with requests, by version 1."""
    from x402.clients.requests import x402_requests

    session = x402_requests(*account_and_cap(task))
    answer = session.request(task["method"], task["url"], timeout=DEADLINE_S)
    return answer.status_code, answer.text


async def by_httpx_v1(task: dict[str, Any]) -> tuple[int, str]:
    """Buy with httpx, by version 1."""
    from x402.clients.httpx import x402HttpxClient

    async with x402HttpxClient(*account_and_cap(task), timeout=DEADLINE_S) as http:
        async with asyncio.timeout(DEADLINE_S):
            answer = await http.request(task["method"], task["url"])
            return answer.status_code, (await answer.aread()).decode()


def account_and_cap(task: dict[str, Any]) -> tuple[Any, int, Any]:
    """Return the account, the cap, and the choice of an offer: clients of version 1 take them.

    The clients' own choice is of the first offer, on whatever network, or of no offer.
    """
    from x402.clients.base import x402Client

    asset, cap = task["asset"].lower(), int(task["max_amount_base_units"])

    def choose(offers: list[Any], network: Any, scheme: Any, most: Any) -> Any:
        mine = [each for each in offers if each.asset.lower() == asset]
        mine = [each for each in mine if int(each.max_amount_required) <= cap]
        choice = x402Client.default_payment_requirements_selector
        return choice(mine, task["network_name"], "exact", most)

    return Account.from_key(task["private_key"]), cap, choose


def by_billmyagent(task: dict[str, Any]) -> tuple[int, str]:
    """Buy with billmyagent, which takes no cap."""
    from billmyagent import PaymentClient, create_signer

    client = PaymentClient(signer=create_signer(task["network_name"], task["private_key"]))
    answer = client.http.request(task["method"], task["url"], timeout=DEADLINE_S)
    return answer.status_code, answer.text


CLIENTS = {
    "httpx": lambda task: asyncio.run(by_httpx(task)),
    "requests": by_requests,
    "httpx-v1": lambda task: asyncio.run(by_httpx_v1(task)),
    "requests-v1": by_requests_v1,
    "x402-client": by_x402_client,
    "billmyagent": by_billmyagent,
}
with open(os.environ["X402SIM_TASK_FILE"], encoding="utf-8") as file:
    status, text = CLIENTS[sys.argv[1]](json.load(file))
sys.stdout.write(text)
sys.exit(0 if 200 <= status < 300 else AGAIN)
