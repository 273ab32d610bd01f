"""The shell blocks of the documentation pages run as they stand, one page after the other."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

BLOCK = re.compile(r"```(sh|python)\n(.*?)```", re.DOTALL)


@pytest.mark.thorough
@pytest.mark.skipif(
    shutil.which("curl") is None and "CI" not in os.environ,
    reason="the pages are written for curl, which is not installed",
)
def test_the_guides_can_be_followed_by_pasting(server, tmp_path: Path) -> None:
    lines = ["set -e"]
    for page in ("payment-flow.md", "sessions.md"):
        text = server.http.get(f"/docs/{page}").text
        assert not re.search(r"\{[a-z_]+\}", text.replace("{http_code}", "")), "unfilled"
        for kind, block in BLOCK.findall(text):
            if kind == "python":
                (tmp_path / "sign.py").write_text(block)
            else:
                lines.append(block)
    script = "\n".join(lines)
    assert script.count("0x...") == 1
    script = script.replace("0x...", server.ready["accounts"][9]["privateKey"])
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python3").symlink_to(sys.executable)
    path = f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}"
    venv = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    run = subprocess.run(
        ["sh", "-c", script], cwd=tmp_path, env={**os.environ, **venv, "PATH": path},
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert run.returncode == 0, run.stdout + run.stderr
    assert run.stdout.count('"bestVenue"') == 2
    assert run.stdout.count('"success":true') == 2
    assert '"released":"10000"' in run.stdout
