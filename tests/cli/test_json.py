"""`--json` of every command is data: amounts in base units and decimals, times as numbers."""

import json
import re
from typing import Any

import pytest

from tests.cli.runner import run
from tests.cli.shops import Asked, Reply, serving
from tests.cli.test_decode import ASKED_V2, PAID_V2, REQUIRED_V2, V2, in_one_step
from tests.cli.test_pay import served, v1_shop
from tests.house.reference import GUIDE
from tests.serve.driver import QUOTE, started
from x402sim import LocalServer
from x402sim.protocol.messages import encode

AMOUNT = {"base": "10000", "decimal": "0.01", "symbol": "devUSDC.e"}


def values(said: Any) -> list[Any]:
    """All values of a JSON, at any depth."""
    if isinstance(said, dict):
        return [each for value in said.values() for each in values(value)] or [{}]
    if isinstance(said, list):
        return [each for value in said for each in values(value)]
    return [said]


def is_prose(value: Any) -> bool:
    """Whether a value holds an amount or a time in words."""
    words = r"\d = \d+\.\d\d |\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC|\d (?:min|s|h|d) ago|in \d+ min"
    return isinstance(value, str) and re.search(words, value) is not None


def test_decode_prints_amounts_and_times_as_data() -> None:
    parts = json.loads(run("decode", "--json", "--", in_one_step(V2)).stdout)["parts"]
    facts = parts[0]["facts"]
    assert facts["value"] == AMOUNT
    assert facts["network"] == "eip155:338"
    assert facts["validBefore"] - facts["validAfter"] == 360
    assert facts["signature"] == PAID_V2["payload"]["signature"]
    for said in (ASKED_V2, REQUIRED_V2):
        told = json.loads(run("decode", "--json", "--", json.dumps(said)).stdout)
        assert [each for each in values(told["parts"]) if is_prose(each)] == []
        assert told["parts"][-1]["facts"]["amount"] | {"symbol": AMOUNT["symbol"]} == AMOUNT
        assert type(told["parts"][-1]["facts"]["maxTimeoutSeconds"]) is int


def test_pay_prints_amounts_and_times_as_data(server: LocalServer) -> None:
    market = server.url + "/api/perp/market"
    told = json.loads(run("pay", market, "--json").stdout)
    asked, signed, paid, _ = (each["facts"] for each in told["steps"])
    assert asked["answer"]["status"] == 402
    assert asked["price"]["base"] == signed["amount"]["base"] == told["payment"]["amount"]["base"]
    assert signed["valid"]["validBefore"] == told["payment"]["valid_before"]
    assert paid["transaction"] == told["payment"]["transaction"]
    assert [each for each in values(told) if is_prose(each)] == []
    wrong = json.loads(run("pay", market, "--json", "--wrong", "amount").stdout)["wrong"]
    assert wrong["server said"]["status"] == 400


@pytest.mark.parametrize("depth", [90, 900])
@pytest.mark.parametrize("command", ["pay", "doctor", "decode"])
def test_deep_json_of_others_is_printed_in_its_own_size(command: str, depth: int) -> None:
    """A level of indentation costs two bytes of each line; Python's encoder recurses."""
    nested = "[" * depth + ",".join("1" * 40_000) + "]" * depth
    offers = encode(v1_shop(Asked("GET", "/", {"host": "shop"}, b""), served).body).decode()
    unpaid = offers.replace('"extra":{', f'"extra":{{"deep":{nested},').encode()
    assert nested.encode() in unpaid

    def shop(asked: Asked) -> Reply:
        if command != "pay":
            return Reply(402, unpaid)
        return v1_shop(asked, lambda: Reply(200, nested.encode()))

    with serving(shop) as url:
        done = run(command, "-" if command == "decode" else url, "--json", stdin=unpaid.decode())
    assert isinstance(done.exception, SystemExit | None)
    assert len(done.stdout) < 6 * len(nested)
    if command == "pay":
        told = json.loads(done.stdout)
        assert told["ok"]
        assert told["body"] == (json.loads(nested) if depth < 100 else nested)


def test_doctor_prints_amounts_and_offers_as_data(server: LocalServer) -> None:
    told = json.loads(run("doctor", server.url + QUOTE, "--json", "-X", "POST").stdout)
    assert {json.dumps(each["amount"]) for each in told["offers"]} == {json.dumps(AMOUNT)}
    assert {each["name"]: each["offer"] for each in told["payers"]}["payer in two steps"] == 1
    assert all(type(number) is int for each in told["findings"] for number in each["offers"])


def test_demo_prints_amounts_as_data() -> None:
    told = json.loads(run("demo", "--json").stdout)
    assert [each for each in values(told) if is_prose(each)] == []
    moved = told["steps"][6]
    assert moved["merchant"]["after"] == AMOUNT
    assert type(moved["block"]) is type(moved["gas"]) is int


def test_the_object_of_serve_is_as_its_schema_says() -> None:
    from jsonschema import Draft202012Validator

    schema = json.loads((GUIDE / "serve.schema.json").read_text("utf-8"))
    for part in schema["$defs"].values():
        part["additionalProperties"] = False  # a field that it does not list is not documented
    strict = Draft202012Validator(schema)
    for chosen in ((), ("--no-service", "--network", "base", "--network", "avalanche-fuji")):
        with started(*chosen) as running:
            told = running.ready
        strict.validate(told)
        account = told["accounts"][0]
        assert (account["balance"], account["balanceDecimal"]) == ("1000000000", "1000.00")
        for changed in (
            told | {"more": 1},
            told | {"rpc": "here"},
            told | {"payTo": "0x12"},
            told | {"chainId": "338"},
            {name: each for name, each in told.items() if name != "accounts"},
            told | {"accounts": [account | {"balance": 1000}]},
        ):
            assert list(strict.iter_errors(changed)), changed
