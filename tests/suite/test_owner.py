"""A day of an owner whose service is behind a gateway: TLS, an API key, a rate limit."""

import json
import shlex
from collections.abc import Iterator, Sequence
from email.utils import formatdate
from pathlib import Path

import httpx
import pytest
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response

from tests.cli.shops import Reply, serving
from tests.serve.driver import Running
from tests.suite.deployment import Deployment, all_reports, conformance, found, refused, reports
from tests.suite.gateway import API_KEY, NAME, Certificate, Gateway, running, self_signed
from x402sim.text.program import program

KEY_HEADER = ("--header", f"{NAME}: {API_KEY}")
FEW = ("--only", "1/sign-settle-repeat,2.2/body,4.1/validate")


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return self_signed(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def gateway(deployment: Deployment, certificate: Certificate) -> Iterator[Gateway]:
    with running(Gateway(deployment.url), certificate) as it:
        yield it


def wrong_price(folder: Path) -> str:
    """Write a target file that no service keeps; return its path."""
    file = folder / "mine.toml"
    file.write_text("[protected]\namount_base = 7\n")
    return str(file)


# --- a gateway ---------------------------------------------------------------------------


def test_behind_tls_and_a_key_all_is_judged_and_a_failure_repeats_every_option_but_the_key(
    deployment: Deployment,
    gateway: Gateway,
    certificate: Certificate,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    target = wrong_price(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate.file))
    done = conformance(
        gateway.url, *KEY_HEADER, "--target", target,
        "--world", deployment.control, *FEW, "--only", "8/quote-price", "--rate", "50", "--timeout", "20",
        "--budget", "0.5", "--strict", *reports(tmp_path),
    )  # fmt: skip
    assert done.returncode == 1, done.all
    outcomes = {name: each["outcome"] for name, each in found(tmp_path).items()}
    failed = outcomes.pop("spec/8/quote-price")
    assert (failed, len(outcomes), set(outcomes.values())) == ("failed", 3, {"passed"})
    assert found(tmp_path)["spec/8/quote-price"]["rerun"] == (
        f"{shlex.join(program())} conformance {gateway.url} --target {target} --world {deployment.control} "
        f"--budget 0.5 --header '{NAME}:<hidden>' "
        "--timeout 20 --rate 50 --strict --only spec/8/quote-price"
    )
    assert API_KEY not in done.all + all_reports(tmp_path)


def test_what_a_gateway_refuses_is_one_line(
    gateway: Gateway, certificate: Certificate, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = refused(gateway.url, *KEY_HEADER)
    assert "its certificate is not trusted" in line
    assert "set SSL_CERT_FILE" in line
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate.file))
    line = refused(gateway.url)
    assert "401" in line
    assert "give --header NAME:VALUE" in line


class Mounted(Gateway):
    """A service below a base path that knows it, and names whole paths as resources."""

    async def forward(self, request: Request, path: str) -> Response:
        inside = b'"resource":"/api/', f'"resource":"{self.prefix}/api/'.encode()
        request._body = (await request.body()).replace(inside[1], inside[0])
        answer = await super().forward(request, path)
        body = bytes(answer.body).replace(*inside)
        kept = {k: v for k, v in answer.headers.items() if k != "content-length"}
        return Response(body, answer.status_code, kept)


@pytest.mark.thorough
@pytest.mark.parametrize("kind", [Gateway, Mounted])
def test_below_a_base_path_everything_is_judged_alike(
    deployment: Deployment, kind: type[Gateway]
) -> None:
    with running(kind(deployment.url, api_key=None, prefix="/shop/v1")) as gateway:
        done = conformance(
            gateway.url, "--only", "2.1/,4.3/,4.4/,4.5/,1/", "--world", deployment.control,
            "--skip", "2.1/timeout=slow", "--skip", "2.1/validity=slow",
        )  # fmt: skip
    assert done.returncode == 0, done.all


