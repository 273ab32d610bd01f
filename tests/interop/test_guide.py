"""The programs of the guide's page about the standard facilitator run, and pay each other."""

import re
from pathlib import Path

import pytest

from tests import npm
from tests.interop import programs
from tests.interop.table import PAGE, THOROUGH
from tests.serve.driver import PRICE, Server

pytestmark = THOROUGH
PROGRAMS = PAGE.read_text(encoding="utf-8")
FASTAPI, PYTHON = re.findall(r"```python\n(.*?)```", PROGRAMS, re.DOTALL)
EXPRESS, FETCH = re.findall(r"```js\n(.*?)```", PROGRAMS, re.DOTALL)
FACILITATOR, SHOP = "http://127.0.0.1:4020/facilitator", "http://127.0.0.1:8000"
(PAY_TO,) = set(re.findall("0x[0-9a-fA-F]{40}(?![0-9a-fA-F])", FASTAPI + EXPRESS))
SHOPS = {"fastapi": FASTAPI, "express": EXPRESS}
CLIENTS = {"python": PYTHON, "fetch": FETCH}
UVICORN = """
import socket

import uvicorn

listening = socket.create_server(("127.0.0.1", 0))
print("http://127.0.0.1:%d" % listening.getsockname()[1], flush=True)
uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[listening])
"""
LISTEN = 'app.listen(8000, "127.0.0.1");'
TELL = """const listening = app.listen(0, "127.0.0.1", () =>
  console.log(`http://127.0.0.1:${listening.address().port}`));"""


def in_python(program: str, folder: Path) -> list[str]:
    """Return the command of a Python program, which is written into the folder."""
    file = folder / "program.py"
    file.write_text(program, encoding="utf-8")
    return [programs.python(), "-E", str(file)]


def in_node(program: str, folder: Path) -> list[str]:
    """Return the command of a JavaScript program, which is written into the folder."""
    file, packages = folder / "program.mjs", folder / "node_modules"
    file.write_text(program, encoding="utf-8")
    packages.symlink_to(npm.packages(programs.FOLDER / "npm_v2"))
    return [str(npm.node()), str(file)]


@pytest.mark.parametrize(("shop", "client"), [("fastapi", "python"), ("express", "fetch")])
def test_a_client_pays_a_shop(server: Server, shop: str, client: str, tmp_path: Path) -> None:
    for folder in ("shop", "client"):
        (tmp_path / folder).mkdir()
    assert FACILITATOR in SHOPS[shop]
    assert SHOP in CLIENTS[client]
    sells = SHOPS[shop].replace(FACILITATOR, server.ready["facilitator"])
    if shop == "express":
        assert LISTEN in sells
        command = in_node(sells.replace(LISTEN, TELL), tmp_path / "shop")
    else:
        command = in_python(sells + UVICORN, tmp_path / "shop")
    before = server.balance(PAY_TO)
    with programs.serving(command, {}) as url:
        buys = CLIENTS[client].replace(SHOP, url)
        runs = in_python if client == "python" else in_node
        assert programs.run(runs(buys, tmp_path / "client"), {}) == {"weather": "sunny"}
    assert server.balance(PAY_TO) - before == PRICE
