"""A payer for the judge of payers: `python pay.py CLIENT`, with clients of others as their guides say.

CLIENT is httpx or requests (the official SDK), with -v1 for version 1; x402-client; billmyagent. With
X402SIM_TASK_FILE set it is one start: it buys, prints what it bought, exits 0, or 75 to be started again. Without it,
it is a payer behind HTTP: it prints its URL, and each POST of a task is a start. There the client of a purchase is kept
between its starts, so that whatever the package remembers in memory is remembered.
"""

import json
import os
import sys
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock
from typing import Any

from eth_account import Account

AGAIN = 75
DEADLINE_S = 9
"""Of a caller: no package has one of its own for a whole answer."""
Task = dict[str, Any]
Client = Callable[[], tuple[int, str]]


def _capped(client: Any, task: Task) -> Any:
    client.set_spend_controls({"max_amount_per_payment": f"${task['max_amount']}"})
    return client


def official(task: Task, kind: Any, version: int) -> Any:
    """Return a client of the official SDK that pays on the task's network, up to its cap."""
    from x402.mechanisms.evm.exact import ExactEvmScheme
    from x402.mechanisms.evm.exact.v1 import ExactEvmSchemeV1
    from x402.mechanisms.evm.upto import UptoEvmScheme

    client, signer = _capped(kind(), task), Account.from_key(task["private_key"])
    if version == 1:
        return client.register_v1(task["network_name"], ExactEvmSchemeV1(signer))
    client.register(task["network"], UptoEvmScheme(signer))
    return client.register(task["network"], ExactEvmScheme(signer))


def with_requests(task: Task, version: int) -> Client:
    from x402 import x402ClientSync
    from x402.http.clients.requests import x402_requests

    return by_session(x402_requests(official(task, x402ClientSync, version)), task)


def by_session(session: Any, task: Task) -> Client:
    def buy() -> tuple[int, str]:
        answer = session.request(task["method"], task["url"], timeout=DEADLINE_S)
        return answer.status_code, answer.text

    return buy


def with_httpx(task: Task, version: int) -> Client:
    import asyncio

    from x402 import x402Client
    from x402.http.clients.httpx import x402HttpxClient

    client = official(task, x402Client, version)

    async def main() -> tuple[int, str]:
        async with x402HttpxClient(client, timeout=DEADLINE_S) as http, asyncio.timeout(DEADLINE_S):
            answer = await http.request(task["method"], task["url"])
            return answer.status_code, answer.text

    return lambda: asyncio.run(main())


def with_x402_client(task: Task) -> Client:
    from x402_client import X402Client

    def buy() -> tuple[int, str]:
        with X402Client(account=Account.from_key(task["private_key"]), timeout=DEADLINE_S) as http:
            answer = http.get(task["url"])
            return answer.status_code, answer.text

    return buy


def with_billmyagent(task: Task) -> Client:
    from billmyagent import PaymentClient, create_signer

    signer = create_signer(task["network_name"], task["private_key"])
    return by_session(PaymentClient(signer=signer).http, task)


CLIENTS: dict[str, Callable[[Task], Client]] = {
    "httpx": lambda task: with_httpx(task, 2),
    "httpx-v1": lambda task: with_httpx(task, 1),
    "requests": lambda task: with_requests(task, 2),
    "requests-v1": lambda task: with_requests(task, 1),
    "x402-client": with_x402_client,
    "billmyagent": with_billmyagent,
}
open_client = CLIENTS[sys.argv[1]]
clients: dict[str, Client] = {}
lock = Lock()


def bought(task: Task) -> tuple[bool, str]:
    """Return whether a start has bought, and what, or why not."""
    with lock:
        if task["state_dir"] not in clients:
            clients[task["state_dir"]] = open_client(task)
    try:
        status, text = clients[task["state_dir"]]()
    except Exception as error:  # noqa: BLE001 - whatever it raises, it has not bought
        return False, repr(error)
    return 200 <= status < 300, text


class Handler(BaseHTTPRequestHandler):
    """Each POST is a start."""

    def do_POST(self) -> None:
        ok, text = bought(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(200 if ok else 500)
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


if file := os.environ.get("X402SIM_TASK_FILE"):
    with open(file, encoding="utf-8") as opened:
        ok, text = bought(json.load(opened))
    print(text, file=sys.stdout if ok else sys.stderr)
    sys.exit(0 if ok else AGAIN)
sys.setrecursionlimit(1000)  # a library has raised it so far that a deep 402 would end this server
with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
    print(f"http://127.0.0.1:{server.server_port}", flush=True)
    server.serve_forever()
