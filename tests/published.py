"""The verdicts on our own programs.

`python -m tests.published [NAME…|all]` judges our own, and keeps the verdicts in conformance/verdicts.json. `x402sim conformance SUBJECT --sdk NAME==VERSION --keep conformance/verdicts.json`
judges a published version.
"""

import json
import sys
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from tests.interop import programs
from x402sim import PaymentAuth, SessionAuth, Wallet
from x402sim.clock import stopwatch
from x402sim.judging import Verdict, judge
from x402sim.payer.tools import ToolTransport, tool_request
from x402sim.protocol.networks import network_named
from x402sim.suite import published
from x402sim.suite.case import ONLY
from x402sim.suite.dialect import BY_PERMIT2
from x402sim.suite.payer.play import Task
from x402sim.suite.report.results import Outcome, by_dialect
from x402sim.suite.subject import subject
from x402sim.version import VERSION

ROOT = Path(__file__).parents[1]
DEADLINE_S = 9


def pinned(program: str, package: str) -> str:
    """Return a package and its version, as the folder of a program of tests/interop pins it."""
    if program.endswith(".py"):
        lines = (programs.PYTHON / "requirements.txt").read_text().splitlines()
        return next(each for each in lines if each.startswith(f"{package}==")).replace("==", " ")
    folder = programs.FOLDER / Path(program).parts[0]
    lock = json.loads((folder / "package-lock.json").read_text())
    return f"{package} {lock['packages'][f'node_modules/{package}']['version']}"


def keep(found: Verdict, implementation: str, version: str, repeat: str) -> None:
    """Keep the verdict on a program in conformance/verdicts.json."""
    cases = subject(found.about.subject).cases()
    record = published.record_of(found.about, found.results, cases, implementation, version, repeat)
    published.keep(published.shipped(), record, cases)


def kept(of: str) -> dict[str, published.Record]:
    """Return the records of a subject, by implementation and version."""
    return {each.name: each for each in published.read(published.shipped()).of(of)}


def failed(found: Verdict) -> set[tuple[str, str]]:
    """Return the ids of a verdict that failed, and their dialects."""
    return {
        (each.id, dialect)
        for result in found.results
        for dialect, each in by_dialect(result).items()
        if each.outcome is Outcome.FAILED
    }


# --- our own programs ------------------------------------------------------------------------

_auths: dict[str, PaymentAuth | SessionAuth] = {}


def _auth(task: Task) -> PaymentAuth | SessionAuth:
    wallet, network = Wallet(task.private_key), network_named(task.network_name)
    if task.flow == "session":
        return SessionAuth(
            wallet, deposit=task.max_amount, network=network, duration=600, deadline_s=DEADLINE_S
        )
    return PaymentAuth(
        wallet, max_amount=task.max_amount, max_total=task.max_amount, network=network,
        deadline_s=DEADLINE_S, permit2=task.flow in BY_PERMIT2,
    )  # fmt: skip


def by_auth(task: Task) -> str:
    """Buy all with httpx and `PaymentAuth`, or `SessionAuth`, kept as a program keeps it."""
    auth = _auths.setdefault(task.state_dir, _auth(task))
    transport: httpx.BaseTransport = httpx.HTTPTransport()
    asked = [httpx.Request(task.method, url) for url in task.urls]
    if task.flow == "mcp":
        transport, asked = ToolTransport(transport), [tool_request(task.url, task.tool)]
    with httpx.Client(transport=transport, auth=auth, timeout=DEADLINE_S) as http:
        return "\n".join(_bought(http, each) for each in asked)


def _bought(http: httpx.Client, request: httpx.Request) -> str:
    elapsed, read = stopwatch(), b""
    with closing(http.send(request, stream=True)) as answer:
        answer.raise_for_status()
        for part in answer.iter_bytes():
            read += part
            if elapsed() > DEADLINE_S:  # a time-out of httpx is one of a read, not of the answer
                raise TimeoutError("an answer without end")
    return read.decode()


@dataclass(frozen=True, slots=True)
class Own:
    """A program of ours: the arguments of `judge`, and the command that judges it again."""

    subject: str
    given: Mapping[str, Any]
    again: str = ""

    def judged(self, *only: str) -> Verdict:
        """Return the verdict on some ids, or all."""
        return judge(self.subject, only=only, **self.given)


_RUNS = f"{sys.executable} -m x402sim"
OWN = {
    "x402sim": Own(
        "facilitator",
        {"start": f"{_RUNS} facilitator", "dialects": "v1,v2,cronos,permit2,upto"},
        "x402sim conformance facilitator --start 'x402sim facilitator'",
    ),
    "x402sim (PaymentAuth)": Own(
        "payer", {"what": by_auth, "dialects": "v1,v2,steps,session,mcp,permit2,upto"}
    ),
    "x402sim pay": Own(
        "payer",
        {"what": f"{_RUNS} pay --permit2", "dialects": "v1,v2,steps,mcp,permit2,upto"},
        f"x402sim conformance payer{ONLY} -- x402sim pay --permit2",
    ),
}
"""Each by the name of its record."""


def main(names: list[str]) -> None:
    """Judge the named, or all, and keep the verdicts."""
    for name in OWN if names == ["all"] else names:
        found = OWN[name].judged()
        print(name, found, found.done, f"{found.seconds:.0f} s", flush=True)
        if found.outcome is Outcome.INCONCLUSIVE:
            sys.exit(f"{name}: {found.sentence} {sorted({each.reason for each in found.results})}")
        keep(found, name, VERSION, OWN[name].again)


if __name__ == "__main__":
    main(sys.argv[1:])
