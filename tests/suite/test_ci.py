"""The lines of the guide's page on CI, each with a good subject and with a defective one."""

import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from junitparser import JUnitXml

from tests.house import blocks
from tests.house.reference import GUIDE
from tests.suite.runner import Runner, commands, evaluated
from tests.suite.test_action import ACTION, ROOT, runner
from tests.suite_payer.test_judging import command as payer
from x402sim.suite.started import free_port

PAGE = (GUIDE / "ci.md").read_text("utf-8")
ROWS = [row[1] for row in re.findall(r"^\| (a .+) \| `(.+)` \|$", PAGE, re.MULTILINE)]
"""What stands behind `x402sim conformance`, of the page's table."""
GITHUB = [yaml.safe_load(block) for block in blocks(PAGE, "yaml")[:3]]
GITLAB = yaml.safe_load(blocks(PAGE, "yaml")[3])
ALONE, IN_WORLD = blocks(PAGE, "sh")
PYTHON = shlex.quote(sys.executable)
TOY = f"""
import os, runpy, sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
sys.path.insert(0, {str(ROOT)!r})
def toy(module, *words):
    sys.argv[1:] = words
    runpy.run_module(module, run_name="__main__")
def x402sim(*words):
    os.execv({sys.executable!r}, [{sys.executable!r}, "-m", "x402sim", *words, "--port", os.environ["PORT"]])
def sells_nothing():
    from tests.suite.hostile import challenge
    class Service(BaseHTTPRequestHandler):
        def do_GET(self):
            body = challenge()
            self.send_response(402)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
        do_POST = do_GET
    ThreadingHTTPServer(("127.0.0.1", int(os.environ["PORT"])), Service).serve_forever()
"""
SUBJECTS = {
    "agent.js": ("", "signs again", "payer/control,payer/lost/asked-again"),
    "shop.js": (
        "toy('tests.suite_server.shop')",
        "toy('tests.suite_server.shop', 'any header pays')",
        "server/control,server/header/malformed",
    ),
    "facilitator": (
        "toy('tests.suite_facilitator.mutant')",
        "toy('tests.suite_facilitator.mutant', 'any payee')",
        "facilitator/control,facilitator/fields/payee",
    ),
    "service.js": ("x402sim('serve')", "sells_nothing()", "2.1,2.2"),
}
"""What a file of the page is, a good one and a defective one, and the ids that tell them apart."""


@pytest.fixture(params=[0, 1], ids=["good", "defective"])
def exit_code(request: pytest.FixtureRequest) -> int:
    """What becomes of a subject, which is made so."""
    code: int = request.param
    return code


@pytest.fixture
def here(tmp_path: Path, exit_code: int) -> Iterator[Runner]:
    """A machine with these subjects in the folder of a job, and `node`, `python` and `x402sim`."""
    found = runner(tmp_path)
    for name, words in ("node", PYTHON), ("python", PYTHON), ("x402sim", f"{PYTHON} -m x402sim"):
        program = tmp_path / "bin" / name
        program.parent.mkdir(exist_ok=True)
        program.write_text(f'#!/bin/sh\nexec {words} "$@"\n')
        program.chmod(0o755)
    found.environment["PATH"] = f"{tmp_path / 'bin'}:{found.environment['PATH']}"
    for name, (*made, _) in SUBJECTS.items():
        (found.workspace / name).with_suffix(".js").write_text(f"{TOY}\n{made[exit_code]}\n")
    defects = [SUBJECTS["agent.js"][1]] if exit_code else []
    path = found.environment["PATH"]
    same = f"assert os.environ['PATH'] == {path!r}, 'it is as in the step of the caller'\n"
    same += "assert not [name for name in os.environ if name.startswith('INPUT_')]"
    Path(payer(found.workspace, *defects, more=same)[1]).rename(found.workspace / "agent.js")
    (found.workspace / "facilitator.py").write_bytes(
        (found.workspace / "facilitator.js").read_bytes()
    )
    yield found
    found.close()


def shortened(text: str, ports: dict[str, int]) -> str:
    """Return lines of the page that judge a few ids, at ports that are free."""
    file = next((each for each in SUBJECTS if each in text), "service.js")
    ids = f"--only {SUBJECTS[file][2]}"
    text = re.sub(
        r"(payer|server|facilitator|http://127.0.0.1:8000) ", rf"\1 {ids} ", text, count=1
    )
    for port, free in ports.items():
        text = text.replace(port, str(free))
    return text


