"""Servers of the standard that others have published, as the judge of servers starts them.

`python -m tests.suite_server.published [NAME…|all]` judges them, and keeps the verdicts with the versions
in conformance/server/published.json. It writes conformance/servers.md anew: the table of all cases, the
problems of the field with what catches them, and the verdicts, each with its cause in their source.
"""

import asyncio
import shlex
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any

from tests import npm
from tests.interop import programs
from tests.published import ROOT, Kept, cell, page as markdown, pinned, summary, verdicts, words
from tests.suite_server.judging import ITEMS
from x402sim.judging import Verdict, judge
from x402sim.report.results import Outcome
from x402sim.suite.server.case import trade
from x402sim.suite.server.payment import Dialect
from x402sim.suite.server.room import Spoken, server_command
from x402sim.suite.server.subject import SECTIONS, ServerJudge, all_cases, item_in, rows

KEPT = Kept(ROOT / "conformance" / "server" / "published.json")
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
        "server", [first], start=shlex.join(it.words), also=also, dialects=str(it.dialect),
        only=only if isinstance(only, str) else [*only], **more,
    )  # fmt: skip


def transaction(name: str) -> str:
    """Buy from one, and return the hash of the transfer."""
    it = PUBLISHED[name]

    async def main() -> str:
        words, items = tuple(it.words), [*map(item_in, it.sells)]
        server = Spoken(words) if it.dialect is MCP else server_command(words, look=items[0].path)
        judge = ServerJudge(subject=server, items=items)
        try:
            play = await judge.begun(await judge.room(), it.dialect, "a good payment")
            (moved,) = (await trade(play, again=0)).moved
            return moved.tx_hash
        finally:
            await judge.close()

    return asyncio.run(main())


FILE = ROOT / "conformance" / "servers.md"
ABOUT = words(__file__)
PORT = "127.0.0.1"
"""What names a port is another one in each run."""


def why(it: Published, check_id: str) -> str:
    """Return why a published server fails an id; raises `ValueError` for one that nobody has read."""
    families = ("mcp",) if it.dialect is Dialect.MCP else ABOUT["packages"][it.package]
    causes = {begin: text for name in families for begin, text in ABOUT["causes"][name].items()}
    return str(causes[max((each for each in causes if check_id.startswith(each)), key=len)])


def _verdict(name: str, it: dict[str, Any]) -> Iterator[str]:
    published = PUBLISHED[name]
    lost = ", ".join(it["lost"]) or "nothing"
    yield from ("", f"### {name}: {it['version']}", "", f"Lost, as counted on the ledger: {lost}.")
    musts = [each for each in it["failed"] if each["level"] == "MUST"]
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for each in musts:
        groups.setdefault((each["cause"], why(published, each["id"])), []).append(each)
    if groups:
        yield ""
        yield "| a MUST: what it does | because | ids | lost in each | the first |"
        yield "| --- | --- | --- | --- | --- |"
    for (cause, because), failed in groups.items():
        ids = ", ".join(f"`{each['id']}`" for each in failed)
        tokens = {each.get("lost", "-") for each in failed}
        did = cell(failed[0]["actual"])
        yield f"| {cause} | {because} | {ids} | {', '.join(sorted(tokens))} | {did} |"
    shoulds: dict[str, list[str]] = {}
    for each in it["failed"]:
        if each["level"] != "MUST":
            shoulds.setdefault(each["cause"], []).append(f"`{each['id']}`")
    if shoulds:
        yield from ("", "SHOULD, of ours:", "")
        for cause, (one, *more) in shoulds.items():
            yield f"- {cause}: {one}{f', and {len(more)} more' if more else ''}"
    observed = [each for each in it["observed"] if PORT not in each["told"]]
    if lines := [f"- {each['told']}: `{each['id']}`" for each in observed]:
        yield from ("", "Observed:", "", *lines)
    first = max(musts, key=lambda each: "lost" in each)["id"]
    sold = published.sells[0]
    yield ""
    sold = f"'{sold}'" if published.dialect is Dialect.MCP else sold
    yield f"`x402sim conformance server {sold} --start '{published.command}' --only {first}`"


def page() -> str:
    kept = KEPT.all()
    found = {name: {"about": name, "dialects": [it["dialect"]], **it} for name, it in kept.items()}
    each = (line for name, it in kept.items() for line in _verdict(name, it))
    told = chain(verdicts("server", found.values()), each)
    return markdown(ABOUT, SECTIONS, rows(), all_cases(), Dialect, told)


def main(names: list[str]) -> None:
    """Judge these, or all, keep what came of it, and write the page."""
    for name in PUBLISHED if names == ["all"] else names:
        it, found = PUBLISHED[name], verdict(name)
        print(name, found, found.done, f"{found.seconds:.0f} s", flush=True)
        if found.outcome is Outcome.INCONCLUSIVE:
            sys.exit(f"{name}: {found.sentence} {sorted({each.reason for each in found.results})}")
        about = {"version": it.version, "dialect": it.dialect, "day": found.about.started[:10]}
        money = {"transaction": transaction(name), "lost": found.losses}
        KEPT.keep(name, about | money | summary(found.results), PUBLISHED)
    FILE.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
