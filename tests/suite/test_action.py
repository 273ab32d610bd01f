"""The action, its steps run as a runner runs them: what it shows, what it refuses, what it leaves alone."""

import os
import shlex
import sys
from pathlib import Path

import pytest
import yaml
from junitparser import JUnitXml
from markdown_it import MarkdownIt

from tests.suite.hostile import NASTY, assert_harmless, challenge, serving
from tests.suite.runner import Command, Runner, commands

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


def test_what_a_hostile_service_answers_is_shown_and_acts_on_nothing(tmp_path: Path) -> None:
    from sarif_pydantic import Sarif

    here = runner(tmp_path)
    body = challenge().replace(b"pwned", b"pwned " + MARKUP.replace("\n", "\\n").encode())
    with serving(body, 402, {}) as url:
        code, outputs = here.action(ACTION, {"args": f"{url} --only 2.1,2.2 --seed 1"})
    assert (code, outputs["exit-code"]) == (1, "1")
    told = commands(here.log)
    assert {each.name for each in told} <= {"error", "warning"}
    titles = [each.properties["title"] for each in told]
    assert "MUST failed (1 of 5 cases, 4 not judged): spec/2.1/amount" in titles
    assert all(each.rpartition(": ")[2].split("/")[1] in ("2.1", "2.2") for each in titles)
    assert "pwned" in "".join(each.message for each in told)
    assert_harmless("\n".join(each for each in here.log.split("\n") if not each.startswith("::")))
    assert_harmless(here.summary)
    assert "pwned" in here.summary
    assert markup(here.summary) <= {"details", "/details", "summary", "/summary"}
    read = JUnitXml.fromfile(str(here.workspace / outputs["junit"]))
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
    assert outputs == {"exit-code": "2", "junit": "", "sarif": "", "html": ""}
    (error,) = commands(here.log)
    assert f"{NOBODY}: nobody answers" in error.message
    assert "no verdict\n\nExit code 2" in here.summary
    here.log = ""
    code, _ = here.action(ACTION, {"args": "payer -- sh -c 'echo ::error::pwned; echo ::b::c >&2'"})
    (error,) = commands(here.log)
    assert "buys nothing at an honest shop" in error.message
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
