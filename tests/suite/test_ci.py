"""Judging in CI: the action as a runner runs it, its annotations, and the lines of the guide's page.

`Runner` does what a runner of GitHub Actions does: it reads workflow commands, and runs an action's
steps. It is written after the runner's own rules: `ActionCommand.TryParseV2` and `EscapeUtil`, by
which lines of a log become annotations, and the shell and the files of a step.
"""

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml
from junitparser import JUnitXml
from markdown_it import MarkdownIt

from tests.house import blocks
from tests.house.reference import GUIDE
from tests.suite.deployment import conformance, refused
from tests.suite.hostile import NASTY, assert_harmless, challenge, serving
from tests.suite_payer.test_judging import command as payer
from x402sim.suite.report.conformance import About, unready, written
from x402sim.suite.report.results import Loss, Outcome, Result
from x402sim.suite.started import free_port


@dataclass(frozen=True, slots=True)
class Command:
    """One workflow command, unescaped."""

    name: str
    properties: dict[str, str]
    message: str


def commands(log: str) -> list[Command]:
    return [found for line in log.splitlines() if (found := _command(line))]


def _command(line: str) -> Command | None:
    line = line.strip()
    if not line.startswith("::") or "::" not in line[2:]:
        return None
    head, _, message = line[2:].partition("::")
    name, _, rest = head.partition(" ")
    pairs = (each.partition("=") for each in rest.split(",") if each)
    return Command(name, {key.strip(): _plain(value) for key, _, value in pairs}, _plain(message))


def _plain(text: str) -> str:
    for code, character in ("%3A", ":"), ("%2C", ","), ("%0D", "\r"), ("%0A", "\n"), ("%25", "%"):
        text = text.replace(code, character)
    return text


# --- an action, and the steps of a job ------------------------------------------------------

_EXPRESSION = re.compile(r"\$\{\{\s*(.+?)\s*\}\}")
_SHELL = ["bash", "--noprofile", "--norc", "-eo", "pipefail"]
"""What `shell: bash` means."""


@dataclass(slots=True)
class Runner:
    """A runner in a folder: its temporary folder and its files for commands, and its workspace.

    It knows what the action and the guide use, and raises `KeyError` or `ValueError` for the rest.
    """

    folder: Path
    environment: dict[str, str]
    log: str = ""
    summary: str = ""
    changes: str = ""
    """What steps wrote to change later steps: PATH and variables."""
    groups: list[int] = field(default_factory=list)
    """The groups of the processes of each step."""

    @property
    def temp(self) -> Path:
        """The folder RUNNER_TEMP."""
        return self.folder / "temp"

    @property
    def workspace(self) -> Path:
        """The folder in which steps run."""
        return self.folder / "workspace"

    def __post_init__(self) -> None:
        self.temp.mkdir(parents=True, exist_ok=True)
        self.workspace.mkdir(exist_ok=True)

    def close(self) -> None:
        """End what the steps have left in the background, as the end of a job does."""
        for group in self.groups:
            with suppress(ProcessLookupError):
                os.killpg(group, signal.SIGKILL)

    def action(
        self, file: Path, given: dict[str, str], environment: dict[str, str] | None = None
    ) -> tuple[int, dict[str, str]]:
        """Run the steps of a composite action until one fails; return the exit code and outputs."""
        action = yaml.safe_load(file.read_text("utf-8"))
        inputs = {name: each.get("default", "") for name, each in action["inputs"].items()}
        assert given.keys() <= inputs.keys(), "Unexpected input(s)"
        steps = action["runs"]["steps"]
        known: dict[str, Any] = {
            "inputs": inputs | given,
            "steps": {step["id"]: {"outputs": {}} for step in steps if "id" in step},
        }
        code = 0
        for step in steps:
            assert step["shell"] == "bash", step
            env = {name: evaluated(value, known) for name, value in step.get("env", {}).items()}
            more = {"GITHUB_ACTION_PATH": str(file.parent), **(environment or {}), **env}
            code, outputs = self.run(evaluated(step["run"], known), more)
            known["steps"][step.get("id", "")] = {"outputs": outputs}
            if code:
                break
        outputs = action["outputs"].items()
        return code, {name: evaluated(each["value"], known) for name, each in outputs}

    def run(self, script: str, environment: dict[str, str]) -> tuple[int, dict[str, str]]:
        files = {
            name: self.temp / f"_{name.lower()}"
            for name in ("GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY", "GITHUB_PATH", "GITHUB_ENV")
        }
        for each in files.values():
            each.write_text("")
        file = self.temp / "_script.sh"
        file.write_text(script)
        own = {"RUNNER_TEMP": str(self.temp), **{name: str(each) for name, each in files.items()}}
        log = self.temp / "_log"  # no pipe: what runs in the background keeps it open
        with log.open("wb") as out:
            process = subprocess.Popen(
                [*_SHELL, str(file)], cwd=self.workspace, env=self.environment | own | environment,
                stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True,
            )  # fmt: skip
            code = process.wait()
        self.groups.append(process.pid)
        self.log += log.read_text("utf-8")
        self.summary += files["GITHUB_STEP_SUMMARY"].read_text("utf-8")
        self.changes += files["GITHUB_PATH"].read_text() + files["GITHUB_ENV"].read_text()
        written = files["GITHUB_OUTPUT"].read_text("utf-8").splitlines()
        return code, dict(line.split("=", 1) for line in written)


