"""Services that say what they want in a header, and are paid in one step: version 2 of x402."""

import base64
import json
from pathlib import Path

import httpx
import pytest

from tests.interop import programs
from tests.serve.driver import started
from tests.suite.duo import command
from x402sim import World
from x402sim.report.results import Outcome
from x402sim.suite.service import one_step
from x402sim.suite.service.answers import TargetAnswer, read_402
from x402sim.suite.service.engine import all_checks
from x402sim.suite.service.local import judge
from x402sim.suite.service.target import PayEndpoint, Target, load
from x402sim.suite.verdict import Inconclusive

SELL = "npm_v2/sell.mjs"
TARGET = one_step.completed(Target(pay=PayEndpoint(path="")))
"""Our own service, which takes payments in one step, too."""


@pytest.mark.parametrize(
    "said",
    [b"no base64!", b"7", b"[]", b'{"accepts": 7}', b'{"accepts": [7, null]}', b"[" * 9999,
     b'{"accepts": [{"amount": 1}], "resource": {"url": "http://["}}', b'{"accepts": [{}]}'],
)  # fmt: skip
def test_no_header_ends_the_run(said: bytes) -> None:
    text = said if said[:2] == b"no" else base64.b64encode(said)
    answer = httpx.Response(402, headers={"PAYMENT-REQUIRED": text.decode()})
    body = one_step.body_of(answer, TARGET)
    read = TargetAnswer(TARGET, 402, answer.headers, "", body, str)
    with pytest.raises(Inconclusive, match=r"no readable payment id|no amount"):
        read_402(read)
    assert len(one_step.offers_of(answer.headers)) == (b"[{" in said)


@pytest.mark.thorough
def test_an_honest_service_has_passed_all_of_it() -> None:
    checks = [each for each in all_checks() if each.one_step]
    results = judge(World(seed=1), target=TARGET, checks=checks)
    assert {each.outcome for each in results} == {Outcome.PASSED}


@pytest.mark.thorough
@pytest.mark.parametrize("shop", ["fastapi", "flask", "express", "hono"])
def test_of_a_shop_of_the_sdk_only_a_500_is_found(shop: str, tmp_path: Path) -> None:
    file, report = tmp_path / "shop.toml", tmp_path / "report.json"
    with started("--network", "base-sepolia") as world:
        merchant, ready = world.payer(funds=None), world.ready
        told = programs.sale(shop, ready["facilitator"], merchant.address, "eip155:84532")
        is_python = shop in ("fastapi", "flask")
        with programs.serving("sell.py" if is_python else SELL, told) as url:
            assert "payment-required" in httpx.get(f"{url}/weather").headers
            done = command("target", "init", f"{url}/weather", "--out", str(file))
            assert done.returncode == 0, done.stderr
            options = (url, "--target", str(file), "--world", ready["rpc"].removesuffix("/rpc"))
            done = command("conformance", *options)
            assert done.returncode == 2, done.all
            assert "set it to where the content is (/weather) in the target file" in done.stderr
            text = file.read_text("utf-8")
            file.write_text(text.replace('# content = "/response"', 'content = "/weather"'))
            done = command("conformance", *options, "--json-file", str(report))
    assert load(file).is_one_step
    assert done.returncode == 0, done.all
    results = {each["id"]: each for each in json.loads(report.read_text("utf-8"))["results"]}
    if is_python:
        broken = results["kit/7/malformed-header"]
        assert (broken["outcome"], broken["actual"][:4]) == ("failed", "500 "), (
            "true of x402 2.25.0"
        )
        broken["outcome"] = "passed"
    passed = {name for name, each in results.items() if each["outcome"] == "passed"}
    assert {each["outcome"] for each in results.values()} == {"passed", "skipped"}, done.all
    assert passed == {each.id for each in all_checks() if each.one_step}
