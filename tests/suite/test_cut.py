"""A text that is cut says so: part of an address must not look like a whole one."""

from functools import partial

import httpx

from x402sim.suite.answers import TargetAnswer
from x402sim.suite.target import Target

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
