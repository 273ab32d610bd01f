"""What the results of a sweep depend on: each change is refused by name, and nothing else is."""

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet as pq
import pytest

from tests.experiments.test_sweep import calls
from x402sim import sweep
from x402sim.journal import BUNDLE
from x402sim.report.bundle import is_library

ROOT = Path(__file__).parents[2]
GUIDE = ROOT / "x402sim" / "guide" / "experiments.md"


@pytest.fixture(autouse=True)
def nothing_else_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a sweep carry what its experiment names: not each of four hundred files of tests, too."""
    monkeypatch.setattr("x402sim.report.bundle._loaded", dict)


def played(namespace: dict[str, Any], out: Path, **options: Any) -> list[Any]:
    """Sweep the `experiment` of a namespace over two seeds; return its values."""
    grid = namespace.get("GRID", {"n": [1]})
    frame = sweep(namespace["experiment"], grid, range(2), workers=0, out=out, **options)
    return list(frame["value"])


def ran(source: str) -> dict[str, Any]:
    """Return the names of a program that was run as a notebook's cell is."""
    namespace: dict[str, Any] = {"__name__": "__main__", "In": ["", source]}
    exec(source, namespace)
    return namespace


# --- a change is refused by its name -----------------------------------------------------

BASE = "def experiment(n, seed): return {0}\n"
IN_SESSION = [
    ("def experiment(n, seed): return n in {1, 3}", "the code of experiment has changed"),
    ("K = 1\ndef experiment(n, seed): return K", "the value K"),
    ("def experiment(n, seed, m=1): return m", "the code of experiment has changed"),
    ("def make(k):\n def experiment(n, seed): return k\n return experiment\nexperiment = make(1)",
     "the variable k around experiment has changed"),
    ("def f(): return 1\ndef experiment(n, seed): return f()", "the function f"),
    ("K = 1\ndef f(): return K\ndef experiment(n, seed): return f()", "the value K"),
    ("K = 1\ndef experiment(n, seed):\n def inner(): return K\n return inner()", "the value K"),
    ("class A:\n x = 1\ndef experiment(n, seed): return A.x", "the class A"),
    ("class B:\n def f(self): return 1\nclass A(B): pass\na = A()\n"
     "def experiment(n, seed): return a.f()", "the class B"),
    ("K = []\nK.append(1)\ndef experiment(n, seed): return K[0]", "the value K"),
    ("experiment = lambda n, seed: 1", "the code of <lambda> has changed"),
    ("K = 1\nexperiment = lambda n, seed: [K for _ in range(n)][0]", "the value K"),
    ("K = [1]\ndef f(): K.append(0)\ndef experiment(n, seed): return K[0]", "the value K"),
    ("K = {}\nK['a'] = 1\ndef experiment(n, seed): return K['a']", "the value K"),
    ("K = 1\nclass A:\n def f(self): return K\na = A()\ndef experiment(n, seed): return a.f()",
     "the value K"),
    ("import functools\ndef times(k):\n def around(f):\n  @functools.wraps(f)\n"
     "  def call(**a): return k * f(**a)\n  return call\n return around\n"
     "@times(1)\ndef experiment(n, seed): return n", "the code of experiment"),
    ("from functools import partial\ndef f(m, n, seed): return m\nexperiment = partial(f, 1)",
     "the arguments of the partial f"),
    ("import numpy as np\nGRID = {'n': {'a': np.arange(2000) // 1999 * 1}}\n"
     "def experiment(n, seed): return int(n[-1])", "the value of n='a' of the grid has changed"),
    ("GRID = {'n': {'a': [1]}}\ndef experiment(n, seed): return n[0]",
     "the value of n='a' of the grid has changed"),
    ("K = 1\ndef f(): return K\nGRID = {'n': {'a': f}}\ndef experiment(n, seed): return n()",
     "the value K"),
]  # fmt: skip
"""Programs, and what is said if their 1 becomes a 2."""
NAMED, UNNAMED = "K = 1\ndef experiment(n, seed): return K", "def experiment(n, seed): return n"
CHANGES = [
    *((text, text.replace("1", "2"), says) for text, says in IN_SESSION),
    (NAMED, UNNAMED, "the value K in this session is not used any more"),
    (UNNAMED, NAMED, "the value K in this session is used now, and was not"),
]


@pytest.mark.parametrize(("before", "after", "says"), CHANGES)
def test_a_change_of_what_counts_is_refused_by_name(
    tmp_path: Path, before: str, after: str, says: str
) -> None:
    old = played(ran(before), tmp_path)
    assert played(ran(f"# a comment\n\n{before}"), tmp_path) == old, "that does not count"
    with pytest.raises(ValueError, match=re.escape(says)):
        played(ran(after), tmp_path)
    assert played(ran(before), tmp_path) == old, "the refusal changes nothing"


