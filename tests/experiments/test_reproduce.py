"""What is saved can be repeated by somebody else: in another folder, from the bundle alone."""

import json
import subprocess
import sys
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

from tests import fork_server
from tests.cli import runner
from tests.cli.runner import assert_misuse
from tests.report.stories import run as told
from x402sim import Run, World
from x402sim.journal import BUNDLE, Maker
from x402sim.report import bundle
from x402sim.report.bundle import frame_sha256, lines_sha256
from x402sim.report.frames import TABLES

UNDRAWN = """from x402sim.report import bundle
if bundle.awaited() is None:
    from x402sim.report import plots; plots.figures = lambda journal: {}
"""
"""How a program begins, so that its plots, which no test here looks at, are not drawn; a program
that is repeated draws none."""
HELPERS = "RATE = 0.5\n"
STUDY = """
import sys
import helpers
from pathlib import Path
from msgspec.structs import replace
from x402sim import Fault, Settings, World, sweep
from x402sim.policies import Forget, Reconcile, ServicePolicy
from x402sim.population import Buy, Poisson

LOST = Fault(victim="facilitator", does="lose answer", path="/settle", times=None)
POLICIES = {"reconcile": Reconcile(), "forget": Forget()}

def day(lost):
    async def payers(world):  # a closure, which has no name to import
        await world.fault(replace(LOST, probability=lost))
        await world.population(4, arrivals=Poisson(per_s=helpers.RATE), behaviour=Buy())
    return payers

def charged(lost, policy, seed):
    service = Settings(policy=ServicePolicy(lost_answer=policy))
    return World(seed=seed, service=service).play(day(lost)).orders["charged"].sum()

if __name__ == "__main__":
    out = Path(sys.argv[1])
    for seed in 1, 2:  # the second call is the one that is repeated
        World(seed=seed).play(day(0.5)).save(out / str(seed), bundle=True)
    for policy in POLICIES:  # two calls write to one folder
        grid = {"policy": {policy: POLICIES[policy]}, "lost": [0.0, 0.5]}
        sweep(charged, grid, range(2), workers=0, out=out / "swept")
"""


def python(*arguments: object, cwd: Path) -> "subprocess.CompletedProcess[str]":
    return fork_server.run(*map(str, arguments), cwd=cwd)


def reproduced(folder: Path, *options: object, code: int = 0) -> "subprocess.CompletedProcess[str]":
    """Repeat what is in a folder, in a process that is started elsewhere."""
    done = python("-m", "x402sim", "reproduce", folder, *options, cwd=Path("/"))
    assert done.returncode == code, done.stdout + done.stderr
    return done


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a stranger's program saved; the program itself is not there any more."""
    project, out = tmp_path_factory.mktemp("project"), tmp_path_factory.mktemp("saved")
    (project / "helpers.py").write_text(HELPERS)
    (project / "study.py").write_text(UNDRAWN + STUDY)
    done = python("study.py", out, cwd=project)
    assert done.returncode == 0, done.stderr
    for file in project.glob("*.py"):
        file.unlink()
    return out


def edited(folder: Path, place: str, old: str, new: str) -> None:
    file = folder / "sources" / place
    text = file.read_text()
    assert text.count(old) == 1
    file.write_text(text.replace(old, new))


@pytest.mark.thorough
def test_a_run_is_repeated_and_a_changed_line_is_found(saved: Path) -> None:
    """Versions that differ are notes."""
    found = json.loads(reproduced(saved / "2", "--json").stdout)
    assert found == {
        "same": True, "kind": "run", "name": "payers", "compared": {"journal": 1, "frame": len(TABLES)},
        "differences": [], "notes": [],
    }  # fmt: skip
    frame = saved / "2" / "orders.csv"
    frame.write_bytes(frame.read_bytes().replace(b"True", b"False", 1))
    file = saved / "2" / BUNDLE
    kept = json.loads(file.read_text())
    maker = Run.load(saved / "2").journal.maker
    assert maker == Maker(kept["versions"]["x402sim"], kept["versions"]["Python"], kept["source"])
    assert not (saved / "2" / "journal.ndjson.made.json").exists()
    kept["versions"] |= {"pandas": "0.9", "gone": "1.0"}
    kept["world"]["block_time_s"] = "60"
    file.write_text(json.dumps(kept))
    edited(saved / "2", "helpers.py", "0.5", "0.25")
    differs = reproduced(saved / "2", code=1).stdout
    assert differs.startswith(f"DIFFERS: the run payers (1 journal, {len(TABLES)} frames)\nnote: ")
    for part in (
        f"note: pandas was 0.9, is {pd.__version__}\n", "note: gone was 1.0, is not installed\n",
        "orders.csv in the folder is not the one that was saved",
        "bundle.json has another world than the run",
        "sources/helpers.py is not as it was saved", "events are equal, and then the runs differ:",
        "at_ms: a ", "so do frames: orders, steps,",
    ):  # fmt: skip
        assert part in differs


