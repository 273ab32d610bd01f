"""A gateway as owners have one: TLS with its own certificate, an API key, a rate limit.

It passes requests on to the service behind it, and runs in a thread of the test.
"""

import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import uvicorn
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

API_KEY = "gw-5f1c9a7e33"
NAME = "X-API-Key"


@dataclass
class Gateway:
    """What the gateway demands, and what has come."""

    service: str
    api_key: str | None = API_KEY
    user: tuple[str, str] | None = None
    every: int | None = None
    """Refuse every nth request, as if there were too many."""
    retry_after: str | None = "1"
    says: dict[str, str] = field(default_factory=dict)
    prefix: str = ""
    url: str = ""
    asked: int = 0
    refused: int = 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            request = Request(scope, receive)
            await (await self.answer(request))(scope, receive, send)

    async def answer(self, request: Request) -> Response:
        if self.api_key is not None and request.headers.get(NAME) != self.api_key:
            return JSONResponse({"error": f"no valid {NAME}"}, 401)
        if self.user is not None:
            asked = httpx.Request("GET", str(request.url))
            basic = next(httpx.BasicAuth(*self.user).auth_flow(asked)).headers["authorization"]
            if request.headers.get("authorization") != basic:
                return JSONResponse({"error": "who are you?"}, 401)
        self.asked += 1
        if self.every and (self.asked - 1) % self.every == 0:
            self.refused += 1
            told = {"Retry-After": self.retry_after} if self.retry_after else {}
            return JSONResponse({"error": "slow down", "key": self.api_key}, 429, told)
        path = request.scope["raw_path"].decode().removeprefix(self.prefix)
        return await self.forward(request, path)

    async def forward(self, request: Request, path: str) -> Response:
        """Send a request to the service behind, and return its answer."""
        query, dropped = request.scope["query_string"], (b"host", b"content-length")
        async with httpx.AsyncClient(
            base_url=self.service, timeout=90, trust_env=False, verify=False
        ) as http:
            answer = await http.request(
                request.method,
                "/",
                content=await request.body(),
                headers=[pair for pair in request.headers.raw if pair[0] not in dropped],
                extensions={"target": path.encode() + (b"?" + query if query else b"")},
            )
        kept = {
            name: value
            for name, value in answer.headers.items()
            if name not in ("content-length", "content-encoding", "transfer-encoding")
        }
        # An owner's gateway talks too much: it echoes what it was sent.
        kept |= {"X-Debug": request.headers.get(NAME, ""), **self.says}
        return Response(answer.content, answer.status_code, kept)


@contextmanager
def running(gateway: Gateway, certificate: "Certificate | None" = None) -> Iterator[Gateway]:
    tls = {} if certificate is None else {
        "ssl_certfile": str(certificate.file), "ssl_keyfile": str(certificate.key)
    }  # fmt: skip
    config = uvicorn.Config(
        gateway, port=0, log_level="error", lifespan="off", date_header="date" not in gateway.says,
        h11_max_incomplete_event_size=1 << 22, http="h11", **tls,
    )  # fmt: skip
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    gateway.url = f"http{'s' if certificate else ''}://127.0.0.1:{port}{gateway.prefix}"
    try:
        yield gateway
    finally:
        server.should_exit = True
        thread.join(10)


@dataclass(frozen=True)
class Certificate:
    file: Path
    key: Path


def self_signed(folder: Path) -> Certificate:
    made = Certificate(folder / "cert.pem", folder / "key.pem")
    subprocess.run(
        [
            "openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
            "-nodes", "-days", "2", "-subj", "/CN=gateway", "-addext", "subjectAltName=IP:127.0.0.1",
            "-keyout", str(made.key), "-out", str(made.file),
        ],
        check=True, capture_output=True,
    )  # fmt: skip
    return made
