"""The six scenarios of the mission happen today as they did when they were last looked at."""

import pytest

from tests.scenarios.golden import FOLDER, SIX, first_difference, golden, kept, played


@pytest.mark.parametrize("name", SIX)
def test_it_happens_as_it_did(name: str) -> None:
    difference = first_difference(kept(name), played(name))
    assert not difference, f"{difference}\nif that is right: python -m tests.renew --only golden"


def test_no_golden_journal_is_left_over() -> None:
    assert sorted(FOLDER.iterdir()) == sorted(map(golden, SIX))


def test_a_difference_is_named() -> None:
    assert first_difference(b"a\nb\n", b"a\nc\n") == "line 2 differs\n  kept: b\n  now:  c"
    assert "(the journal has ended)" in first_difference(b"a\nb\n", b"a\n")
    assert first_difference(b"a\nb\n", b"a\r\nb\r\n"), "the line ends are not equal"
