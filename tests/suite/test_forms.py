"""What is only a form is no failure, and what is wrong is shown by the answer that is wrong."""

import asyncio

import httpx
import pytest

from tests.mutants.jury import judge_one
from x402sim.clock import Clock
from x402sim.suite.service.answers import TargetAnswer, read_402
from x402sim.suite.service.engine import all_checks
from x402sim.suite.service.options import Options
from x402sim.suite.service.parse_options import parse
from x402sim.suite.service.probe import Probe
from x402sim.suite.service.sending import client
from x402sim.suite.service.setting import Setting
from x402sim.suite.service.target import Target
from x402sim.suite.verdict import Inconclusive

IDLE_S = 0.9


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
    verdict = judge_one(defect, [check for check in all_checks() if check.id == check_id])
    exchange = verdict.results[check_id].exchange
    assert "-> 200" in exchange
    assert '"quote"' in exchange
    assert "-> 402" not in exchange


def test_the_command_that_repeats_a_run_names_the_variable_of_the_key() -> None:
    key = "0x" + "17" * 32
    told = parse("http://h", payer_key=key, restart="1 $X").rerun
    assert told.endswith(""" http://h --payer-key "$X402SIM_PAYER_KEY" --restart '1 $X'""")
    assert key not in told


def test_a_service_may_close_a_connection_that_is_idle() -> None:
    """It closes it as the next request arrives, without an answer."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        clock, before_s = Clock(), Clock().now()
        while not reader.at_eof():
            try:
                head = await reader.readuntil(b"\r\n\r\n")
            except asyncio.IncompleteReadError:
                break
            size = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0] or 0)
            await reader.readexactly(size)
            if clock.now() - before_s > IDLE_S:
                break
            before_s = clock.now()
            writer.write(b"HTTP/1.1 404 X\r\ncontent-length: 2\r\n\r\n{}")
            await writer.drain()
        writer.close()

    async def main() -> list[int]:
        async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
            url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
            async with client(url, Options()) as http:
                probe = Probe(Setting(http=http))
                first = await probe.ask()
                await asyncio.sleep(IDLE_S + 0.1)
                second = await probe.ask()
        await asyncio.sleep(0.05)  # the connections end
        return [first.status, second.status]

    assert asyncio.run(main()) == [404, 404]


def test_a_402_with_its_parts_elsewhere_names_the_keys_that_cure_it() -> None:
    body = {"payment": {"id": "pay_1"}, "accepts": {"payTo": "0x1", "maxAmountRequired": "1"}}
    with pytest.raises(Inconclusive) as said:
        read_402(TargetAnswer(Target(), 402, httpx.Headers(), "", body, str))
    assert 'payment_required.payment_id = "/payment/id"' in str(said.value)
    assert 'payment_required.requirements = "/accepts"' in str(said.value)


def summary(text: str) -> str:
    return TargetAnswer(Target(), 402, httpx.Headers(), text, None, str).summary


def test_a_summary_ends_in_the_number_of_characters_that_are_left_out() -> None:
    """Part of an address must not look like a whole one."""
    text = '{"payTo": "0x7e9385c01000c539BE0Ca21df6e037b3E1bDeA52"}' + " " * 200
    told = summary("x" * 130 + text)
    assert told.endswith(f"… ({130 + len(text) - 160} more characters)")
    assert summary("short") == "402 short"
    assert summary("a b " * 1250).endswith("… (4840 more characters)")


def test_a_summary_shows_no_part_of_what_it_hides() -> None:
    told = summary("f" * 4000)
    assert "ffff" not in told
    assert told.endswith("… (2000 more characters)")
