"""A shop with one paid page, behind the middleware of x402 for FastAPI or Flask, or fastapi-x402.

It reads a file with {"server", "facilitator", "payTo", "networks", "price"}, and prints its URL.
"""

import json
import socket
import sys
from pathlib import Path

import uvicorn
from fastapi import FastAPI
from x402.http import FacilitatorConfig, HTTPFacilitatorClient, HTTPFacilitatorClientSync
from x402.http.types import PaymentOption, RouteConfig
from x402.mechanisms.evm.exact import ExactEvmServerScheme
from x402.server import x402ResourceServer, x402ResourceServerSync

told = json.loads(Path(sys.argv[1]).read_text())
config = FacilitatorConfig(url=told["facilitator"])
options = [
    PaymentOption(scheme="exact", pay_to=told["payTo"], price=told["price"], network=network)
    for network in told["networks"]
]
routes = {"GET /weather": RouteConfig(accepts=options)}
sock = socket.socket()
sock.bind(("127.0.0.1", 0))
sock.listen()
url = f"http://127.0.0.1:{sock.getsockname()[1]}"


def fastapi() -> None:
    from x402.http.middleware.fastapi import PaymentMiddlewareASGI

    server = x402ResourceServer(HTTPFacilitatorClient(config))
    for network in told["networks"]:
        server.register(network, ExactEvmServerScheme())
    app = FastAPI()
    app.add_middleware(PaymentMiddlewareASGI, routes=routes, server=server)
    app.get("/weather")(weather)
    serve(app)


def fastapi_x402() -> None:
    from fastapi_x402 import init_x402, pay

    (network,) = told["networks"]
    app = FastAPI()
    init_x402(app, pay_to=told["payTo"], network=network, facilitator_url=told["facilitator"])
    app.get("/weather")(pay(told["price"])(weather))
    serve(app)


async def weather() -> dict[str, str]:
    return {"weather": "sunny"}


def serve(app: FastAPI) -> None:
    print(url, flush=True)
    uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[sock])


def flask() -> None:
    from flask import Flask
    from werkzeug.serving import make_server
    from x402.http.middleware.flask import payment_middleware

    server = x402ResourceServerSync(HTTPFacilitatorClientSync(config))
    for network in told["networks"]:
        server.register(network, ExactEvmServerScheme())
    app = Flask(__name__)

    app.get("/weather")(lambda: {"weather": "sunny"})
    payment_middleware(app, routes, server)
    host, port = sock.getsockname()
    shop = make_server(host, port, app, threaded=True, fd=sock.fileno())
    print(url, flush=True)
    shop.serve_forever()


{"fastapi": fastapi, "flask": flask, "fastapi-x402": fastapi_x402}[told["server"]]()
