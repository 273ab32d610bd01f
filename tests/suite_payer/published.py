"""Payers that others have published, as the judge of payers starts them, and what came of each.

`python -m tests.suite_payer.published [NAME…|all]` judges them, and keeps the verdicts with the versions
in conformance/payer/published.json. It writes conformance/payers.md anew, of these and of all cases.
"""

import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any

import httpx

from tests.interop import programs
from tests.interop.table import with_version
from tests.published import ROOT, Kept, page as markdown, words
from x402sim import PaymentAuth, SessionAuth, Wallet
from x402sim.clock import stopwatch
from x402sim.judging import Verdict, judge
from x402sim.payer.tools import ToolTransport, tool_request
from x402sim.protocol.networks import network_named
from x402sim.report.results import Outcome, Result, by_dialect
from x402sim.suite.payer.play import Task
from x402sim.suite.payer.shop import Dialect
from x402sim.suite.payer.subject import SECTIONS, all_cases, rows
from x402sim.version import VERSION

KEPT = Kept(ROOT / "conformance" / "payer" / "published.json")
DEADLINE_S = 9
CRASHES = ("kit/hostile/deep-402", "payer/control/buys")
"""What is judged of a program once more, by a process for each start."""
DOCUMENTS = ("payer", "kit")
"""Whose ids are kept: what is observed is not judged."""


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
        deadline_s=DEADLINE_S,
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
    "httpx": Program("PyPI x402", "pay.py", "httpx", "v2"),
    "httpx-v1": Program("PyPI x402", "pay.py", "httpx-v1", "v1"),
    "requests": Program("PyPI x402", "pay.py", "requests", "v2"),
    "requests-v1": Program("PyPI x402", "pay.py", "requests-v1", "v1"),
    "@x402/fetch": Program("npm @x402/fetch", "npm_v2/pay.mjs", "fetch", "v2"),
    "@x402/axios": Program("npm @x402/axios", "npm_v2/pay.mjs", "axios", "v2"),
    "x402-fetch": Program("npm x402-fetch", "npm_v1/pay.mjs", "fetch", "v1"),
    "x402-axios": Program("npm x402-axios", "npm_v1/pay.mjs", "axios", "v1"),
    "@faremeter/fetch": Program("npm @faremeter/fetch", "npm_others/pay.mjs", "faremeter", "v1,v2"),
    "@dexterai/x402": Program("npm @dexterai/x402", "npm_others/pay.mjs", "dexter", "v2"),
    "mppx": Program("npm mppx", "npm_mppx/pay.mjs", "mppx", "v2"),
    "x402-client": Program("PyPI x402-client", "pay.py", "x402-client", "v2"),
    "billmyagent": Program("PyPI billmyagent", "pay.py", "billmyagent", "v1,v2"),
    "PaymentAuth": Own("x402sim", by_auth, ",".join(Dialect)),
    "x402sim pay": Own(
        "x402sim", f"{sys.executable} -m x402sim pay", "v1,v2,steps,mcp", "x402sim pay"
    ),
}
"""Each payer by its name in the page."""


def verdict(name: str, only: str | tuple[str, ...] = ()) -> Verdict:
    payer = PAYERS[name]
    with payer.opened() as given:
        return judge("payer", given.pop("what", None), dialects=payer.flows, only=only, **given)


def judged(found: Verdict) -> dict[tuple[str, str], Result]:
    return {
        (each.id, flow): its
        for each in found.results
        for flow, its in by_dialect(each).items()
        if its.outcome is not Outcome.SKIPPED and each.id.split("/")[0] in DOCUMENTS
    }


def kept(results: Mapping[tuple[str, str], Result]) -> dict[str, Any]:
    """Return what is kept of results: how many of each document, and those that did not pass.

    With a failure stands what the money did.
    """

    def of(outcome: Outcome) -> list[dict[str, str]]:
        return [
            {"id": name, "dialect": flow} | ({"actual": its.actual} if its.actual else {})
            for (name, flow), its in results.items()
            if its.outcome is outcome
        ]

    return {
        "counts": Counter(name.split("/")[0] for name, _ in results),
        "failed": of(Outcome.FAILED),
        "inconclusive": of(Outcome.INCONCLUSIVE),
    }


FILE = ROOT / "conformance" / "payers.md"
ABOUT = words(__file__)


def published() -> list[str]:
    """Return what came of payers that others have published: a table, then each in words."""
    told = KEPT.all()
    lines = [
        "| payer | package | flows | failed, of a public text | failed, of ours | lost |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for name, payer in told.items():
        cells = [name, f"{payer['package']} {payer['version']}", payer["flows"].replace(",", ", ")]
        of = Counter(each["id"].split("/")[0] for each in payer["failed"])
        cells += [f"{of[each]} of {payer['counts'][each]}" for each in DOCUMENTS]
        lines.append(f"| {' | '.join([*cells, ', '.join(payer['lost']) or 'nothing'])} |")
    for name, payer in told.items():
        lines += ["", f"### {name}", ""]
        if not payer["failed"]:
            lines.append("Nothing failed.")
            continue
        by_end: dict[str, list[str]] = {}
        for each in payer["failed"]:
            shown = f"`{each['id']} [{each['dialect']}]`"
            by_end.setdefault(each.get("actual", ""), []).append(shown)
        lines += [f"- {end}: {', '.join(ids)}" for end, ids in by_end.items()]
        if payer["command"]:
            first = payer["failed"][0]
            only = f"--dialects {first['dialect']} --only {first['id']}"
            lines += ["", f"`x402sim conformance payer {only} -- {payer['command']}`"]
    return lines


def page() -> str:
    return markdown(ABOUT, SECTIONS, rows(), all_cases(), Dialect, published())


def main(names: list[str]) -> None:
    for name in PAYERS if names == ["all"] else names:
        payer, found = PAYERS[name], verdict(name)
        print(name, found, found.done, f"{found.seconds:.0f} s", flush=True)
        if found.outcome is Outcome.INCONCLUSIVE:
            sys.exit(f"{name}: {found.sentence} {sorted({each.reason for each in found.results})}")
        results = judged(found)
        if isinstance(payer, Program):  # what ends a process is seen where each start has its own
            alone = judged(judge("payer", payer.words, dialects=payer.flows, only=CRASHES))
            results |= {each: it for each, it in alone.items() if each[0] == CRASHES[0]}
        about = {
            "package": payer.package,
            "version": payer.version,
            "flows": payer.flows,
            "command": payer.command,
        }
        KEPT.keep(name, about | {"lost": found.losses} | kept(results), PAYERS)
    FILE.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
