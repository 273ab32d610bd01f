"""Comparisons: paired differences are right, and their intervals cover what they say."""

import numpy as np
import pandas as pd
import pytest

from x402sim import compare, summarize

STUDIES = 300


def one(table: pd.DataFrame) -> dict[str, object]:
    (row,) = table.to_dict("records")
    return row


def covered(table: pd.DataFrame, truth: float) -> float:
    return float(((table["low"] <= truth) & (table["high"] >= truth)).mean())


def cells() -> pd.DataFrame:
    return pd.DataFrame(
        [
            {"policy": policy, "lost": lost, "seed": seed, "x": n * seed + 10 * lost}
            for n, policy in enumerate("abc")
            for lost in (0.1, 0.3)
            for seed in range(4)
        ]
    )


# --- what it computes --------------------------------------------------------------------


def test_a_difference_by_hand() -> None:
    """Five pairs with the differences 1, 2, 3, 4 and 5: 3 ± 2.776 · 1.581 / √5."""
    frame = pd.DataFrame({
        "policy": ["a"] * 5 + ["b"] * 5, "seed": [*range(5)] * 2,
        "x": [11, 22, 33, 44, 55, 10, 20, 30, 40, 50],
    })  # fmt: skip
    row = one(compare(frame, of="policy", against="b"))
    assert (row["policy"], row["against"], row["result"], row["seeds"]) == ("a", "b", "x", 5)
    assert row["unpaired"] == 0
    assert (row["difference"], row["std"]) == pytest.approx((3, 2.5**0.5))
    assert (row["low"], row["high"]) == pytest.approx((3 - 1.96324, 3 + 1.96324), abs=1e-4)
    assert row["correlation"] == pytest.approx(1)
    other = one(compare(frame, of="policy", against="a"))
    assert (other["difference"], other["low"]) == pytest.approx((-3, -row["high"]))


def test_each_group_value_and_result_is_a_row() -> None:
    table = compare(cells().assign(y=1.5), of="policy", against="a", by="lost")
    keys = table[["lost", "policy", "result"]].values.tolist()
    assert keys == [[lost, p, r] for lost in (0.1, 0.3) for p in "bc" for r in "xy"]
    assert table["difference"].tolist() == pytest.approx([1.5, 0, 3, 0] * 2)
    equal = table[table["result"] == "y"]
    assert (equal[["low", "high"]] == 0).all(axis=None), "it does not depend on luck"


def test_pairs_are_made_of_what_both_have() -> None:
    frame = pd.DataFrame({
        "p": ["a"] * 4 + ["b"] * 4, "seed": [0, 1, 2, 3, 1, 2, 3, 4],
        "x": [9.0, 2, 3, None, 1, 1, 1, 7], "error": [None] * 3 + ["no"] + [None] * 4,
    })  # fmt: skip
    row = one(compare(frame, of="p", against="b"))
    assert (row["seeds"], row["unpaired"], row["difference"]) == (2, 3, 1.5)
    alone = frame.assign(seed=range(8))
    with pytest.raises(ValueError, match=r"no seed was played with both .*common_random_numbers"):
        compare(alone, of="p", against="b")
    for wrong, says in (
        ({"of": "q", "against": "b"}, "unknown column 'q'"),
        ({"of": "p", "against": "c"}, "against: unknown p 'c'. Possible: a, b"),
        ({"of": "p", "against": "b", "values": "y"}, "unknown column 'y'"),
        ({"of": "p", "against": "b", "confidence": 95}, "between 0 and 1"),
    ):
        with pytest.raises(ValueError, match=says):
            compare(frame, **wrong)


def test_one_pair_has_a_difference_and_no_interval() -> None:
    frame = pd.DataFrame({"p": ["a", "b"], "seed": [0, 0], "x": [2.0, 1.0]})
    row = one(compare(frame, of="p", against="b"))
    assert (row["difference"], row["seeds"]) == (1, 1)
    assert np.isnan([row["low"], row["high"], row["std"]]).all()


