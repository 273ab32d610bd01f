"""However a run of the suite ends, its reports are where they were wanted, and say what they are."""

import asyncio
import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
from junitparser import JUnitXml

from tests.serve.driver import command
from tests.suite.deployment import Deployment
from x402sim import LocalServer
from x402sim.suite.service.options import Options
from x402sim.suite.service.sending import reach


def begun(*options: str, **more: Any) -> "subprocess.Popen[str]":
    """Start the suite; Ctrl-C reaches it, though a shell has put the tests in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return subprocess.Popen(
            command("conformance", *options),
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **more,
        )  # fmt: skip
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize(
    "closed",
    ["both", *(pytest.param(each, marks=pytest.mark.thorough) for each in ("stdout", "stderr"))],
)
def test_reports_are_written_when_nobody_reads_the_output(
    deployment: Deployment, tmp_path: Path, closed: str
) -> None:
    """As in `conformance ... --report FILE.xml | head -1`, and `2>&1 | head -1`."""
    file = tmp_path / "x.xml"
    with begun(deployment.url, "--only", "2.2", "--report", str(file)) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        if closed in ("stdout", "both"):
            process.stdout.close()
        if closed in ("stderr", "both"):
            process.stderr.readline()
            process.stderr.close()
        assert process.wait(30) == 0
    assert JUnitXml.fromfile(str(file)).tests > 1


def test_ctrl_c_leaves_a_message_a_summary_and_the_reports(
    deployment: Deployment, tmp_path: Path
) -> None:
    """A fast check is certain; one that waits is not when the signal comes."""
    file, junit = tmp_path / "x.json", tmp_path / "x.xml"
    only = "1/unpaid-402,2.2/body,3/expiry-refund,8/indexer-interval"
    options = ["--only", only, "--patient", "--world", deployment.control]
    with begun(deployment.url, *options, "--report", str(file), "--report", str(junit)) as process:
        assert process.stderr is not None
        while "waiting for " not in (line := process.stderr.readline()):
            assert line, "it ended by itself"
        os.kill(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "Traceback" not in out + err
    assert "interrupted after" in err
    assert "No verdict. Interrupted before " in out
    assert "failed controls" not in out
    told = {each["id"]: each for each in json.loads(file.read_text())["results"]}
    assert told["spec/2.2/body"]["outcome"] == "passed"
    unclear = [each for each in told.values() if each["outcome"] == "inconclusive"]
    assert len(unclear) >= 2
    assert all("the run was interrupted" in each["reason"] for each in unclear)
    assert out.count("the run was interrupted") == 1, "many ids of one reason are one line"
    assert JUnitXml.fromfile(str(junit)).errors == len(unclear), "it is not green"


def test_a_target_whose_clock_is_left_ahead_is_told() -> None:
    """Whoever pays there later, with a right clock, is refused."""
    told: list[str] = []

    async def main(url: str, control: str) -> None:
        options = Options(base_url=url, world_url=control)
        for seconds in (0, 600):
            async with reach(options, told.append) as setting:
                assert setting.advance is not None
                if seconds:
                    await setting.advance(seconds)
            assert len(told) == bool(seconds)

    with LocalServer() as server:
        asyncio.run(main(server.url, server.control_url))
    assert "is left 600 s ahead of real time" in told[0]
