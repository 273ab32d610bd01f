"""Services that are legal in their own way, which a target file describes."""

import json
from pathlib import Path

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from tests.suite.duo import Duo, conformance
from tests.suite.gateway import Gateway, running

SESSIONS = ("1/session-no-402", "2.6/remaining", "4.4/deposit", "5/session-debit", "4.4/max-spend")


class OtherSessions(Gateway):
    """Deposits of 0.05 and more; a session is claimed by GET, and its id is in a header."""

    async def answer(self, request: Request) -> Response:
        path = request.url.path
        if path.startswith("/claims/"):
            claim = "/api/sessions/create"
            request.scope["method"] = "POST"
            found = await self.forward(request, claim)
            opened = json.loads(bytes(found.body)).get("sessionId")
            told = {"X-Budget": opened} if opened else {}
            return JSONResponse({"claimed": opened is not None}, found.status_code, told)
        if path == "/api/sessions/create":
            if "x-payment-id" in request.headers:
                return JSONResponse({"error": "claim it at /claims"}, 409)
            try:
                wanted = float(json.loads(await request.body())["maxSpend"])
            except (ValueError, TypeError, KeyError, LookupError):
                wanted = 1.0  # the service's to refuse
            if wanted < 0.05:
                return JSONResponse({"error": "at least 0.05"}, 400)
        return await self.forward(request, path)


TARGET = """
[sessions]
smallest = "0.05"
claim = "get"
claim_path = "/claims/{paymentId}"
id = "X-Budget"
"""


def test_sessions_in_another_way_are_judged(duo: Duo, tmp_path: Path) -> None:
    target = tmp_path / "mine.toml"
    target.write_text(TARGET)
    only = [word for each in SESSIONS for word in ("--only", each)]
    with running(OtherSessions(duo.url, api_key=None)) as gateway:
        options = (gateway.url, "--world", duo.control, *only, "--json")
        done = conformance(*options, "--target", str(target))
        without = conformance(*options)
    results = done.report
    assert done.returncode == 0, done.stdout
    assert results["summary"]["failed"] == results["summary"]["inconclusive"] == 0
    assert results["summary"]["skipped"] == 0
    assert without.returncode != 0, "the target file is needed"


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


def test_of_several_tokens_the_target_file_names_one(duo: Duo, tmp_path: Path) -> None:
    target = tmp_path / "mine.toml"
    target.write_text(f'[payment_required]\nasset = "{duo.ready["asset"]}"\n')
    with running(TwoTokens(duo.url, api_key=None)) as gateway:
        done = conformance(
            gateway.url, "--world", duo.control, "--target", str(target),
            "--only", "1/sign-settle-repeat", "--only", "2.1/asset",
        )  # fmt: skip
    assert done.returncode == 0, done.all


def test_a_wrong_place_of_the_content_ends_the_run_in_one_line(duo: Duo, tmp_path: Path) -> None:
    file, market = (
        tmp_path / "market.toml",
        '[protected]\npath = "/api/perp/market"\nmethod = "GET"\n',
    )
    file.write_text(f"{market}bodies = [{{}}]\namount_base = 0\nfields = {{}}\n")
    options = (duo.url, "--target", str(file), "--world", duo.control, "--only", "1/sign")
    done = conformance(*options)
    assert done.returncode == 2
    assert done.stdout == ""
    assert "nothing is at protected.content = '/quote': set it to where" in done.words
    assert "the content is (/market) in the target file" in done.words
    file.write_text(file.read_text() + 'content = "/market"\n')
    assert conformance(*options).returncode == 0
