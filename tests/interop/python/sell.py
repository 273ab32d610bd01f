"""A shop with three paid pages, behind a middleware for FastAPI or Flask of x402, billmyagent or fastapi-x402.

It reads a file with {"server", "facilitator", "payTo", "networks", "price"}, and prints its URL; or it
gets the name of the server, and the rest in the environment, as the judge of servers gives it; then
each page that is made has its number.
"""

import itertools
import json
import os
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import FastAPI
from x402.http import FacilitatorConfig, HTTPFacilitatorClient, HTTPFacilitatorClientSync
from x402.http.types import PaymentOption, RouteConfig
from x402.mechanisms.evm.exact import ExactEvmServerScheme
from x402.server import x402ResourceServer, x402ResourceServerSync

is_judged = not sys.argv[1].endswith(".json")
if not is_judged:
    told = json.loads(Path(sys.argv[1]).read_text())
else:
    is_named = sys.argv[1] == "fastapi-x402"
    told = {
        "server": sys.argv[1],
        "facilitator": os.environ["FACILITATOR_URL"],
        "payTo": os.environ["X402SIM_PAY_TO"],
        "networks": [os.environ["X402SIM_NETWORK_NAME" if is_named else "X402SIM_NETWORK"]],
        "price": "$0.01",
    }
config = FacilitatorConfig(url=told["facilitator"])
prices = {"GET /weather": told["price"], "GET /forecast": "$0.02", "POST /report": "$0.03"}
routes = {
    page: RouteConfig(
        accepts=[
            PaymentOption(scheme="exact", pay_to=told["payTo"], price=price, network=network)
            for network in told["networks"]
        ]
    )
    for page, price in prices.items()
}
bill = {"pay_to": told["payTo"], "routes": prices, "facilitator_url": told["facilitator"]}
sock = socket.socket()
sock.bind(("127.0.0.1", int(os.environ.get("PORT", "0"))))
sock.listen()
url = f"http://127.0.0.1:{sock.getsockname()[1]}"
numbers = itertools.count(1)


def made(**page: Any) -> dict[str, Any]:
    return page | ({"number": next(numbers)} if is_judged else {})


def report(title: str) -> dict[str, Any]:
    if title == "fail":
        raise RuntimeError("no report")
    return made(title=title)


def asgi(
    app: FastAPI, paid: Callable[[Any], Callable[[Any], Any]] = lambda price: lambda it: it
) -> None:
    """Sell with an application whose middleware is added; `paid` marks a handler with its price."""

    async def get_weather() -> Any:
        return made(weather="sunny")

    async def get_forecast(city: str) -> Any:
        return made(city=city)

    async def post_report(body: dict[str, str]) -> Any:
        return report(body["title"])

    app.get("/weather")(paid(prices["GET /weather"])(get_weather))
    app.get("/forecast")(paid(prices["GET /forecast"])(get_forecast))
    app.post("/report")(paid(prices["POST /report"])(post_report))
    print(url, flush=True)
    uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[sock])


def wsgi(middleware: Callable[[Any], object]) -> None:
    """Sell with Flask; `middleware` is added to the application."""
    from flask import Flask, request
    from werkzeug.serving import make_server

    app = Flask(__name__)
    app.get("/weather", endpoint="weather")(lambda: made(weather="sunny"))
    app.get("/forecast", endpoint="forecast")(lambda: made(city=request.args["city"]))
    app.post("/report", endpoint="report")(lambda: report(request.get_json()["title"]))
    middleware(app)
    host, port = sock.getsockname()
    shop = make_server(host, port, app, threaded=True, fd=sock.fileno())
    print(url, flush=True)
    shop.serve_forever()


def fastapi() -> None:
    from x402.http.middleware.fastapi import PaymentMiddlewareASGI

    server = x402ResourceServer(HTTPFacilitatorClient(config))
    for network in told["networks"]:
        server.register(network, ExactEvmServerScheme())
    app = FastAPI()
    app.add_middleware(PaymentMiddlewareASGI, routes=routes, server=server)
    asgi(app)


def flask() -> None:
    from x402.http.middleware.flask import payment_middleware

    server = x402ResourceServerSync(HTTPFacilitatorClientSync(config))
    for network in told["networks"]:
        server.register(network, ExactEvmServerScheme())
    wsgi(lambda app: payment_middleware(app, routes, server))


def billmyagent() -> None:
    from billmyagent.middleware.fastapi import add_payment_middleware

    app = FastAPI()
    add_payment_middleware(app, **bill)
    asgi(app)


def billmyagent_flask() -> None:
    from billmyagent.middleware.flask import add_payment_middleware

    wsgi(lambda app: add_payment_middleware(app, **bill))


def fastapi_x402() -> None:
    from fastapi_x402 import init_x402, pay

    (network,) = told["networks"]
    app = FastAPI()
    init_x402(app, pay_to=told["payTo"], network=network, facilitator_url=told["facilitator"])
    asgi(app, pay)


SHOPS = {
    "fastapi": fastapi,
    "flask": flask,
    "fastapi-x402": fastapi_x402,
    "billmyagent": billmyagent,
    "billmyagent-flask": billmyagent_flask,
}
SHOPS[told["server"]]()