def test_names_that_are_not_used_do_not_count(tmp_path: Path) -> None:
    source = "K = 1\nL = 2\nclass O: K = 3\ndef unused(): return L\n" + BASE.format("O.K")
    first = played(ran(source), tmp_path)
    later = source.replace("K = 1", "K = 9").replace("L = 2", "L = 9; import wave")
    assert played(ran(later), tmp_path) == first


def test_more_labels_and_seeds_may_be_added(tmp_path: Path) -> None:
    source = "K = 1\ndef f(): return K\ndef g(): return 2\n" + BASE.format("n()")
    played(ran(source + "GRID = {'n': {'g': g}}"), tmp_path)
    assert played(ran(source + "GRID = {'n': {'g': g, 'f': f}}"), tmp_path) == [2, 2, 1, 1]
    with pytest.raises(ValueError, match="the value K in this session has changed"):
        played(ran(source.replace("K = 1", "K = 3") + "GRID = {'n': {'f': f}}"), tmp_path)
    assert played(ran(source.replace("K = 1", "K = 3") + "GRID = {'n': {'g': g}}"), tmp_path)


# --- files -------------------------------------------------------------------------------

STUDY = """
import helpers
from shop.prices import price
from x402sim import sweep

def experiment(n, seed):
    from later import shift
    return helpers.FACTOR * n + price() + shift()

if __name__ == "__main__":
    import sys
    print(sweep(experiment, {"n": [1]}, range(2), workers=0, out=sys.argv[1])["value"].tolist())
"""
FILES = {
    "study.py": STUDY,
    "helpers.py": "FACTOR = 10\n",
    "shop/__init__.py": "",
    "shop/prices.py": "from .tax import TAX\ndef price(): return 1 + TAX\n",
    "shop/tax.py": "TAX = 2\n",
    "later.py": "def shift(): return 100\n",
}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        file = tmp_path / "project" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return tmp_path / "project"


def started(*arguments: object, **environment: str) -> "subprocess.CompletedProcess[str]":
    words, own = [sys.executable, *map(str, arguments)], {"PYTHONDONTWRITEBYTECODE": "1"}
    env = os.environ | own | environment
    return subprocess.run(words, capture_output=True, text=True, timeout=100, env=env)


CHANGED_FILES = [
    ("helpers.py", "10", "11", "the file of helpers has changed"),
    ("shop/prices.py", "1 +", "5 +", "the file of shop.prices has changed"),
    ("shop/tax.py", "2", "3", "the file of shop.tax has changed"),
    ("later.py", "100", "200", "the file of later has changed"),
]


@pytest.mark.thorough
def test_a_file_of_the_project_that_is_imported_counts(project: Path) -> None:
    """All are changed and changed back in turn; a comment in each does not count."""
    out = project / "out"
    first = started(project / "study.py", out)
    assert first.stdout == "[113, 113]\n", first.stderr
    for name in FILES:
        file = project / name
        file.write_text(f"# a comment\n{file.read_text()}")
    for name, old, new, says in CHANGED_FILES:
        file = project / name
        before = file.read_text()
        file.write_text(before.replace(old, new))
        refused = started(project / "study.py", out)
        assert "ValueError" in refused.stderr
        assert says in refused.stderr
        file.write_text(before)
    assert started(project / "study.py", out).stdout == "[113, 113]\n"


@pytest.mark.thorough
def test_the_command_and_a_program_share_a_folder(project: Path) -> None:
    out, points = project / "out", ("--set", "n=1", "--seeds", "2", "--workers", "0")
    command = "-m", "x402sim", "sweep", f"{project / 'study.py'}:experiment", *points
    command += "--out", str(out)
    assert started(*command, PYTHONHASHSEED="7").returncode == 0
    assert started(project / "study.py", out).stdout == "[113, 113]\n"
    (project / "helpers.py").write_text("FACTOR = 11\n")
    refused = started(*command)
    assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)
    assert "the file of helpers has changed" in refused.stderr
    assert started(*command, "--fresh").returncode == 0
    assert started(project / "study.py", out).stdout == "[114, 114]\n"


def test_a_story_in_a_file_that_is_named_counts(tmp_path: Path) -> None:
    story = tmp_path / "flow.py"
    story.write_text("async def flow(world): await world.payer('a', balance='1.00')\n")
    source = f"from x402sim import World\nSTORY = '{story}:flow'\n" + BASE.format(
        "len(World(seed=seed).play(STORY).transfers)"
    )
    out = tmp_path / "out"
    played(ran(source), out)
    story.write_text(story.read_text().replace("1.00", "2.00"))
    with pytest.raises(ValueError, match=r"the file .*flow.py has changed"):
        played(ran(source), out)


# --- in another process ------------------------------------------------------------------

