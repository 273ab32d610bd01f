"""`open`: a saved run on the page, and what is no run."""

import json
import signal
from pathlib import Path

import httpx
import pytest
from typer.testing import CliRunner

from tests.serve.driver import Running
from x402sim.cli import app

GOLDEN = Path(__file__).parents[1] / "golden" / "replay.ndjson"


def test_a_saved_run_is_served_until_it_is_stopped(tmp_path: Path) -> None:
    folder = tmp_path / "out" / "replay"
    folder.mkdir(parents=True)
    (folder / "journal.ndjson").write_bytes(GOLDEN.read_bytes())
    running = Running("open", str(folder.parent))
    try:
        said = running.line()
        assert said.startswith(f"{folder / 'journal.ndjson'} is at http://127.0.0.1:")
        url = said.split()[-1]
        with httpx.Client(trust_env=False, timeout=10) as http:
            assert "<title>x402sim</title>" in http.get(url).text
            words = http.get(f"{url}/words").json()
            assert (words["live"], words["decimals"]) == (False, 6)
            assert {"merchant", "alice", "mallory"} <= set(words["names"].values())
            assert http.post(f"{url}/pay", json={}).status_code == 404
            assert http.get(url, headers={"Host": "evil.example"}).status_code == 403
            with http.stream("GET", f"{url}/events") as answer:
                lines = answer.iter_lines()
                told = [list(iter(lines.__next__, "")) for _ in range(2)][1]
                events = [json.loads(line.removeprefix("data: ")) for line in told[1:]]
                assert (events[0]["event"], events[-1]["event"]) == ("begin", "end")
                assert running.end(signal.SIGINT) == 0
        assert running.errors() == ""
    finally:
        running.close()


@pytest.mark.parametrize(
    ("files", "says"),
    [((), "has no journal.ndjson"), (("a", "b"), "has 2 runs; name one: "), (("a",), "no journal")],
)
def test_what_is_no_run_is_refused(tmp_path: Path, files: tuple[str, ...], says: str) -> None:
    for name in files:
        (tmp_path / name).mkdir()
        (tmp_path / name / "journal.ndjson").write_text("{}\n")
    done = CliRunner().invoke(app, ["open", str(tmp_path)])
    assert (done.exit_code, done.stdout) == (2, "")
    assert says in done.stderr


@pytest.mark.parametrize(
    ("run", "says"),
    [
        ("http://127.0.0.1:4020", "a running server shows its page at /_sim/ui"),
        ("j.ndjson", "there is no j.ndjson; `run --out DIR` saves runs"),
        (".", "`run --out DIR` saves runs"),
    ],
)
def test_what_is_not_there_says_what_is_to_be_opened(run: str, says: str) -> None:
    done = CliRunner().invoke(app, ["open", *run.removeprefix(".").split()])
    assert (done.exit_code, done.stdout) == (2, "")
    assert says in done.stderr
