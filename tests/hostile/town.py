"""The world under attack: its parts, requests to each that work, and a way to send one."""

import asyncio
import json
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import httpx
from starlette.types import ASGIApp, Message

from tests.hostile.inputs import Sent, request
from tests.money import (
    Ledger,
    Violation,
    access_is_paid,
    charged_as_signed,
    money_is_signed,
    names_what_paid,
    receipt_stays,
    refunds_are_the_rest,
    session_is_right,
)
from tests.mutants.changes import Change, all_of
from tests.rig import ORDER, QUOTE, Buyer, requirements
from x402sim import World
from x402sim.protocol import x402
from x402sim.protocol.crypto import to_hex
from x402sim.protocol.header import authorization_of
from x402sim.protocol.messages import encode
from x402sim.protocol.networks import TESTNET
from x402sim.serving.listen import Listen
from x402sim.serving.serve import world_app
from x402sim.world.running_world import RunningWorld, build

HANG_S = 20


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back, and after how long."""

    status: int
    body: bytes
    media_type: str
    seconds: float

    def json(self) -> Any:
        return json.loads(self.body)


@asynccontextmanager
async def town(file: Path | None = None, change: Change = all_of()) -> AsyncIterator["Town"]:  # noqa: B008 - it has no state
    """Run a world in this process, without background work; `change` may put a defect into it."""
    parts = build(change(World(seed=1, file=file)))
    try:
        yield Town(parts)
    finally:
        parts.service.store.close()
        parts.chain.close()


class Town(Buyer):
    """A world, and its requests that work."""

    def __init__(self, parts: RunningWorld) -> None:
        self.parts, self.clock, self.alice = parts, parts.clock, parts.accounts.funded[0]
        self.app: ASGIApp = world_app(parts, Listen())
        wire = httpx.ASGITransport(self.app)
        self.http = httpx.AsyncClient(transport=wire, base_url="http://127.0.0.1:4020")
        self._forget()

    def _forget(self) -> None:
        """Begin again: the world has been reset, or its payers are new."""
        self.payments: list[dict[str, Any]] = []
        """What Alice has signed since then, as bodies of POST /api/pay."""
        self.sessions: Counter[str] = Counter()
        """How often each of her sessions was served."""

    async def send(self, sent: Sent) -> Answer:
        """Send a request; raises `TimeoutError` if no answer comes in `HANG_S`."""
        async with asyncio.timeout(HANG_S):
            answer = await send(self.app, sent)
        shown = [value.decode("latin-1") for name, value in sent.headers if name == b"x-session-id"]
        if answer.status == 200 and sent.target.startswith(QUOTE):
            self.sessions.update(each for each in shown if each in self.sessions)
        return answer

    def settlement(self, required: httpx.Response, header: str | None = None) -> dict[str, Any]:
        body = super().settlement(required, header)
        self.payments.append(body)
        return body

    async def open_session(self, max_spend: str = "0.05", duration: int = 3600) -> dict[str, Any]:
        session = await super().open_session(max_spend, duration)
        self.sessions[session["sessionId"]] = 0
        return session

    async def money(self) -> list[Violation]:
        """Compare the ledger with what the service answers about all that Alice has signed."""
        ledger, found, paid = await Ledger.read(self.parts.chain), list[Violation](), set[str]()
        for body in self.payments:
            what = f"payment id {body['paymentId'][:14]}"
            auth, _ = authorization_of(body["paymentHeader"])
            charges = ledger.charges(auth.nonce.hex())
            found += charged_as_signed(
                what, charges, (to_hex(auth.from_), to_hex(auth.to), auth.value)
            )
            paid |= {charge.tx_hash for charge in charges}
            found += await self._granted(what, body, {charge.tx_hash for charge in charges})
        found += money_is_signed(ledger.transfers, {self.alice.address.lower()}, paid)
        for session_id in self.sessions:
            await self.send(request("service", "POST", QUOTE, ORDER, x_session_id=session_id))
            times = self.sessions[session_id]
            view = (await self.http.get(f"/api/sessions/{session_id}")).json()
            found += session_is_right(session_id, view, 50_000, (times * 10_000, times * 10_000))
        wallet = to_hex(self.parts.service.env.wallet)
        refunds = Counter(each.amount for each in ledger.transfers if each.sender == wallet)
        found += refunds_are_the_rest((wallet, "everybody"), Counter(), refunds)  # none has ended
        return found

    async def _granted(self, what: str, body: Any, paid: set[str]) -> list[Violation]:
        record, wanted = await self.record(body["paymentId"]), body["paymentRequirements"]
        proof = {"x_payment_id": body["paymentId"]}
        is_deposit = wanted["resource"] == "/api/sessions/create"
        asked = self.ask_session(**proof) if is_deposit else self.ask(**proof)
        has_access = (await asked).status_code in (200, 201)
        found = []
        if has_access:
            found += access_is_paid(what, paid)
        if has_access or record.get("status") == "settled":
            found += names_what_paid(f"the record of {what}", record.get("tx_hash"), paid)
            found += receipt_stays(what, has_access=has_access)
        return found

    async def recover(self) -> None:
        """Undo what a command of the control API has done."""
        for path in ("/_sim/faults/clear", "/_sim/reset"):
            done = await self.http.post(path, json={})
            assert done.status_code == 200, done.text
        self._forget()

    async def working(self) -> list[Sent]:
        """Return a request for each thing that each part does, with ids that work now."""
        payment_id = await self.buy()
        session = (await self.open_session())["sessionId"]
        settlement = self.settlement(await self.ask())
        facilitator = {
            "x402Version": 1,
            "paymentHeader": settlement["paymentHeader"],
            "paymentRequirements": settlement["paymentRequirements"],
        }
        tx_hash = (await self.record(payment_id))["tx_hash"]
        service = [
            request("service", "POST", "/api/perp/quote", ORDER),
            request("service", "POST", "/api/perp/quote", ORDER, x_payment_id=payment_id),
            request("service", "POST", "/api/perp/quote", ORDER, x_session_id=session),
            *[request("service", "POST", "/api/pay", settlement)] * 6,
            *[request("service", "POST", "/api/sessions/create", _SESSION)] * 2,
            request("service", "GET", f"/api/payments/{payment_id}"),
            request("service", "GET", f"/api/sessions/{session}"),
            *(request("service", "GET", path) for path in _PATHS),
        ]
        facilitating = [
            request("facilitator", "GET", "/facilitator/healthcheck"),
            request("facilitator", "GET", "/facilitator/v2/x402/supported"),
            *[request("facilitator", "POST", "/facilitator/v2/x402/verify", facilitator)] * 3,
            *[request("facilitator", "POST", "/facilitator/v2/x402/settle", facilitator)] * 3,
            request("facilitator", "GET", "/facilitator/supported"),
            *self._standard(settlement),
        ]
        return [*service, *facilitating, *self._reading(tx_hash), *self._control()]

    def _standard(self, settlement: dict[str, Any]) -> list[Sent]:
        wanted = requirements(settlement["paymentRequirements"])
        auth, signature = authorization_of(settlement["paymentHeader"])
        sent = []
        for accepted in (
            x402.requirements_v1(wanted, TESTNET, url="http://127.0.0.1:4020/api/perp/quote"),
            x402.requirements_v2(wanted, TESTNET),
        ):
            payment = json.loads(x402.from_base64(x402.encode_payment(auth, signature, accepted)))
            body = {
                "x402Version": payment["x402Version"],
                "paymentPayload": payment,
                "paymentRequirements": json.loads(encode(accepted)),
            }
            for path in ("/facilitator/verify", "/facilitator/settle"):
                sent += [request("facilitator", "POST", path, body)] * 2
        return sent

    def _reading(self, tx_hash: str) -> list[Sent]:
        address, token = self.alice.address, "0x" + self.parts.chain.token.hex()
        call = {"from": address, "to": token, "data": "0x18160ddd"}
        logs = {"fromBlock": "0x0", "toBlock": "latest", "address": token, "topics": [None]}
        params: dict[str, list[Any]] = {
            "eth_blockNumber": [],
            "eth_feeHistory": ["0x2", "latest", [25]],
            "eth_getBalance": [address, "latest"],
            "eth_getTransactionCount": [address, "latest"],
            "eth_getBlockByNumber": ["latest", True],
            "eth_getBlockByHash": ["0x" + "00" * 32, False],
            "eth_getTransactionReceipt": [tx_hash],
            "eth_getLogs": [logs],
            "eth_call": [call, "latest"],
            "eth_estimateGas": [call],
            "eth_sendTransaction": [{"from": address, "to": address, "value": "0x1"}],
        }
        calls = [
            {"jsonrpc": "2.0", "id": 1, "method": name, "params": given}
            for name, given in params.items()
        ]
        etherscan = "/explorer/api?module=proxy&action=eth_getTransactionByHash&txhash="
        cronos = "/explorer/api/v1/ethproxy/getTransactionReceipt?txHash="
        return [
            *(request("rpc", "POST", "/rpc", each) for each in calls),
            request("rpc", "POST", "/rpc", calls),
            request("rpc", "GET", "/rpc"),
            *[request("explorer", "GET", etherscan + tx_hash)] * 5,
            *[request("explorer", "GET", cronos + tx_hash)] * 5,
            request("explorer", "GET", "/explorer/api/v1/ethproxy/getBlockNumber"),
            *(request("explorer", "GET", path + tx_hash) for path in _OUTCOMES),
            *(request("explorer", "GET", path) for path in _BLOCKS),
        ]

    def _control(self) -> list[Sent]:
        fault = {"victim": "facilitator", "does": "lose answer", "times": 1}
        sent = CONTROL | {"/_sim/faults": fault}
        reading = ("accounts", "state", "who", "transfers", "faults", "journal?since=0")
        return [
            *(request("control", "POST", path, each) for path, each in sent.items()),
            *(request("control", "GET", f"/_sim/{name}") for name in reading),
        ]


_SOMEBODY = "0x" + "11" * 20
CONTROL: dict[str, Any] = {
    "/_sim/faucet": {"address": _SOMEBODY, "amount": "1.00"},
    "/_sim/clock/advance": {"seconds": 1},
    "/_sim/clock/skew": {"actor": "service", "seconds": 1},
    "/_sim/mine": {"blocks": 1},
    "/_sim/mining": {"automine": True},
    "/_sim/reorg": {"depth": 1},
    "/_sim/revert": {"snapshot": 1},
    "/_sim/balances": {"accounts": [_SOMEBODY]},
    "/_sim/send": {"from": _SOMEBODY, "to": _SOMEBODY, "data": "0x"},
    "/_sim/explorer/lag": {"seconds": 1},
    "/_sim/force-revert": {"calls": 1},
    "/_sim/indexer/run": {},
    "/_sim/snapshot": {},
    "/_sim/wallet": {"owner": _SOMEBODY},
    "/_sim/drop": {},
}
"""A message that each command of the control API takes, but for that of a fault."""
_OUTCOMES = (
    "/explorer/api?module=transaction&action=getstatus&txhash=",
    "/explorer/api/v1/transaction/getStatus?txHash=",
)
_BLOCKS = (
    "/explorer/api?module=proxy&action=eth_getBlockByNumber&tag=latest&boolean=true",
    "/explorer/api/v1/ethproxy/getBlockByNumber?tag=0x1&txDetail=false",
)
_SESSION = {"maxSpend": "0.05", "duration": 3600}
_PATHS = ("/api/agents", "/llms.txt", "/docs/errors.md", "/openapi.json", "/healthz", "/docs", "/")


async def send(app: ASGIApp, sent: Sent) -> Answer:
    """Send a request to an application as a server would."""
    path, _, query = sent.target.partition("?")
    headers = [(b"host", b"127.0.0.1:4020"), *sent.headers]
    if not any(name == b"content-length" for name, _ in sent.headers):
        headers.append((b"content-length", str(len(sent.body)).encode()))
    scope = {
        "type": "http", "asgi": {"version": "3.0", "spec_version": "2.3"}, "http_version": "1.1",
        "method": sent.method, "scheme": "http", "path": unquote(path),
        "raw_path": path.encode("utf-8", "replace"), "root_path": "",
        "query_string": query.encode("utf-8", "replace"), "headers": headers,
        "server": ("127.0.0.1", 4020), "client": ("127.0.0.1", 1),
    }  # fmt: skip
    start: Message = {}
    parts: list[bytes] = []
    chunks = [sent.body[at : at + 65536] for at in range(0, len(sent.body), 65536)] or [b""]

    async def receive() -> Message:
        if not chunks:
            return {"type": "http.disconnect"}
        return {"type": "http.request", "body": chunks.pop(0), "more_body": bool(chunks)}

    async def keep(message: Message) -> None:
        nonlocal start
        if message["type"] == "http.response.start":
            start = message
        else:
            parts.append(message.get("body", b""))

    began = time.perf_counter()
    await app(scope, receive, keep)
    media_type = dict(start["headers"]).get(b"content-type", b"").decode().split(";")[0]
    return Answer(start["status"], b"".join(parts), media_type, time.perf_counter() - began)