@pytest.mark.thorough
@pytest.mark.parametrize("row", ROWS)
def test_the_action_judges_each_subject(row: str, here: Runner, exit_code: int) -> None:
    from sarif_pydantic import Sarif

    ports = {"8000": free_port()}
    if "8000" in row:
        begins = next(step["run"] for steps in GITHUB for step in steps if "run" in step)
        assert here.run(shortened(begins, ports), {})[0] == 0
    code, outputs = here.action(ACTION, {"args": shortened(row, ports)})
    assert (code, outputs["exit-code"]) == (exit_code, str(exit_code)), here.log
    told = [each for each in commands(here.log) if each.name == "error"]
    assert bool(told) == bool(exit_code)
    assert ("❌" in here.summary, "✅" in here.summary) == (bool(exit_code), not exit_code)
    read = JUnitXml.fromfile(str(here.workspace / outputs["junit"]))
    assert read.tests > 1
    assert read.failures + read.errors == len(told)
    sarif = Sarif.model_validate_json((here.workspace / outputs["sarif"]).read_text("utf-8"))
    for each in sarif.runs[0].results or []:
        assert (ROOT / each.locations[0].physical_location.artifact_location.uri).is_file()


def test_the_steps_of_the_page_are_those_that_are_run_here() -> None:
    assert len(ROWS) == 4
    steps = [step for block in GITHUB for step in block]
    action = yaml.safe_load(ACTION.read_text("utf-8"))
    ours = [step for step in steps if step.get("uses") == "OWNER/x402sim@main"]
    assert {step["with"]["args"] for step in ours} <= {*ROWS}
    assert all(step["with"].keys() <= action["inputs"].keys() for step in ours)
    known: dict[str, Any] = {
        "steps": {"judged": {"outputs": dict.fromkeys(action["outputs"], "x")}}
    }
    (sarif,) = (step for step in steps if "upload-sarif" in step.get("uses", ""))
    assert evaluated(sarif["with"]["sarif_file"], known) == "x"
    assert "steps.judged.outputs.sarif" in sarif["if"], "there is none if nothing was judged"
    (kept,) = (step for step in steps if "upload-artifact" in step.get("uses", ""))
    assert kept["with"]["path"] == action["inputs"]["report"]["default"]
    assert len(steps) == len(ours) + 3, "and a `run`"


@pytest.mark.thorough
def test_the_job_of_gitlab_judges(here: Runner, exit_code: int) -> None:
    job = GITLAB["x402"]
    script = "\n".join(job["script"])
    assert here.run(shortened(script, {}), {})[0] == exit_code, here.log
    junit = job["artifacts"]["reports"]["junit"]
    assert JUnitXml.fromfile(str(here.workspace / junit)).tests > 1
    assert all((here.workspace / each).is_file() for each in job["artifacts"]["paths"])


@pytest.mark.thorough
@pytest.mark.parametrize("shell", ["sh", "bash"])
@pytest.mark.parametrize(
    ("lines", "service"), [(ALONE, "serve"), (IN_WORLD, "service")], ids=["alone", "in a world"]
)
def test_the_lines_of_a_shell_judge_and_leave_nothing_running(
    lines: str, service: str, shell: str, here: Runner, exit_code: int
) -> None:
    ports = {"8000": free_port(), "4020": free_port()}
    lines = lines.replace("--no-service", "--no-service --port 4020")
    if not exit_code:
        (here.workspace / "service.js").write_text(f"{TOY}\nx402sim({service!r})\n")
    log = here.workspace / "log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            [shell, "-c", shortened(lines, ports)], cwd=here.workspace, env=here.environment,
            stdout=out, stderr=out, start_new_session=True,
        )  # fmt: skip
        here.groups.append(process.pid)
        assert process.wait(100) == exit_code, log.read_text()
    assert JUnitXml.fromfile(str(here.workspace / "junit.xml")).tests > 1
    ends = time.monotonic() + 30
    while is_there(process.pid):
        assert time.monotonic() < ends, "what it has started goes on"
        time.sleep(0.02)
    assert not (here.workspace / "ready.json").exists()


def is_there(group: int) -> bool:
    """Tell whether a process of a group runs."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True
