"""A service of ours beside its world, as two processes; and the command line, in this process."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from tests.serve.driver import Running
from x402sim.cli import app


class Deployment:
    """A world without a service, and a service that uses it."""

    def __init__(self) -> None:
        self.world = Running("serve", "--no-service", "--port", "0", "--json")
        self.ready: dict[str, Any] = json.loads(self.world.line())
        self.env = service_env(self.ready)
        self.service = Running("service", "--port", "0", env=self.env)
        self.url = self.service.line().split()[3].rstrip(";")
        self.key: str = self.ready["accounts"][0]["privateKey"]
        self.control: str = self.ready["control"]

    def close(self) -> None:
        self.service.close()
        self.world.close()


def service_env(ready: dict[str, Any]) -> dict[str, str]:
    merchant, wallet = ready["accounts"][-2:]
    return {
        "PRIVATE_KEY": wallet["privateKey"],
        "MERCHANT_ADDRESS": merchant["address"],
        "FACILITATOR_URL": ready["facilitator"],
        "EXPLORER_URL": ready["explorer"],
        "RPC_URL": ready["rpc"],
    }


@dataclass
class Done:
    """What a command has printed, and its exit code."""

    returncode: int
    stdout: str
    stderr: str

    @property
    def all(self) -> str:
        return self.stdout + self.stderr

    @property
    def words(self) -> str:
        """Both outputs, without their line breaks."""
        return " ".join(self.all.split())

    @property
    def report(self) -> dict[str, Any]:
        """The report of `--json -`."""
        report: dict[str, Any] = json.loads(self.stdout)
        return report

    @property
    def results(self) -> dict[str, Any]:
        """Its results by their ids."""
        return {each["id"]: each for each in self.report["results"]}


REPORTS = ("report.json", "report.xml", "report.html", "report.sarif")


def reports(folder: Path) -> list[str]:
    return [part for name in REPORTS for part in ("--report", str(folder / name))]


def all_reports(folder: Path) -> str:
    return "\n".join((folder / name).read_text("utf-8") for name in REPORTS)


def found(folder: Path) -> dict[str, Any]:
    """Return the results of the JSON report in a folder, by their ids."""
    report = json.loads((folder / "report.json").read_text("utf-8"))
    return {each["id"]: each for each in report["results"]}


def command(*words: str, key: str | None = None) -> Done:
    """Run `python -m x402sim` with these words, and a payer's key in the environment."""
    done = CliRunner().invoke(app, words, env={"X402SIM_PAYER_KEY": key}, prog_name="x402sim")
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return Done(done.exit_code, done.stdout, done.stderr)


def conformance(*options: str, key: str | None = None) -> Done:
    return command("conformance", *options, key=key)


def refused(*options: str, key: str | None = None) -> str:
    """Return the one line of a run that does not begin."""
    done = conformance(*options, key=key)
    assert done.returncode == 2, done.all
    assert len(done.stderr.splitlines()) == 1, done.stderr
    return done.stderr
