"""Target files: what `target init` finds out, what is legal, and what departs from the specification."""

import json
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from tests.cli.shops import Asked, Reply, serving
from tests.suite.deployment import Deployment, Done, command, conformance, refused
from tests.suite.gateway import API_KEY, NAME, Gateway, running
from x402sim.protocol.x402 import to_base64
from x402sim.suite.service.target import (
    AgentsEndpoint,
    PaymentRequiredShape,
    ProtectedEndpoint,
    Target,
    deviations,
    load,
)


def init(*options: str) -> Done:
    return command("target", "init", *options)


@pytest.mark.parametrize("path", ["", "/api/perp/quote"])
def test_our_own_service_is_found_and_judged_with_the_file(
    deployment: Deployment, path: str, tmp_path: Path
) -> None:
    file = tmp_path / "mine.toml"
    done = init(deployment.url + path, "--out", str(file))
    assert done.returncode == 0, done.stderr
    target = load(file)
    assert target.payment_required == Target().payment_required
    assert (target.protected.path, target.protected.method) == ("/api/perp/quote", "POST")
    assert (target.sessions.exists, target.sessions.smallest) == (True, "0.01")
    assert (target.agents.list, target.llms.exists) == ("/agents", True)
    assert (target.second.path, target.second.method) == ("/api/perp/market", "GET")
    assert "second.path" not in done.stdout, "it was found"
    text = file.read_text()
    assert "# POST /api/perp/quote answered 402" in text
    assert '# tx_hash = "/txHash"' in text, "what was not seen is a comment"
    judged = conformance(deployment.url, "--target", str(file), "--only", "2.", "--only", "4.4")
    assert judged.returncode == 0, judged.stdout + judged.stderr
    assert f"conformance {deployment.url} --target {file}" in done.stdout


