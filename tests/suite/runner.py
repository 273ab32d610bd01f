"""What a runner of GitHub Actions does: it reads workflow commands, and runs an action's steps.

Written after the runner's own rules: `ActionCommand.TryParseV2` and `EscapeUtil`, by which lines of
a log become annotations, and the shell and the files of a step of a composite action.
"""

import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from x402sim.suite.process import end_group


@dataclass(frozen=True, slots=True)
class Command:
    """One workflow command, unescaped."""

    name: str
    properties: dict[str, str]
    message: str


def commands(log: str) -> list[Command]:
    """Return the workflow commands that a runner finds in a log."""
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
            end_group(group)

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
        """Run the script of a step; return its exit code and its outputs."""
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
