"""`open`: a saved run on the page, and what is no run."""

import signal
from pathlib import Path

import httpx
import pytest

from tests.cli.runner import assert_misuse, run
from tests.serve.driver import Running
from tests.serve.test_page import next_message
from x402sim import LiveWorld, World
from x402sim.population import Every

GOLDEN = Path(__file__).parents[1] / "golden" / "replay.ndjson"


def test_a_saved_run_is_served_until_it_is_stopped(tmp_path: Path) -> None:
    folder = tmp_path / "out" / "replay"
    folder.mkdir(parents=True)
    (folder / "journal.ndjson").write_bytes(GOLDEN.read_bytes())
    with Running("open", str(folder.parent)) as running:
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
                _, (_, events) = next_message(lines), next_message(lines)
                assert (events[0]["event"], events[-1]["event"]) == ("begin", "end")
                assert running.end(signal.SIGINT) == 0
        assert running.errors() == ""


@pytest.mark.thorough
def test_of_a_large_run_the_newest_payments_are_shown_or_all(tmp_path: Path) -> None:
    async def story(world: LiveWorld) -> None:
        await world.population(3, arrivals=Every(1), until_s=502)

    file = tmp_path / "run.ndjson"
    World(journal=file).play(story)
    with Running("open", str(file)) as running, httpx.Client(trust_env=False) as http:
        answer = http.get(running.line().split()[-1])
        assert "2 older payments are left out" in answer.text
        assert "script-src 'sha256-" in answer.text
        assert answer.headers["content-security-policy"] == "frame-ancestors 'none'"
    with Running("open", str(file), "--all") as running, httpx.Client(trust_env=False) as http:
        url = running.line().split()[-1]
        assert "left out" not in http.get(url).text
        assert http.get(f"{url}/words").json()["live"] is False


@pytest.mark.parametrize(
    ("files", "says"),
    [((), "has no journal.ndjson"), (("a", "b"), "has 2 runs; name one: "), (("a",), "no journal")],
)
def test_what_is_no_run_is_refused(tmp_path: Path, files: tuple[str, ...], says: str) -> None:
    for name in files:
        (tmp_path / name).mkdir()
        (tmp_path / name / "journal.ndjson").write_text("{}\n")
    assert_misuse(run("open", tmp_path), says)


def test_a_recording_that_a_kill_cut_off_is_read_without_its_last_line(tmp_path: Path) -> None:
    file = tmp_path / "run.ndjson"
    file.write_bytes(GOLDEN.read_bytes()[:-20])
    done = run("diff", file, GOLDEN)
    assert done.exit_code == 1
    assert done.stderr == f"x402sim: {file} ends in the middle of a line, which is left out\n"
