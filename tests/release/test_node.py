"""The package for Node.js, installed by npm in an empty folder, tests the payers of the guide."""

import sys
from pathlib import Path

import pytest

from tests import npm
from tests.house import blocks
from tests.interop.test_languages import CHECKED, GOOD, NAIVE, TYPESCRIPT, ran
from tests.release.node import NAME, TOOLS, installed, pack

pytestmark = [pytest.mark.thorough, pytest.mark.timeout(300)]
(TEST,) = (each for each in blocks(TYPESCRIPT, "ts") if "x402sim/vitest" in each)
README = (Path(__file__).parent / "npm_x402sim" / "README.md").read_text("utf-8")


def test_its_fixtures_find_the_payer_that_pays_twice(tmp_path: Path) -> None:
    program, calls = tmp_path / "x402sim", tmp_path / "calls"
    own = Path(sys.executable).with_name("x402sim")  # the standalone program is tried by a release
    program.write_text(f'#!/bin/sh\necho "$1" >> {calls}\nexec {own} "$@"\n')
    program.chmod(0o755)
    folder = tmp_path / "project"
    there = installed(pack(tmp_path / NAME, program), folder)
    assert there.resolve().read_bytes() == program.read_bytes()
    for each in npm.packages(TOOLS).iterdir():
        if each.name[0] != ".":
            (folder / "node_modules" / each.name).symlink_to(each)
    (folder / "readme.test.ts").write_text(blocks(README, "ts")[0])
    (folder / "payer.test.ts").write_text(TEST)
    (folder / "payer.ts").write_text(GOOD)
    tools = [str(npm.node()), str(folder / "node_modules")]
    checked = ran([tools[0], f"{tools[1]}/typescript/bin/tsc", *CHECKED, "payer.test.ts"], folder)
    assert checked.returncode == 0, checked.stdout
    tests = [tools[0], f"{tools[1]}/vitest/vitest.mjs", "run"]
    done = ran(tests, folder)
    assert done.returncode == 0, done.stdout + done.stderr
    (folder / "payer.ts").write_text(NAIVE)
    done = ran(tests, folder)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "wanted 1, and there are 2" in done.stdout + done.stderr
    assert calls.read_text().split() == ["serve"] * 4, "that of the package"
