"""`conformance --wait`: a subject that is still starting is waited for, and one that never answers is reported."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import ExitStack

import httpx
import pytest

from tests.suite.deployment import conformance, refused
from x402sim import LocalServer
from x402sim.judging import judge
from x402sim.suite import started
from x402sim.suite.report.results import Outcome
from x402sim.suite.started import free_port
from x402sim.suite.subject import until_ready, until_url_answers

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


class Waits(Exception):
    """What is printed while a judgement waits."""


@pytest.mark.parametrize(
    ("subject", "url", "flags"),
    [
        ("service", f"{NOBODY}/_sim", {"world": f"{NOBODY}/_sim"}),  # before the service
        ("payer", NOBODY, {"url": NOBODY}),
        ("facilitator", NOBODY, {}),
        ("server", NOBODY, {"facilitator": f"http://127.0.0.1:{free_port()}"}),
    ],
)
def test_what_is_waited_for_is_told_with_what_was_observed(
    subject: str, url: str, flags: dict[str, str]
) -> None:
    def tell(text: str) -> None:
        if text.startswith("waiting"):
            raise Waits(text)

    what = {"service": "http://127.0.0.1:1", "payer": None, "server": f"{NOBODY}/weather"}
    with pytest.raises(Waits, match=f"waiting at most 60 s for {url}: nobody answers"):
        judge(subject, what.get(subject, NOBODY), wait=60, tell=tell, **flags)


def waited(*answers: httpx.Response | httpx.TransportError) -> tuple[str, list[str]]:
    """Wait for a URL with these answers, all of which are asked for; return why in vain, and what was told."""
    left, told = [*answers], list[str]()

    def answer(request: httpx.Request) -> httpx.Response:
        found = left.pop(0)
        if isinstance(found, httpx.TransportError):
            raise found
        return found

    async def main() -> str:
        async with httpx.AsyncClient(transport=httpx.MockTransport(answer)) as http:
            return await until_url_answers(http, NOBODY, 60, told.append)

    why = asyncio.run(main())
    assert left == []
    return why, told


def test_a_gateway_without_its_service_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("x402sim.suite.subject.URL_LOOK_S", 0)
    gone, *others = httpx.ReadError("reset"), *map(httpx.Response, (502, 503, 504, 404))
    why, told = waited(gone, *others)
    assert why == "", "a 404 is an answer of whatever is there"
    assert told == [f"waiting at most 60 s for {NOBODY}: nobody answers (ReadError)"]


def test_an_endless_answer_and_a_certificate_that_is_not_trusted_end_the_wait() -> None:
    async def endless() -> AsyncIterator[bytes]:
        while True:
            yield b"x"

    assert waited(httpx.Response(200, content=endless())) == ("", [])
    assert waited(httpx.ConnectError("[SSL: CERTIFICATE_VERIFY_FAILED]")) == ("", [])


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
        ([NOBODY], ", after waiting for 0.1 s"),
        (["payer", "--url", NOBODY], ", after waiting for 0.1 s"),
        (["facilitator", NOBODY], ", after waiting for 0.1 s. One that the judge is to start: "),
        (
            ["server", f"{NOBODY}/weather", "--facilitator", f"http://127.0.0.1:{free_port()}"],
            ", after waiting for 0.1 s. One that the judge is to start: --start COMMAND",
        ),
        (["facilitator", "--start", "sleep 60"], "so it is not ready: "),
        (["server", "/weather", "--start", "sleep 60"], "so it is not ready: "),
    ],
)
def test_who_never_answers_is_invalid_in_one_sentence(options: list[str], said: str) -> None:
    done = conformance(*options, "--wait", "0.1")
    assert done.returncode == 2, done.all
    *_, last = done.stderr.splitlines()
    assert said in last
    assert done.stdout == ""
    assert "--start" in options or f"{NOBODY}: nobody answers" in last


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


def test_a_port_that_another_process_has_taken_is_not_taken_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The program that gets the port listens seconds later; until then, the port looks free."""
    taken, draw = [free_port(), free_port()], started._ports.randrange
    drawn = iter(taken)
    monkeypatch.setattr(started._ports, "randrange", lambda *ends: next(drawn, None) or draw(*ends))
    assert free_port() not in taken
    assert next(drawn, None) is None