def evaluated(text: str, known: Mapping[str, Any]) -> str:
    """Return a text with its expressions replaced, each a path such as `inputs.args`."""

    def value(found: re.Match[str]) -> str:
        here: Any = known
        *path, last = found[1].split(".")
        for name in path:
            here = here[name]
        return str(here.get(last, "") if path[-1] == "outputs" else here[last])

    return _EXPRESSION.sub(value, text)


# --- tests -----------------------------------------------------------------------------------


ROOT = Path(__file__).parents[2]
ACTION = ROOT / "action.yml"
MARKUP = (
    "</code></details><img src=x onerror=alert(1)>[a](http://evil)![b](http://evil)\n# pwned\n"
    "```\n````\n<!-- @everyone https://evil.example | a | b |\n- [ ] x\n&lt;b&gt;"
)
NOBODY = "http://127.0.0.1:9"


def runner(folder: Path) -> Runner:
    """Return a runner on which the action is installed: its interpreter is this one."""
    found = Runner(folder, {"PATH": os.environ["PATH"], "HOME": str(folder)})
    own = found.temp / "x402sim" / "bin" / "python"
    own.parent.mkdir(parents=True)
    own.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} "$@"\n')
    own.chmod(0o755)
    (own.parents[1] / "made-from").write_text(str(ROOT))
    return found


@pytest.mark.thorough
def test_what_a_hostile_service_answers_is_shown_and_acts_on_nothing(tmp_path: Path) -> None:
    here = runner(tmp_path)
    body = challenge().replace(b"pwned", b"pwned " + MARKUP.replace("\n", "\\n").encode())
    with serving(body, 402, {}) as url:
        code, outputs = here.action(ACTION, {"args": f"{url} --only 2.1,2.2 --seed 1"})
    assert (code, outputs["exit-code"]) == (1, "1")
    told = commands(here.log)
    assert {each.name for each in told} <= {"error", "warning"}
    titles = [each.properties["title"] for each in told]
    assert "MUST failed (1 of 4 cases, 3 not judged): spec/2.1/amount" in titles
    assert all(each.rpartition(": ")[2].split("/")[1] in ("2.1", "2.2") for each in titles)
    assert "pwned" in "".join(each.message for each in told)
    assert_harmless("\n".join(each for each in here.log.split("\n") if not each.startswith("::")))
    assert_harmless(here.summary)
    assert "pwned" in here.summary
    assert markup(here.summary) <= {"details", "/details", "summary", "/summary"}
    read = JUnitXml.fromfile(str(here.workspace / outputs["junit"]))
    from sarif_pydantic import Sarif

    sarif = Sarif.model_validate_json((here.workspace / outputs["sarif"]).read_text("utf-8"))
    must = [each for each in sarif.runs[0].results or [] if each.level == "error"]
    assert len(must) == read.failures
    assert read.failures + read.errors == len([each for each in told if each.name == "error"])
    assert "<!doctype html>" in (here.workspace / outputs["html"]).read_text("utf-8").lower()
    assert here.changes == "", "PATH and environment of later steps are as they were"


def markup(text: str) -> set[str]:
    """Return the tags of HTML that a page of Markdown has; it has no link, image or mention."""
    tags = set[str]()
    every = MarkdownIt("gfm-like", {"linkify": False}).parse(text)
    for each in [*every, *(child for block in every for child in block.children or [])]:
        assert each.type not in ("link_open", "image", "table_open"), each
        if each.type == "text":
            assert "@" not in each.content
            assert "://" not in each.content
        if each.type.startswith("html_"):
            tags |= {tag.partition(">")[0].split()[0] for tag in each.content.split("<")[1:]}
    return tags


