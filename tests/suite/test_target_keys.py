"""Services that are legal in their own way, which a target file describes."""

import json
from pathlib import Path

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from tests.suite.duo import Duo, conformance
from tests.suite.gateway import Gateway, running


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


class Prepaid(Gateway):
    """A session is shown in a header of another name, and in no other."""

    async def answer(self, request: Request) -> Response:
        own = (b"x-session-id", b"x-balance-id")
        headers = [pair for pair in request.scope["headers"] if pair[0] not in own]
        if shown := request.headers.get("x-balance-id"):
            headers.append((b"x-session-id", shown.encode()))
        request.scope["headers"] = headers
        return await self.forward(Request(request.scope, request.receive), request.url.path)


def test_a_session_may_be_shown_in_a_header_of_another_name(duo: Duo, tmp_path: Path) -> None:
    target = tmp_path / "mine.toml"
    target.write_text('[sessions]\nheader = "X-Balance-Id"\n')
    options = ("--world", duo.control, "--only", "5/session", "--json")
    with running(Prepaid(duo.url, api_key=None)) as gateway:
        without = conformance(gateway.url, *options)
        done = conformance(gateway.url, *options, "--target", str(target))
    assert without.returncode == 1
    assert done.returncode == 0, done.all
    outcomes = {each["outcome"] for each in done.report["results"]}
    assert outcomes <= {"observed", "skipped"}, outcomes
    assert "sessions.header" in done.all


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
