from hypothesis import given, strategies as st

from x402sim.rng import Rng

seeds = st.integers(-(2**64), 2**64)
names = st.text(max_size=20)


def draws(seed: int | None, name: str) -> list[float]:
    stream = Rng(seed).stream(name)
    return [stream.random() for _ in range(5)]


@given(seed=seeds, other=seeds, name=names, another=names)
def test_the_same_seed_and_name_give_the_same_stream_and_no_others_do(seed, other, name, another):
    for key in (seed, name), (seed, another), (other, name), (other, another):
        is_same = key == (seed, name)
        assert (draws(*key) == draws(seed, name)) == is_same
        assert (Rng(key[0]).secret(key[1]) == Rng(seed).secret(name)) == is_same


def test_without_a_seed_every_rng_is_another_and_agrees_with_itself():
    assert Rng().seed is None
    assert draws(None, "alice") != draws(None, "alice")
    assert Rng().secret("mac") != Rng().secret("mac")
    rng = Rng()
    assert rng.secret("mac") == rng.secret("mac")
