"""A shop of the official SDK that sells by EIP-3009, by Permit2, and `upto` for what its handler used.

It reads a file with {"facilitator", "payTo", "network", "asset", "name", "version"}; prints its URL.
The first part of a path may be a payment flow, or an extension that lets the payer do without gas.
"""

import json
import socket
import sys
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import FastAPI, Response
from x402.extensions.eip2612_gas_sponsoring import declare_eip2612_gas_sponsoring_extension
from x402.extensions.erc20_approval_gas_sponsoring import (
    declare_erc20_approval_gas_sponsoring_extension,
)
from x402.http import FacilitatorConfig, HTTPFacilitatorClient
from x402.http.middleware.fastapi import PaymentMiddlewareASGI, set_settlement_overrides
from x402.http.types import PaymentOption, RouteConfig
from x402.mechanisms.evm.exact import ExactEvmServerScheme
from x402.mechanisms.evm.upto import UptoEvmServerScheme
from x402.schemas import AssetAmount
from x402.server import x402ResourceServer

told = json.loads(Path(sys.argv[-1]).read_text())
server = x402ResourceServer(HTTPFacilitatorClient(FacilitatorConfig(url=told["facilitator"])))
server.register(told["network"], UptoEvmServerScheme())
server.register(told["network"], ExactEvmServerScheme())
WAYS = {
    "eip3009": ("exact", {}),
    "permit2": ("exact", {"assetTransferMethod": "permit2"}),
    "upto/*": ("upto", {"assetTransferMethod": "permit2"}),
}
KINDS: dict[str, dict[str, Any]] = {
    "": {},
    "/upfront": {},
    "/eip2612": declare_eip2612_gas_sponsoring_extension(),
    "/erc20": declare_erc20_approval_gas_sponsoring_extension(),
}


def sold(kind: str, scheme: str, extra: dict[str, str]) -> RouteConfig:
    extra = extra | {"name": told["name"], "version": told["version"]}
    if kind == "/upfront":
        extra["paymentFlow"] = "upfront"
    price = AssetAmount(amount="20000", asset=told["asset"], extra=extra)
    option = PaymentOption(
        scheme=scheme, pay_to=told["payTo"], price=price, network=told["network"]
    )
    return RouteConfig(accepts=[option], extensions=KINDS[kind] or None)


app = FastAPI()
routes = {
    f"GET {kind}/{way}": sold(kind, *WAYS[way])
    for kind in KINDS
    for way in WAYS
    if (kind, way) != ("/upfront", "upto/*")
}
app.add_middleware(PaymentMiddlewareASGI, routes=routes, server=server)


@app.get("/{path:path}")
def work(path: str, response: Response) -> dict[str, Any]:
    _, is_upto, used = path.partition("upto/")
    if is_upto:
        set_settlement_overrides(response, {"amount": used})
    return {"used": used or "20000"}


sock = socket.socket()
sock.bind(("127.0.0.1", 0))
sock.listen()
print(f"http://127.0.0.1:{sock.getsockname()[1]}", flush=True)
uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[sock])