@pytest.mark.thorough
def test_a_subject_that_cannot_be_judged_is_an_error_and_leaves_no_old_report(
    tmp_path: Path,
) -> None:
    here = runner(tmp_path)
    old = here.workspace / "x402sim-report" / "junit.xml"
    old.parent.mkdir()
    old.write_text("of an earlier step")
    code, outputs = here.action(ACTION, {"args": f"{NOBODY} --wait 0.1"})
    assert code == 2
    assert outputs.pop("exit-code") == "2"
    assert all((here.workspace / file).is_file() for file in outputs.values()), "they say why"
    assert "of an earlier step" not in old.read_text()
    (error,) = commands(here.log)
    assert f"{NOBODY}: nobody answers" in error.message
    assert "No verdict." in here.summary
    here.log = ""
    code, _ = here.action(ACTION, {"args": "payer -- sh -c 'echo ::error::pwned; echo ::b::c >&2'"})
    assert code == 2
    messages = [each.message for each in commands(here.log)]
    assert any("buys nothing at an honest shop" in each for each in messages)
    assert not any(each.startswith("pwned") for each in messages)
    code, _ = here.action(ACTION, {"args": NOBODY}, {"X402SIM_PAYER_KEY": "0x12"})
    assert "X402SIM_PAYER_KEY: a private key is" in here.log, "the environment of the step is there"


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({}, "give args, as in"),
        ({"args": "payer -- node 'agent.js"}, "args: No closing quotation"),
        ({"args": NOBODY, "report": "a\nhtml=b"}, "report is the path of a folder"),
        ({"base-url": NOBODY}, "are written as on the command line now, as in `args: http://"),
    ],
)
def test_what_cannot_be_meant_is_refused_in_one_annotation(
    given: dict[str, str], says: str, tmp_path: Path
) -> None:
    here = runner(tmp_path)
    code, outputs = here.action(ACTION, given)
    assert (code, outputs["exit-code"]) == (2, "")
    (error,) = commands(here.log)
    assert says in error.message


def test_no_input_reaches_a_shell(tmp_path: Path) -> None:
    """And what the command line says of it acts on nothing."""
    steps = yaml.safe_load(ACTION.read_text("utf-8"))["runs"]["steps"]
    assert all("${{" not in step["run"] for step in steps)
    assert not any("uses" in step for step in steps), "it changes no Python of its caller"
    here = runner(tmp_path)
    evil = (
        "$(touch a) `touch b` \"; touch c; ' \\ ${{ inputs.args }} \n::set-output name=x::y\n"
        + NASTY.replace("\0", "")
    )
    args = shlex.join([NOBODY, "--only", evil])
    code, _ = here.action(ACTION, {"args": args, "report": "$(touch d) `touch e`"})
    assert code == 2
    assert os.listdir(here.workspace) == ["$(touch d) `touch e`"]
    (error,) = commands(here.log)
    assert error == Command(
        "error", {"title": "x402sim conformance"}, "no verdict, exit code 2: see this step's log"
    )
    assert "unknown id '$(touch a) `touch b`" in here.log
    assert_harmless(here.log.replace("::error title=", ""))


def test_an_old_python_is_refused_with_what_to_do(tmp_path: Path) -> None:
    here = Runner(tmp_path, {"PATH": f"{tmp_path}:{os.environ['PATH']}"})
    (tmp_path / "python3").write_text(f'#!/bin/sh\nexec {sys.executable} -c "{OLD}" "$3"\n')
    (tmp_path / "python3").chmod(0o755)
    code, _ = here.action(ACTION, {"args": NOBODY})
    assert code == 2
    (error,) = commands(here.log)
    assert "a python3 from 3.11 on is needed: put `uses: actions/setup-python@v5`" in error.message
    assert not (here.temp / "x402sim").exists()


OLD = "import sys; sys.version_info = (3, 10, 12); exec(sys.argv[1])"
"""Runs a program as an older Python would."""


@pytest.mark.thorough
def test_the_action_installs_itself_beside_the_python_of_its_caller(tmp_path: Path) -> None:
    here = Runner(tmp_path, {"PATH": f"{tmp_path}:{os.environ['PATH']}", "HOME": str(tmp_path)})
    program = tmp_path / "python3"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    program.chmod(0o755)
    (here.workspace / "httpx.py").write_text("raise SystemExit('the caller's')")
    here.environment |= {"PYTHONPATH": str(here.workspace), "VIRTUAL_ENV": str(tmp_path)}
    code, _ = here.action(ACTION, {"args": f"{NOBODY} --wait 0.1"})
    assert code == 2, here.log
    assert "nobody answers" in commands(here.log)[-1].message, here.log
    own = here.temp / "x402sim"
    assert (own / "made-from").read_text() == str(ROOT)
    assert here.changes == ""
    before = own.stat().st_mtime_ns, (own / "made-from").stat().st_mtime_ns
    here.action(ACTION, {"args": NOBODY})
    assert before == (own.stat().st_mtime_ns, (own / "made-from").stat().st_mtime_ns), "once"


