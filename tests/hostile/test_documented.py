"""Schemathesis on the OpenAPI document of a running service: what it does is what it says."""

import json
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx
import pytest

from tests.campaign import at_length, seed
from tests.rig import ORDER
from x402sim import LocalServer
from x402sim.payer.auth import PaymentAuth


@pytest.mark.thorough
@pytest.mark.timeout(1800)
def test_the_service_does_what_its_openapi_document_says_in_every_phase():
    assert documented(seed(1), at_length(10, 100)) == (12, [])


# --- Schemathesis ---------------------------------------------------------------------------

SESSION = {"maxSpend": "9.00", "duration": 3600}
PHASES = "examples,coverage,fuzzing,stateful"
ALLOWED = "positive_data_acceptance"
"""A request that agrees with the document is still refused: it is not paid, or its id is unknown."""
ALLOWED_UNPAID = f"{ALLOWED},negative_data_rejection"
"""And an unpaid quote learns the price, not the schema (4.2/gate-before-body)."""


def documented(seed: int, examples: int) -> tuple[int, list[str]]:
    """Run Schemathesis for each visitor; return the operations tested, and what is wrong."""
    with LocalServer(seed=1) as server:
        reports = [_run(server.url, seed, examples, *header) for header in _visitors(server)]
    failures = [f"{each['title']}: {each['operations']}" for r in reports for each in r["failures"]]
    errors = [str(each) for report in reports for each in report["errors"]]
    return min(report["operations"]["tested"] for report in reports), failures + errors


def _visitors(server: LocalServer) -> list[list[str]]:
    """Return the header of each visitor: of nobody, of a payer, of the holder of a session."""
    auth = PaymentAuth(server.wallets[0], max_amount="10.00", max_total="10.00")
    with httpx.Client(base_url=server.url, auth=auth, trust_env=False) as http:
        paid = http.post("/api/perp/quote", json=ORDER).request.headers["x-payment-id"]
        session = http.post("/api/sessions/create", json=SESSION).json()["sessionId"]
    return [[], ["-H", f"X-Payment-Id: {paid}"], ["-H", f"X-Session-Id: {session}"]]


def _run(url: str, seed: int, examples: int, *header: str) -> dict[str, Any]:
    with TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        command = [
            *(sys.executable, "-m", "schemathesis.cli", "run", f"{url}/openapi.json"),
            *(*header, "--exclude-checks", ALLOWED if header else ALLOWED_UNPAID),
            "--continue-on-failure",
            *("--seed", str(seed), "--max-examples", str(examples), "--phases", PHASES),
            *("--warnings", "off", "--generation-database", "none", "--no-color"),
            *("--report-json-path", str(report)),
        ]
        ran = subprocess.run(command, capture_output=True, text=True, cwd=folder)
        if not report.exists():
            raise RuntimeError(
                f"Schemathesis ended with {ran.returncode}: {ran.stdout}{ran.stderr}"
            )
        answer: dict[str, Any] = json.loads(report.read_text())
        return answer
