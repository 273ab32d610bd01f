"""Servers of the standard that are published and have no recipe, as the judge of servers starts them.

`python -m tests.suite_server.published [NAME…|all]` judges them, and keeps the verdicts in
conformance/verdicts.json; those with a recipe are judged by `x402sim conformance server --sdk`. It writes
conformance/servers.md anew: the table of all cases, and the problems of the field.
"""

import shlex
import sys
from collections.abc import Iterable
from dataclasses import dataclass

from tests import npm
from tests.interop import programs
from tests.published import ROOT, keep, page as markdown, pinned, words
from tests.suite_server.judging import ITEMS
from x402sim.judging import Verdict, judge
from x402sim.report.results import Outcome
from x402sim.suite.server.payment import Dialect
from x402sim.suite.server.subject import SECTIONS, all_cases, rows

FAILS = 'POST /report {"title": "fail"}'
NEXT = "npm_next/node_modules/next/dist/bin/next"


@dataclass(frozen=True, slots=True)
class Published:
    """A shop behind the middleware of a package: a program of tests/interop, and its own name there."""

    package: str
    program: str
    shop: str
    dialect: Dialect
    under: str = ""
    """What stands before its paths."""

    @property
    def version(self) -> str:
        """The version of the package."""
        return pinned(self.program, self.package).split()[-1]

    @property
    def words(self) -> list[str]:
        """What starts it, with its packages installed."""
        if self.program != NEXT:
            return [*programs.command(self.program), *filter(None, [self.shop])]
        folder = npm.built(programs.FOLDER / self.shop)
        return [str(npm.node()), str(programs.FOLDER / NEXT), "start", str(folder)]

    @property
    def command(self) -> str:
        """The same, from the root of a checkout whose packages are installed."""
        words = ["start", f"tests/interop/{self.shop}"] if self.program == NEXT else [self.shop]
        return programs.from_checkout(self.program, *words)

    @property
    def sells(self) -> list[str]:
        """What is bought, as on the command line; the first without a method."""
        if self.dialect is Dialect.MCP:
            return ['MCP stdio forecast {"city": "Oslo"}']
        return [each.shown.replace("/", f"{self.under}/", 1) for each in ITEMS]

    @property
    def failing(self) -> str | None:
        """What it sells that fails."""
        is_tool = self.dialect is Dialect.MCP
        return None if is_tool else FAILS.replace("/", f"{self.under}/", 1)


V1, V2, MCP = Dialect.V1, Dialect.V2, Dialect.MCP
PUBLISHED = {
    "@x402/next": Published("@x402/next", NEXT, "npm_next", V2),
    "@x402/next (proxy)": Published("@x402/next", NEXT, "npm_next", V2, "/proxied"),
    "x402-express": Published("x402-express", "npm_v1/sell.mjs", "express", V1),
    "x402-hono": Published("x402-hono", "npm_v1/sell.mjs", "hono", V1),
    "fastapi-x402": Published("fastapi-x402", "sell.py", "fastapi-x402", V1),
    "billmyagent (FastAPI)": Published("billmyagent", "sell.py", "billmyagent", V2),
    "billmyagent (Flask)": Published("billmyagent", "sell.py", "billmyagent-flask", V2),
    "x402[mcp]": Published("x402", "mcp_server.py", "", MCP),
}
"""Each by the name of its record."""


def verdict(name: str, only: str | Iterable[str] = ()) -> Verdict:
    """Judge one in the version that it offers."""
    it = PUBLISHED[name]
    first, *also = it.sells
    more = {"restart": "yes"} | ({} if it.failing is None else {"failing": it.failing})
    return judge(
        "server", [first], start=shlex.join(it.words), also=also, dialects=str(it.dialect),
        only=only if isinstance(only, str) else [*only], **more,
    )  # fmt: skip


FILE = ROOT / "conformance" / "servers.md"


def page() -> str:
    """Return the page, as Markdown."""
    return markdown(words(__file__), SECTIONS, rows(), all_cases(), Dialect)


def main(names: list[str]) -> None:
    """Judge these, or all, keep what came of it, and write the page."""
    for name in PUBLISHED if names == ["all"] else names:
        it, found = PUBLISHED[name], verdict(name)
        print(name, found, found.done, f"{found.seconds:.0f} s", flush=True)
        if found.outcome is Outcome.INCONCLUSIVE:
            sys.exit(f"{name}: {found.sentence} {sorted({each.reason for each in found.results})}")
        first, *also = map(shlex.quote, it.sells)
        more = " ".join(f"--also {each}" for each in also)
        again = f"x402sim conformance server {first} {more} --start {shlex.quote(it.command)}"
        keep(found, name, it.version, again.replace("  ", " "))
    FILE.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