def test_a_user_and_password_in_the_url_reach_no_report(
    deployment: Deployment, tmp_path: Path
) -> None:
    with running(Gateway(deployment.url, api_key=None, user=("ann", "s3cr3t-word"))) as gateway:
        url = gateway.url.replace("://", "://ann:s3cr3t-word@")
        failing = ("--only", "8/quote-price", "--target", wrong_price(tmp_path))
        done = conformance(url, *failing, *reports(tmp_path))
    assert done.returncode == 1, done.all
    assert json.loads((tmp_path / "report.json").read_text())["target"] == gateway.url
    everything = done.all + all_reports(tmp_path)
    assert "s3cr3t" not in everything
    assert "ann:" not in everything
    assert "Authorization:<hidden>" in everything


# --- a rate limit --------------------------------------------------------------------------


@pytest.mark.waits
@pytest.mark.thorough
@pytest.mark.parametrize("retry_after", ["1", None])
def test_a_busy_gateway_is_waited_for(deployment: Deployment, retry_after: str | None) -> None:
    with running(Gateway(deployment.url, every=8, retry_after=retry_after)) as gateway:
        done = conformance(
            gateway.url, *KEY_HEADER, "--only", "2.2/body", "--only", "1/", "--only", "2.6/remaining",
            "--world", deployment.control,
        )  # fmt: skip
    assert done.returncode == 0, done.all
    assert gateway.refused > 0


def test_a_gateway_that_is_never_free_is_inconclusive_not_a_failure(deployment: Deployment) -> None:
    with running(Gateway(deployment.url, every=1, retry_after="3600")) as gateway:
        assert "give --rate" in refused(gateway.url, *KEY_HEADER)


# --- the preflight -------------------------------------------------------------------------


def test_a_wrong_clock_is_one_line(deployment: Deployment) -> None:
    late = formatdate(1_000_000_000, usegmt=True)
    with running(Gateway(deployment.url, api_key=None, says={"date": late})) as gateway:
        said = refused(gateway.url, "--world", deployment.control)
    assert "behind this one" in said


POOR = "0x" + "17" * 32


@pytest.mark.parametrize(
    ("options", "key", "said"),
    [
        ([], POOR, (" lacks money; ", "; fund it, give another --payer-key, or --world URL",
                    "Insufficient USDC balance")),
        (["--rpc-url"], POOR, ("has 0.00 of the token", "and the plan signs for")),
        (["--require", "payments", "--budget", "0.10"], "own",
         ("the budget is 0.10; give --budget",)),
        (["--require", "payments,chain"], None,
         ("--require payments,chain: this run lacks a funded payer", "--rpc-url")),
        (["--require", "payments,chain"], "",
         ("--require payments,chain: this run lacks a funded payer", "set, and empty")),
    ],
)  # fmt: skip
def test_what_a_run_lacks_is_one_line(
    deployment: Deployment, options: list[str], key: str | None, said: Sequence[str]
) -> None:
    more = [deployment.ready["rpc"]] if options == ["--rpc-url"] else []
    line = refused(deployment.url, *options, *more, key=deployment.key if key == "own" else key)
    assert all(each in " ".join(line.split()) for each in said)
    assert ("set, and empty" in line) is (key == "")


def test_real_money_is_protected(deployment: Deployment) -> None:
    env = {**deployment.env, "NETWORK": "cronos-mainnet"}
    service = Running("service", "--port", "0", env=env)
    try:
        url = service.line().split()[3].rstrip(";")
        said = refused(url, key=deployment.key)
    finally:
        service.close()
    assert "real money" in said
    assert "--allow-mainnet" in said


class BrokenPay(Gateway):
    """A settlement endpoint that asks nobody."""

    said: tuple[int, str] = (0, "")

    async def answer(self, request: Request) -> Response:
        if request.url.path == "/api/pay":
            status, text = self.said
            return JSONResponse({"error": text}, status)
        return await self.forward(request, request.url.path)


OWN = [(422, "expected 10001, got 10000"), (500, "Internal Server Error")]
CUT_OFF = [(502, "Bad Gateway"), (500, "connect ECONNREFUSED 10.0.0.1:80")]


