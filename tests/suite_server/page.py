"""`python -m tests.suite_server.page`: writes conformance/servers.md.

It is the table of all cases of servers, the problems of the field with what catches them, and the
verdicts on the published ones that `published.json` keeps, each with its cause in their source.
"""

from collections.abc import Iterator
from typing import Any

from tests.published import ROOT, cell, page as markdown, plays, problems, verdicts
from tests.suite_server.published import KEPT, PUBLISHED, Published
from x402sim.suite.server.payment import Dialect
from x402sim.suite.server.subject import SECTIONS, all_cases, rows

FILE = ROOT / "conformance" / "servers.md"
PAINS = [
    ("2", "an unknown outcome is answered 402, and the payer signs again", "server/order/settled-lost, server/order/settled-gateway, kit/order/settled-pending-first"),
    ("4", "one authorization buys several requests", "server/many/again, server/many/at-once, server/many/at-once-settling, kit/many/at-once-told-again"),
    ("5", "served before, or despite, a failed settlement", "server/order/refused, server/order/settle-down, server/order/settle-empty"),
    ("6", "an authorization for one resource is accepted at another", "server/binding/elsewhere, server/binding/query, server/binding/body, server/binding/dearer"),
    ("7", "the paywall is bypassed by the path", "server/path/spelling, server/path/method, server/path/headers, server/path/head"),
    ("8", "an answer is kept by its id alone", "server/identifier/payer, server/identifier/unsigned, server/identifier/other-409"),
    ("12", "a wrong EIP-712 name", "server/control/sells: a payment that is signed by the offer's name is served"),
    ("14", "a rejected payment looks like an unpaid request; a malformed header is 402", "server/order/refused-reason, server/header/malformed-answer, silent/header/malformed-status"),
    ("15", "headers that are not exposed, a preflight that is to pay", "kit/offer/cors, kit/offer/preflight, kit/offer/preflight-allows"),
    ("16", "a 402, or a paid 200, is kept by a shared cache", "server/offer/cache, server/offer/cache-offer, kit/offer/cache-forbidden"),
    ("17", "behind a proxy the resource says http", "kit/offer/proxy, server/offer/proxy-paid"),
    ("21", "MCP: the retry drops the payment", "server/tool/offer, server/tool/offer-both, server/tool/unpaid, and every row in the column `mcp`"),
    ("19", "decimals, floats, ×10^6", "server/offer/whole, kit/offer/whole-same"),
    ("20", "versions mixed, a page instead of JSON", "server/offer/browser, server/header/other, server/header/version-answer"),
    ("22", "a 3xx of the handler is not settled; redirects of the facilitator leave the middleware open", "server/handler/redirects, kit/handler/redirects-settled, server/order/verify-moved, server/order/settle-moved, kit/order/verify-redirected"),
]  # fmt: skip
"""Rows of the list of pains: what people report of servers, and what catches it."""
NONE = [
    ("a price that changes between an offer and its payment", "the judge changes no price of a server; a payment for another amount is `server/payment/accepted`"),
    ("tools that are paid by version 1, or by the experimental `org.x402/payment`", "the latter is observed: `silent/tool/draft`"),
    ("other schemes than exact, other transfers than EIP-3009's", "the judge pays by EIP-3009"),
    ("how often a handler runs", "nothing outside shows it, but a number in what is sold: `server/handler/unpaid`, `silent/many/runs`"),
]  # fmt: skip
"""What no case is about, and why."""
PORT = "127.0.0.1"
"""What names a port is another one in each run."""
KEEPS_NOTHING = (
    "nothing is kept of the payment: sent again, it is verified anew, and its nonce is used: 402"
)
GUARDS_GET = "the route `GET /weather` guards the verb GET alone, and the framework answers HEAD by what answers GET"
TYPESCRIPT = {
    "server/order/settled": "what the client of settle throws (no answer, a status that is no 200) is caught and told as a refusal with an empty transaction; a 200 that cannot be read is a 502, which is honest; " + KEEPS_NOTHING,
    "server/path/head": GUARDS_GET,
}  # fmt: skip
NEXT_PROXY = {
    "server/order/handler-fails-flow": "the proxy settles before it lets the request through to the handler, and offers no flow that says so; the README of the package does",
}  # fmt: skip
PYTHON = {
    "server/order/settled": "`process_settlement` catches whatever goes wrong while settle is asked, and tells it as a refusal with an empty transaction; " + KEEPS_NOTHING,
    "server/header/version-answer": "it is read as a `PaymentPayloadV1`, whose `accepted` is asked for and does not exist",
    "server/path/head": GUARDS_GET,
}  # fmt: skip
VERSION_1 = {
    "server/order/settled": "each error of settle is caught and told as a refusal in the body; the header of the result goes with a success only; " + KEEPS_NOTHING,
    "server/order/settle-text": "`!success` is asked, and a text that is not empty is true",
    "server/path/head": GUARDS_GET,
}  # fmt: skip
MCP = {
    "server/order/settled": "`settle_payment` raises or fails, and the wrapper returns the offer with a result whose transaction is empty; " + KEEPS_NOTHING,
}  # fmt: skip
FASTAPI_X402 = {
    "server/order": "a settlement that failed is written into the header, and the goods are sent all the same; a 200 of settle is a success whatever stands in it",
    "server/many": "the goods go out whether settle took the payment or refused it: each request that was verified is served",
}  # fmt: skip
CAUSES = {
    "x402": PYTHON,
    "billmyagent": PYTHON,
    "@x402/express": TYPESCRIPT,
    "@x402/hono": TYPESCRIPT,
    "@x402/next": TYPESCRIPT | NEXT_PROXY,
    "x402-express": VERSION_1,
    "x402-hono": VERSION_1,
    "fastapi-x402": FASTAPI_X402,
}
"""By package: why it fails what begins so, as its source says; the longest beginning counts."""


