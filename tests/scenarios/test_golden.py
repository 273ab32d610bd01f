"""The six scenarios of the mission happen today as they did when they were last looked at."""

import pytest

from tests.scenarios.golden import FOLDER, SIX, first_difference, golden, kept, played


@pytest.mark.parametrize("name", SIX)
def test_it_happens_as_it_did(name: str) -> None:
    difference = first_difference(kept(name), played(name))
    assert not difference, f"{difference}\nif that is right: python -m tests.renew --only golden"


def test_no_golden_journal_is_left_over() -> None:
    assert sorted(FOLDER.iterdir()) == sorted(map(golden, SIX))


@pytest.mark.parametrize(
    ("now", "says"),
    [
        (b"a\nb\n", ""),
        (b"a\nc\n", "line 2 differs\n  kept: b\n  now:  c"),
        (b"a\n", "line 2 differs\n  kept: b\n  now:  (the journal has ended)"),
        (b"a\nb\nc\n", "line 3 differs\n  kept: (the journal has ended)\n  now:  c"),
        (b"a\r\nb\r\n", "the lines are equal, the line ends are not"),
    ],
)
def test_the_first_difference_is_named(now: bytes, says: str) -> None:
    assert first_difference(b"a\nb\n", now) == says
