"""A mapping that spills is a dictionary, wherever its items are."""

import gc

import pytest
from hypothesis import given, strategies as st

from x402sim import LiveWorld, World
from x402sim.chain.base import Block
from x402sim.events import TransactionMined, TransactionUndone
from x402sim.spilling import Spilling

ACTS = st.lists(st.tuples(st.sampled_from(["set", "del", "get"]), st.integers(0, 20)), max_size=80)


@pytest.fixture(scope="module", autouse=True)
def _few():
    """Have next to nothing in memory."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("x402sim.spilling.KEPT", 2)
        yield


@given(acts=ACTS, marks=st.sampled_from([8, 1 << 22]))
def test_it_holds_what_a_dictionary_holds(acts: list[tuple[str, int]], marks: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("x402sim.spilling._MARKS", marks)
        ours, wanted = Spilling[bytes, tuple[str, int]](bytes, tuple[str, int]), {}
        for step, (act, number) in enumerate(acts):
            key = bytes(number)
            if act == "set":
                ours[key] = wanted[key] = (f"ü{step}", 10 ** (step * 2))
            elif act == "del":
                assert ours.pop(key, None) == wanted.pop(key, None)
            assert (ours.get(key), key in ours) == (wanted.get(key), key in wanted)
        assert dict(ours) == wanted
        assert len(ours) == len(wanted)


def test_a_key_that_was_never_set_is_refused() -> None:
    ours = Spilling[tuple[bytes, bytes], bool](tuple[bytes, bytes], bool)
    for number in range(9):
        ours[b"one", bytes(number)] = True
    assert set(ours) == {(b"one", bytes(number)) for number in range(9)}
    for wrong in (b"one", b"x"), (b"two", b""):
        with pytest.raises(KeyError):
            ours[wrong]
        with pytest.raises(KeyError):
            del ours[wrong]


@pytest.mark.parametrize(
    "name",
    ["reorg_after_indexing", "refund_undone", "replaced_transaction", "used_versus_cancelled"],
)
def test_a_chain_and_its_invariants_do_the_same_with_next_to_nothing_in_memory(name: str) -> None:
    spilled = World(seed=3).play(name)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("x402sim.spilling.KEPT", 1 << 20)
        assert World(seed=3).play(name).sha256 == spilled.sha256
    assert spilled.outcome == "passed"


def test_no_block_is_held_that_was_mined_long_ago_and_a_deep_reorganisation_undoes_it_all() -> None:
    async def story(world: LiveWorld) -> None:
        alice = await world.payer("alice", balance="1.00")
        before = _blocks()
        for _ in range(30):
            await alice.buy()
        assert _blocks() - before < 15
        await world.reorg(30)
        await world.reorg(31)

    run = World(invariants=False).play(story)
    assert run.outcome == "passed", run.reason
    undone = [each.tx_hash for each in run.journal.events(TransactionUndone)]
    mined = [
        each.tx_hash for each in run.journal.events(TransactionMined)
    ]  # the last new block has all
    assert undone == [*reversed(mined[1:31]), *mined[31:61], mined[0]]


def _blocks() -> int:
    gc.collect()
    return sum(type(each) is Block for each in gc.get_objects())
