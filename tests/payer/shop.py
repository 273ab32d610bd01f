"""A shop for tests of payers, which answers what a test says."""

import asyncio
import json
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest

from tests.bounded.hostile_peer import wanted
from x402sim import PaymentAuth, PaymentFailed, Wallet

URL = "http://shop/x"
Reply = tuple[int, Any]
LOST = httpx.ReadTimeout("lost")


@dataclass
class Shop:
    """A shop whose 402s have new payment ids; `serves` and `settles` say what it does.

    `serves` gets the payment id or session id that was shown (or None), `settles` the body. What
    they return is answered; an exception is raised, as if the answer were lost.
    """

    serves: Callable[[str | None], Reply | Exception | None] = lambda proof: None
    settles: Callable[[dict[str, Any]], Reply | Exception] = lambda body: receipt(body)
    asked: list[tuple[str, str | None]] = field(default_factory=list)
    settled: list[dict[str, Any]] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def __call__(self, request: httpx.Request) -> httpx.Response:
        with self.lock:
            answer = self._answer(request)
        if isinstance(answer, Exception):
            raise answer
        status, body = answer
        if isinstance(body, bytes):
            return httpx.Response(status, content=body)
        return httpx.Response(status, json=body)

    def _answer(self, request: httpx.Request) -> Reply | Exception:
        if request.url.path == "/api/pay":
            body = json.loads(request.content)
            self.settled.append(body)
            return self.settles(body)
        proof = request.headers.get("x-session-id") or request.headers.get("x-payment-id")
        self.asked.append((request.url.path, proof))
        reply = self.serves(proof)
        required = wanted(request.url.path) | {"paymentId": f"pay_{len(self.asked):09}"}
        return reply or (402, required)

    @property
    def headers(self) -> set[str]:
        """The authorizations that it was given, each once."""
        return {body["paymentHeader"] for body in self.settled}

    def client(self, auth: httpx.Auth) -> httpx.Client:
        return httpx.Client(transport=httpx.MockTransport(self), auth=auth)


def ask(shop: Any, auth: httpx.Auth, url: str = URL) -> Any:
    """Send one request; return the status of its answer, or what was raised."""
    transport = httpx.MockTransport(shop)
    try:
        with httpx.Client(transport=transport, auth=auth, follow_redirects=True) as http:
            return http.get(url).status_code
    except (PaymentFailed, httpx.HTTPError) as failed:
        return failed


def receipt(body: dict[str, Any]) -> Reply:
    tx_hash = "0x" + "1" * 64
    return 200, {"success": True, "paymentId": body["paymentId"], "txHash": tx_hash, "timestamp": 1}


def served(proof: str | None) -> Reply | None:
    return (200, {}) if proof else None


def opened(proof: str | None) -> Reply | None:
    """Open a session for any payment id, and serve any session."""
    if proof is None:
        return None
    return (200, {}) if proof.startswith("session_") else (201, {"sessionId": f"session_{proof}"})


def payer(**options: Any) -> PaymentAuth:
    return PaymentAuth(Wallet.create(), **options)


def all_at_once(shop: Shop, auth: httpx.Auth, count: int) -> list[Any]:
    """What so many tasks get, or what is raised to them."""

    async def serve(request: httpx.Request) -> httpx.Response:
        await asyncio.sleep(0.001)
        return shop(request)

    async def main() -> list[Any]:
        async with httpx.AsyncClient(transport=httpx.MockTransport(serve), auth=auth) as http:
            asked = (http.get(URL) for _ in range(count))
            return await asyncio.gather(*asked, return_exceptions=True)

    return asyncio.run(main())


Get = Callable[..., httpx.Response]


def in_sync(url: str, auth: httpx.Auth, *, timeout_s: float = 60, **more: Any) -> httpx.Response:
    """Ask a `hostile_peer` on an open connection: the payer has not seen it being opened."""
    with httpx.Client(timeout=timeout_s, follow_redirects=True) as http:
        http.get(httpx.URL(url).join("/hops/0/x"))
        return http.get(url, auth=auth, **more)


def in_async(url: str, auth: httpx.Auth, *, timeout_s: float = 60, **more: Any) -> httpx.Response:
    async def main() -> httpx.Response:
        async with httpx.AsyncClient(timeout=timeout_s, follow_redirects=True) as http:
            await http.get(httpx.URL(url).join("/hops/0/x"))
            return await http.get(url, auth=auth, **more)

    return asyncio.run(main())


CLIENTS = pytest.mark.parametrize("get", [in_sync, in_async])
