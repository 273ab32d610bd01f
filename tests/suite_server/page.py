"""`python -m tests.suite_server.page`: writes conformance/servers.md.

It is the table of all cases of servers, the problems of the field with what catches them, and the
verdicts on the published ones that `published.json` keeps, each with its cause in their source.
"""

from collections.abc import Iterator
from itertools import chain
from typing import Any

from tests.published import ROOT, cell, page as markdown, verdicts, words
from tests.suite_server.published import KEPT, PUBLISHED, Published
from x402sim.suite.server.payment import Dialect
from x402sim.suite.server.subject import SECTIONS, all_cases, rows

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
    observed = it.get("observed", {}).items()
    if lines := [f"- {told}: `{each}`" for each, told in observed if PORT not in told]:
        yield from ("", "Observed:", "", *lines)
    first = max(musts, key=lambda each: "lost" in each)["id"]
    sold = published.sells[0]
    yield ""
    sold = f"'{sold}'" if published.dialect is Dialect.MCP else sold
    yield f"`x402sim conformance server {sold} --start '{published.command}' --only {first}`"


def page() -> str:
    """Return the page, as Markdown."""
    kept = KEPT.all()
    found = {name: {"about": name, "dialects": [it["dialect"]], **it} for name, it in kept.items()}
    each = (line for name, it in kept.items() for line in _verdict(name, it))
    told = chain(verdicts("server", found.values()), each)
    return markdown(ABOUT, SECTIONS, rows(), all_cases(), Dialect, told)


if __name__ == "__main__":
    FILE.write_text(page(), encoding="utf-8")