# --- how often it is right ---------------------------------------------------------------


@pytest.mark.thorough
def test_an_interval_of_paired_means_covers_as_often_as_it_says_and_is_narrow() -> None:
    """12 seeds with much luck in common: the difference is known ten times better than a mean."""
    draw = np.random.default_rng(5)
    luck = draw.normal(size=(STUDIES, 12)) * 10
    rows = [
        pd.DataFrame({
            "study": np.repeat(range(STUDIES), 12), "seed": np.tile(range(12), STUDIES), "p": p,
            "x": (luck + shift + draw.normal(size=luck.shape)).ravel(),
        })
        for p, shift in (("a", 0.5), ("b", 0.0))
    ]  # fmt: skip
    frame = pd.concat(rows)
    table = compare(frame, of="p", against="b", by="study", values="x")
    assert covered(table, 0.5) == pytest.approx(0.95, abs=0.03)
    assert (table["correlation"] > 0.9).mean() > 0.95
    means = summarize(frame[frame["p"] == "a"], by="study", values="x")
    width = [(each["high"] - each["low"]).mean() for each in (table, means)]
    assert width[0] < width[1] / 5


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("p", "q", "alike", "seeds"),
    [(0.3, 0.3, 0.8, 10), (0.1, 0.02, 0.8, 50), (0.02, 0.0, 0.8, 50), (0.9, 0.5, 0.0, 20)],
)
def test_an_interval_of_paired_shares_covers_as_often_as_it_says(
    p: float, q: float, alike: float, seeds: int
) -> None:
    """`alike`: how often both meet the same luck."""
    draw = np.random.default_rng(int(1000 * p + 100 * q + 10 * alike + seeds))
    size = STUDIES, seeds
    luck = draw.random(size)
    other = np.where(draw.random(size) < alike, luck, draw.random(size))
    frame = pd.concat(
        pd.DataFrame({
            "study": np.repeat(range(STUDIES), seeds), "seed": np.tile(range(seeds), STUDIES),
            "p": name, "lost": (drawn < share).ravel(),
        })
        for name, drawn, share in (("a", luck, p), ("b", other, q))
    )  # fmt: skip
    table = compare(frame, of="p", against="b", by="study", values="lost")
    assert 0.92 <= covered(table, p - q) <= 1
    assert ((table["high"] - table["low"]) > 0.01).all(), "it never vanishes"


def test_where_nothing_was_lost_with_both_the_interval_says_what_may_be() -> None:
    frame = pd.DataFrame({"p": ["a"] * 20 + ["b"] * 20, "seed": [*range(20)] * 2, "lost": False})
    row = one(compare(frame, of="p", against="b"))
    assert row["difference"] == 0
    assert (row["low"], row["high"]) == pytest.approx((-0.1611, 0.1611), abs=1e-4)


# --- seeds or rows -----------------------------------------------------------------------


@pytest.mark.thorough
def test_the_caller_says_what_is_independent() -> None:
    """0 of 1,000 orders of 10 seeds: as 10 equal ones, or as 1,000."""
    frame = pd.DataFrame({"n": 1, "seed": [*range(10)] * 100, "lost": False, "x": range(1000)})
    by_seed, by_row = (summarize(frame, by="n", unit=unit) for unit in ("seed", "row"))
    high = [table.set_index("result").loc["lost", "high"] for table in (by_seed, by_row)]
    assert high == pytest.approx([0.2775, 0.00383], abs=1e-4)
    assert by_seed["unit"].tolist() == ["seed"] * 2
    assert by_row["independent"].tolist() == [1000, 1000]
    assert by_seed["independent"].tolist() == [10, 10]
    assert summarize(frame, by="n")["unit"].tolist() == ["seed"] * 2, "the default"
    with pytest.raises(ValueError, match="unit: unknown unit 'rows'; did you mean 'row'"):
        summarize(frame, by="n", unit="rows")  # type: ignore[arg-type]
    one_seed = summarize(frame.assign(seed=0), by="n", unit="row").set_index("result")
    assert one_seed.loc["lost", "high"] == pytest.approx(0.00383, abs=1e-4), "one is enough"
    assert one_seed.loc["x", ["low", "high"]].between(470, 530).all()


