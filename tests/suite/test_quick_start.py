"""The quick starts of conformance/service/README.md, line by line as a reader types them."""

import re
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.serve.driver import Running
from tests.suite.deployment import Deployment
from x402sim.suite.service.engine import folder
from x402sim.suite.started import free_port

pytestmark = [pytest.mark.waits, pytest.mark.thorough, pytest.mark.timeout(300)]
STARTS = (
    (folder("service") / "README.md")
    .read_text("utf-8")
    .split("## Quick start")[1]
    .split("\n## ")[0]
)
BLOCKS = re.findall(r"```sh\n(.*?)```", STARTS, re.DOTALL)


def run(lines: str, cwd: Path, passed: int = 5) -> None:
    """Run lines of a block; as many demands pass, in a time of which an idle machine has more."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    this = f'python() {{ "{sys.executable}" "$@"; }}'
    done = subprocess.run(
        ["bash", "-c", f"set -e\n{this}\n{lines}"],
        cwd=cwd, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime < 25
    (found,) = re.findall(r"(\d+) passed", done.stdout)
    assert int(found) >= passed


@contextmanager
def background(line: str) -> Iterator[str]:
    """Run a line that ends with & until the block is done; give what it prints when it is ready."""
    assert line.startswith("python -m x402sim ")
    assert line.endswith(" &")
    running = Running(*line.removesuffix(" &").split()[3:])
    try:
        printed = [running.line()]
        while not printed[-1].startswith("Ctrl-C"):
            printed.append(running.line())
            assert printed[-1], running.errors()
        yield "".join(printed)
    finally:
        running.end(signal.SIGINT)
        running.close()


def test_a_url(deployment: Deployment, tmp_path: Path) -> None:
    run(BLOCKS[0].replace("http://127.0.0.1:4021", deployment.url), tmp_path)
    assert (tmp_path / "target.toml").stat().st_size > 500
    assert (tmp_path / "report.html").stat().st_size > 500


def test_a_url_and_a_key(deployment: Deployment, tmp_path: Path) -> None:
    key = deployment.ready["accounts"][1]["privateKey"]
    block = BLOCKS[1].replace("http://127.0.0.1:4021", deployment.url)
    run(re.sub(r"0x[0-9a-f]{64}", key, block), tmp_path)
    assert (tmp_path / "report.html").stat().st_size > 500


def test_a_url_and_a_world(tmp_path: Path) -> None:
    port = str(free_port())
    first, *rest = BLOCKS[2].replace("4020", port).splitlines()
    with background(first) as printed:
        settings = dict(re.findall(r"^ *export (\w+)=(\S+)$", printed, re.MULTILINE))
        assert "FACILITATOR_URL" in settings, printed
        service = Running("service", "--port", "0", env=settings)
        try:
            url = service.line().split()[3].rstrip(";")
            run("\n".join(rest).replace("http://127.0.0.1:4021", url), tmp_path, passed=50)
        finally:
            service.close()


def test_the_service_of_this_package(tmp_path: Path) -> None:
    port = str(free_port())
    first, *rest = BLOCKS[3].replace("4020", port).splitlines()
    with background(first):
        run("\n".join(rest), tmp_path, passed=50)
