"""No hostile answer makes a reader grow, wait, or raise what it does not document."""

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from itertools import chain, product
from typing import Any

import pytest

from tests.bounded.hostile_peer import HABITS, SAMPLE, Server, serving
from tests.bounded.readers import READERS
from x402sim.http.bounded import MIB
from x402sim.world.control.client import JOURNAL_ANSWER_BYTES

DEADLINE_S = 0.25
GRACE_S = 6.0
"""A busy machine, and what is decoded before the limit is reached."""
GROWTH_MIB = 50.0
JOURNAL_GROWTH_MIB = 2 * JOURNAL_ANSWER_BYTES / MIB + GROWTH_MIB
LARGEST = "suite journal"
"""The reader of what may be large: it is the last, because a process keeps its peak."""
RETURNS = ("story", "payer 402 sync", "payer 402 async")
"""The readers that return what they have read within their limits: a 402 that offers no payment is
the caller's."""


@pytest.fixture(scope="module")
def peer() -> Iterator[Server]:
    with serving() as server:
        yield server


def test_every_reader_stays_within_its_limits(peer: Server) -> None:
    """A third of the readers meets a third of the sample each: every habit is met by some readers."""
    thirds = [product([*READERS][third::3], SAMPLE[third::3]) for third in range(3)]
    campaign(sorted(chain(*thirds), key=lambda pair: pair[0] == LARGEST), peer)


@pytest.mark.thorough
@pytest.mark.parametrize("reader", READERS)
def test_every_reader_meets_every_habit(reader: str, peer: Server) -> None:
    campaign([(reader, habit) for habit in HABITS], peer)


def campaign(pairs: Sequence[tuple[str, str]], peer: Server) -> None:
    """Let readers read habits' answers, pair by pair, in another process."""
    command = [sys.executable, "-m", "tests.bounded.readers", peer.url, str(DEADLINE_S)]
    done = subprocess.run([*command, *chain(*pairs)], capture_output=True, text=True, timeout=110)
    assert done.returncode == 0, done.stdout[-600:] + done.stderr[-3000:]
    start, *told = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(each["reader"], each["habit"]) for each in told] == [*pairs]
    assert [each for each in told if each["seconds"] > _allowed_s(each)] == []
    for each in told:
        most = JOURNAL_GROWTH_MIB if each["reader"] == LARGEST else GROWTH_MIB
        assert each["peak_mib"] - start["peak_mib"] < most, each
        assert each["raised"] != "nothing" or each["reader"] in RETURNS, each


def _allowed_s(told: dict[str, Any]) -> float:
    """Two exchanges for a world: it is asked for its description first."""
    return (2 if told["reader"] in ("story", LARGEST) else 1) * DEADLINE_S + GRACE_S