def test_a_file_is_never_replaced(deployment: Deployment, tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text("name = 'precious'\n")
    done = init(deployment.url, "--out", str(file))
    assert (done.returncode, file.read_text()) == (2, "name = 'precious'\n")
    assert "remove it, or give --out FILE" in done.stderr


def test_it_passes_a_gateway_and_shows_no_key(deployment: Deployment) -> None:
    with running(Gateway(deployment.url, prefix="/v3", every=15)) as gateway:
        done = init(gateway.url, "--out", "-", "--header", f"{NAME}:{API_KEY}")
    assert done.returncode == 0, done.stderr
    assert gateway.refused > 0
    found = tomllib.loads(done.stdout)
    assert found["protected"]["path"] == "/api/perp/quote"
    assert "resource" not in found["protected"]
    assert API_KEY not in done.all


HOSTILE = 'Pay "now"\n::error::\x1b[2J\u202e \x7f = [x]'


def requirements(asset: str) -> dict[str, Any]:
    return {
        "scheme": "exact", "network": "cronos-testnet", "payTo": "0x" + "11" * 20,
        "asset": "0x" + asset * 20, "maxAmountRequired": "250000", "maxTimeoutSeconds": 60,
        "resource": "https://shop.example/api/data", "extra": {"paymentId": "pay_1"},
    }  # fmt: skip


def shop(asked: Asked) -> Reply:
    """Answer 402 at one path, and 400 where payments are made."""
    if (asked.method, asked.path) == ("GET", "/api/data"):
        accepts = [requirements("22"), requirements("33")]
        return Reply(402, {"x402Version": 1, "error": HOSTILE, "accepts": accepts})
    return Reply(400 if asked.path == "/api/pay" else 404)


def test_another_dialect_is_described(tmp_path: Path) -> None:
    file = tmp_path / "shop.toml"
    with serving(shop) as url:
        done = init(f"{url}/api/data", "-o", str(file))
        assert done.returncode == 0, done.stderr
        target = load(file)
        judged = conformance(url, "--target", str(file), "--only", "2.1/,2.2/body", "--json")
        without_it = refused(url)
    assert (target.protected.path, target.protected.method) == ("/api/data", "GET")
    assert target.second.path is None
    assert "second.path: another path that is sold; set it, or set" in done.stdout
    assert target.protected.amount_base == 250_000
    assert target.protected.resource == "", "it departs from 4.2, so it is left to the checks"
    text = file.read_text()
    assert '# resource = "https://shop.example/api/data"' in text
    told = " ".join(line.strip("# ") for line in text.splitlines())
    assert "4.2: “Its resource is the path of this endpoint.”" in told
    places = target.payment_required
    assert (places.requirements, places.asset) == ("/accepts", "0x" + "22" * 20)
    assert places.payment_id == "/accepts/0/extra/paymentId"
    assert places == PaymentRequiredShape(
        requirements="/accepts",
        asset="0x" + "22" * 20,
        payment_id="/accepts/0/extra/paymentId",
        description=False,
    ), "its texts and times depart from 2.2 and 8"
    assert target.pay.spelling == "base64"
    assert target.sessions.exists, "1 says that there are sessions: its checks fail"
    assert target.agents.exists
    assert target.llms.exists
    for key in ("error_text", "network", "message", "max_timeout_s", "exists"):
        assert f"# {key} = " in text
    assert told.count("because nothing can be read") == 3
    assert "\x1b" not in text
    failed = {name for name, each in judged.results.items() if each["outcome"] == "failed"}
    assert failed == {"spec/2.1/resource", "spec/2.2/body"}
    assert "target init" in without_it


def standard_v1(asked: Asked) -> Reply:
    """Offer in the body of a 402, and have no settlement endpoint."""
    accepts = [requirements("22") | {"extra": {}}]
    return Reply(402 if asked.path == "/api/data" else 501, {"x402Version": 1, "accepts": accepts})


def standard_v2(asked: Asked) -> Reply:
    """Sell two things, which a document names, and offer them in the header of a 402."""
    if asked.path == "/openapi.json":
        return Reply(200, {"paths": {"/api/data": {"get": {}}, "/api/report": {"post": {}}}})
    if (asked.method, asked.path) not in (("GET", "/api/data"), ("POST", "/api/report")):
        return Reply(404)
    offer = {"payTo": "0x" + "11" * 20, "amount": "1", "network": "eip155:84532"}
    required = {"x402Version": 2, "resource": {"url": asked.path}, "accepts": [offer]}
    return Reply(402, {}, {"PAYMENT-REQUIRED": to_base64(required)})


@pytest.mark.parametrize(
    ("shop", "also"),
    [(standard_v1, ""), (standard_v2, '--also \'POST /api/report {"pair": "BTC-USD"')],
)
def test_a_server_of_the_standard_needs_no_file_and_is_told_its_judge(
    shop: Callable[[Asked], Reply], also: str, tmp_path: Path
) -> None:
    file = tmp_path / "shop.toml"
    file.write_text('[protected]\nmethod = "GET"\npath = "/api/data"\nbodies = [{}]\n')
    with serving(shop) as url:
        done = init(f"{url}/api/data", "-o", "-")
        told = [done.stderr, refused(f"{url}/api/data"), refused(url, "--target", str(file))]
    assert (done.returncode, done.stdout) == (2, "")
    for each in told:
        words = " ".join(each.split())
        assert "its judge is x402sim conformance server /api/data" in words
        assert "--start COMMAND, or, for one that runs already" in words
    assert f"/api/data {also}".strip() in done.stderr


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        (Reply(400), "no 402 found"),
        (Reply(400), "give the URL of a protected endpoint"),
        (Reply(402, b"<html>pay me</html>"), "no payment requirements"),
    ],
)
def test_a_service_without_a_402_that_can_be_read_is_one_line(reply: Reply, said: str) -> None:
    with serving(lambda _: reply) as url:
        done = init(url, "-o", "-")
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1


# --- behind a gateway ----------------------------------------------------------------