RESUMED = """
import sys
from tests.experiments import studies
from x402sim import sweep
PAUSES = {"quick": {0.02, 0.03}, "slow": {0.05}}
class Way:
    names = {"one", "two", "three"}
WAYS = {"a": Way(), "b": [Way, {"x", "y"}]}
def experiment(folder, n, way, seed):
    assert PAUSES and WAYS
    return studies.slow(folder, n, seed)
if __name__ == "__main__":
    grid = {"folder": [sys.argv[1]], "n": [1, 2], "way": {"a": WAYS["a"]}}
    sweep(experiment, grid, range(15), workers=0, out=sys.argv[2])
"""


@pytest.mark.thorough
def test_a_killed_study_is_resumed_in_another_process_with_another_hash_seed(
    tmp_path: Path,
) -> None:
    """What was kept is not played again, and all points are there."""
    made, out, file = tmp_path / "made", tmp_path / "out", tmp_path / "study.py"
    made.mkdir()
    file.write_text(RESUMED)
    here = {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, str(file), str(made), str(out)]
    process = subprocess.Popen(command, env=os.environ | here | {"PYTHONHASHSEED": "1"})
    while len(list(out.glob("points/*.parquet"))) < 2:
        assert process.poll() is None
        time.sleep(0.01)
    process.kill()
    process.wait()
    kept = sum(pq.read_metadata(each).num_rows for each in out.glob("points/*.parquet"))
    assert 0 < kept < 30
    for each in made.iterdir():
        each.unlink()
    done = started(file, made, out, **here, PYTHONHASHSEED="2")
    assert done.returncode == 0, done.stderr
    assert len(calls(made)) == 30 - kept
    rows = pd.concat(pd.read_parquet(each) for each in out.glob("points/*.parquet"))
    assert sorted(zip(rows["n"], rows["seed"], rows["value"], strict=True)) == [
        (n, seed, 100 * n + seed) for n in (1, 2) for seed in range(15)
    ]


# --- what is said ------------------------------------------------------------------------


def test_another_version_is_named(tmp_path: Path) -> None:
    namespace = ran(BASE.format("n"))
    played(namespace, tmp_path)
    manifest = tmp_path / BUNDLE
    whole = json.loads(manifest.read_text())
    assert whole["versions"].keys() >= {"Python", "x402sim", "numpy", "pandas"}
    for name in ("Python", "x402sim", "numpy"):
        versions = whole["versions"] | {name: "0.9"}
        manifest.write_text(json.dumps(whole | {"versions": versions}))
        with pytest.raises(ValueError, match=rf"{name} was 0.9, is \w"):
            played(namespace, tmp_path)
    manifest.write_text('{"experiment": "experiment", "source_sha256": "00", "x402sim": "0.1.0"}')
    with pytest.raises(ValueError, match=r"does not say what its results depend on .*fresh=True"):
        played(namespace, tmp_path)
    assert played(namespace, tmp_path, fresh=True) == [1, 1]


def test_what_cannot_be_compared_is_said(tmp_path: Path) -> None:
    source = "GRID = {'n': {'a': object()}}\n" + BASE.format("n is None")
    says = r"does not notice a change of .*: the value of n='a' of the grid \(it shows no content: <obj"
    for _ in range(2):
        with pytest.warns(UserWarning, match=says):
            assert played(ran(source), tmp_path) == [False, False]
    assert len(json.loads((tmp_path / BUNDLE).read_text())["unread"]) == 1
    namespace = ran(BASE.format("n"))
    del namespace["In"]
    with pytest.warns(UserWarning, match="what experiment uses: there is no text of it"):
        assert played(namespace, tmp_path / "typed") == [1, 1]


def test_fresh_deletes_what_sweeps_wrote_and_nothing_else(tmp_path: Path) -> None:
    experiment = ran(BASE.format("n"))["experiment"]
    sweep(experiment, {"n": [1]}, range(2), workers=0, out=tmp_path)
    (tmp_path / "notes.txt").write_text("mine")
    pd.DataFrame({"a": [1]}).to_parquet(tmp_path / "mine.parquet")
    sweep(experiment, {"n": [2]}, range(2), workers=0, out=tmp_path, fresh=True)
    assert {file.name for file in tmp_path.iterdir()} >= {"notes.txt", "mine.parquet", BUNDLE}
    assert pd.read_parquet(tmp_path / "results.parquet")["n"].tolist() == [2, 2]
    with pytest.raises(ValueError, match="fresh: it deletes the results in a folder; give `out`"):
        sweep(experiment, {"n": [1]}, range(2), workers=0, fresh=True)


def test_what_python_runs_at_its_start_is_nobody_s_study() -> None:
    """Debian keeps its own in /etc."""
    assert is_library("/etc/python3.13/sitecustomize.py", "sitecustomize")
    assert not is_library("/etc/python3.13/study.py", "study")
