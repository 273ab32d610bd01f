"""A shop with three paid pages, as the guide of a middleware for FastAPI or Flask builds one.

`python server.py fastapi|flask`. The environment has PORT,
FACILITATOR_URL, X402SIM_PAY_TO and X402SIM_NETWORK (CAIP-2). Each page that a handler makes has a
number of its own.
"""

import itertools
import os
import sys
from collections.abc import Callable
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


def fastapi(add: Callable[[Any], None]) -> None:
    """Sell with FastAPI behind a middleware."""
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
    app.get("/weather")(weather)
    app.get("/forecast")(forecast)
    app.post("/report")(report)
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


{"fastapi": lambda: fastapi(for_fastapi), "flask": lambda: flask(for_flask)}[sys.argv[1]]()
