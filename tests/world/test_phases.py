"""Periodic work and blocks start at phases of their own: no result is an artefact of a grid."""

import statistics
from itertools import pairwise

import pytest

from tests.world.playing import play
from x402sim import LiveWorld, Run
from x402sim.backends import PoissonBlocks
from x402sim.world.chains import BlockTimes

SEEDS = range(20)


async def one_session(world: LiveWorld) -> None:
    alice = await world.payer("alice", balance="1.00")
    await alice.open_session("0.50", duration=60)
    await world.advance(150)


def refund_delay_s(run: Run) -> float:
    """Return the seconds from the end of the session to its refund."""
    (refunded,) = run.sessions.query("event == 'refunded'").itertuples()
    return round(refunded.t_s - refunded.expires_s, 3)


@pytest.mark.parametrize(
    ("blocks", "mean_s", "deviation_s"),
    [
        (None, 5.0, 2.9),  # 0 to 10 s until the sweep, and no wait for a block
        (PoissonBlocks(5), 10.0, 5.8),  # and 5 until the next block
    ],
)
def test_refund_delays_are_not_on_a_grid(
    blocks: BlockTimes | None, mean_s: float, deviation_s: float
) -> None:
    delays = [refund_delay_s(play(one_session, seed=n, block_time_s=blocks)) for n in SEEDS]
    assert len({round(delay % 5, 3) for delay in delays}) > 0.9 * len(delays)
    assert abs(statistics.mean(delays) - mean_s) < 3 * deviation_s / len(delays) ** 0.5


def test_between_fixed_blocks_the_delay_is_a_whole_number_of_blocks() -> None:
    """The deposit and the refund are in blocks; the sweep comes at any time in between.

    In step with the blocks, it would find a session that ends with one only 10 s later.
    """
    delays = [refund_delay_s(play(one_session, seed=n, block_time_s=5)) for n in SEEDS]
    assert set(delays) == {5, 10}
    assert abs(statistics.mean(delays) - 7.5) < 3 * 2.5 / len(delays) ** 0.5


def test_the_indexer_runs_once_in_each_interval_wherever_it_begins() -> None:
    async def story(world: LiveWorld) -> None:
        await world.advance(1200)

    firsts = set()
    for seed in range(5):
        ran = play(story, seed=seed).backlog["t_s"].to_list()
        assert len(ran) == 4
        assert {round(after - before) for before, after in pairwise(ran)} == {300}
        firsts.add(ran[0])
    assert len(firsts) == 5