def closed(asked: Asked) -> Reply:
    """A gateway that wants a key: 402 with it, a redirect with another, 401 without one."""
    match asked.headers.get("x-key"):
        case "good":
            return Reply(402, {"paymentId": "pay_1", "requirements": requirements("22")})
        case "moved":
            return Reply(302, b"", {"Location": "https://elsewhere.example/api"})
        case _:
            return Reply(401)


class Picky(Gateway):
    """Below a base path, it wants deposits of half a token, and a query for the list of agents."""

    async def forward(self, request: Request, path: str) -> Response:
        body = await request.body()
        is_deposit = path == "/api/sessions/create" and body
        if is_deposit and float(json.loads(body).get("maxSpend", 0)) < 0.5:
            return JSONResponse({"success": False, "error": "at least 0.50"}, 400)
        if path == "/api/agents" and "limit" not in request.query_params:
            return JSONResponse({"error": "limit is missing"}, 422)
        return await super().forward(request, path)


def test_what_a_service_wants_is_found_and_without_a_file_the_key_is_named(
    deployment: Deployment, tmp_path: Path
) -> None:
    file, few = tmp_path / "picky.toml", ("--only", "4.3/,4.4/,2.2/,2.1/resource")
    with running(Picky(deployment.url, api_key=None, prefix="/shop/v1")) as gateway:
        found = init(f"{gateway.url}/api/perp/quote", "-o", str(file))
        assert found.returncode == 0, found.stderr
        target = load(file)
        judged = conformance(gateway.url, "--target", str(file), *few)
        paid = ("--only", "4.3/,4.4/deposit-flow", "--world", deployment.control)
        without = conformance(gateway.url, *paid)
    assert f"conformance {gateway.url} " in found.stdout, "the base path is part of the base URL"
    assert target.protected.path == "/api/perp/quote"
    assert (target.sessions.smallest, target.agents.path) == ("0.50", "/api/agents?limit=10")
    assert judged.returncode == 0, judged.stdout + judged.stderr
    said = " ".join(without.stdout.split())
    assert 'set agents.path = "/api/agents?limit=10" in the target file' in said
    assert 'set sessions.smallest = "1.00"' in said
    assert "failed" not in said


def tools(asked: Asked) -> Reply:
    """Be a server of MCP at /mcp."""
    said = json.loads(asked.body or b"{}") if asked.path == "/mcp" else {}
    if not isinstance(said, dict) or said.get("method") != "initialize":
        return Reply(400)
    return Reply(200, {"jsonrpc": "2.0", "id": 1, "result": {"serverInfo": {"name": "tools"}}})


def test_a_server_of_mcp_is_told_its_judge() -> None:
    with serving(tools) as url:
        done = init(f"{url}/mcp", "-o", "-")
    assert (done.returncode, done.stdout) == (2, "")
    assert "its judge is x402sim conformance server 'MCP /mcp TOOL' --start" in done.stderr


class Renaming(Gateway):
    """Its documents name another header for sessions."""

    async def forward(self, request: Request, path: str) -> Response:
        answer = await super().forward(request, path)
        named = bytes(answer.body).replace(b"X-Session-Id", b"X-Budget-Session")
        return Response(named, answer.status_code, media_type=answer.headers["content-type"])


def test_the_header_of_sessions_is_read_in_the_documents(
    deployment: Deployment, tmp_path: Path
) -> None:
    file = tmp_path / "renamed.toml"
    with running(Renaming(deployment.url, api_key=None)) as gateway:
        done = init(gateway.url, "-o", str(file))
    assert done.returncode == 0, done.stderr
    assert load(file).sessions.header == "X-Budget-Session"
    assert "# /llms.txt names it; this departs from 2.6" in file.read_text()


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        ([], 2, "401); give --header NAME:VALUE with credentials"),
        (
            ["--header", "X-Key:bad-secret"],
            2,
            "the credentials of the URL or of --header are refused",
        ),
        (["--header", "X-Key:moved"], 2, "it redirects to https://elsewhere.example/api"),
        (["--header", "X-Key:good"], 0, "--header 'X-Key:<hidden>'"),
    ],
)
def test_behind_a_gateway_it_says_what_to_do(
    options: list[str], code: int, said: str, tmp_path: Path
) -> None:
    with serving(closed) as url:
        done = init(url, "-o", str(tmp_path / "t.toml"), *options)
    assert done.returncode == code, done.stderr
    assert said in done.all
    assert "bad-secret" not in done.all


