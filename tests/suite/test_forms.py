"""What is only a form is no failure, and what is wrong is shown by the answer that is wrong."""

import asyncio

import pytest

from tests.mutants.jury import CHECKS, judge_by
from x402sim.clock import Clock
from x402sim.rng import Rng
from x402sim.suite.deviations import deviations
from x402sim.suite.parse_options import parse
from x402sim.suite.probe import Probe
from x402sim.suite.setting import RunState, Setting
from x402sim.suite.target import AgentsEndpoint, Target
from x402sim.suite.verdict import Inconclusive
from x402sim.suite.wire import Wire, client


@pytest.mark.parametrize(
    ("defect", "check_id"),
    [
        ("never-debited", "spec/5/session-debit"),
        ("a-session-each-time", "spec/3/deposit-makes-session"),
    ],
)
def test_what_is_served_too_much_is_shown_and_not_the_402_that_ends_it(
    defect: str, check_id: str
) -> None:
    verdict = judge_by(defect, [check for check in CHECKS() if check.id == check_id])
    exchange = verdict.results[check_id].exchange
    assert "-> 200" in exchange
    assert '"quote"' in exchange
    assert "-> 402" not in exchange


@pytest.mark.parametrize(
    ("path", "is_legal"),
    [("/api/agents", True), ("/api/agents?limit=10", True), ("/agents", False)],
)
def test_a_query_of_the_list_of_agents_is_legal(path: str, is_legal: bool) -> None:
    """Section 4.3 does not show its query parameters."""
    assert deviations(Target(agents=AgentsEndpoint(path=path))) is not is_legal


def test_the_command_that_repeats_a_run_names_the_variable_of_the_key() -> None:
    key = "0x" + "17" * 32
    told = parse("http://h", payer_key=key, restart="1 $X").rerun
    assert told.endswith(""" http://h --payer-key "$X402SIM_PAYER_KEY" --restart '1 $X'""")
    assert key not in told


def answered(body: bytes, status: int, idle_s: float = 60) -> tuple[list[int], list[str]]:
    """Request twice, a second apart, from a server that closes connections idle for so long.

    It closes them as a request arrives, without an answer.
    """

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        clock, before_s = Clock(), Clock().now()
        while not reader.at_eof():
            try:
                head = await reader.readuntil(b"\r\n\r\n")
            except asyncio.IncompleteReadError:
                break
            size = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0] or 0)
            await reader.readexactly(size)
            if clock.now() - before_s > idle_s:
                break
            before_s = clock.now()
            length = f"content-length: {len(body)}\r\n\r\n".encode()
            writer.write(f"HTTP/1.1 {status} X\r\n".encode() + length + body)
            await writer.drain()
        writer.close()

    async def ask(port: int) -> tuple[list[int], list[str]]:
        async with client(f"http://127.0.0.1:{port}", Wire()) as http:
            setting = Setting(http=http, clock=Clock(), rng=Rng(1))
            probe = Probe(setting, RunState())
            first = await probe.ask()
            await asyncio.sleep(1)
            second = await probe.ask()
            try:
                await probe.challenge()
            except Inconclusive as unclear:
                return [first.status, second.status], [str(unclear)]
        return [first.status, second.status], []

    async def main() -> tuple[list[int], list[str]]:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        async with server:
            found = await ask(server.sockets[0].getsockname()[1])
        await asyncio.sleep(0.05)  # the connections end
        return found

    return asyncio.run(main())


def test_a_service_may_close_a_connection_that_is_idle() -> None:
    assert answered(b"{}", 404, idle_s=0.9)[0] == [404, 404]


def test_a_402_with_its_parts_elsewhere_names_the_keys_that_cure_it() -> None:
    body = b'{"payment":{"id":"pay_1"},"accepts":{"payTo":"0x1","maxAmountRequired":"1"}}'
    _, (said,) = answered(body, 402)
    assert 'payment_required.payment_id = "/payment/id"' in said
    assert 'payment_required.requirements = "/accepts"' in said
