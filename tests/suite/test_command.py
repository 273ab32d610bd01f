"""The command over TCP: our own service, in a world without a service, as a user would run it."""

import json
import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.serve.driver import PAY, QUOTE, Running, header
from x402sim import Wallet
from x402sim.clock import Clock
from x402sim.payer.core import settlement
from x402sim.protocol.crypto import from_hex
from x402sim.protocol.messages import encode
from x402sim.rng import Rng
from x402sim.service.issue import Issuer
from x402sim.service.setup import setup_from_env

ROOT = Path(__file__).parents[2]


class Duo:
    """A world without a service, and a service that uses it."""

    def __init__(self) -> None:
        self.world = Running("serve", "--no-service", "--port", "0", "--json")
        self.ready: dict[str, Any] = json.loads(self.world.line())
        merchant = self.ready["accounts"][-1]
        self.env = {
            "PRIVATE_KEY": merchant["privateKey"],
            "MERCHANT_ADDRESS": merchant["address"],
            "FACILITATOR_URL": self.ready["facilitator"],
            "EXPLORER_URL": self.ready["explorer"],
            "RPC_URL": self.ready["rpc"],
        }
        self.service = Running("service", "--port", "0", env=self.env)
        self.url = self.service.line().split()[3].rstrip(";")

    def close(self) -> None:
        self.service.close()
        self.world.close()


@pytest.fixture(scope="module")
def duo() -> Iterator[Duo]:
    both = Duo()
    yield both
    both.close()


def conformance(*options: str, env: dict[str, str] | None = None) -> Any:
    return subprocess.run(
        [sys.executable, "-m", "x402sim", "conformance", *options],
        capture_output=True, text=True, check=False, cwd="/", env={**os.environ, **(env or {})},
    )  # fmt: skip


def test_serve_no_service_reports_no_service_url(duo: Duo) -> None:
    assert duo.ready["service"] is None
    assert duo.ready["facilitator"].endswith("/facilitator")


@pytest.mark.clause("2.2/payment-id")
@pytest.mark.parametrize("amount_base", [0, 1])
def test_the_printed_private_key_forges_no_payment_id(duo: Duo, amount_base: int) -> None:
    """`serve --no-service` prints PRIVATE_KEY: it must not be what seals the payment ids."""
    setup = setup_from_env(duo.env)
    forger = Issuer(replace(setup, secret=setup.private_key), Rng().stream("salts"))
    forged = forger.issue(QUOTE, amount_base, Clock().now_s())
    asked = json.loads(encode(forged))
    wanted = asked["paymentRequirements"]
    wallet = Wallet(from_hex(duo.ready["accounts"][0]["privateKey"], 32))
    body = settlement(asked["paymentId"], header(wallet, wanted, Clock().now_s()), wanted)
    answer = httpx.post(duo.url + PAY, json=body, trust_env=False)
    assert 400 <= answer.status_code < 500, answer.text
    assert "not issued" in answer.text


@pytest.mark.thorough
def test_with_a_world_everything_passes_in_time(duo: Duo, tmp_path: Path) -> None:
    files = {kind: tmp_path / f"report.{kind}" for kind in ("json", "junit", "html", "sarif")}
    options = [part for kind, file in files.items() for part in (f"--{kind}", str(file))]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = conformance(duo.url, "--world", duo.ready["control"], *options)
    assert done.returncode == 0, done.stdout + done.stderr
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    worked_s = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    assert worked_s < 20, "it must take less than 30 s on an idle machine"
    told = json.loads(files["json"].read_text())
    assert told["target"] == duo.url
    assert told["summary"]["failed"] == told["summary"]["inconclusive"] == 0
    assert told["summary"]["passed"] >= 50
    assert all(file.stat().st_size > 500 for file in files.values())


def test_the_target_is_usable_after_a_run(duo: Duo) -> None:
    done = conformance(
        duo.url, "--world", duo.ready["control"], "--requirement", "1/", "--json", "-"
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout)["summary"]["passed"] > 0


def test_with_a_payer_it_stays_within_the_budget(duo: Duo) -> None:
    key = duo.ready["accounts"][0]["privateKey"]
    done = conformance(duo.url, "--budget", "0.03", "--json", "-", env={"X402SIM_PAYER_KEY": key})
    told = json.loads(done.stdout)
    assert done.returncode in (0, 2), done.stdout
    assert told["summary"]["failed"] == 0
    assert told["summary"]["inconclusive"] == 0
    assert any("the budget is 0.03" in result["reason"] for result in told["results"])
    assert "The budget is 0.03 tokens" in " ".join(done.stderr.split())
    assert key not in done.stdout + done.stderr


def test_with_the_url_alone_nothing_is_paid(duo: Duo) -> None:
    done = conformance(duo.url, "--json", "-")
    told = json.loads(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
    assert told["summary"]["passed"] > 5
    assert told["summary"]["skipped"] > 20


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ([], "no service to judge"),
        (["localhost:1"], "starts with http"),
        (["http://127.0.0.1:9"], "no answer from http://127.0.0.1:9"),
        (["http://127.0.0.1:9", "--target", "nowhere.toml"], "unknown target 'nowhere.toml'"),
        (["http://127.0.0.1:9", "--requirement", "11/"], "unknown id '11/'"),
        (["http://127.0.0.1:9", "--payer-key", "0x12"], "a private key is"),
        (["http://127.0.0.1:9", "--payer-key", ""], "a private key is"),
        (["http://127.0.0.1:9", "--pay-to", ""], "40 hex digits"),
        (["http://127.0.0.1:9", "--budget", "lots"], "lots"),
        (["http://127.0.0.1:9", "--pay-to", "0x12"], "0x12"),
    ],
)
def test_misuse_prints_one_line(options: list[str], said: str) -> None:
    done = conformance(*options)
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert "0x12" not in done.stderr or "--pay-to" in options


def test_a_world_url_without_a_control_api_is_refused(duo: Duo) -> None:
    done = conformance(duo.url, "--world", duo.url)
    assert done.returncode == 2
    assert "is not the control API of `x402sim serve`" in done.stderr


def test_list_prints_ids_needs_and_costs() -> None:
    done = conformance("--list", "--requirement", "spec/2.2")
    assert done.returncode == 0
    assert "spec/2.2/payment-id" in done.stdout
    assert "needs payments" in done.stdout
    assert max(map(len, done.stdout.splitlines())) < 80
    assert "spec/5/" not in done.stdout


def test_pytest_in_a_checkout_has_the_same_results(duo: Duo) -> None:
    done = subprocess.run(
        [
            sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "conformance",
            "--base-url", duo.url, "--world", duo.ready["control"], "-k", "2.2 or 5/nonce",
        ],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    assert " passed" in done.stdout


def test_pytest_without_a_url_is_misuse() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "conformance"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert "give --base-url" in done.stdout + done.stderr


def test_a_service_without_settings_names_the_missing_one() -> None:
    env = {name: value for name, value in os.environ.items() if name != "PRIVATE_KEY"}
    done = subprocess.run(
        [sys.executable, "-m", "x402sim", "service"],
        capture_output=True, text=True, check=False, env=env,
    )  # fmt: skip
    assert done.returncode == 2
    assert "PRIVATE_KEY is not set" in done.stderr
