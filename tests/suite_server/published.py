"""Servers of the standard that others have published, as the judge of servers starts them.

`python -m tests.suite_server.published [NAME...]` judges them, and keeps the verdicts with the versions
in published.json beside this file, of which `page.py` makes conformance/servers.md.
"""

import asyncio
import shlex
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tests import npm
from tests.interop import programs
from tests.published import Kept, pinned, summary
from tests.suite_server.judging import ITEMS
from x402sim.judging import Verdict, judge
from x402sim.report.results import Outcome
from x402sim.suite.server.case import trade
from x402sim.suite.server.payment import Dialect
from x402sim.suite.server.room import Command, Spoken
from x402sim.suite.server.subject import Judge, item_in

KEPT = Kept(Path(__file__).with_name("published.json"))
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
        """The package, and its version."""
        return pinned(self.program, self.package)

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


V1, V2, MCP = Dialect
PUBLISHED = {
    "FastAPI": Published("x402", "sell.py", "fastapi", V2),
    "Flask": Published("x402", "sell.py", "flask", V2),
    "Express": Published("@x402/express", "npm_v2/sell.mjs", "express", V2),
    "Hono": Published("@x402/hono", "npm_v2/sell.mjs", "hono", V2),
    "Next.js": Published("@x402/next", NEXT, "npm_next", V2),
    "Next.js, proxy": Published("@x402/next", NEXT, "npm_next", V2, "/proxied"),
    "Express, version 1": Published("x402-express", "npm_v1/sell.mjs", "express", V1),
    "Hono, version 1": Published("x402-hono", "npm_v1/sell.mjs", "hono", V1),
    "fastapi-x402": Published("fastapi-x402", "sell.py", "fastapi-x402", V1),
    "billmyagent": Published("billmyagent", "sell.py", "billmyagent", V2),
    "billmyagent, Flask": Published("billmyagent", "sell.py", "billmyagent-flask", V2),
    "MCP, FastMCP": Published("x402", "mcp_server.py", "", MCP),
}
"""Each by its name in the page."""


def verdict(name: str, only: str | Iterable[str] = ()) -> Verdict:
    """Judge one in the version that it offers."""
    it = PUBLISHED[name]
    first, *also = it.sells
    more = {"restart": "yes"} | ({} if it.failing is None else {"failing": it.failing})
    return judge(
        "server", [first], start=shlex.join(it.words), also=also, versions=str(it.dialect),
        only=only if isinstance(only, str) else [*only], **more,
    )  # fmt: skip


def transaction(name: str) -> str:
    """Buy from one, and return the hash of the transfer."""
    it = PUBLISHED[name]

    async def main() -> str:
        words, items = tuple(it.words), [*map(item_in, it.sells)]
        server = Spoken(words) if it.dialect is MCP else Command(words, look=items[0].path)
        judge = Judge(subject=server, items=items)
        try:
            play = await judge.begun(await judge.room(), it.dialect, "a good payment")
            (moved,) = (await trade(play, again=0)).moved
            return moved.tx_hash
        finally:
            await judge.close()

    return asyncio.run(main())


def main(names: Iterable[str]) -> None:
    """Judge these, or all, and keep what came of it."""
    for name in names or PUBLISHED:
        it, found = PUBLISHED[name], verdict(name)
        print(name, found, found.done, f"{found.seconds:.0f} s", flush=True)
        if found.outcome is Outcome.INCONCLUSIVE:
            sys.exit(f"{name}: {found.sentence} {sorted({each.reason for each in found.results})}")
        about = {"version": it.version, "dialect": it.dialect, "day": found.about.started[:10]}
        money = {"transaction": transaction(name), "lost": found.losses}
        KEPT.keep(name, about | money | summary(found.results), PUBLISHED)


if __name__ == "__main__":
    main(sys.argv[1:])
