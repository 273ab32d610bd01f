"""The recipes of the guide judge a shop: its lines are put into a small shop of each framework."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests import npm
from tests.house import blocks
from tests.interop import programs
from tests.interop.table import THOROUGH
from x402sim.judging import judge
from x402sim.suite.report.results import Outcome

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "x402sim" / "guide" / "judging-servers.md").read_text(encoding="utf-8")
FASTAPI, FASTAPI_SHOP, FLASK = blocks(PAGE, "python")
EXPRESS, HONO_END, IN_NEXT = blocks(PAGE, "js")
OF_FASTAPI = """
from fastapi import FastAPI
from x402.http import HTTPFacilitatorClient
from x402.http.middleware.fastapi import PaymentMiddlewareASGI
from x402.mechanisms.evm.exact import ExactEvmServerScheme
from x402.server import x402ResourceServer

def make_app(facilitator_url, pay_to):
    server = x402ResourceServer(HTTPFacilitatorClient({"url": facilitator_url}))
    server.register(network := "eip155:84532", ExactEvmServerScheme())
    accepts = {"scheme": "exact", "payTo": pay_to, "price": "$0.01", "network": network}
    routes = {"GET /weather": {"accepts": accepts}, "GET /forecast": {"accepts": accepts}}
    app = FastAPI()
    app.add_middleware(PaymentMiddlewareASGI, routes=routes, server=server)
    app.get("/weather")(lambda: {"weather": "sunny"})
    app.get("/forecast")(lambda: {"weather": "cloudy"})
    return app
"""
IN_FASTAPI = """
server = x402ResourceServer(facilitator)
server.register(network, ExactEvmServerScheme())
accepts = {"scheme": "exact", "payTo": pay_to, "price": "$0.01", "network": network}
app = FastAPI()
app.add_middleware(
    PaymentMiddlewareASGI, routes={"GET /weather": {"accepts": accepts}}, server=server
)
app.get("/weather")(lambda: {"weather": "sunny"})
"""
OF_FLASK = """
import os
from flask import Flask
from x402.http import HTTPFacilitatorClientSync
from x402.http.middleware.flask import payment_middleware
from x402.mechanisms.evm.exact import ExactEvmServerScheme
from x402.server import x402ResourceServerSync
"""
IN_FLASK = """
app = Flask(__name__)
app.get("/weather")(lambda: {"weather": "sunny"})
server = x402ResourceServerSync(facilitator)
server.register(network, ExactEvmServerScheme())
accepts = {"scheme": "exact", "payTo": pay_to, "price": "$0.01", "network": network}
payment_middleware(app, {"GET /weather": {"accepts": accepts}}, server)
"""
OF_NODE = """
import { HTTPFacilitatorClient } from "@x402/core/server";
import { ExactEvmScheme } from "@x402/evm/exact/server";
"""
IN_NODE = """
const server = new x402ResourceServer(facilitator).register(network, new ExactEvmScheme());
const accepts = { scheme: "exact", price: "$0.01", network, payTo };
app.use(paymentMiddleware({ "GET /weather": { accepts } }, server));
"""
OF_EXPRESS = """
import { paymentMiddleware, x402ResourceServer } from "@x402/express";
import express from "express";
const app = express();
"""
OF_HONO = """
import { serve } from "@hono/node-server";
import { paymentMiddleware, x402ResourceServer } from "@x402/hono";
import { Hono } from "hono";
const app = new Hono();
"""
IN_PYTHON, IN_JS = "...  # your routes, and the middleware", "// your routes, and the middleware"
GET = 'app.get("/weather", (%s.json({ weather: "sunny" }));'
HONO = "".join(EXPRESS.splitlines(keepends=True)[:-1]) + HONO_END
SHOPS = {
    "Flask": OF_FLASK + FLASK.replace(IN_PYTHON, IN_FLASK),
    "Express": OF_NODE + OF_EXPRESS + EXPRESS.replace(IN_JS, IN_NODE + GET % "_, out) => out"),
    "Hono": OF_NODE + OF_HONO + HONO.replace(IN_JS, IN_NODE + GET % "context) => context"),
}
ONLY = "server/control,server/many/two"


def judged(shown: str, words: list[str], folder: Path | None = None) -> None:
    """Run the command of the guide in a folder, with these words as what it starts."""
    command = shlex.split(shown)[1:]
    command[command.index("--start") + 1] = shlex.join(words)
    done = subprocess.run(
        [sys.executable, "-m", "x402sim", *command, "--only", ONLY, "--dialects", "v2"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "No MUST demand failed: 3 held" in done.stdout


@THOROUGH
@pytest.mark.parametrize("framework", SHOPS)
def test_a_shop_of_a_framework_is_judged_by_a_line(framework: str, tmp_path: Path) -> None:
    is_python = framework == "Flask"
    shown = re.findall(r"`(x402sim conformance server [^`]+)`", PAGE)
    (line,) = [each for each in shown if ("python shop" if is_python else "node shop") in each]
    make = programs.in_python if is_python else programs.in_node
    judged(line, make(SHOPS[framework], tmp_path))


@THOROUGH
def test_a_shop_in_fastapi_is_judged_by_a_line(tmp_path: Path) -> None:
    before = OF_FASTAPI.partition("def make_app")[0]
    shop = f"import os\n{before}{FASTAPI_SHOP.replace(IN_PYTHON, IN_FASTAPI)}"
    (tmp_path / "shop.py").write_text(shop)
    (line,) = re.findall(r"`(x402sim conformance server [^`]+uvicorn[^`]+)`", PAGE)
    command = shlex.split(line)
    words = [programs.python(), "-m", *shlex.split(command[command.index("--start") + 1])]
    assert words[-1] == "$PORT"
    judged(line, words, tmp_path)


@THOROUGH
def test_a_shop_in_fastapi_is_judged_by_a_test(tmp_path: Path) -> None:
    installed = Path(programs.python()).parents[1] / "lib"
    (packages,) = installed.glob("python*/site-packages")
    path = f"import sys\nsys.path.append({str(packages)!r})\n"
    (tmp_path / "my_shop.py").write_text(path + OF_FASTAPI)
    (tmp_path / "test_shop.py").write_text(FASTAPI)
    words = ["-p", "no:randomly", "-p", "no:xdist", "-q", "-k", "control or many/two", "."]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *words],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout


@pytest.mark.campaign
def test_a_shop_in_next_js_is_judged_by_a_line() -> None:
    assert IN_NEXT in (programs.FOLDER / "npm_next" / "shop.js").read_text()
    assert '--start "npx next start"' in PAGE
    folder = npm.built(programs.FOLDER / "npm_next")
    words = [npm.node(), folder / "node_modules/next/dist/bin/next", "start", folder]
    start = shlex.join(map(str, words))
    found = judge("server", ["/weather"], start=start, dialects="v2", only=ONLY)
    assert found.outcome is Outcome.PASSED