@pytest.mark.thorough
@pytest.mark.parametrize("result", ["lost", "late_s"])
@pytest.mark.parametrize("is_alike", [True, False])
def test_an_interval_covers_if_the_unit_is_the_right_one(result: str, *, is_alike: bool) -> None:
    """By row it covers independent rows as often, and dependent ones far too seldom."""
    draw = np.random.default_rng(8)
    shape = STUDIES // 2, 30, 10
    drawn = draw.random(shape)
    drawn = np.repeat(drawn[:, :, :1], 10, axis=2) if is_alike else drawn
    index = np.indices(shape).reshape(3, -1)
    frame = pd.DataFrame({"study": index[0], "seed": index[1], "u": drawn.ravel()})
    frame = frame.assign(lost=frame["u"] < 0.3, late_s=-np.log(frame["u"])).drop(columns="u")
    truth = {"lost": 0.3, "late_s": 1.0}[result]
    by_seed, by_row = (
        summarize(frame, by="study", values=result, unit=unit) for unit in ("seed", "row")
    )
    assert covered(by_seed, truth) == pytest.approx(0.95 if result == "lost" else 0.91, abs=0.07)
    if is_alike:
        assert covered(by_row, truth) < 0.6
    else:
        assert covered(by_row, truth) == pytest.approx(0.95, abs=0.05)


# --- any two cells -----------------------------------------------------------------------


def test_any_two_cells_are_compared() -> None:
    table = compare(cells(), of=["policy", "lost"], against=("b", 0.3))
    keys = table[["policy", "lost"]].values.tolist()
    assert keys == [["a", 0.1], ["a", 0.3], ["b", 0.1], ["c", 0.1], ["c", 0.3]]
    assert table["against"].tolist() == [("b", 0.3)] * 5
    row = one(table[(table["policy"] == "a") & (table["lost"] == 0.1)])
    assert row["difference"] == pytest.approx(-1.5 - 2)
    assert (row["seeds"], row["std"]) == (4, pytest.approx(np.std([0, 1, 2, 3], ddof=1)))
    alone = cells().query("policy == 'a' and lost == 0.1 or policy == 'b' and lost == 0.3")
    same = compare(alone, of=["policy", "lost"], against=("b", 0.3))
    pd.testing.assert_frame_equal(same, table[:1])
    for against in "b", ("b",), ("b", 0.3, 1):
        with pytest.raises(ValueError, match="a tuple with a value of policy, lost is needed"):
            compare(cells(), of=["policy", "lost"], against=against)
    with pytest.raises(ValueError, match="against: unknown policy and lost"):
        compare(cells(), of=["policy", "lost"], against=("d", 0.3))


def test_without_a_value_to_compare_with_all_pairs_are_compared() -> None:
    table = compare(cells(), of="policy", by="lost")
    pairs = table[["lost", "policy", "against"]].values.tolist()
    assert pairs == [
        [x, *pair] for x in (0.1, 0.3) for pair in (["b", "a"], ["c", "a"], ["c", "b"])
    ]
    assert table["difference"].tolist() == pytest.approx([1.5, 3, 1.5] * 2)
    one_against = compare(cells(), of="policy", against="a", by="lost")
    assert table[table["against"] == "a"].reset_index(drop=True).equals(one_against)
    assert len(compare(cells(), of=["policy", "lost"])) == 15
    with pytest.raises(ValueError, match="of: the parameter"):
        compare(cells(), of=[])
