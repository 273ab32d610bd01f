"""A service with the messages of the public Cronos paywall, which keeps the specification.

The messages and the first three defects are those of cronos-labs/x402-examples; each defect
can be switched on. Two protected routes allow an entitlement to be bound to one.
"""

import asyncio
import uuid
from typing import Any

import httpx
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from x402sim.clock import Clock
from x402sim.protocol import abi
from x402sim.protocol.crypto import checksum, to_hex
from x402sim.protocol.header import authorization_of
from x402sim.protocol.messages import BadMessage, decode
from x402sim.protocol.networks import Network

DEFECTS = {
    "requirements": "the requirements sent back are never compared with the challenge",
    "ids": "any payment id is accepted, issued or not",
    "routes": "an entitlement is not bound to its route",
    "lock": "settlements of one payment id are concurrent",
    "used": "a payment id that was paid is settled again",
    "texts": "errors have the facilitator's texts",
    "throw": "if the facilitator does not answer, the payer gets access",
}
RESOURCES = ("/api/data", "/api/more")
SENT_BACK = (
    *("scheme", "network", "payTo", "asset", "maxAmountRequired", "maxTimeoutSeconds", "resource"),
)
TEXTS = {
    "Authorization already used": "Nonce already used",
    "Authorization expired": "Authorization expired",
    "Authorization not yet valid": "Invalid signature",
    "ERC20: transfer amount exceeds balance": "Insufficient USDC balance",
    "Invalid signature": "Invalid signature",
}


class Refused(Exception):
    """Nothing is settled; the text is the reason."""


class Unanswered(Exception):
    """The facilitator or the node did not give a usable answer."""


