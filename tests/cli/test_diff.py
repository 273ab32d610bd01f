"""`diff`: equal journals, different ones, and files that are not journals."""

import sys
from functools import partial
from pathlib import Path

import pytest

from tests.cli.runner import assert_misuse, run
from x402sim import World

diff = partial(run, "diff")


@pytest.fixture(scope="module")
def journals(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A run, the same again, one of another seed, and one with its last 9 events missing."""
    folder = tmp_path_factory.mktemp("journals")
    runs = {name: World(seed=seed).play("replay") for name, seed in (("a", 1), ("b", 1), ("c", 2))}
    texts = {name: run.journal.ndjson() for name, run in runs.items()}
    texts["short"] = b"".join(texts["a"].splitlines(keepends=True)[:-9])
    for name, text in texts.items():
        (folder / name).write_bytes(text)
    return {name: folder / name for name in texts}


def test_equal_runs(journals: dict[str, Path], tmp_path: Path) -> None:
    (tmp_path / "journal.ndjson").write_bytes(journals["b"].read_bytes())
    done = diff(journals["a"], tmp_path)
    assert done.exit_code == 0
    assert done.stdout.startswith("equal: ")
    assert World(seed=1).play("replay").sha256 in done.stdout


@pytest.mark.parametrize(
    ("other", "says"), [("c", "seed: a 1, b 2"), ("short", "b (the journal ends here)")]
)
def test_different_runs(
    journals: dict[str, Path], monkeypatch: pytest.MonkeyPatch, other: str, says: str
) -> None:
    """Also without the extra `report`."""
    for name in ("pandas", "matplotlib", "pyarrow"):
        monkeypatch.setitem(sys.modules, name, None)
    done = diff(journals["a"], journals[other])
    assert done.exit_code == 1
    assert done.stdout.startswith(f"a {journals['a']}\n")
    count = len(journals["short"].read_bytes().splitlines()) - 1  # the header
    told = " ".join(done.stdout.split())
    assert f"{count if other == 'short' else 0} events are equal" in told
    assert says in told


def test_runs_that_begin_differently_are_compared_further(
    journals: dict[str, Path], tmp_path: Path
) -> None:
    renamed = tmp_path / "renamed"
    for name, count in (("a", "all other {} events are equal"), ("short", "{} events are equal, ")):
        text = journals[name].read_bytes()
        renamed.write_bytes(text.replace(b'"scenario":"replay"', b'"scenario":"again"', 1))
        done = diff(journals["a"], renamed)
        assert done.exit_code == 1
        told = " ".join(done.stdout.split())
        assert 'the runs begin differently: scenario: a "replay", b "again"' in told
        assert count.format(len(text.splitlines()) - 2) in told


def test_a_file_that_is_not_a_journal(journals: dict[str, Path], tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_text("a shopping list\n")
    for wrong, says in ((text, "this is no journal"), (tmp_path / "gone", "No such file")):
        for pair in ((journals["a"], wrong), (wrong, journals["a"])):
            assert_misuse(diff(*pair), says)
