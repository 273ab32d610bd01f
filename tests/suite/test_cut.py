"""A text that is cut says so: part of an address must not look like a whole one."""

from functools import partial

import httpx
import pytest

from x402sim.suite import redact
from x402sim.suite.answers import TargetAnswer, read_402
from x402sim.suite.target import Target
from x402sim.suite.verdict import Inconclusive

ADDRESS = "0x7e9385c01000c539BE0Ca21df6e037b3E1bDeA52"


def answer(text: str) -> TargetAnswer:
    return TargetAnswer(Target(), 402, httpx.Headers(), text, None, partial(str))


def test_a_summary_ends_in_the_number_of_characters_that_are_left_out() -> None:
    text = '{"error": "Payment Required", "payTo": "' + ADDRESS + '"}' + " " * 200
    told = answer("x" * 130 + text).summary
    assert told.endswith(f"… ({130 + len(text) - 160} more characters)")
    assert answer("short").summary == "402 short"
    assert answer("a b " * 1250).summary.endswith("… (4840 more characters)")


def test_a_summary_shows_no_part_of_what_it_hides() -> None:
    told = answer("f" * 4000).summary
    assert "ffff" not in told
    assert told.endswith("… (2000 more characters)")


@pytest.mark.parametrize("kind", ["application/json", "text/html"])
def test_the_body_of_an_exchange_that_is_cut_says_so(kind: str) -> None:
    body = '"' + "word " * 1000 + '"' if "json" in kind else "word " * 1000
    response = httpx.Response(200, text=body, headers={"content-type": kind})
    told = redact.exchange(httpx.Request("GET", "http://x/y"), response)
    assert "… (" in told
    assert "more characters)" in told


def test_an_amount_that_is_cut_says_so() -> None:
    wanted = {"maxAmountRequired": "9 " * 100}
    body = {"paymentId": "pay_1", "paymentRequirements": wanted}
    bad = TargetAnswer(Target(), 402, httpx.Headers(), "", body, partial(str))
    with pytest.raises(Inconclusive, match=r"9 9… \(\d+ more characters\)"):
        read_402(bad)
