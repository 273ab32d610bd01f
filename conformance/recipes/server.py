"""A shop with three paid pages, as the guide of x402 for FastAPI or Flask builds one.

`python server.py fastapi|flask`. The environment has PORT, FACILITATOR_URL, X402SIM_PAY_TO and
X402SIM_NETWORK (CAIP-2). Each page that a handler makes has a number of its own.
"""

import itertools
import os
import sys
from typing import Any

from x402.http import FacilitatorConfig
from x402.http.types import PaymentOption, RouteConfig
from x402.mechanisms.evm.exact import ExactEvmServerScheme

PORT, NETWORK = int(os.environ["PORT"]), os.environ["X402SIM_NETWORK"]
CONFIG = FacilitatorConfig(url=os.environ["FACILITATOR_URL"])
PRICES = {"GET /weather": "$0.01", "GET /forecast": "$0.02", "POST /report": "$0.03"}


def option(price: str) -> PaymentOption:
    """Return the offer at a price."""
    pay_to = os.environ["X402SIM_PAY_TO"]
    return PaymentOption(scheme="exact", pay_to=pay_to, price=price, network=NETWORK)


ROUTES = {page: RouteConfig(accepts=[option(price)]) for page, price in PRICES.items()}
numbers = itertools.count(1)


def page(**words: Any) -> dict[str, Any]:
    """Return the goods; a report titled "fail" raises."""
    if words.get("title") == "fail":
        raise RuntimeError("no report")
    return {**words, "number": next(numbers)}


def fastapi() -> None:
    """Sell with FastAPI."""
    import uvicorn
    from fastapi import FastAPI
    from x402.http import HTTPFacilitatorClient
    from x402.http.middleware.fastapi import PaymentMiddlewareASGI
    from x402.server import x402ResourceServer

    async def weather() -> Any:
        return page(weather="sunny")

    async def forecast(city: str) -> Any:
        return page(city=city)

    async def report(body: dict[str, str]) -> Any:
        return page(title=body["title"])

    server = x402ResourceServer(HTTPFacilitatorClient(CONFIG))
    server.register(NETWORK, ExactEvmServerScheme())
    app = FastAPI()
    app.add_middleware(PaymentMiddlewareASGI, routes=ROUTES, server=server)
    app.get("/weather")(weather)
    app.get("/forecast")(forecast)
    app.post("/report")(report)
    uvicorn.run(app, host="127.0.0.1", port=PORT, log_level="warning")


def flask() -> None:
    """Sell with Flask."""
    from flask import Flask, request
    from x402.http import HTTPFacilitatorClientSync
    from x402.http.middleware.flask import payment_middleware
    from x402.server import x402ResourceServerSync

    server = x402ResourceServerSync(HTTPFacilitatorClientSync(CONFIG))
    server.register(NETWORK, ExactEvmServerScheme())
    app = Flask(__name__)
    app.get("/weather", endpoint="weather")(lambda: page(weather="sunny"))
    app.get("/forecast", endpoint="forecast")(lambda: page(city=request.args["city"]))
    app.post("/report", endpoint="report")(lambda: page(title=request.get_json()["title"]))
    payment_middleware(app, ROUTES, server)
    app.run(host="127.0.0.1", port=PORT, threaded=True)


{"fastapi": fastapi, "flask": flask}[sys.argv[1]]()
