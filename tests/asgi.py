"""An ASGI application that is asked in this process."""

import asyncio
from typing import Any

import httpx


class Http:
    """An application, asked in this process; what it raises fails the test."""

    def __init__(self, app: Any) -> None:
        self._app = app

    async def ask(self, method: str, url: str, **more: Any) -> httpx.Response:
        transport = httpx.ASGITransport(self._app)
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            return await client.request(method, url, **more)

    def request(self, method: str, url: str, **more: Any) -> httpx.Response:
        return asyncio.run(self.ask(method, url, **more))

    def get(self, url: str, **more: Any) -> httpx.Response:
        return self.request("GET", url, **more)

    def post(self, url: str, **more: Any) -> httpx.Response:
        return self.request("POST", url, **more)