class TwoTokens(Gateway):
    """Two tokens are accepted; the second one is the world's."""

    async def answer(self, request: Request) -> Response:
        found = await self.forward(request, request.url.path)
        if found.status_code != 402:
            return found
        body = json.loads(bytes(found.body))
        known = body["paymentRequirements"]
        other = {**known, "asset": "0x" + "77" * 20}
        return JSONResponse({**body, "paymentRequirements": [other, known]}, 402)


def test_of_several_tokens_the_target_file_names_one(
    deployment: Deployment, tmp_path: Path
) -> None:
    target = tmp_path / "mine.toml"
    target.write_text(f'[payment_required]\nasset = "{deployment.ready["asset"]}"\n')
    with running(TwoTokens(deployment.url, api_key=None)) as gateway:
        done = conformance(
            gateway.url, "--world", deployment.control, "--target", str(target),
            "--only", "1/sign-settle-repeat", "--only", "2.1/asset",
        )  # fmt: skip
    assert done.returncode == 0, done.all


class Prepaid(Gateway):
    """A session is shown in a header of another name, and in no other."""

    async def answer(self, request: Request) -> Response:
        own = (b"x-session-id", b"x-balance-id")
        headers = [pair for pair in request.scope["headers"] if pair[0] not in own]
        if shown := request.headers.get("x-balance-id"):
            headers.append((b"x-session-id", shown.encode()))
        request.scope["headers"] = headers
        return await self.forward(Request(request.scope, request.receive), request.url.path)


@pytest.mark.thorough
def test_a_session_may_be_shown_in_a_header_of_another_name(
    deployment: Deployment, tmp_path: Path
) -> None:
    target = tmp_path / "mine.toml"
    target.write_text('[sessions]\nheader = "X-Balance-Id"\n')
    options = ("--world", deployment.control, "--only", "5/session", "--json")
    with running(Prepaid(deployment.url, api_key=None)) as gateway:
        without = conformance(gateway.url, *options)
        done = conformance(gateway.url, *options, "--target", str(target))
    assert without.returncode == 1
    assert done.returncode == 0, done.all
    outcomes = {each["outcome"] for each in done.report["results"]}
    assert outcomes <= {"observed", "skipped"}, outcomes
    assert "sessions.header" in done.all


def test_a_wrong_place_of_the_content_ends_the_run_in_one_line(
    deployment: Deployment, tmp_path: Path
) -> None:
    file, market = (
        tmp_path / "market.toml",
        '[protected]\npath = "/api/perp/market"\nmethod = "GET"\n',
    )
    file.write_text(f"{market}bodies = [{{}}]\namount_base = 0\nfields = {{}}\n")
    options = (
        deployment.url,
        "--target",
        str(file),
        "--world",
        deployment.control,
        "--only",
        "1/sign",
    )
    done = conformance(*options)
    assert done.returncode == 2
    assert done.stdout == ""
    assert "nothing is at protected.content = '/quote': set it to where" in done.words
    assert "the content is (/market) in the target file" in done.words
    file.write_text(file.read_text() + 'content = "/market"\n')
    assert conformance(*options).returncode == 0


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


def test_a_written_target_file_turns_no_failure_green(
    deployment: Deployment, tmp_path: Path
) -> None:
    file = tmp_path / "dev.toml"
    with running(Departing(deployment.url, api_key=None)) as gateway:
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


def test_what_an_owner_sets_by_hand_is_observed_with_the_sentence(
    deployment: Deployment, tmp_path: Path
) -> None:
    file = tmp_path / "dev.toml"
    file.write_text(BY_HAND)
    with running(Departing(deployment.url, api_key=None)) as gateway:
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
