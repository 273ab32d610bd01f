"""Frames of blocks and forks, compared with the chain that was reorganised."""

import pytest

from x402sim import LiveWorld, World
from x402sim.backends import FixedBlocks, Reorgs
from x402sim.events import ChainReorganised
from x402sim.population import Buy, Every


@pytest.mark.parametrize("drop", [0.0, 1.0])
def test_they_agree_with_the_chain(drop: float) -> None:
    stands: dict[int, list[str]] = {}

    async def story(world: LiveWorld) -> None:
        await world.population(12, arrivals=Every(15), behaviour=Buy())
        await world.advance(60)
        chain = world.stage.parts.chain
        for number in range(await chain.height() + 1):
            mined = (await chain.block(number)).tx_hashes
            stands[number] = ["0x" + tx.hex() for tx in mined]

    reorgs = Reorgs(0.3, deeper=0.6, drop=drop)
    world = World(seed=3, block_time_s=FixedBlocks(10, phase=5), reorgs=reorgs, invariants=False)
    run = world.play(story)
    blocks, forks = run.blocks, run.forks
    kept = blocks[blocks["canonical"]].set_index("block")
    assert kept["transactions"].to_dict() == {n: len(txs) for n, txs in stands.items() if txs}
    gas = run.transactions.groupby("tx")["gas"].last()
    on_chain = [tx for txs in stands.values() for tx in txs]
    assert kept["gas"].sum() == gas[on_chain].sum()
    told = [each.event.depth for each in run.journal.of(ChainReorganised)]
    assert forks["depth"].tolist() == told
    assert len(forks) > 5
    lost = blocks[~blocks["canonical"]]
    assert lost["fork"].notna().all()
    by_fork = lost.groupby("fork")[["transactions", "dropped"]].sum()
    both = forks.set_index("fork")[["transactions", "dropped"]]
    assert by_fork.to_dict() == both[both["transactions"] > 0].to_dict()
    gone = set(run.transactions["tx"]) - set(on_chain)
    assert forks["dropped"].sum() == len(gone)
    assert (len(gone) > 0) == (drop > 0)
    assert (blocks["block_s"] == blocks["t_s"]).all()
    after = blocks.set_index("n")
    for row in lost.dropna(subset="replaced_by").itertuples():
        assert after.loc[row.replaced_by, "block"] == row.block
        assert after.loc[row.replaced_by, "t_s"] >= row.orphaned_s