def why(it: Published, check_id: str) -> str:
    """Return why a published server fails an id; raises `ValueError` for one that nobody has read."""
    causes = MCP if it.dialect is Dialect.MCP else CAUSES[it.package]
    return causes[max((each for each in causes if check_id.startswith(each)), key=len)]


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
    return markdown(
        [
            "# What servers are judged by",
            "",
            "Made by `python -m tests.suite_server.page`. How to judge one is in the guide, *Judge your server*.",
            "A cell is a play in one version: its demands, by the document of their ids (`server`: a public text",
            "says it or it follows; `kit`: ours; `silent`: observed), each `DOCUMENT/SECTION/ROW-VERSION`.",
            "",
            f"{len(all_cases())} ids in {len({case.played_as for case in all_cases()})} plays.",
            *plays(SECTIONS, rows(), all_cases(), Dialect),
            *problems(PAINS, NONE, all_cases()),
            "",
            "## Published servers",
            "",
            "Judged by `python -m tests.suite_server.published`, as programs of `tests/interop` that sell three pages as",
            "the guide of each package says, in the version that each offers, in front of a facilitator of the judge. Each",
            "failure happened twice, and was read in the source of the package with the benefit of the doubt. Of a",
            "settlement whose answer is lost, the defence is that a 402 names the nonce as used, which is true; but it",
            "asks for the next payment, and what was paid for is never served.",
            "",
            "Not judged: `@dexterai/x402` 2.0.0, which offers Solana's USDC on Base Sepolia and names no EIP-712 domain, so",
            "that nothing can be bought; `@faremeter/middleware` 0.22.0, which asks `/accepts` of its own facilitators;",
            "`x402-mcp` 0.0.5, whose tools are sold by version 1, and the judge buys tools by version 2.",
            "",
            *verdicts("server", found.values()),
            *(line for name, it in kept.items() for line in _verdict(name, it)),
        ]
    )


if __name__ == "__main__":
    FILE.write_text(page(), encoding="utf-8")