URL = "http://service.example:4020"
ATTACK = f"{NASTY} 50%0A::error::pwned%3A, file=x,line=1::pwned"


def result(check_id: str, outcome: str, level: str = "MUST", **more: str | bool | Loss) -> Result:
    fields = {"title": "t", "expected": "1", "actual": "2", "reason": "why", **more}
    section = check_id.split("/")[1]
    return Result(id=check_id, level=level, section=section, outcome=Outcome(outcome), **fields)


def annotations(*results: Result, subject: str = "service", strict: bool = False) -> list[Command]:
    about = About(subject, URL, "2026-01-02T03:04:05+00:00", {})
    text = written(".txt", about, results, strict=strict)
    assert_harmless(text.replace("::error ", "").replace("::warning ", ""))
    found = commands(text)
    assert len(found) == len(text.splitlines()), "every line is a command"
    return found


def test_a_must_is_an_error_and_a_should_a_warning_with_how_to_repair_it() -> None:
    must = result("spec/5/nonce-once", "failed", loss=Loss(base=20_000), rerun="again --only x")
    should = result("kit/7/malformed-body", "failed", "SHOULD")
    held = result("spec/2.2/body", "passed")
    known = result("spec/2.3/window", "failed", is_known=True)
    skipped = result("spec/3/expiry-refund", "skipped")
    error, warning = annotations(held, should, must, known, skipped)
    assert (error.name, warning.name) == ("error", "warning")
    assert error.properties["title"] == "MUST failed: spec/5/nonce-once"
    assert "expected 1, got 2\nloss: 0.02 tokens\nto repair: " in error.message
    assert error.message.endswith("run it again: again --only x")
    assert {each.name for each in annotations(should, must, strict=True)} == {"error"}


def test_that_nothing_was_judged_is_an_error() -> None:
    (error,) = annotations(result("spec/5/window", "skipped"))
    assert error.message == "No verdict: nothing could be checked (1 skipped)."
    assert error.properties == {"title": "x402sim conformance service: no verdict"}


def test_the_first_of_each_cause_comes_before_what_follows_from_it() -> None:
    """GitHub shows ten errors of a step."""
    names = ("spec/8/a", "spec/8/b", "spec/8/c")
    same = [result(name, "inconclusive", reason="it stopped") for name in names]
    other = result("spec/9/a", "inconclusive", reason="no payment")
    titles = [each.properties["title"].split(": ")[1] for each in annotations(*same, other)]
    assert titles == ["spec/8/a", "spec/9/a", "spec/8/b", "spec/8/c"]


def test_nothing_that_a_subject_answers_becomes_a_command_or_a_property() -> None:
    hostile = result("spec/5/window", "failed", title=ATTACK, actual=ATTACK, rerun=ATTACK)
    (found,) = annotations(hostile)
    assert found.name == "error"
    assert found.properties.keys() == {"title"}
    assert "50%0A" in found.message, "what looks escaped is shown as it was"
    assert "pwned%3A, file=x" in found.message
    (unclear,) = annotations(result("spec/5/window", "inconclusive", reason=ATTACK))
    assert (unclear.name, unclear.properties.keys()) == ("error", {"title"})
    line = unready("service", ATTACK)
    assert len(commands(line)) == line.count("\n") == 1
    assert_harmless(line.replace("::error ", ""))


def test_a_subject_that_cannot_be_judged_has_one_error(tmp_path: Path) -> None:
    file = tmp_path / "annotations.txt"
    nobody = "http://127.0.0.1:9"
    said = refused(nobody, "--report", str(file))
    (error,) = commands(file.read_text())
    assert error.properties == {"title": "x402sim conformance service: no verdict"}
    assert said == f"x402sim: {error.message}\n"
    done = conformance("payer", "--report", str(file), "--", "false")
    assert done.returncode == 2
    (control,) = commands(file.read_text())
    assert "buys nothing at an honest shop" in control.message
    assert "in v1, v2, steps, session, mcp" in control.properties["title"]


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
SOLD_BY = {
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
    for name, (*made, _) in SOLD_BY.items():
        (found.workspace / name).with_suffix(".js").write_text(f"{TOY}\n{made[exit_code]}\n")
    defects = [SOLD_BY["agent.js"][1]] if exit_code else []
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
    file = next((each for each in SOLD_BY if each in text), "service.js")
    ids = f"--only {SOLD_BY[file][2]}"
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


def is_there(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True
