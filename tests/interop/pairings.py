"""Two tables of the guide: which programs pay each other by EIP-3009, by Permit2 and in `upto`, and
which routes of the foundation's end-to-end tests work.

Both are made of the tests that were collected: a pairing of their parameters, a route of the mark
that `shows_routes` makes. Each of these tests runs in CI or in a campaign.
"""

from collections.abc import Iterable
from itertools import product

import pytest

from tests.interop.table import PAGE, ROOT, markdown
from x402sim.text.templates import markdown_table

METERED = ROOT / "x402sim" / "guide" / "metered.md"
PARTS = ("ours", "Python", "npm")
PAIRS = [*product(PARTS, repeat=3)]
"""Every facilitator, server and client."""
WAYS = ("`exact`, EIP-3009", "`exact`, Permit2", "`upto`")
"""What each server sells by."""
FACILITATOR, SERVICE, PAYER = COLUMNS = ("facilitator and chain", "service", "payer")
ROUTES = (
    "/exact/evm/eip3009",
    "/exact/evm/eip3009/upfront",
    "/exact/evm/permit2",
    "/exact/evm/permit2/upfront",
    "/exact/evm/permit2-eip2612GasSponsoring",
    "/exact/evm/permit2-erc20ApprovalGasSponsoring",
    "/upto/evm/permit2",
    "/upto/evm/permit2-eip2612GasSponsoring",
    "/upto/evm/permit2-erc20ApprovalGasSponsoring",
    "/batch-settlement/evm/eip3009",
    "/batch-settlement/evm/permit2",
    "/batch-settlement/evm/permit2-eip2612GasSponsoring",
    "/batch-settlement/evm/permit2-erc20ApprovalGasSponsoring",
    "/auth-capture/evm/eip3009",
    "/auth-capture/evm/permit2",
)
"""The EVM routes of the foundation's `e2e/config/mechanisms_evm.json`."""
WHY_NOT = {
    "batch-settlement": "the scheme `batch-settlement` is not built",
    "auth-capture": "the scheme `auth-capture` is not built",
    "permit2-erc20": "`PaymentAuth` signs permits, and no transactions",
    "permit2/upfront": "by Permit2 our service settles after the work only",
}
"""Why something of a route does not work, by a part of its name; the first that fits."""


def shows_routes(column: str, *routes: str) -> pytest.MarkDecorator:
    """Return the mark of a test in which a part of ours takes these routes."""
    assert column in COLUMNS
    assert not {*routes} - {*ROUTES}
    return pytest.mark.interop(column=column, routes=routes)


def pairings(items: Iterable[pytest.Item]) -> str:
    """Return the table of pairings that these tests show: the clients of each cell."""
    found: dict[tuple[str, str], list[str]] = {}
    for item in items:
        params = getattr(getattr(item, "callspec", None), "params", {})
        if getattr(item, "originalname", "") == "test_they_pay_each_other":
            clients = found.setdefault((params["shop"], params["facilitator"]), [])
            clients += [params["client"]] * (params["client"] not in clients)
    rows = (
        (server, by, *[", ".join(clients)] * len(WAYS))
        for (server, by), clients in sorted(found.items(), key=_place)
    )
    return markdown_table(("server", "facilitator", *WAYS), rows)


def _place(found: tuple[tuple[str, str], list[str]]) -> list[int]:
    return [PARTS.index(part) for part in found[0]]


def routes(items: Iterable[pytest.Item]) -> str:
    """Return the table of routes: the parts that work in these tests, and why others do not."""
    shown = {
        (mark.kwargs["column"], route)
        for item in items
        for mark in item.iter_markers("interop")
        for route in mark.kwargs.get("routes", ())
    }
    rows = []
    for route in ROUTES:
        works = [(column, route) in shown for column in COLUMNS]
        why = "" if all(works) else next(why for part, why in WHY_NOT.items() if part in route)
        rows.append((f"`{route}`", *("yes" if each else "no" for each in works), why))
    return markdown_table(("route", *COLUMNS, "why not"), rows)


TABLES = {markdown: PAGE, pairings: METERED, routes: METERED}
"""The guide's tables of what the tests of this folder show: what makes each, and its page."""
