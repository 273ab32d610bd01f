"""Payers that are published and have no recipe, as the judge of payers starts them.

`python -m tests.suite_payer.published [NAME…|all]` judges them, and keeps the verdicts in
conformance/verdicts.json; those with a recipe are judged by `x402sim conformance payer --sdk`. It writes
conformance/payers.md anew, of all cases.
"""

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from typing import Any

import httpx

from tests.interop import programs
from tests.interop.table import with_version
from tests.published import ROOT, keep, page as markdown, words
from x402sim import PaymentAuth, SessionAuth, Wallet
from x402sim.clock import stopwatch
from x402sim.judging import Verdict, judge
from x402sim.payer.tools import ToolTransport, tool_request
from x402sim.protocol.networks import network_named
from x402sim.report.results import Outcome
from x402sim.suite.case import ONLY
from x402sim.suite.payer.case import BY_PERMIT2
from x402sim.suite.payer.play import Task
from x402sim.suite.payer.shop import Dialect
from x402sim.suite.payer.subject import SECTIONS, all_cases, rows
from x402sim.version import VERSION

DEADLINE_S = 9
CRASHES = ("kit/hostile/deep-402", "payer/control/buys")
"""What is judged of a program once more, by a process for each start."""


@dataclass(frozen=True, slots=True)
class Program:
    """A client of a package in a program of tests/interop, which buys as the package's guide says."""

    package: str
    file: str
    client: str
    flows: str

    @property
    def version(self) -> str:
        """The version that the lock file pins."""
        return with_version(self.package).split()[1]

    @property
    def command(self) -> str:
        """What starts it once, from the root of a checkout whose packages are installed."""
        return programs.from_checkout(self.file, self.client)

    @property
    def words(self) -> list[str]:
        """The same, from anywhere; installs the packages."""
        return [*programs.command(self.file), self.client]

    @contextmanager
    def opened(self) -> Iterator[dict[str, Any]]:
        """Run it behind HTTP; yield what `judge` is given."""
        with subprocess.Popen(
            self.words, stdout=subprocess.PIPE, text=True, env={"PYTHONUNBUFFERED": "1"}
        ) as process:
            try:
                assert process.stdout is not None
                url = process.stdout.readline().strip()
                assert url.startswith("http"), f"{self.words} did not start"
                yield {"url": url}
            finally:
                process.kill()


@dataclass(frozen=True, slots=True)
class Own:
    """A payer of this package."""

    package: str
    what: str | Callable[[Task], str]
    flows: str
    command: str = ""

    @property
    def version(self) -> str:
        """This package's version."""
        return VERSION

    @contextmanager
    def opened(self) -> Iterator[dict[str, Any]]:
        """Yield what `judge` is given."""
        yield {"what": self.what}


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


PAYERS: dict[str, Program | Own] = {
    "x402[httpx] (version 1)": Program("PyPI x402", "pay.py", "httpx-v1", "v1"),
    "x402[requests] (version 1)": Program("PyPI x402", "pay.py", "requests-v1", "v1"),
    "@x402/axios": Program("npm @x402/axios", "npm_v2/pay.mjs", "axios", "v2"),
    "x402-fetch": Program("npm x402-fetch", "npm_v1/pay.mjs", "fetch", "v1"),
    "x402-axios": Program("npm x402-axios", "npm_v1/pay.mjs", "axios", "v1"),
    "@faremeter/fetch": Program("npm @faremeter/fetch", "npm_others/pay.mjs", "faremeter", "v1,v2"),
    "@dexterai/x402": Program("npm @dexterai/x402", "npm_others/pay.mjs", "dexter", "v2"),
    "mppx": Program("npm mppx", "npm_mppx/pay.mjs", "mppx", "v2"),
    "x402-client": Program("PyPI x402-client", "pay.py", "x402-client", "v2"),
    "billmyagent": Program("PyPI billmyagent", "pay.py", "billmyagent", "v1,v2"),
    "x402sim (PaymentAuth)": Own("x402sim", by_auth, ",".join(Dialect)),
    "x402sim pay": Own(
        "x402sim",
        f"{sys.executable} -m x402sim pay --permit2",
        "v1,v2,steps,mcp,permit2,upto",
        "x402sim pay --permit2",
    ),
}
"""Each payer by the name of its record."""


def verdict(name: str, only: str | tuple[str, ...] = ()) -> Verdict:
    payer = PAYERS[name]
    with payer.opened() as given:
        return judge("payer", given.pop("what", None), dialects=payer.flows, only=only, **given)


FILE = ROOT / "conformance" / "payers.md"


def page() -> str:
    return markdown(words(__file__), SECTIONS, rows(), all_cases(), Dialect)


def main(names: list[str]) -> None:
    for name in PAYERS if names == ["all"] else names:
        payer, found = PAYERS[name], verdict(name)
        print(name, found, found.done, f"{found.seconds:.0f} s", flush=True)
        if found.outcome is Outcome.INCONCLUSIVE:
            sys.exit(f"{name}: {found.sentence} {sorted({each.reason for each in found.results})}")
        if isinstance(payer, Program):  # what ends a process is seen where each start has its own
            alone = judge("payer", payer.words, dialects=payer.flows, only=CRASHES)
            ends = {each.id: each for each in alone.results if each.id == CRASHES[0]}
            results = tuple(ends.get(each.id, each) for each in found.results)
            found = replace(found, results=results)
        again = f"x402sim conformance payer{ONLY} -- {payer.command}" if payer.command else ""
        keep(found, name, payer.version, again)
    FILE.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
