"""The command over TCP: our own service, in a world without a service, as a user would run it."""

import json
import re
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.serve.driver import PAY, QUOTE, command, header
from tests.suite.deployment import Deployment, conformance, refused
from x402sim import Wallet
from x402sim.clock import Clock
from x402sim.payer.core import settlement
from x402sim.protocol.crypto import from_hex
from x402sim.protocol.messages import encode
from x402sim.rng import Rng
from x402sim.service.environment import read_environment
from x402sim.service.issue import Issuer


@pytest.mark.clause("2.2/payment-id")
@pytest.mark.parametrize("amount_base", [0, 1])
def test_the_printed_private_key_forges_no_payment_id(
    deployment: Deployment, amount_base: int
) -> None:
    """`serve --no-service` prints PRIVATE_KEY: it must not be what seals the payment ids."""
    assert deployment.ready["service"] is None
    setup = read_environment(deployment.env)
    forger = Issuer(replace(setup, secret=setup.private_key), Rng().stream("salts"))
    forged = forger.issue(QUOTE, amount_base, Clock().now_s())
    asked = json.loads(encode(forged))
    wanted = asked["paymentRequirements"]
    wallet = Wallet(from_hex(deployment.key, 32))
    body = settlement(asked["paymentId"], header(wallet, wanted, Clock().now_s()), wanted)
    answer = httpx.post(deployment.url + PAY, json=body, trust_env=False)
    assert 400 <= answer.status_code < 500, answer.text
    assert "not issued" in answer.text


def run(*words: str, **more: Any) -> Any:
    return subprocess.run(command(*words), capture_output=True, text=True, check=False, **more)


def test_with_the_url_alone_nothing_is_paid(deployment: Deployment, tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    done = conformance(deployment.url, "--report", str(file))
    assert done.returncode == 0, done.all
    summary = json.loads(file.read_text())["summary"]
    assert summary["passed"] > 5
    assert summary["skipped"] > 20
    long = [line for line in done.stdout.splitlines() if len(line) >= 80]
    assert [line for line in long if "run it again" not in line] == []
    shown = " ".join(done.stdout.split())
    assert "spec/5/nonce-once" in shown, "what is skipped is named"
    named = re.findall(r"\b(?:spec|kit|silent)/[0-9.]+/[a-z0-9-]+", shown)
    assert len(named) == len(set(named)), "each once"
    # Without a terminal, progress is a line for each section that is judged.
    lines = [line for line in done.stderr.splitlines() if " of " in line and "section" in line]
    plan = next(line for line in done.stderr.splitlines() if line.startswith("Plan:"))
    assert 3 < len(lines) < 20
    certain, of = ([int(line.split()[place]) for line in lines] for place in (0, 2))
    assert certain == sorted(certain)
    assert of == sorted(of, reverse=True)
    assert of[0] == int(plan.split()[1])
    assert max(map(len, done.stderr.splitlines())) <= 80


NOBODY = "http://127.0.0.1:9"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ([], "no service to judge"),
        (
            ["localhost:1"],
            "starts with http:// or https://, got 'localhost:1'; did you mean http://",
        ),
        ([NOBODY], f"no answer from {NOBODY}"),
        (
            [NOBODY, "--target", "nowhere.toml"],
            "there is no file 'nowhere.toml'; `target init URL --out FILE` writes one",
        ),
        ([NOBODY, "--only", "11/"], "unknown id '11/'"),
        ([NOBODY, "--payer-key", "0x12"], "--payer-key: a private key is 0x and 64 hex digits"),
        ([NOBODY, "--payer-key", ""], "a private key is"),
        ([NOBODY, "--pay-to", ""], "40 hex digits"),
        ([NOBODY, "--pay-to", "0x12"], "--pay-to: expected 0x and 40 hex digits, got '0x12'"),
        ([NOBODY, "--budget", "lots"], "--budget: "),
        ([NOBODY, "--skip", "2.2/body"], "--skip 2.2/body: give a reason"),
        ([NOBODY, "--skip", "2.2/bdy=x"], "--skip: unknown id '2.2/bdy'"),
        ([NOBODY, "--only", "2.2/bdy"], "--only: unknown id '2.2/bdy'"),
        ([NOBODY, "--only", "2.99"], "Possible: 1, 2.1, 2.2"),
        ([NOBODY, "--only", "2.99"], "spec, kit, silent"),
        ([NOBODY, "--require", "money"], "--require: unknown need 'money'"),
        ([NOBODY, "--header", "secret-value"], "--header: expected NAME:VALUE"),
        ([NOBODY, "--header", "X Y:secret-value"], "is no name of a header"),
        ([NOBODY, "--header", "X-Payment-Id:secret-value"], "the suite sets this header itself"),
        ([NOBODY, "--rate", "0"], "--rate is a number of requests in a second above 0"),
        ([NOBODY, "--timeout", "0"], "--timeout is a number of seconds above 0, not 0"),
        ([NOBODY, "--timeout", "-1"], "--timeout is a number of seconds above 0, not -1"),
        ([NOBODY, "--world", "http://a:secret-value@h"], "take no user name"),
        (["http://h/?key=secret-value"], "without ? and #"),
        (["ftp://a:secret-value@h"], "starts with http"),
        ([NOBODY, "--report", "x.htm"], "--report x.htm: unknown suffix '.htm'"),
        ([NOBODY, "--report", "/nodir/x.sarif"], "there is no folder /nodir"),
    ],
)
def test_misuse_is_one_line_and_shows_no_secret(options: list[str], said: str) -> None:
    found = refused(*options)
    assert said in found
    assert "secret-value" not in found
    assert "0x12" not in found or "--pay-to" in options
