"""No hostile answer makes a reader grow, wait, or raise what it does not document."""

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from tests.bounded.hostile_peer import HABITS, SAMPLE, Server, serving
from tests.bounded.readers import READERS
from x402sim.http.bounded import MIB
from x402sim.world.control.limits import JOURNAL_ANSWER_BYTES

DEADLINE_S = 0.4
GRACE_S = 6.0
"""A busy machine, and what is decoded before the limit is reached."""
GROWTH_MIB = 50.0
JOURNAL_GROWTH_MIB = 2 * JOURNAL_ANSWER_BYTES / MIB + GROWTH_MIB


@pytest.fixture(scope="module")
def peer() -> Iterator[Server]:
    with serving() as server:
        yield server


@pytest.mark.parametrize("part", ["service", "payer", "session", "suite", "story"])
def test_every_reader_stays_within_its_limits(part: str, peer: Server) -> None:
    campaign(part, peer, SAMPLE)


@pytest.mark.thorough
@pytest.mark.parametrize("reader", READERS)
def test_every_reader_meets_every_habit(reader: str, peer: Server) -> None:
    campaign(reader, peer, list(HABITS))


def campaign(part: str, peer: Server, habits: Sequence[str]) -> None:
    """Let the readers with this prefix read each habit's answer, in another process."""
    command = [sys.executable, "-m", "tests.bounded.readers", part, peer.url, str(DEADLINE_S)]
    done = subprocess.run([*command, *habits], capture_output=True, text=True, timeout=110)
    assert done.returncode == 0, done.stdout[-600:] + done.stderr[-3000:]
    start, *told = [json.loads(line) for line in done.stdout.splitlines()]
    readers = [reader for reader in READERS if reader.startswith(part)]
    wanted = {(r, h) for r in readers for h in habits}
    assert {(each["reader"], each["habit"]) for each in told} == wanted
    assert [each for each in told if each["seconds"] > _allowed_s(each)] == []
    if "suite journal" not in readers:  # a journal may be large; it is read last
        assert [each for each in told if each["peak_mib"] - start["peak_mib"] > GROWTH_MIB] == []
    else:
        before = [each["peak_mib"] for each in told if each["reader"] != "suite journal"]
        assert max(before, default=0) - start["peak_mib"] < GROWTH_MIB
        assert told[-1]["peak_mib"] - start["peak_mib"] < JOURNAL_GROWTH_MIB
    if part != "story":
        assert [each for each in told if each["raised"] == "nothing"] == []


def _allowed_s(told: dict[str, Any]) -> float:
    """Two exchanges for a world: it is asked for its description first."""
    return (2 if told["reader"] in ("story", "suite journal") else 1) * DEADLINE_S + GRACE_S
