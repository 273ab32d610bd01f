"""No hostile answer makes a reader grow, wait, or raise what it does not document."""

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from tests.bounded.hostile_peer import HABITS, SAMPLE, Server, serving
from tests.bounded.readers import READERS, chosen
from x402sim.http.bounded import MIB
from x402sim.world.control.client import JOURNAL_ANSWER_BYTES

DEADLINE_S = 0.25
GRACE_S = 6.0
"""A busy machine, and what is decoded before the limit is reached."""
GROWTH_MIB = 50.0
JOURNAL_GROWTH_MIB = 2 * JOURNAL_ANSWER_BYTES / MIB + GROWTH_MIB
RETURNS = ("story", "payer 402 sync", "payer 402 async")
"""The readers that return what they have read within their limits: a 402 that offers no payment is
the caller's."""


@pytest.fixture(scope="module")
def peer() -> Iterator[Server]:
    with serving() as server:
        yield server


@pytest.mark.parametrize("third", range(3))
def test_every_reader_stays_within_its_limits(third: int, peer: Server) -> None:
    """Of a third of the sample each: every habit is met by some readers."""
    campaign(",".join(list(READERS)[third::3]), peer, SAMPLE[third::3])


@pytest.mark.thorough
@pytest.mark.parametrize("reader", READERS)
def test_every_reader_meets_every_habit(reader: str, peer: Server) -> None:
    campaign(reader, peer, list(HABITS))


def campaign(parts: str, peer: Server, habits: Sequence[str]) -> None:
    """Let the readers with these prefixes read each habit's answer, in another process."""
    command = [sys.executable, "-m", "tests.bounded.readers", parts, peer.url, str(DEADLINE_S)]
    done = subprocess.run([*command, *habits], capture_output=True, text=True, timeout=110)
    assert done.returncode == 0, done.stdout[-600:] + done.stderr[-3000:]
    start, *told = [json.loads(line) for line in done.stdout.splitlines()]
    wanted = {(reader, habit) for reader in chosen(parts) for habit in habits}
    assert {(each["reader"], each["habit"]) for each in told} == wanted
    assert [each for each in told if each["seconds"] > _allowed_s(each)] == []
    for each in told:  # a journal may be large; it is read last
        most = JOURNAL_GROWTH_MIB if each["reader"] == "suite journal" else GROWTH_MIB
        assert each["peak_mib"] - start["peak_mib"] < most, each
        assert each["raised"] != "nothing" or each["reader"] in RETURNS, each


def _allowed_s(told: dict[str, Any]) -> float:
    """Two exchanges for a world: it is asked for its description first."""
    return (2 if told["reader"] in ("story", "suite journal") else 1) * DEADLINE_S + GRACE_S
