"""Sweeps: the same results whoever plays them, and nothing lost to failures and interruptions."""

import functools
import re
from collections.abc import Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from tests import fork_server
from tests.experiments import studies
from x402sim import summarize, sweep
from x402sim.experiments import drive
from x402sim.experiments.drive import Batches, Task
from x402sim.experiments.grid import cells
from x402sim.experiments.sweep import SweepFailed
from x402sim.experiments.tables import Work

RATES = {"rate": [1.0, 4.0]}


def calls(folder: Path) -> set[tuple[int, int]]:
    """Return the points that were played: n and seed. Each must have been played once."""
    found = [file.name.split("-")[:2] for file in folder.iterdir()]
    points = [(int(n), int(seed)) for n, seed in found]
    assert len(set(points)) == len(points)
    return set(points)


@pytest.fixture(scope="module")
def serial() -> pd.DataFrame:
    return sweep(studies.wait, RATES, seeds=range(6), workers=0)


# --- the frame ---------------------------------------------------------------------------


def test_a_row_a_point_in_the_order_of_cells_and_seeds(serial: pd.DataFrame) -> None:
    assert list(serial.columns) == ["rate", "seed", "latency_s", "requests"]
    points = [(rate, seed) for rate in (1.0, 4.0) for seed in range(6)]
    assert list(zip(serial["rate"], serial["seed"], strict=True)) == points
    assert serial["latency_s"].tolist() == [studies.wait(*point)["latency_s"] for point in points]
    assert serial["latency_s"].nunique() == 12


def test_cells_have_common_random_numbers_or_seeds_of_their_own(serial: pd.DataFrame) -> None:
    """The latencies of both cells are the same draws, only four times as large."""
    slow, fast = (serial.loc[serial["rate"] == rate, "latency_s"].to_numpy() for rate in (1, 4))
    assert slow == pytest.approx(4 * fast, abs=0.01)
    grid = {"n": [1, 2]}
    frame = sweep(studies.flawed, grid, range(4), workers=0, common_random_numbers=False)
    assert frame["seed"].nunique() == 8
    alone = sweep(studies.flawed, {"n": [2]}, range(4), workers=0, common_random_numbers=False)
    assert alone["seed"].tolist() == frame.loc[frame["n"] == 2, "seed"].tolist()


def test_a_number_of_seeds_is_a_range() -> None:
    """As on the command line, where `--seeds 3` plays 0, 1 and 2."""
    frame = sweep(studies.flawed, {"n": [1]}, seeds=3, workers=0)
    assert frame["seed"].tolist() == [0, 1, 2]
    for wrong in (0, -1, True, 2.0, "3", [1.5], [], None):
        with pytest.raises(ValueError, match="seeds: a number of seeds from 1 on, or whole"):
            sweep(studies.flawed, {"n": [1]}, seeds=wrong, workers=0)  # type: ignore[arg-type]


def test_an_experiment_may_return_a_frame() -> None:
    frame = sweep(studies.as_frame, {"rate": [1, 2]}, seeds=[3, 0, 1], workers=0)
    assert frame["seed"].tolist() == [3, 3, 3, 1] * 2
    assert frame["x"].tolist() == [0, 1, 2, 0, 0, 2, 4, 0]


def test_objects_in_the_grid_need_a_label_that_lasts() -> None:
    named = cells({"policy": {"naive": object(), "careful": object()}, "n": [1]})
    assert [cell.labels for cell in named] == [{"policy": p, "n": 1} for p in ("naive", "careful")]
    with pytest.raises(ValueError, match=r"policy: <object object .* has no lasting label; give"):
        cells({"policy": [object()]})
    with pytest.raises(ValueError, match="two cells of the grid have the same labels"):
        cells({"n": [1, 1]})
    for mixed in ["a", None, 3], [True, 1], {"none": None, 3: object()}:
        with pytest.raises(ValueError, match="of several types, and a column has one: give texts"):
            cells({"n": mixed})
    assert len(cells({"n": [None, 1, 2.5]})) == 3
    with pytest.raises(ValueError, match="a list of values is needed, not 'abc'"):
        cells({"n": "abc"})
    with pytest.raises(ValueError, match="'seed': it is a column of every sweep"):
        cells({"seed": [1]})


