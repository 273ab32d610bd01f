"""A small part of the campaign every day; a fourth of it with `-m thorough`.

`python -m tests.campaign` runs the whole of it.
"""

import asyncio
import json
import subprocess
import sys

import pytest

from tests.hostile.attack import attack
from tests.hostile.documented import documented
from tests.hostile.inputs import KINDS
from tests.hostile.town import town
from tests.hostile.wire import over_tcp
from x402sim.http import web
from x402sim.service import quotes


async def _attacked(seed: int, count: int):
    async with town() as world:
        return await attack(world, seed, count)


def test_hostile_requests_cause_no_5xx():
    result = asyncio.run(_attacked(11, 900))
    assert result.violations == []
    assert (result.requests, sorted(result.kinds)) == (900, KINDS)
    assert set(result.parts) == {"service", "facilitator", "explorer", "rpc", "control"}
    assert {200, 400, 402, 404, 405, 413} <= set(result.statuses)


def test_the_attack_notices_a_defect(monkeypatch):
    def broken(*_: object) -> None:
        raise web.Refused(500, "Internal server error")

    monkeypatch.setattr(quotes, "quote", broken)
    result = asyncio.run(_attacked(11, 300))
    assert any("500" in violation for violation in result.violations)


def test_malformed_http_causes_no_5xx_and_holds_no_connection():
    figures = asyncio.run(over_tcp(11, 100))
    assert figures["violations"] == []
    assert {200, 400, 408} <= set(figures["statuses"])


def test_the_service_does_what_its_openapi_document_says():
    figures = documented(11, 3, "examples,fuzzing", only="payer")
    assert figures["violations"] == []
    assert figures["operations"] == 12


@pytest.mark.thorough
@pytest.mark.timeout(1800)
def test_every_stage_of_the_campaign():
    shorter = ["--requests", "5000", "--wire", "500", "--examples", "30"]
    command = [sys.executable, "-m", "tests.hostile", "--json", *shorter]
    ran = subprocess.run(command, capture_output=True, text=True)
    print(ran.stdout)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    stages = json.loads(ran.stdout)["stages"]
    assert stages["requests"]["requests"] == 5000
    assert stages["decoders"]["properties"] > 100
