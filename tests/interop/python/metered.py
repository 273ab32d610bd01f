"""A shop of the official SDK that sells by Permit2: `upto` for what its handler used, and `exact`.

It reads a file with {"facilitator", "payTo", "network", "asset", "name", "version"}; prints its URL.
"""

import json
import socket
import sys
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import FastAPI, Response
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
domain = {"name": told["name"], "version": told["version"], "assetTransferMethod": "permit2"}
price = AssetAmount(amount="20000", asset=told["asset"], extra=domain)


def sold(scheme: str) -> RouteConfig:
    option = PaymentOption(
        scheme=scheme, pay_to=told["payTo"], price=price, network=told["network"]
    )
    return RouteConfig(accepts=[option])


app = FastAPI()
routes = {"GET /upto/*": sold("upto"), "GET /exact": sold("exact")}
app.add_middleware(PaymentMiddlewareASGI, routes=routes, server=server)


@app.get("/upto/{used}")
def metered(used: str, response: Response) -> dict[str, Any]:
    set_settlement_overrides(response, {"amount": used})
    return {"used": used}


@app.get("/exact")
def exact() -> dict[str, Any]:
    return {"used": "20000"}


sock = socket.socket()
sock.bind(("127.0.0.1", 0))
sock.listen()
print(f"http://127.0.0.1:{sock.getsockname()[1]}", flush=True)
uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[sock])
