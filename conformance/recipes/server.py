"""A shop with three paid pages, as the guide of a middleware for FastAPI or Flask builds one.

`python server.py SHOP`, one of `SHOPS`. The environment has PORT, FACILITATOR_URL, X402SIM_PAY_TO,
X402SIM_NETWORK (CAIP-2) and X402SIM_NETWORK_NAME. Each page that a handler makes has a number of
its own.
"""

import itertools
import os
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

PORT, NETWORK = int(os.environ["PORT"]), os.environ["X402SIM_NETWORK"]
PAY_TO, FACILITATOR = os.environ["X402SIM_PAY_TO"], os.environ["FACILITATOR_URL"]
PRICES = {"GET /weather": "$0.01", "GET /forecast": "$0.02", "POST /report": "$0.03"}


numbers = itertools.count(1)


def page(**words: Any) -> dict[str, Any]:
    """Return the goods; a report titled "fail" raises."""
    if words.get("title") == "fail":
        raise RuntimeError("no report")
    return {**words, "number": next(numbers)}


def official() -> tuple[Any, Any, Any]:
    """Return the SDK's routes, configuration and scheme."""
    from x402.http import FacilitatorConfig
    from x402.http.types import PaymentOption, RouteConfig
    from x402.mechanisms.evm.exact import ExactEvmServerScheme

    def route(price: str) -> Any:
        offer = PaymentOption(scheme="exact", pay_to=PAY_TO, price=price, network=NETWORK)
        return RouteConfig(accepts=[offer])

    routes = {page: route(price) for page, price in PRICES.items()}
    return routes, FacilitatorConfig(url=FACILITATOR), ExactEvmServerScheme()


def for_fastapi(app: Any) -> None:
    """Add the SDK's middleware to an app."""
    from x402.http import HTTPFacilitatorClient
    from x402.http.middleware.fastapi import PaymentMiddlewareASGI
    from x402.server import x402ResourceServer

    routes, config, scheme = official()
    server = x402ResourceServer(HTTPFacilitatorClient(config))
    server.register(NETWORK, scheme)
    app.add_middleware(PaymentMiddlewareASGI, routes=routes, server=server)


def for_flask(app: Any) -> None:
    """Add the SDK's middleware to an app."""
    from x402.http import HTTPFacilitatorClientSync
    from x402.http.middleware.flask import payment_middleware
    from x402.server import x402ResourceServerSync

    routes, config, scheme = official()
    server = x402ResourceServerSync(HTTPFacilitatorClientSync(config))
    server.register(NETWORK, scheme)
    payment_middleware(app, routes, server)


def offers_v1() -> list[dict[str, Any]]:
    """Return the words of each page for a middleware of version 1, which knows no methods."""
    network, config = os.environ["X402SIM_NETWORK_NAME"], {"url": FACILITATOR}
    return [
        {
            "path": page.split()[1],
            "price": price,
            "pay_to_address": PAY_TO,
            "network": network,
            "facilitator_config": config,
        }
        for page, price in PRICES.items()
    ]


def for_fastapi_v1(app: Any) -> None:
    """Add the middlewares of version 1 to an app."""
    from x402.fastapi.middleware import require_payment

    for offer in offers_v1():
        app.middleware("http")(require_payment(**offer))


def for_flask_v1(app: Any) -> None:
    """Add the middleware of version 1 to an app."""
    from x402.flask.middleware import PaymentMiddleware

    middleware = PaymentMiddleware(app)
    for offer in offers_v1():
        middleware.add(**offer)


def billmyagent(app: Any) -> None:
    """Add the middleware of billmyagent to an app."""
    middleware = import_module(f"billmyagent.middleware.{sys.argv[1].partition('-')[2]}")
    middleware.add_payment_middleware(
        app,
        pay_to=PAY_TO,
        routes=PRICES,
        facilitator_url=FACILITATOR,
        network=os.environ["X402SIM_NETWORK_NAME"],
    )


def fastapi_x402() -> None:
    """Sell behind fastapi-x402, which marks the handlers."""
    import fastapi_x402.facilitator  # noqa: F401 - else the first payment waits for this import
    from fastapi_x402 import init_x402, pay

    network = os.environ["X402SIM_NETWORK_NAME"]
    fastapi(
        lambda app: init_x402(app, pay_to=PAY_TO, network=network, facilitator_url=FACILITATOR),
        lambda page: pay(PRICES[page]),
    )


def fastapi(
    add: Callable[[Any], None], mark: Callable[[str], Any] = lambda page: lambda handler: handler
) -> None:
    """Sell with FastAPI behind a middleware; `mark` marks the handler of a page."""
    import uvicorn
    from fastapi import FastAPI

    async def weather() -> Any:
        return page(weather="sunny")

    async def forecast(city: str) -> Any:
        return page(city=city)

    async def report(body: dict[str, str]) -> Any:
        return page(title=body["title"])

    app = FastAPI()
    add(app)
    app.get("/weather")(mark("GET /weather")(weather))
    app.get("/forecast")(mark("GET /forecast")(forecast))
    app.post("/report")(mark("POST /report")(report))
    uvicorn.run(app, host="127.0.0.1", port=PORT, log_level="warning")


def flask(add: Callable[[Any], None]) -> None:
    """Sell with Flask behind a middleware."""
    from flask import Flask, request

    app = Flask(__name__)
    app.get("/weather", endpoint="weather")(lambda: page(weather="sunny"))
    app.get("/forecast", endpoint="forecast")(lambda: page(city=request.args["city"]))
    app.post("/report", endpoint="report")(lambda: page(title=request.get_json()["title"]))
    add(app)
    app.run(host="127.0.0.1", port=PORT, threaded=True)


SHOPS = {
    "fastapi": lambda: fastapi(for_fastapi),
    "fastapi-v1": lambda: fastapi(for_fastapi_v1),
    "fastapi-x402": fastapi_x402,
    "billmyagent-fastapi": lambda: fastapi(billmyagent),
    "flask": lambda: flask(for_flask),
    "flask-v1": lambda: flask(for_flask_v1),
    "billmyagent-flask": lambda: flask(billmyagent),
}
SHOPS[sys.argv[1]]()
