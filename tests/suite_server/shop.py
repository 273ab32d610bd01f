"""A shop that does everything right, and one switch for each thing that a shop gets wrong.

`Shop(given, defects, habits)` is an ASGI application that sells by both versions of the standard.
`python -m tests.suite_server.shop DEFECT…` serves one, as the judge starts it. It keeps what became
of each payment; what is not known is asked again of the facilitator, and not charged again.
"""

import asyncio
import base64
import hashlib
import itertools
import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, unquote

import httpx

from x402sim.protocol.crypto import checksum
from x402sim.protocol.networks import BASE_SEPOLIA, Network
from x402sim.suite.server.start import Given

PRICES = {("GET", "/weather"): 10_000, ("GET", "/forecast"): 20_000, ("POST", "/report"): 30_000}
ASK_S = 2.0
EXPOSED = "PAYMENT-REQUIRED, PAYMENT-RESPONSE, X-PAYMENT-RESPONSE"


class Malformed(Exception):
    """The header is no payment."""


class Unknown(Exception):
    """The facilitator did not say what became of it."""


@dataclass(frozen=True)
class Reply:
    status: int
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)


def encoded(value: Any) -> str:
    return base64.b64encode(json.dumps(value).encode()).decode()


@dataclass
class Shop:
    """Sells; `defects` are what it gets wrong, `habits` what an honest shop may do differently."""

    facilitator: str
    pay_to: str
    network: Network
    defects: frozenset[str] = frozenset()
    habits: frozenset[str] = frozenset()
    numbers: Any = field(default_factory=lambda: itertools.count(1))
    is_dead: bool = False
    known: dict[str, tuple[str, Any]] = field(default_factory=dict)
    """By nonce: what it was for, and the answer; None is in progress, "unknown" is not known."""
    owed: dict[str, Any] = field(default_factory=dict)

    def has(self, name: str) -> bool:
        return name in self.defects or name in self.habits

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            while (message := await receive())["type"] != "lifespan.shutdown":
                await send({"type": f"{message['type']}.complete"})
            await send({"type": "lifespan.shutdown.complete"})
            return
        body, more = b"", True
        while more:
            event = await receive()
            body, more = body + event.get("body", b""), event.get("more_body", False)
        headers: dict[str, str] = {}
        for name, value in scope["headers"]:
            headers[name.decode().lower()] = value.decode("latin-1")
        raw = scope["raw_path"].decode("latin-1")
        try:
            reply = await self.answer(
                scope["method"], raw, scope["query_string"].decode("latin-1"), headers, body
            )
        except Malformed as wrong:
            reply = Reply(500 if self.has("5xx for malformed") else 400, {"error": str(wrong)})
        content = b"" if reply.body is None else json.dumps(reply.body).encode()
        told = {"content-type": "application/json", "content-length": str(len(content))}
        if not self.has("no cors"):
            told["access-control-allow-origin"] = "*"
            told["access-control-expose-headers"] = EXPOSED
        told["cache-control"] = "public, max-age=60" if self.has("cacheable") else "no-store"
        if self.has("says nothing of caches"):
            del told["cache-control"]
        told |= {name.lower(): value for name, value in reply.headers.items()}
        if self.has("hides its length"):
            del told["content-length"]
        await send(
            {
                "type": "http.response.start",
                "status": reply.status,
                "headers": [(n.encode(), v.encode("latin-1")) for n, v in told.items()],
            }
        )
        is_head = scope["method"] == "HEAD"
        await send({"type": "http.response.body", "body": b"" if is_head else content})

    # --- what is asked for -----------------------------------------------------------------

    async def answer(
        self, method: str, raw: str, query: str, headers: Mapping[str, str], body: bytes
    ) -> Reply:
        path = raw
        guarded = raw
        if self.is_dead:
            return Reply(500, {"error": "dead"})
        if self.has("dies of a long header"):
            self.is_dead = len(headers.get("payment-signature", "")) == 6000
        if self.has("decodes behind the wall"):
            path = unquote(raw)
        if self.has("merges slashes behind the wall"):
            path = "/" + raw.strip("/").replace("//", "/")
        if self.has("small letters behind the wall"):
            path = raw.lower()
        if self.has("decodes before the wall"):
            path = guarded = unquote(raw)
        if path in ("/free", "/health"):
            return Reply(200, {"free": True})
        if method == "OPTIONS":
            if self.has("preflight is asked to pay") and guarded == "/weather":
                return self.ask("/weather", "pay first")
            allowed = "PAYMENT-SIGNATURE, X-PAYMENT, Content-Type"
            return Reply(204, None, {"Access-Control-Allow-Headers": allowed})
        override = headers.get("x-http-method-override")
        wanted = "GET" if method == "HEAD" else method
        if self.has("overrides behind the wall") and override == "GET":
            wanted = "GET"
        elif method == "POST" and self.has("any method behind the wall"):
            wanted = "GET" if path != "/report" else "POST"
        if (wanted, path) not in PRICES:
            return Reply(404 if path not in dict(PRICES) else 405, {"error": "nothing here"})
        if method == "HEAD" and self.has("head is free"):
            return Reply(200, self.content(wanted, path, query, body))
        if (method, guarded) not in PRICES and method != "HEAD":  # the wall looks at another text
            return Reply(200, self.content(wanted, path, query, body))
        if method == "HEAD" and not self.has("head pays"):
            return self.ask(path, "pay for a GET")
        found = self.payment_in(headers)
        if found is None:
            return self.ask(path, "no payment")
        return await self.paid(found, wanted, path, query, body)

    def content(self, method: str, path: str, query: str, body: bytes) -> Any:
        number = 0 if self.has("sells the same each time") else next(self.numbers)
        if path == "/forecast":
            return {"number": number, "city": parse_qs(query).get("city", [""])[0]}
        if path == "/report":
            try:
                title = json.loads(body).get("title")
            except (ValueError, AttributeError):
                title = None
            return {"number": number, "title": title}
        return {"number": number, "weather": "sunny"}

    # --- the offer -------------------------------------------------------------------------

    def requirements(self, version: int, path: str) -> dict[str, Any]:
        amount = next(price for (_, each), price in PRICES.items() if each == path)
        network = self.network
        wanted: dict[str, Any] = {
            "scheme": "exact",
            "network": network.caip2 if version == 2 else network.name,
            "asset": checksum(network.asset),
            "payTo": self.pay_to,
            "maxTimeoutSeconds": 60,
            "extra": {"name": network.token_name, "version": network.token_version},
        }
        if version == 2:
            return wanted | {"amount": amount if self.has("amount is a number") else str(amount)}
        if self.has("another price in the body"):
            amount *= 2
        return wanted | {
            "maxAmountRequired": str(amount),
            "resource": f"http://shop.example{path}",
            "description": "a report",
            "mimeType": "application/json",
        }

    def ask(self, path: str, error: str, result: Any = None, version: int = 2) -> Reply:
        headers = {}
        is_told = version == 2 or not self.has("reason in the body of version 1")
        if result is not None and is_told and not self.has("no result of refusals"):
            headers[("PAYMENT-RESPONSE", "X-PAYMENT-RESPONSE")[version == 1]] = encoded(result)
        body: dict[str, Any] = {"x402Version": 1, "error": error}
        body["accepts"] = [self.requirements(1, path)]
        if self.has("no error"):
            body.pop("error")
        if not self.has("version 1 only"):
            required = {
                "x402Version": 2,
                "error": error,
                "resource": {"url": f"http://shop.example{path}"},
                "accepts": [self.requirements(2, path)],
            }
            if self.has("no error"):
                required.pop("error")
            if self.has("no resource"):
                required.pop("resource")
            headers["PAYMENT-REQUIRED"] = encoded(required)
        if self.has("version 2 only"):
            body = {"error": error}
        return Reply(402, body, headers)

    # --- the payment -----------------------------------------------------------------------

    def payment_in(self, headers: Mapping[str, str]) -> tuple[int, Any] | None:
        names = {2: "payment-signature", 1: "x-payment"}
        for version, name in names.items():
            text = headers.get(name)
            if text is None:
                continue
            if self.has("trusts headers") and text:
                pass
            try:
                payment = json.loads(base64.b64decode(text, validate=True))
            except (ValueError, RecursionError):
                if self.has("any header pays"):
                    return version, None
                raise Malformed(f"{name} is not base64 of JSON") from None
            payload = payment.get("payload") if isinstance(payment, dict) else None
            auth = payload.get("authorization") if isinstance(payload, dict) else None
            if not isinstance(auth, dict) or not isinstance(auth.get("nonce"), str):
                raise Malformed(f"{name} holds no payment")
            if payment.get("x402Version") != version:
                raise Malformed(f"{name} is not of version {version}")
            return version, payment
        return None

    async def paid(
        self, found: tuple[int, Any], method: str, path: str, query: str, body: bytes
    ) -> Reply:
        version, payment = found
        if payment is None:
            return Reply(200, self.content(method, path, query, body))
        wanted = self.requirements(version, path)
        if self.has("believes what was accepted") and version == 2:
            wanted = payment.get("accepted", wanted)
        named = payment.get("accepted") if version == 2 else payment
        keys = wanted if version == 2 else ("scheme", "network")
        is_same = isinstance(named, dict) and all(named.get(k) == wanted[k] for k in keys)
        if not is_same and not self.has("does not compare"):
            return self.ask(path, "it is for another offer")
        nonce = payment["payload"]["authorization"]["nonce"].lower()
        what = hashlib.sha256(f"{method} {path}?{query}".encode() + body).hexdigest()
        if self.has("forgets what it was for"):
            what = ""
        before = self.known.get(nonce)
        if before is not None and not self.has("keeps nothing"):
            return await self.again(
                before, nonce, what, version, payment, path, wanted, method, query, body
            )
        if not self.has("claims late"):
            self.known[nonce] = (what, None)
        reply = await self.settled(version, payment, wanted, method, path, query, body)
        if reply.status == 402:
            self.known.pop(nonce, None)
        else:
            self.known[nonce] = (what, "unknown" if reply.status == 503 else reply)
        return reply

    async def again(self, before: Any, nonce: str, what: str, version: int, payment: Any, path: str,
                    wanted: Any, method: str, query: str, body: bytes) -> Reply:  # fmt: skip
        of, answer = before
        if self.has("serves again"):
            return Reply(200, self.content(method, path, query, body))
        if of != what:
            return self.ask(path, "this payment has bought something else")
        if answer is None:
            return Reply(409, {"error": "in progress"}, {"Retry-After": "1"})
        if answer == "unknown":
            if self.has("says unknown for ever"):
                return Reply(503, {"error": "not known yet"}, {"Retry-After": "1"})
            reply = await self.settled(
                version, payment, wanted, method, path, query, body, is_verified=True
            )
            if reply.status == 200:
                self.known[nonce] = (what, reply)
            elif reply.status == 402:  # it may be settled all the same
                return Reply(503, {"error": "not known yet"}, {"Retry-After": "1"})
            return reply
        if self.has("refuses what was served"):
            return Reply(409, {"error": "served already"})
        assert isinstance(answer, Reply)
        return answer

    async def settled(
        self,
        version: int,
        payment: Any,
        wanted: Any,
        method: str,
        path: str,
        query: str,
        body: bytes,
        *,
        is_verified: bool = False,
    ) -> Reply:
        asked = {
            "x402Version": version,
            "paymentPayload": payment,
            "paymentRequirements": wanted,
        }
        is_lax = self.has("truthy")
        if not is_verified and not self.has("never verifies"):
            try:
                said = await self.post("/verify", asked)
            except Unknown:
                if self.has("open when verify fails"):
                    return Reply(200, self.content(method, path, query, body))
                return Reply(502, {"error": "the facilitator does not answer"})
            valid = said.get("isValid")
            if not (valid if is_lax else valid is True):
                if self.has("settles what is invalid"):
                    await self.post("/settle", asked)
                reason = str(said.get("invalidReason"))
                return self.ask(path, reason)
        charges = self.has("charges failures") or self.has("charges failures and says so")
        if "fail" in query and not charges:
            return Reply(500, {"error": "failed"})
        if self.has("serves before settling"):
            self.owed[payment["payload"]["authorization"]["nonce"]] = asyncio.create_task(
                self.post_quietly("/settle", asked)
            )
            return Reply(200, self.content(method, path, query, body))
        try:
            said = await self.post("/settle", asked)
        except Unknown:
            if self.has("open when settle fails"):
                return Reply(200, self.content(method, path, query, body))
            if self.has("unknown is refused"):
                result = {"success": False, "errorReason": "unexpected", "transaction": ""}
                return self.ask(path, "settlement failed", result, version)
            return Reply(503, {"error": "not known yet"}, {"Retry-After": "1"})
        success = said.get("success")
        if "fail" in query and success is True:  # it is settled before it works
            name = ("PAYMENT-RESPONSE", "X-PAYMENT-RESPONSE")[version == 1]
            is_told = self.has("charges failures and says so")
            return Reply(500, {"error": "failed"}, {name: encoded(said)} if is_told else {})
        if success if is_lax else success is True:
            receipt = {**said}
            if self.has("no hash"):
                receipt["transaction"] = ""
            name = ("PAYMENT-RESPONSE", "X-PAYMENT-RESPONSE")[version == 1]
            return Reply(200, self.content(method, path, query, body), {name: encoded(receipt)})
        if said.get("errorReason") == "settlement_pending" and not self.has("unknown is refused"):
            return Reply(503, {"error": "pending"}, {"Retry-After": "1"})
        if self.has("served although refused"):
            return Reply(200, self.content(method, path, query, body))
        return self.ask(path, str(said.get("errorReason")), said, version)

    async def post_quietly(self, path: str, asked: Any) -> None:
        try:
            await self.post(path, asked)
        except Unknown:
            return

    async def post(self, path: str, asked: Any) -> dict[str, Any]:
        try:
            async with httpx.AsyncClient(trust_env=False, timeout=ASK_S, verify=False) as http:
                got = await http.post(
                    self.facilitator + path, json=asked, follow_redirects=self.has("follows")
                )
                said = got.json()
        except (httpx.HTTPError, ValueError):
            raise Unknown from None
        field_name = "isValid" if path == "/verify" else "success"
        is_lax = self.has("truthy")
        is_told = field_name in said if isinstance(said, dict) else False
        if not is_told or not (is_lax or isinstance(said[field_name], bool)):
            raise Unknown
        return said if isinstance(said, dict) else {}


def shop(given: Given, defects: Any = (), habits: Any = ()) -> Shop:
    return Shop(
        given.facilitator_url, given.pay_to, given.network, frozenset(defects), frozenset(habits)
    )


if __name__ == "__main__":
    import uvicorn

    uvicorn.run(
        Shop(
            os.environ["FACILITATOR_URL"],
            os.environ["X402SIM_PAY_TO"],
            BASE_SEPOLIA,
            frozenset(sys.argv[1:]),
        ),
        port=int(os.environ["PORT"]),
        log_level="warning",
    )
