"""The README is true: its program runs, its messages are real, its map names what is there."""

import json
import re
from typing import Any

import httpx
import pytest

from tests.house import ROOT, blocks
from x402sim import LocalServer, PaymentAuth

README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_first_program_pays(capsys: pytest.CaptureFixture[str]) -> None:
    exec(blocks(README, "python")[0], {"__name__": "__main__"})
    told = capsys.readouterr().out
    assert "'entryPrice'" in told
    assert "0x" in told


def test_the_messages_it_shows_are_those_of_a_payment() -> None:
    """What varies is an ellipsis; the offer for clients of the standard is left out, as it says."""
    asked, paid, receipt = (json.loads(block) for block in blocks(README, "json"))
    seen: dict[str, Any] = {}

    def see(answer: httpx.Response) -> None:
        answer.read()
        seen.setdefault(answer.request.url.path, (answer.request.content, answer.json()))

    order = {"pair": "BTC-USD", "side": "long", "leverage": 10, "sizeUsd": 1000}
    with LocalServer() as server:
        auth = PaymentAuth(server.wallets[0], max_amount="0.05")
        with httpx.Client(auth=auth, event_hooks={"response": [see]}) as http:
            http.post(server.url + "/api/perp/quote", json=order)
    said_402 = seen["/api/perp/quote"][1]
    assert said_402.keys() - asked.keys() == {"x402Version", "accepts"}
    assert masked(asked, said_402) == asked
    posted, said = seen["/api/pay"]
    assert masked(paid, json.loads(posted)) == paid
    assert masked(receipt, {**said, "timestamp": receipt["timestamp"]}) == receipt
    assert len(str(said["timestamp"])) == len(str(receipt["timestamp"]))


def masked(shown: Any, real: Any) -> Any:
    if isinstance(shown, dict):
        found = {name: masked(value, real[name]) for name, value in shown.items() if name != "…"}
        return {**found, "…": "…"} if "…" in shown else found
    is_masked = isinstance(shown, str) and shown.endswith("…") and real.startswith(shown[:-1])
    return shown if is_masked else real


def test_every_folder_on_the_map_exists() -> None:
    the_map = blocks(README, "text")[0]
    names = re.findall(r"^ {0,2}([\w./]+/|[\w]+\.py)(?= )", the_map, re.MULTILINE)
    packages = {file.parent.name + "/" for file in (ROOT / "x402sim").glob("*/__init__.py")}
    assert packages <= set(re.findall(r"(?<!\S)\w+/", the_map))
    for name in names:
        inside = [ROOT / name, ROOT / "x402sim" / name]
        assert any(path.exists() for path in inside), name