@pytest.mark.thorough
def test_a_sweep_is_repeated_from_all_calls_that_wrote_it(saved: Path) -> None:
    """Also from one whose values are objects that the last call does not give."""
    folder = saved / "swept"
    found = json.loads(reproduced(folder, "--json", "-j", 0).stdout)
    assert (found["same"], found["compared"], found["notes"]) == (True, {"point": 8}, [])
    kept = json.loads((folder / BUNDLE).read_text())
    assert kept["origin"]["calls"] == [3, 4]
    assert (kept["points"], kept["seeds"], kept["grid"]["policy"]) == (
        8,
        [[0, 1]],
        ["forget", "reconcile"],
    )
    assert kept["origin"]["sources"].keys() == {"study.py", "helpers.py"}
    edited(folder, "study.py", 'orders["charged"].sum()', 'orders["charged"].sum() + 1')
    differs = reproduced(folder, "--points", 3, "-j", 0, code=1).stdout
    assert "the sweep charged (3 points)" in differs
    assert "note: the code of charged has changed" in differs
    assert "value was 4, is 5" in differs
    assert "journals" not in differs, "they are the same"


@pytest.mark.thorough
def test_what_is_missing_is_said_before_and_after(tmp_path: Path) -> None:
    (tmp_path / "seeds.txt").write_text("3")
    (tmp_path / "own.py").write_text(
        f"{UNDRAWN}from x402sim import World\n"
        "seed = int(open('seeds.txt').read())\n"
        "World(seed=seed).play('replay').save('out', bundle=True)\n"
        "open('log', 'w')\n"
    )
    assert python("own.py", cwd=tmp_path).returncode == 0
    out = tmp_path / "out"
    missing = json.loads((out / BUNDLE).read_text())["origin"]["not_carried"]
    assert missing == ["own.py, line 5, reads data (open): no data are carried"]
    done = reproduced(out, code=2)
    assert (
        "`python own.py` did not come to what it saved: it raised FileNotFoundError" in done.stderr
    )
    assert "put a copy into sources/" in done.stderr
    assert done.stderr.count("\n") == 1
    (out / "sources" / "seeds.txt").write_text("3")
    again = python("-m", "x402sim", "reproduce", "out", cwd=tmp_path)
    assert again.stdout.startswith(f"same: the run replay (1 journal, {len(TABLES)} frames)\n"), (
        again.stderr
    )
    assert not list((out / "sources").glob("log")), "it plays in a copy"


CELLS = [
    f"from __future__ import annotations\nimport asyncio\n%precision 3\n{UNDRAWN}from x402sim import World",
    "raise ValueError('meant')",
    "async def buys(world):\n    alice = await world.payer('alice', balance='1.00')\n    await alice.buy()",
    "await asyncio.sleep(0)\nSEED = 5",
    "World(seed=SEED).play(buys).save('out', bundle=True)",
]
NOTEBOOK = """
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
for cell in {cells!r}:
    shell.run_cell(cell, store_history=True)
"""


@pytest.mark.thorough
def test_the_cells_of_a_notebook_and_the_text_of_a_command_are_carried(tmp_path: Path) -> None:
    (tmp_path / "jupyter.py").write_text(NOTEBOOK.format(cells=CELLS))
    python("jupyter.py", cwd=tmp_path)
    text = "\n".join((CELLS[0].replace("%precision 3\n", ""), CELLS[2], "SEED = 5", CELLS[4]))
    typed = tmp_path / "typed"
    typed.mkdir()
    assert subprocess.run([sys.executable, "-c", text], cwd=typed).returncode == 0
    for folder, place in (tmp_path, "notebook.ipynb"), (typed, "typed.py"):
        assert (folder / "out" / "sources" / place).is_file()
        assert reproduced(folder / "out").stdout.startswith("same: the run buys")


