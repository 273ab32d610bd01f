"""Periodic work and blocks start at phases of their own: no result is an artefact of a grid."""

import statistics
from itertools import pairwise

from tests.world.playing import play
from x402sim import LiveWorld, Payer, Run
from x402sim.backends import PoissonBlocks

SEEDS, RANDOM = range(10), PoissonBlocks(5)


async def one_session(world: LiveWorld, alice: Payer) -> None:
    await alice.open_session("0.50", duration=60)
    await world.advance(150)


def refund_delay_s(run: Run) -> float:
    """Return the seconds from the end of the session to its refund."""
    (refunded,) = run.sessions.query("event == 'refunded'").itertuples()
    return round(refunded.t_s - refunded.expires_s, 3)


def test_at_random_blocks_refund_delays_are_not_on_a_grid() -> None:
    """0 to 10 s until the sweep, and 5 on average until the next block."""
    delays = [refund_delay_s(play(one_session, seed=n, block_time_s=RANDOM)) for n in SEEDS]
    assert len({round(delay % 5, 3) for delay in delays}) > 0.9 * len(delays)
    assert abs(statistics.mean(delays) - 10) < 3 * 5.8 / len(delays) ** 0.5


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
