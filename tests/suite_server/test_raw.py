"""Requests byte for byte: what comes back is read as HTTP allows, whatever a server sends."""

import asyncio
from contextlib import suppress
from typing import Any

import pytest

from tests.watch.said import packed, required, terms
from x402sim.protocol.networks import BASE_SEPOLIA
from x402sim.suite.dialect import Dialect
from x402sim.suite.server import raw
from x402sim.suite.server.payment import payable
from x402sim.suite.server.raw import Answer, Headers, send

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\ngoods"
HINTS = b"HTTP/1.1 103 Early Hints\r\nlink: </a.css>; rel=preload\r\n\r\n"


def answered(*pieces: bytes, method: str = "GET", **how: Any) -> Answer:
    """Read the answer of a server that sends these pieces, or the request, and hangs up."""

    async def main() -> Answer:
        has_ended = asyncio.Event()

        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            asked = await reader.readuntil(b"\r\n\r\n")
            with suppress(ConnectionError):  # who has read enough hangs up
                for piece in pieces or (b"HTTP/1.0 200 OK\r\n\r\n", asked):
                    writer.write(piece)
                    await writer.drain()
                    await asyncio.sleep(0.01)
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()
            has_ended.set()

        async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
            found = await send(server.sockets[0].getsockname()[1], method, "/", **how)
            await has_ended.wait()
            return found

    return asyncio.run(main())


@pytest.mark.parametrize("pieces", [(HINTS, OK), (HINTS + OK,), (HINTS, HINTS, OK[:20], OK[20:])])
def test_an_interim_answer_is_passed_over(pieces: tuple[bytes, ...]) -> None:
    found = answered(*pieces)
    assert (found.status, found.body, found.failure) == (200, b"goods", "")
    assert "link" not in found.headers
    assert answered(*pieces, method="HEAD").status == 200


def test_an_answer_without_headers_has_a_status() -> None:
    found = answered(b"HTTP/1.0 200 OK\r\n\r\ngoods")
    assert (found.status, found.body, found.is_cut) == (200, b"goods", False)


def test_an_answer_is_enough_only_with_its_whole_head() -> None:
    found = answered(OK[:30], OK[30:], is_enough=lambda headers, _: True)
    assert found.status == 200


def test_blanks_around_a_value_are_none_of_it() -> None:
    found = answered(b"HTTP/1.1 200 OK\r\nLocation:\t /a \r\ncontent-length: 0\r\n\r\n")
    assert found.headers["location"] == "/a"


def test_a_request_names_its_client() -> None:
    assert b"\r\nUser-Agent: " in answered().body


def test_a_long_answer_is_not_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(raw, "MOST_BYTES", 3)
    assert (answered(OK).is_cut, answered(OK[:-1]).is_cut) == (False, False), "enough is read"
    monkeypatch.undo()
    assert (answered(OK).is_cut, answered(OK[:-1]).is_cut) == (False, True)


def test_a_switch_of_protocols_is_an_answer() -> None:
    found = answered(b"HTTP/1.1 101 Switching\r\nupgrade: h2c\r\nconnection: upgrade\r\n\r\nother")
    assert (found.status, found.body, found.failure) == (101, b"", "")


def test_only_the_interim_answer_is_no_answer() -> None:
    found = answered(HINTS)
    assert (found.status, found.failure) == (0, "the connection ended")


def test_a_number_of_many_digits_is_no_counter() -> None:
    many = b"9" * 5000
    head = b"HTTP/1.1 200 OK\r\nx-count: 12\r\nx-many: " + many + b"\r\ncontent-length: 2\r\n\r\n{}"
    assert answered(head).numbers == {"header x-count": 12}


@pytest.mark.parametrize(("amount", "is_payable"), [("10000", True), ("9" * 5000, False)])
def test_an_amount_of_too_many_digits_cannot_be_paid(amount: str, is_payable: bool) -> None:
    offers = required() | {"accepts": [terms() | {"amount": amount}]}
    answer = Answer(sent="GET /", status=402, headers=Headers({"PAYMENT-REQUIRED": packed(offers)}))
    assert (payable(Dialect.V2, answer, BASE_SEPOLIA) is not None) is is_payable
