"""`conformance --wait`: a subject that is still starting is waited for, and one that never answers told."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import ExitStack

import httpx
import pytest

from tests.suite.duo import conformance, refused
from x402sim import LocalServer
from x402sim.judging import NotReady, judge
from x402sim.report.results import Outcome
from x402sim.suite import waiting
from x402sim.suite.started import free_port
from x402sim.suite.waiting import until_ready, until_url_answers

NOBODY = "http://127.0.0.1:9"


def test_a_service_that_starts_while_it_is_waited_for_is_judged() -> None:
    port, told = free_port(), list[str]()
    with ExitStack() as stack:

        def tell(text: str) -> None:
            told.append(text)
            if text.startswith("waiting at most"):
                stack.enter_context(LocalServer(port=port))

        url = f"http://127.0.0.1:{port}"
        verdict = judge("service", url, only="2.2/body", wait=60, tell=tell)
    assert verdict.outcome is Outcome.PASSED
    assert told[0] == f"waiting at most 60 s for {url}: nobody answers (ConnectError)"


def test_a_world_is_waited_for_before_its_service() -> None:
    told = list[str]()
    with pytest.raises(NotReady, match=f"{NOBODY}/_sim: nobody answers"):
        judge("service", "http://127.0.0.1:1", world=f"{NOBODY}/_sim", wait=0.1, tell=told.append)
    assert [each.split()[6] for each in told] == [f"{NOBODY}/_sim:"]


def test_a_gateway_without_its_service_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "URL_LOOK_S", 0)
    answers, told = iter([None, 502, 503, 504, 404]), list[str]()

    def answer(request: httpx.Request) -> httpx.Response:
        status = next(answers)
        if status is None:
            raise httpx.ReadError("reset", request=request)
        return httpx.Response(status)

    async def main() -> str:
        async with httpx.AsyncClient(transport=httpx.MockTransport(answer)) as http:
            return await until_url_answers(http, NOBODY, 60, told.append)

    assert asyncio.run(main()) == "", "a 404 is an answer of whatever is there"
    assert told == [f"waiting at most 60 s for {NOBODY}: nobody answers (ReadError)"]
    assert list(answers) == []


def test_an_answer_without_an_end_is_an_answer() -> None:
    async def endless() -> AsyncIterator[bytes]:
        while True:
            yield b"x"

    def answer(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, content=endless())

    async def main() -> str:
        async with httpx.AsyncClient(transport=httpx.MockTransport(answer)) as http:
            return await until_url_answers(http, NOBODY, 60)

    assert asyncio.run(main()) == ""


def test_a_certificate_that_is_not_trusted_is_not_waited_for() -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("[SSL: CERTIFICATE_VERIFY_FAILED]", request=request)

    async def main() -> str:
        async with httpx.AsyncClient(transport=httpx.MockTransport(answer)) as http:
            return await until_url_answers(http, NOBODY, 60)

    assert asyncio.run(main()) == ""


def test_a_look_that_hangs_ends_with_the_wait_and_its_own_timeout_is_no_end() -> None:
    async def hangs() -> str:
        await asyncio.Event().wait()
        return ""

    async def fails() -> str:
        raise TimeoutError("its own")

    assert asyncio.run(until_ready(hangs, 0.01)) == "nobody answers yet"
    with pytest.raises(TimeoutError, match="its own"):
        asyncio.run(until_ready(fails, 60))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ([NOBODY], f"{NOBODY}: nobody answers (ConnectError), after waiting for 0.1 s"),
        (["payer", "--url", NOBODY], f"{NOBODY}: nobody answers (ConnectError), after waiting"),
        (["facilitator", NOBODY], f"{NOBODY}: nobody answers (ConnectError), after waiting for"),
        (
            ["server", f"{NOBODY}/weather", "--facilitator", "http://127.0.0.1:8"],
            f"{NOBODY}: nobody answers, after waiting for 0.1 s",
        ),
        (["facilitator", "--start", "sleep 60"], "it did not answer within 0.1 s"),
        (["server", "/weather", "--start", "sleep 60"], "it did not answer within 0.1 s"),
    ],
)
def test_who_never_answers_is_invalid_in_one_sentence(options: list[str], said: str) -> None:
    done = conformance(*options, "--wait", "0.1")
    assert done.returncode == 2, done.all
    *_, last = done.stderr.splitlines()
    assert said in last
    assert done.stdout == ""
    if "--start" not in options:
        assert f"waiting at most 0.1 s for {NOBODY}: nobody answers" in done.stderr


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ([NOBODY, "--wait", "0"], "--wait is a number of seconds above 0, not 0"),
        (["payer", "--wait", "5", "--", "true"], "--wait is for a payer behind HTTP (--url)"),
        (
            ["server", "MCP", "stdio", "forecast", "--start", "true", "--wait", "5"],
            "--wait: stdio is asked at once",
        ),
    ],
)
def test_what_is_not_waited_for_is_refused(options: list[str], said: str) -> None:
    assert said in refused(*options)