@pytest.mark.thorough
def test_a_sweep_of_the_command_line_is_repeated_as_a_command(tmp_path: Path) -> None:
    """From the folder that it was started in; what it is called with has no path of a machine."""
    (tmp_path / "lab").mkdir()
    (tmp_path / "lab" / "exp.py").write_text(
        "from near import K\ndef twice(n, seed): return K * n\n"
    )
    (tmp_path / "lab" / "near.py").write_text("K = 2\n")
    given = (
        "lab/exp.py:twice",
        "--set",
        "n=1,2",
        "--seeds",
        3,
        "--workers",
        0,
        "--out",
        tmp_path / "r",
    )
    assert python("-m", "x402sim", "sweep", *given, cwd=tmp_path).returncode == 0
    assert str(tmp_path) not in (tmp_path / "r" / BUNDLE).read_text()
    assert reproduced(tmp_path / "r", "-j", 0).stdout == "same: the sweep twice (6 points)\n"
    for file in [tmp_path / "r" / "results.parquet", *(tmp_path / "r" / "points").iterdir()]:
        table = pq.read_table(file)
        ones = table.set_column(table.schema.get_field_index("value"), "value", [[1] * len(table)])
        pq.write_table(ones.replace_schema_metadata(table.schema.metadata), file)
    (tmp_path / "r" / "summary.csv").write_text("n,mean\n")
    kept = json.loads((tmp_path / "r" / BUNDLE).read_text())
    (tmp_path / "r" / BUNDLE).write_text(json.dumps(kept | {"seeds": [[0, 199]]}))
    differs = reproduced(tmp_path / "r", "--points", 1, "-j", 0, code=1).stdout
    for part in (
        "results.parquet in the folder is not the one that was saved",
        "summary.csv in the folder is not the one that was saved",
        "bundle.json has another grid, or other seeds, than the results",
        *(f"n={n}, seed {seed}: the folder has other rows" for n in (1, 2) for seed in range(3)),
    ):
        assert part in differs


# --- what cannot be repeated -------------------------------------------------------------


def test_what_nobody_can_repeat_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    run = World(seed=1).play("replay")
    loaded = Run(journal=run.journal)
    with pytest.raises(ValueError, match=r"'replay' cannot be repeated: it was read from a file"):
        loaded.save(tmp_path / "out", bundle=True)
    away = Run(journal=run.journal, on="http://127.0.0.1:1", real_s=1.0)
    with pytest.raises(ValueError, match=r"played at http://127.0.0.1:1, whose state nobody else"):
        away.save(tmp_path / "out", bundle=True)
    assert not (tmp_path / "out").exists()


@pytest.mark.thorough
def test_code_without_a_file_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-"], cwd=tmp_path, check=False, text=True, capture_output=True,
        input="from x402sim import World\nWorld().play('replay').save('out', bundle=True)",
    )  # fmt: skip
    assert "code typed at Python's prompt, or read from stdin, has no source file" in done.stderr
    assert not (tmp_path / "out").exists()


def test_a_folder_without_a_bundle_is_told_how_one_is_made(tmp_path: Path) -> None:
    assert_misuse(runner.run("reproduce", tmp_path), "has no bundle.json", "bundle=True", "--out")
    (tmp_path / BUNDLE).write_text("{}")
    assert_misuse(runner.run("reproduce", tmp_path), "bundle.json cannot be read")


def test_a_plain_save_leaves_no_bundle_of_another_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / BUNDLE).write_text("{}")
    monkeypatch.setattr("x402sim.report.plots.figures", lambda journal: {})
    told("replayed").save(tmp_path)
    assert not (tmp_path / BUNDLE).exists()


# --- hashes ------------------------------------------------------------------------------


def test_the_hash_of_a_frame_is_of_its_content() -> None:
    """It is defined by text, so that no version of a library changes it."""
    moment = datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC)
    frame = pd.DataFrame({
        "b": [1.0, float("nan")], "a": [0.1, 2.5e-7], "who": ["é", None], "ok": [True, False],
        "n": pd.array([3, None], "Int64"), "at": [moment, None], "big": [2**200, 1],
        "on": [date(2026, 1, 2), None], "d": [Decimal("1.10"), None], "np": [np.float64(2), None],
    })  # fmt: skip
    lines = [
        '["a","at","b","big","d","n","np","ok","on","who"]',
        '{"a":0.1,"at":1767323045000006,"b":1,"big":1606938044258990275541962092341162602522202993'
        '782792835301376,"d":"1.10","n":3,"np":2,"ok":true,"on":"2026-01-02","who":"\\u00e9"}',
        '{"a":2.5e-07,"big":1,"ok":false}',
    ]
    assert frame_sha256(frame) == lines_sha256(lines)
    other = frame[frame.columns[::-1]].astype({"who": "category", "ok": object, "b": object})
    assert frame_sha256(other.set_axis([5, 7])) == frame_sha256(frame), "order, dtypes and index"
    assert frame_sha256(frame.iloc[::-1]) != frame_sha256(frame)
    assert frame_sha256(frame[[]]) != frame_sha256(frame.iloc[:0])


def test_sources_that_read_what_is_not_carried_are_named() -> None:
    text = (
        b"import os\nimport pandas as pd\npd.read_csv('a')\nopen('b', 'w')\nopen('c')\n"
        b"os.environ['d']\nnp.load('e')\njson.load(f)\nPath('f').read_text()\nopen('g', mode='rb')\n"
    )
    found = [line.split(", ")[1] for line in bundle.readings("own.py", text)]
    assert found == [f"line {number}" for number in (3, 5, 6, 7, 9, 10)]
