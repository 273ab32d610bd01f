"""A target file may depart from the specification: then its ids are observed, and say so."""

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from tests.suite.duo import Duo, conformance
from tests.suite.gateway import Gateway, running
from tests.suite.test_target_init import init
from x402sim.suite.service.deviations import deviations
from x402sim.suite.service.target import (
    SPEC,
    AgentsEndpoint,
    PaymentRequiredShape,
    ProtectedEndpoint,
    Target,
    load,
    value_of,
)
from x402sim.suite.service.target_toml import _UNSEEN


class Departing(Gateway):
    """Another price, another time and another text; neither message nor network."""

    async def answer(self, request: Request) -> Response:
        found = await self.forward(request, request.url.path)
        if found.status_code != 402:
            return found
        body = json.loads(bytes(found.body))
        wanted = {**body["paymentRequirements"], "maxTimeoutSeconds": 600}
        if wanted["resource"] == "/api/perp/quote":
            wanted["maxAmountRequired"] = "20000"
        kept = {"error": "PAYMENT_REQUIRED", "paymentId": body["paymentId"]}
        return JSONResponse({**kept, "paymentRequirements": wanted}, 402)


BROKEN = ("2.2/body", "4.2/price", "4.4/deposit-402", "7/payment-required", "8/quote-price",
          "8/timeout")  # fmt: skip
ONLY = [word for each in (*BROKEN, "2.1/") for word in ("--only", each)]
BY_HAND = """
[protected]
amount_base = 20000
[payment_required]
error_text = "PAYMENT_REQUIRED"
message = ""
network = ""
max_timeout_s = 600
"""


def outcomes(done: Any) -> dict[str, Any]:
    return {each["id"].removeprefix("spec/"): each for each in done.report["results"]}


def test_a_written_target_file_turns_no_failure_green(duo: Duo, tmp_path: Path) -> None:
    file = tmp_path / "dev.toml"
    with running(Departing(duo.url, api_key=None)) as gateway:
        without = conformance(gateway.url, *ONLY, "--json")
        done = init(gateway.url, "-o", str(file))
        assert done.returncode == 0, done.stderr
        judged = conformance(gateway.url, *ONLY, "--target", str(file), "--json")
    for run in (without, judged):
        failed = {name for name, each in outcomes(run).items() if each["outcome"] == "failed"}
        assert (run.returncode, failed) == (1, set(BROKEN))
    assert deviations(load(file)) == {}
    told = " ".join(line.strip("# ") for line in file.read_text().splitlines())
    for said in (
        'error_text = "PAYMENT_REQUIRED"',
        '2.2: “error | string | Fixed text "Payment Required".”',
        "2.2: “message | string | Human-readable text stating the amount in base units required.”",
        "2.2: “network | string | Same network value as in paymentRequirements.”",
        "8: “Quote price | 10000 base units of the token (0.01 token, 6 decimals)”",
        "8: “maxTimeoutSeconds | 300”",
    ):
        assert said in told
    assert all(len(line) <= 80 for line in file.read_text().splitlines() if line[0:1] == "#")


def test_what_an_owner_sets_by_hand_is_observed_with_the_sentence(duo: Duo, tmp_path: Path) -> None:
    file = tmp_path / "dev.toml"
    file.write_text(BY_HAND)
    with running(Departing(duo.url, api_key=None)) as gateway:
        judged = conformance(gateway.url, *ONLY, "--target", str(file), "--json")
        terminal = conformance(gateway.url, "--target", str(file), "--only", "8/timeout")
    found = outcomes(judged)
    assert {found[name]["outcome"] for name in BROKEN} == {"observed"}
    assert found["8/timeout"]["actual"] == (
        "as the target file says: payment_required.max_timeout_s = 600; "
        "8: “maxTimeoutSeconds | 300”"
    )
    assert "“error | string | Fixed text" in found["2.2/body"]["actual"]
    assert "“message | string |" in found["2.2/body"]["actual"]
    assert not any(each["outcome"] == "failed" for each in found.values())
    assert judged.returncode == 0, judged.stderr
    said = " ".join(judged.stderr.split())
    assert "the target file departs from the specification" in said
    assert "as the target file says" in terminal.stdout


@pytest.mark.parametrize(
    ("target", "keys"),
    [
        (Target(), []),
        (Target(protected=ProtectedEndpoint(path="/api/data", amount_base=5, fields={})), []),
        (Target(protected=ProtectedEndpoint(amount_base=0)), []),
        (Target(protected=ProtectedEndpoint(amount_base=5)), ["protected.amount_base"]),
        (Target(protected=ProtectedEndpoint(resource="/v3/api/perp/quote")), []),
        (Target(protected=ProtectedEndpoint(resource="https://a/b")), ["protected.resource"]),
        (Target(payment_required=PaymentRequiredShape(max_timeout_s=None)), []),
        (Target(payment_required=PaymentRequiredShape(message="")), ["payment_required.message"]),
        (Target(agents=AgentsEndpoint(path="/api/agents?limit=10")), []),
        (Target(agents=AgentsEndpoint(path="/agents")), ["agents.path"]),
    ],
)
def test_what_departs(target: Target, keys: list[str]) -> None:
    assert list(deviations(target)) == keys


def test_what_nobody_can_look_up_is_a_comment_with_its_meaning(duo: Duo) -> None:
    done = init(duo.url, "-o", "-")
    written = tomllib.loads(done.stdout)
    for each in _UNSEEN.keys() - {"sessions.header"}:  # its documents name that
        table, key = each.split(".")
        part = done.stdout.split(f"\n[{table}]\n")[1].split("\n[")[0]
        assert f"# {key} = {json.dumps(value_of(SPEC, each))}" in part, key
        assert key not in written.get(table, {})
    assert "3/expiry-refund" in done.stdout
