"""A release that is cut once for all tests."""

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.house import ROOT

LONGEST_S = 600


@pytest.fixture(scope="session")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a release, with what was said in `told`; workers of pytest-xdist share it."""
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    out = shared / "release"
    with (shared / "release.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not out.exists():
            words = [sys.executable, "-m", "tests.release", "--out", str(out)]
            done = subprocess.run(
                words, cwd=ROOT, capture_output=True, text=True, timeout=LONGEST_S, check=False
            )
            assert done.returncode == 0, done.stdout + done.stderr
            (out / "told").write_text(done.stdout)
    return out