class Paywall:
    """One merchant's paywall; its records are in memory."""

    def __init__(
        self,
        facilitator: httpx.AsyncClient,
        rpc: httpx.AsyncClient,
        clock: Clock,
        network: Network,
        pay_to: str,
        *defects: str,
    ) -> None:
        assert set(defects) <= set(DEFECTS)
        self.facilitator, self.rpc, self.clock = facilitator, rpc, clock
        self.network, self.pay_to, self.defects = network, pay_to, defects
        self.issued: dict[str, tuple[dict[str, Any], int]] = {}
        self.paid: dict[str, tuple[str, str]] = {}
        self.claims: dict[tuple[bytes, bytes], str] = {}
        self.pending: dict[str, str] = {}
        self.lock = asyncio.Lock()
        protected = [Route(path, self.serve, methods=["GET"]) for path in RESOURCES]
        self.app = Starlette(routes=[*protected, Route("/api/pay", self.pay, methods=["POST"])])
        self.app.router.redirect_slashes = False

    # --- the protected resources ---------------------------------------------------------

    async def serve(self, request: Request) -> JSONResponse:
        path = request.url.path
        resource, _ = self.paid.get(request.headers.get("x-payment-id", ""), ("", ""))
        if resource == path or (resource and "routes" in self.defects):
            return JSONResponse({"ok": True, "response": "paid content unlocked"})
        payment_id = f"pay_{uuid.uuid4()}"
        accepted = {
            "scheme": "exact",
            "network": self.network.name,
            "asset": checksum(self.network.asset),
            "payTo": self.pay_to,
            "maxAmountRequired": "1000000" if path == RESOURCES[0] else "20000",
            "maxTimeoutSeconds": 300,
            "description": "Premium data",
            "mimeType": "application/json",
            "resource": path,
            "outputSchema": {},
            "extra": {"paymentId": payment_id},
        }
        self.issued[payment_id] = accepted, self.clock.now_s() + 300
        body = {"x402Version": 1, "error": "payment_required", "accepts": [accepted]}
        return JSONResponse(body, 402)

    # --- settlement ----------------------------------------------------------------------

    async def pay(self, request: Request) -> JSONResponse:
        try:
            payment_id, header, wanted = _parameters(await request.body())
            self._compare(payment_id, wanted)
            async with asyncio.Lock() if "lock" in self.defects else self.lock:
                tx_hash = await self._settle(payment_id, header, wanted)
        except Refused as refused:
            return JSONResponse({"ok": False, "error": str(refused), "details": {}}, 400)
        except Unanswered as problem:
            details = {"reason": str(problem)}
            return JSONResponse({"ok": False, "error": "Try again", "details": details}, 502)
        return JSONResponse({"ok": True, "txHash": tx_hash})

    def _compare(self, payment_id: str, wanted: dict[str, Any]) -> None:
        issued, expires_s = self.issued.get(payment_id, (wanted, 2**40))
        if payment_id not in self.issued and "ids" not in self.defects:
            raise Refused("Unknown payment id")
        if "requirements" in self.defects:
            return
        if any(wanted.get(field) != issued.get(field) for field in SENT_BACK):
            raise Refused("Requirements do not match")
        if self.clock.now_s() > expires_s and payment_id not in self.paid:
            raise Refused("Authorization expired")

    async def _settle(self, payment_id: str, header: str, wanted: dict[str, Any]) -> str:
        if payment_id in self.paid and "used" not in self.defects:
            raise Refused("Payment already settled")
        resource = str(wanted.get("resource"))
        if payment_id in self.pending:
            tx_hash = await self._look_up(self.pending[payment_id])
            if tx_hash is not None:
                return self._grant(payment_id, resource, tx_hash)
            if header != self.pending[payment_id]:
                raise Refused("An earlier payment may still settle")
        body = {"x402Version": 1, "paymentHeader": header, "paymentRequirements": wanted}
        verdict = await self._ask("verify", body)
        if verdict.get("isValid") is not True:
            raise Refused(self._text("Invalid signature", verdict.get("invalidReason")))
        self._claim(payment_id, header)
        try:
            outcome = await self._ask("settle", body)
            if outcome.get("event") not in ("payment.settled", "payment.failed"):
                raise Unanswered("that was no settlement")
        except Unanswered:
            return await self._after_silence(payment_id, resource, header)
        if outcome["event"] == "payment.failed":
            self._release(payment_id, header)
            raise Refused(self._text(TEXTS.get(outcome["error"], "Failed"), outcome["error"]))
        return self._grant(payment_id, resource, outcome["txHash"])

    def _text(self, said: str, by_facilitator: Any) -> str:
        return str(by_facilitator) if "texts" in self.defects else said

    def _claim(self, payment_id: str, header: str) -> None:
        auth, _ = authorization_of(header)
        if self.claims.setdefault((auth.from_, auth.nonce), payment_id) != payment_id:
            raise Refused("Nonce already used")

    def _release(self, payment_id: str, header: str) -> None:
        auth, _ = authorization_of(header)
        self.claims.pop((auth.from_, auth.nonce), None)
        self.pending.pop(payment_id, None)

    def _grant(self, payment_id: str, resource: str, tx_hash: str) -> str:
        self.paid[payment_id] = resource, tx_hash
        self.pending.pop(payment_id, None)
        return tx_hash

    async def _after_silence(self, payment_id: str, resource: str, header: str) -> str:
        self.pending[payment_id] = header
        if "throw" in self.defects:
            return self._grant(payment_id, resource, "0x" + "00" * 32)
        tx_hash = await self._look_up(header)
        if tx_hash is None:
            raise Unanswered("the payment may still settle")
        return self._grant(payment_id, resource, tx_hash)

    async def _look_up(self, header: str) -> str | None:
        """Return the transaction that has paid by an authorization; None if none has."""
        auth, _ = authorization_of(header)
        topics = [abi.AUTHORIZATION_USED, abi.word(auth.from_), auth.nonce]
        wanted = {
            "address": to_hex(self.network.asset),
            "topics": [to_hex(topic) for topic in topics],
            "fromBlock": "0x0",
        }
        logs = await self._node("eth_getLogs", wanted)
        if not isinstance(logs, list):
            raise Unanswered("the node gave no logs")
        if not logs:
            return None
        tx_hash = str(logs[0]["transactionHash"])
        receipt = await self._node("eth_getTransactionReceipt", tx_hash)
        paid = [to_hex(abi.TRANSFER_EVENT), to_hex(abi.word(auth.from_)), to_hex(abi.word(auth.to))]
        moved = [int(log["data"], 16) for log in receipt["logs"] if log["topics"] == paid]
        if auth.value not in moved:
            raise Refused("Nonce already used")
        return tx_hash

    async def _node(self, method: str, *params: Any) -> Any:
        call = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        return (await self._post(self.rpc, "", call)).get("result")

    async def _ask(self, verb: str, body: Any) -> dict[str, Any]:
        return await self._post(self.facilitator, f"v2/x402/{verb}", body)

    async def _post(self, http: httpx.AsyncClient, path: str, body: Any) -> dict[str, Any]:
        try:
            answer = await http.post(path, json=body)
            found = answer.json()
        except (httpx.TransportError, ValueError) as error:
            raise Unanswered(repr(error)) from error
        if answer.status_code >= 500 or not isinstance(found, dict):
            raise Unanswered(f"{answer.status_code} {answer.text[:80]}")
        return found


def _parameters(content: bytes) -> tuple[str, str, dict[str, Any]]:
    try:
        body = decode(content, Any)
    except BadMessage as error:
        raise Refused("Bad request") from error
    body = body if isinstance(body, dict) else {}
    payment_id, header = body.get("paymentId"), body.get("paymentHeader")
    wanted = body.get("paymentRequirements")
    if not (isinstance(payment_id, str) and isinstance(header, str) and isinstance(wanted, dict)):
        raise Refused("Bad request")
    try:
        authorization_of(header)
    except BadMessage as error:
        raise Refused("Bad payment header") from error
    return payment_id, header, wanted
