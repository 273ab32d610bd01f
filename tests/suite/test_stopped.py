"""A service that stops in the middle of a run: one reason for all that is not judged, and code 2.

A service with a database keeps over TCP what was paid, when --restart ends it; one without it does not.
"""

import asyncio
import signal
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.independent.implementation import KEEP
from tests.serve.driver import Running, command
from tests.suite.cases import case
from tests.suite.deployment import Deployment, conformance, service_env
from x402sim.suite.command import NO_VERDICT, conclude
from x402sim.suite.report.causes import cause
from x402sim.suite.report.results import Outcome, Result
from x402sim.suite.service import sending
from x402sim.suite.service.case import ServiceCase
from x402sim.suite.service.engine import run
from x402sim.suite.service.options import Options
from x402sim.suite.service.sending import client
from x402sim.suite.service.setting import Setting
from x402sim.suite.started import free_port

ANSWER = b"HTTP/1.1 404 N\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"


asks = case("2.1/amount", lambda probe: probe.send("GET", "/first"))
asks_again = case("2.1/asset", lambda probe: probe.send("GET", "/second"))
asks_too = case("2.1/network", lambda probe: probe.send("GET", "/third", may_break=True))
asks_for_the_end = case("2.1/scheme", lambda probe: probe.send("GET", "/kill"))
asks_for_it_again = case("2.1/timeout", lambda probe: probe.send("GET", "/kill"))


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give up soon on a service that takes no connection."""
    monkeypatch.setattr(sending, "STOP_S", 0.05)


def judged(
    second: ServiceCase,
    third: ServiceCase = asks_too,
    *,
    stops_after: int = 0,
    kills: int = 0,
    is_tough_at_first: bool = False,
    back_after_s: float | None = None,
) -> list[Result]:
    """Run three checks against a server that stops.

    It stops after some answers, and may come back by itself; or each time that /kill ends it, so
    many times, and the run can restart it. One that `is_tough_at_first` stands the first /kill
    after a restart.
    """
    port = free_port()
    answered = killed = stood = 0
    server: asyncio.Server

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal answered, killed, stood
        is_asked = b"/kill" in await reader.readuntil(b"\r\n\r\n")
        is_killed = is_asked and killed < kills and not (is_tough_at_first and stood < killed)
        stood += is_asked and not is_killed
        killed += is_killed
        answered += not is_killed
        if is_killed or answered == stops_after:
            server.close()
        if not is_killed:
            writer.write(ANSWER)
            await writer.drain()
        writer.close()
        if answered == stops_after and back_after_s is not None:
            await asyncio.sleep(back_after_s)
            await start()

    async def start() -> None:
        nonlocal server
        server = await asyncio.start_server(serve, "127.0.0.1", port)

    async def main() -> list[Result]:
        await start()
        async with client(f"http://127.0.0.1:{port}", Options()) as http:
            restart = start if kills else None
            setting = Setting(http=http, restart=restart)
            found = [each async for each in run(setting, [asks, second, third])]
        server.close()
        return found

    return asyncio.run(main())


@pytest.mark.usefixtures("soon")
def test_a_service_that_stops_is_said_once_with_the_time() -> None:
    first, second, third = judged(asks_again, stops_after=1)
    assert first.outcome is Outcome.PASSED
    assert second.outcome is third.outcome is Outcome.INCONCLUSIVE
    assert second.reason == third.reason
    assert second.reason.startswith("the service stopped answering at ")
    assert ", after GET /first (of spec/2.1/amount), which was answered 404;" in second.reason
    assert second.reason.endswith("give --restart COMMAND to have that request tried again alone")
    assert conclude([first, second, third], strict=False) == NO_VERDICT


@pytest.mark.usefixtures("soon")
@pytest.mark.parametrize(
    ("kills", "outcome", "said"),
    [
        (2, Outcome.FAILED, "alone, after a restart, it has stopped the service again"),
        (1, Outcome.INCONCLUSIVE, "after a restart, that request alone did not stop it"),
    ],
)
def test_a_request_that_ends_the_service_twice_has_failed_and_the_run_goes_on(
    kills: int, outcome: Outcome, said: str
) -> None:
    first, culprit, third = judged(asks_for_the_end, kills=kills)
    assert [it.outcome for it in (first, culprit, third)] == [
        Outcome.PASSED,
        outcome,
        Outcome.PASSED,
    ]
    assert f"{culprit.actual or culprit.reason}".endswith(said)
    if outcome is Outcome.FAILED:
        assert ", after GET /kill (of spec/2.1/scheme), which was not answered" in str(
            culprit.actual
        )
        assert cause(culprit).startswith("a request ends the service")
        assert culprit.exchanges[0].head.startswith("GET ")


@pytest.mark.usefixtures("soon")
def test_a_request_that_stops_the_service_twice_has_failed_though_not_alone() -> None:
    _, first, second = judged(asks_for_the_end, asks_for_it_again, kills=2, is_tough_at_first=True)
    assert (first.outcome, second.outcome) == (Outcome.INCONCLUSIVE, Outcome.FAILED)
    assert f"{second.actual}".endswith("stopped the service twice in this run, though not alone "
                                       "after a restart")  # fmt: skip


def test_a_service_that_comes_back_is_judged_further() -> None:
    first, second, third = judged(asks_again, stops_after=1, back_after_s=1.2)
    assert first.outcome is third.outcome is Outcome.PASSED
    assert second.outcome is Outcome.INCONCLUSIVE
    assert "GET /second was not answered: ConnectError" in second.reason


@pytest.mark.parametrize("answer", [200, None])
def test_after_an_error_a_payment_has_its_own_connection_and_is_sent_once(
    answer: int | None,
) -> None:
    """A server that closes a connection after a 500, and maybe the next one without an answer."""
    connections, read = [], []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        said = [answer] if connections else [500, None]
        connections.append(asyncio.current_task())
        with suppress(asyncio.IncompleteReadError), closing(writer):
            while await reader.readuntil(b"\r\n\r\n"):
                read.append(await reader.readexactly(2))
                if (status := said.pop(0)) is None:
                    return
                writer.write(b"HTTP/1.1 %d Said\r\ncontent-length: 0\r\n\r\n" % status)

    async def main() -> list[int | None]:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        statuses: list[int | None] = [None, None]
        try:
            async with server, client(url, Options()) as http:
                for place in range(2):
                    with suppress(httpx.TransportError):
                        statuses[place] = (await http.post("/api/pay", json={})).status_code
        finally:
            await asyncio.gather(*connections)
        return statuses

    assert asyncio.run(main()) == [500, answer]
    assert len(read) == 2, "no request is sent twice"


IDS = (
    "spec/3/record-outlives-cache",
    "spec/4.1/store-settled",
    "kit/5/session-survives-restart",
)


def kept_by(ready: dict[str, Any], folder: Path, *options: str) -> dict[str, Any]:
    """Run the suite against a service with these options, which starts again if it is killed."""
    port, pid = str(free_port()), folder / "pid"
    kept = ["bash", "-c", KEEP, str(pid), *command("service", "--port", port, *options)]
    with Running(program=kept, env=service_env(ready)) as service:
        assert service.line()
        done = conformance(
            f"http://127.0.0.1:{port}", "--world", ready["control"],
            "--restart", f"kill -9 $(cat {pid})", "--json", "--only", ",".join(IDS),
        )  # fmt: skip
        service.end(signal.SIGTERM)
    return done.results


def test_what_a_database_keeps_survives_the_restart(deployment: Deployment, tmp_path: Path) -> None:
    found = kept_by(deployment.ready, tmp_path, "--db", str(tmp_path / "shop.db"))
    assert {each: found[each]["outcome"] for each in IDS} == dict.fromkeys(IDS, "passed")


@pytest.mark.thorough
def test_a_service_that_keeps_all_in_memory_fails(deployment: Deployment, tmp_path: Path) -> None:
    found = kept_by(deployment.ready, tmp_path)
    assert {each: found[each]["outcome"] for each in IDS} == dict.fromkeys(IDS, "failed")