@pytest.mark.parametrize(
    ("returned", "says"),
    [(None, "it returned None"), ({"n": 1}, "'n', which is a column"), ({"x": [1]}, "a list as 'x'")],
)  # fmt: skip
def test_what_cannot_be_kept_is_an_error(returned: Any, says: str) -> None:
    def wrong(n: int, seed: int) -> Any:
        return returned

    with pytest.raises(SweepFailed, match=says):
        sweep(wrong, {"n": [1]}, [0], workers=0)


def test_an_executor_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="workers: a whole number from 1 on is needed, not 0"):
        sweep(studies.wait, RATES, workers=0, executor=ThreadPoolExecutor(1))
    with pytest.raises(TypeError, match=r"a concurrent.futures.Executor or a distributed.Client"):
        sweep(studies.wait, RATES, executor="somewhere")


async def story(n: int, seed: int) -> None:
    """A story is not an experiment."""


KINDS: dict[str, Any] = {
    "partial": functools.partial(studies.tripled, k=3),
    "partial by place": functools.partial(studies.tripled, 3),
    "partial of a partial": functools.partial(functools.partial(studies.tripled, k=2), k=3),
    "lambda": lambda n, seed: 3 * n + seed,
}


@pytest.fixture(scope="module")
def another() -> Iterator[Executor]:
    """A process that plays what several tests give it: to start one takes most of a second."""
    with ProcessPoolExecutor(1, get_context("spawn")) as process:
        yield process


@pytest.mark.parametrize("kind", KINDS)
def test_an_experiment_is_a_function_or_a_partial_of_one(
    another: Executor, tmp_path: Path, kind: str
) -> None:
    """In this process and in another, and resumed from a folder."""
    for where in ({"workers": 0}, {"executor": another}):
        frame = sweep(KINDS[kind], {"n": [1, 2]}, range(2), **where)
        assert frame["value"].tolist() == [3, 4, 6, 7], where
    for _ in range(2):
        frame = sweep(KINDS[kind], {"n": [1]}, range(2), workers=0, out=tmp_path)
        assert frame["value"].tolist() == [3, 4]
    with pytest.raises(ValueError, match="the experiment was"):
        sweep(studies.flawed, {"n": [1]}, range(2), workers=0, out=tmp_path)


class Study:
    """Its method and its object are no experiments."""

    def __call__(self, n: int, seed: int) -> int:
        return n


@pytest.mark.parametrize(
    ("experiment", "says"),
    [
        (Study, "Study: an experiment is a plain function"),
        (Study(), "Study: an experiment is a plain function"),
        (Study().__call__, "__call__: an experiment is a plain function"),
        (story, "story: an experiment is a plain function"),
        (functools.partial(story, 1), "story: an experiment is a plain function"),
        (functools.partial(studies.tripled, m=1), "got an unexpected keyword argument 'm'"),
        (functools.partial(studies.tripled), "missing a required argument: 'k'"),
        (5, "int: an experiment is a plain function"),
        (studies.wait, "unknown parameter 'n'. Possible: rate"),
    ],
)
def test_what_cannot_be_an_experiment_is_refused_with_the_reason(
    experiment: Any, says: str
) -> None:
    with pytest.raises(TypeError, match=says):
        sweep(experiment, {"n": [1]}, range(2), workers=0)


# --- whoever plays it, in whatever order -------------------------------------------------


@pytest.mark.thorough
def test_our_processes_give_the_same_frame(serial: pd.DataFrame) -> None:
    pd.testing.assert_frame_equal(sweep(studies.wait, RATES, range(6), workers=2), serial)


def test_threads_give_the_same_with_shipped_scenarios() -> None:
    grid = {"scenario": ["replay", "lost_answer"]}
    with ThreadPoolExecutor(4) as threads:
        frame = sweep(studies.shipped, grid, range(2), threads)
        assert threads.submit(int, "7").result() == 7, "it is still open"
    pd.testing.assert_frame_equal(frame, sweep(studies.shipped, grid, range(2), workers=0))