@pytest.mark.parametrize(
    ("said", "has_world"), [*zip(OWN, (False, True), strict=True), (OWN[1], False)]
)
def test_a_broken_settlement_is_judged(
    deployment: Deployment, tmp_path: Path, said: tuple[int, str], has_world: bool
) -> None:
    with running(BrokenPay(deployment.url, api_key=None)) as gateway:
        gateway.said = said
        means = ("--world", deployment.control) if has_world else ()
        key = None if has_world else deployment.key
        done = conformance(gateway.url, *means, *FEW, *reports(tmp_path), key=key)
    results = found(tmp_path)
    assert results["spec/2.2/body"]["outcome"] == "passed"
    settled = results["spec/1/sign-settle-repeat"]["outcome"]
    assert settled == ("failed" if has_world or said[0] < 500 else "inconclusive")
    assert done.returncode == (1 if settled == "failed" else 2)
    assert ("has refused it by itself, or asks another" in done.words) is has_world


def test_a_facilitator_is_recognised_and_told_its_judge(deployment: Deployment) -> None:
    found = " ".join(refused(deployment.ready["facilitator"]).split())
    assert "it is a facilitator (GET /supported lists kinds), and no service" in found
    assert "its judge is x402sim conformance facilitator --start" in found


def test_what_others_ask_the_facilitator_meanwhile_does_not_count(deployment: Deployment) -> None:
    class Beside(BrokenPay):
        async def answer(self, request: Request) -> Response:
            if request.url.path == "/api/pay":
                async with httpx.AsyncClient() as somebody:
                    await somebody.post(deployment.ready["facilitator"] + "/settle", json={})
            return await super().answer(request)

    with running(Beside(deployment.url, api_key=None)) as gateway:
        gateway.said = OWN[0]
        done = conformance(gateway.url, "--world", deployment.control, *FEW)
    assert "has refused it by itself" in done.words


@pytest.mark.parametrize("said", CUT_OFF)
def test_a_service_without_a_facilitator_is_one_line(
    deployment: Deployment, said: tuple[int, str]
) -> None:
    with running(BrokenPay(deployment.url, api_key=None)) as gateway:
        gateway.said = said
        found = refused(gateway.url, "--world", deployment.control)
    assert "the world's facilitator was not asked" in found
    assert said[1] in found


@pytest.mark.parametrize("status", [200, 402])
def test_a_site_is_no_service_and_one_line(status: int) -> None:
    page = Reply(status, b"<!doctype html>", {"Content-Type": "text/html; charset=utf-8"})
    with serving(lambda _: page) as url:
        said = refused(url)
    assert f"are answered {status} (text/html; charset=utf-8), and not in JSON" in said
    assert "no service of this specification" in said


def test_a_service_that_gives_pages_away_is_judged(deployment: Deployment) -> None:
    class Free(Gateway):
        async def answer(self, request: Request) -> Response:
            if request.url.path == "/api/perp/quote":
                return HTMLResponse("<p>here you are")
            return await self.forward(request, request.url.path)

    with running(Free(deployment.url, api_key=None)) as gateway:
        done = conformance(gateway.url, "--only", "1/unpaid-402")
    assert done.returncode == 1, done.stderr


def test_another_path_is_one_line(deployment: Deployment) -> None:
    said = refused(f"{deployment.url}/nowhere")
    assert "no protected endpoint there" in said
    assert "target init" in said


def test_the_endpoint_instead_of_the_base_url_is_recognised(
    deployment: Deployment, tmp_path: Path
) -> None:
    done = conformance(f"{deployment.url}/api/perp/quote", "--only", "2.2/body", "--json")
    assert done.returncode == 0, done.stderr
    assert f"{deployment.url}/api/perp/quote is an endpoint; judging {deployment.url}" in " ".join(
        done.stderr.split()
    )
    assert done.report["target"] == deployment.url


# --- what must be there, and what is left out ----------------------------------------------


def test_what_does_not_fit_the_budget_is_left_out_and_said(deployment: Deployment) -> None:
    done = conformance(
        deployment.url, "--json", "--budget", "0.05", "--only", "2.1,5/nonce", key=deployment.key
    )
    results = done.report
    assert done.returncode == 0, done.all
    assert results["summary"]["inconclusive"] == 0
    assert any("left out: everything would sign for" in r["reason"] for r in results["results"])
    assert "Left out in part or in whole, because everything needs --budget" in done.words
    assert "The budget is 0.05 tokens" in done.words
    assert deployment.key not in done.all
