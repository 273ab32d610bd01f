"""However a run of the suite ends, its reports are where they were wanted, and say what they are."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from junitparser import JUnitXml

from tests.suite.test_command import Duo, conformance
from x402sim import LocalServer
from x402sim.suite.remote import Access, reach
from x402sim.suite.target import Target


@pytest.fixture(scope="module")
def duo() -> Iterator[Duo]:
    both = Duo()
    yield both
    both.close()


def begun(*options: str, **more: Any) -> "subprocess.Popen[str]":
    """Start the suite; Ctrl-C reaches it, though a shell has put the tests in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return subprocess.Popen(
            [sys.executable, "-m", "x402sim", "conformance", *options],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **more,
        )  # fmt: skip
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("closed", ["stdout", "stderr", "both"])
def test_reports_are_written_when_nobody_reads_the_output(
    duo: Duo, tmp_path: Path, closed: str
) -> None:
    """As in `conformance ... --junit FILE | head -1`, and `2>&1 | head -1`."""
    file = tmp_path / "x.xml"
    with begun(duo.url, "--only", "2.2", "--only", "7", "--junit", str(file)) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        if closed in ("stdout", "both"):
            process.stdout.close()
        if closed in ("stderr", "both"):
            process.stderr.readline()
            process.stderr.close()
        assert process.wait(30) == 0
    assert JUnitXml.fromfile(str(file)).tests > 5


def test_ctrl_c_leaves_a_message_a_summary_and_the_reports(duo: Duo, tmp_path: Path) -> None:
    file, junit = tmp_path / "x.json", tmp_path / "x.xml"
    options = ["--rate", "4", "--json", str(file), "--junit", str(junit)]
    with begun(duo.url, *options) as process:
        assert process.stderr is not None
        for _ in range(8):
            process.stderr.readline()
        os.kill(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "Traceback" not in out + err
    assert "interrupted after" in err
    told = json.loads(file.read_text())
    inconclusive = [each for each in told["results"] if each["outcome"] == "inconclusive"]
    assert len(inconclusive) > 20
    assert all("the run was interrupted" in each["reason"] for each in inconclusive)
    assert out.count("the run was interrupted") == 1, "many ids of one reason are one line"
    assert JUnitXml.fromfile(str(junit)).errors > 10, "an interrupted run is not green"


@pytest.mark.parametrize("kind", ["json", "junit", "html", "sarif"])
def test_a_report_that_cannot_be_written_is_noticed_before_the_run(
    kind: str, tmp_path: Path
) -> None:
    done = conformance("http://127.0.0.1:9", f"--{kind}", "/nodir/x")
    assert done.returncode == 2
    assert f"--{kind} /nodir/x: there is no folder /nodir" in done.stderr
    done = conformance("http://127.0.0.1:9", f"--{kind}", str(tmp_path))
    assert "it is a folder" in done.stderr


@pytest.mark.parametrize(
    ("kind", "begins"), [("html", "<!doctype"), ("junit", "<?xml"), ("sarif", "{")]
)
def test_a_minus_is_stdout_for_every_report(
    duo: Duo, kind: str, begins: str, tmp_path: Path
) -> None:
    process = begun(duo.url, "--only", "2.2/body", f"--{kind}", "-", cwd=tmp_path)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 0, err
    assert out.startswith(begins)
    assert list(tmp_path.iterdir()) == []


def test_stdout_takes_one_report_only() -> None:
    done = conformance("http://127.0.0.1:9", "--json", "-", "--html", "-")
    assert done.returncode == 2
    assert "stdout, which takes one report only" in done.stderr


def test_the_run_says_why_it_has_no_verdict(duo: Duo) -> None:
    done = conformance(duo.url, "--only", "5/nonce-once")
    assert done.returncode == 2
    assert "No verdict: nothing could be checked (1 skipped)." in done.stdout


def test_a_target_whose_clock_is_left_ahead_is_told() -> None:
    """Whoever pays there later, with a right clock, is refused."""
    told: list[str] = []

    async def main(url: str, control: str) -> None:
        means = Access(base_url=url, target=Target(), world_url=control, tell=told.append)
        for seconds in (0, 600):
            async with reach(means) as setting:
                assert setting.advance is not None
                if seconds:
                    await setting.advance(seconds)
            assert len(told) == bool(seconds)

    with LocalServer() as server:
        asyncio.run(main(server.url, server.control_url))
    assert "is left 600 s ahead of real time" in told[0]