def test_the_order_does_not_matter(serial: pd.DataFrame, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many small tasks, of which the one that was submitted last is always done first."""
    order: list[tuple[str, tuple[int, ...]]] = []

    class LastFirst(Executor):
        def submit(self, function: Any, /, *args: Any) -> Any:  # type: ignore[override]
            future: Future[Any] = Future()
            future.play = lambda: (order.append((args[1].key, args[2])), function(*args))[1]  # type: ignore[attr-defined]
            return future

    def wait(running: dict[Any, Task], **_: Any) -> Any:
        last = list(running)[-1]
        last.set_result(last.play())
        return {last}, set()

    monkeypatch.setattr(drive, "wait", wait)
    pd.testing.assert_frame_equal(
        sweep(studies.wait, RATES, range(6), LastFirst(), workers=4), serial
    )
    assert order[0] == ('{"rate":4.0}', (1,))
    assert order[-1] == ('{"rate":1.0}', (0,))


@pytest.mark.thorough
def test_a_script_without_a_guard_is_told_so(tmp_path: Path) -> None:
    file = tmp_path / "study.py"
    file.write_text(
        "from x402sim import sweep\n"
        "def experiment(n, seed): return n\n"
        "sweep(experiment, {'n': [1]}, seeds=range(2), workers=1)\n"
    )
    done = fork_server.run(str(file), cwd=tmp_path)
    assert done.returncode == 1
    assert "put `if __name__ == '__main__':` around the sweep" in done.stderr


# --- tasks -------------------------------------------------------------------------------


def test_a_task_that_was_lost_is_played_alone_and_point_by_point() -> None:
    cell = Work("", {}, b"", "")
    queue = Batches([(cell, range(3))], workers=2)
    queue.split(Task(cell, (7, 8)))
    assert queue.next(is_idle=False) is None
    assert queue.next(is_idle=True) == Task(cell, (7,), is_alone=True)


# --- failures ----------------------------------------------------------------------------


def test_a_failure_loses_nothing_else_and_is_told_with_the_line_that_replays_it() -> None:
    with pytest.raises(SweepFailed) as caught:
        sweep(studies.flawed, {"n": [1, 2]}, range(10), workers=0)
    text, frame = str(caught.value), caught.value.frame
    assert text.startswith("2 points failed.")
    assert re.search(r"studies.py:\d+ in flawed: raise KeyError", text)
    assert frame["value"].notna().sum() == 18
    failed = frame[frame["error"].notna()]
    assert list(zip(failed["n"], failed["seed"], strict=True)) == [(2, 3), (2, 5)]
    assert failed["error"].str.fullmatch(r"KeyError: 'seed \d' \(studies.py:\d+\)").all()
    line = failed["replay"].iloc[0]
    assert line == "from tests.experiments.studies import flawed; flawed(n=2, seed=3)"
    with pytest.raises(KeyError, match="seed 3"):
        exec(line, {})
    partial = functools.partial(studies.flawed, m=1)
    (line,) = studies.recorded(partial, {"n": [2]}, [3], workers=0)["replay"]
    assert line == "from tests.experiments.studies import flawed; flawed(m=1, n=2, seed=3)"


def test_a_failed_story_fails_its_point() -> None:
    for experiment, says in (
        (studies.failing_story, r"KeyError: 'nothing'.*\(studies.py:\d+\)$"),
        (studies.free_money, r"the story 'story' failed: 1 of 1 checks .*\(4.1/receipt\)"),
    ):
        frame = studies.recorded(experiment, {"n": [1]}, range(2), workers=0)
        assert frame["error"].str.contains(says).all(), frame["error"].iloc[0]


@pytest.mark.thorough
def test_a_point_that_kills_its_process_loses_nothing_else() -> None:
    frame = studies.recorded(studies.deadly, {"n": [1, 2]}, range(8), workers=2)
    failed = frame[frame["error"].notna()]
    assert list(zip(failed["n"], failed["seed"], strict=True)) == [(2, 3)]
    assert failed["error"].str.contains("BrokenProcessPool").all()
    others = frame[frame["error"].isna()]
    assert (others["value"] == others["n"] + others["seed"]).all()


# --- kept in a folder --------------------------------------------------------------------


def test_a_sweep_resumes_with_what_is_missing(tmp_path: Path) -> None:
    made, out = tmp_path / "made", tmp_path / "out"
    made.mkdir()
    grid: dict[str, Any] = {"folder": [str(made)], "n": [1, 2]}
    part = sweep(studies.counted, grid, range(3), workers=0, out=out)
    assert calls(made) == {(n, seed) for n in (1, 2) for seed in range(3)}
    whole = sweep(studies.counted, grid | {"n": [1, 2, 3]}, range(5), workers=0, out=out)
    assert calls(made) == {(n, seed) for n in (1, 2, 3) for seed in range(5)}
    assert whole["value"].tolist() == [100 * n + seed for n in (1, 2, 3) for seed in range(5)]
    pd.testing.assert_frame_equal(sweep(studies.counted, grid, range(3), workers=0, out=out), part)


def test_what_failed_is_played_again(tmp_path: Path) -> None:
    first, again = (
        studies.recorded(studies.flawed, {"n": [2]}, range(6), workers=0, out=tmp_path)
        for _ in range(2)
    )
    pd.testing.assert_frame_equal(first, again)
    files = [pd.read_parquet(file)["seed"].tolist() for file in tmp_path.glob("points/*.parquet")]
    assert [3] in files, "played again, alone"


@pytest.mark.thorough
@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="needs Linux's list of threads")
def test_reading_a_point_leaves_no_thread_that_could_abort_the_end_of_python(
    tmp_path: Path,
) -> None:
    sweep(studies.wait, {"rate": [1.0]}, range(2), workers=0, out=tmp_path / "out")
    (tmp_path / "reads.py").write_text(
        "import os\nfrom pathlib import Path\nfrom x402sim.experiments.tables import decoded\n"
        "file = sorted(Path('out', 'points').iterdir())[0]\nbefore = os.listdir('/proc/self/task')\n"
        "print(decoded(file.read_bytes()).seeds[0], before == os.listdir('/proc/self/task'))\n"
    )
    done = fork_server.run("reads.py", cwd=tmp_path)
    assert done.stdout == "0 True\n", done.stderr


def test_a_folder_has_a_table_of_all_points(tmp_path: Path) -> None:
    for n in 4, 2:
        table = sweep(studies.flawed, {"n": [n], "m": [0]}, [7], workers=0, out=tmp_path)
    assert list(summarize(table, by="n")["result"]) == ["value"], "m is no result"
    rows = pd.read_parquet(tmp_path / "results.parquet").drop(columns=["error", "replay"])
    assert rows.to_dict("records") == [
        {"n": 2, "m": 0, "seed": 7, "value": 3.5}, {"n": 4, "m": 0, "seed": 7, "value": 1.75}
    ]  # fmt: skip
    names = {file.name for file in tmp_path.iterdir()}  # and `sources`, if pytest-xdist runs this
    assert names >= {"bundle.json", "points", "results.parquet"}


def test_results_of_other_parameters_or_another_experiment_are_not_mixed(tmp_path: Path) -> None:
    sweep(studies.flawed, {"n": [1]}, [0], workers=0, out=tmp_path)
    with pytest.raises(ValueError, match=r"the list of parameters was n, is m, n\): give fresh"):
        sweep(studies.flawed, {"n": [1], "m": [2]}, [0], workers=0, out=tmp_path)
    with pytest.raises(ValueError, match="the experiment was flawed, is deadly"):
        sweep(studies.deadly, {"n": [1]}, [0], workers=0, out=tmp_path)
    broken = tmp_path / "points" / "broken.parquet"
    broken.write_bytes(b"no table")
    with pytest.raises(ValueError, match=r"broken.parquet: this is not a Parquet file"):
        sweep(studies.flawed, {"n": [1]}, [0], workers=0, out=tmp_path)
