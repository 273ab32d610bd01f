"""Offers that a payer should accept: unusual, and valid.

A payer that refuses everything is safe and useless; people have reported each of these purchases
as failed.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from x402sim.suite import texts
from x402sim.suite.dialect import BY_PERMIT2, Dialect
from x402sim.suite.payer.case import (
    STANDARD,
    PayerRow,
    Violation,
    bought,
    case,
    demand,
    is_bought,
    only,
    served,
)
from x402sim.suite.payer.play import Purchase
from x402sim.suite.payer.shop import Offer, Shop, Story
from x402sim.suite.wire import Reply, Request, as_json


def _odd(
    slug: str,
    title: str,
    because: str,
    story: Story,
    absent: Mapping[Dialect, str] | None = None,
) -> PayerRow:
    return case(f"accept/{slug}", is_bought(title, because), absent=absent or {})(story)


def _more(_: Shop, right: Offer) -> list[Offer]:
    return [replace(right, extra={**right.extra, "decimals": 6, "note": ["a", {"b": None}]})]


_DEMO = {"x-demo": {"info": {"ticket": "t-1"}, "schema": {"type": "object"}}}


@demand("The info of an extension is sent back", texts.explicit(texts.ECHO), level="SHOULD")
def _echoes(played: Purchase) -> Violation | None:
    for said in played.payments_said:
        got: Any = (said.get("extensions") or {}).get("x-demo")
        info = got.get("info") if isinstance(got, dict) else None
        if not isinstance(info, dict) or info.get("ticket") != "t-1":
            return Violation(demand="payer/extensions", actual=f"{got!r}"[:200])
    return None


def _free(shop: Shop, request: Request) -> Reply | None:
    if shop.flow is Dialect.MCP:
        return None
    shop.served += 1
    return as_json({"report": shop.goods})


ROWS = [
    _odd(
        "https-behind-proxy",
        "The resource says https where http was asked",
        "behind a proxy a shop does not know its own scheme (x402-foundation/x402#636, #924); who "
        "demands equality refuses valid offers",
        Story(resource=lambda shop, url: url.replace("http://", "https://")),
        only([Dialect.V1, Dialect.V2], "its resource has no scheme"),
    ),
    _odd(
        "small-letters",
        "Addresses in lower case",
        "both spellings are the same address",
        Story(
            offers=lambda _, right: [
                replace(right, asset=right.asset.lower(), pay_to=right.pay_to.lower())
            ]
        ),
    ),
    _odd(
        "more-in-extra",
        "An `extra` with more fields",
        "shops write decimals and the like there",
        Story(offers=_more),
        only(STANDARD, "its 402 has no `extra`"),
    ),
    _odd(
        "null-schema",
        "A null `outputSchema`",
        "the example of version 1's text has it so; x402-fetch and x402-axios refuse it",
        Story(null_schema=True),
        only([Dialect.V1], "only version 1 has the field"),
    ),
    _odd(
        "an-hour",
        "An hour to pay",
        "the time is what the shop allows at most",
        Story(offers=lambda _, right: [replace(right, timeout_s=3600)]),
    ),
    _odd(
        "both-versions",
        "A 402 of both versions",
        "shops serve old and new clients with one answer (x402-foundation/x402#2418)",
        Story(both_versions=True),
        only([Dialect.V2], "it is version 2 with version 1 in its body")
        | dict.fromkeys(BY_PERMIT2, "version 1 in its body is paid by EIP-3009"),
    ),
    _odd(
        "extension",
        "An unknown extension",
        "extensions are optional, and new ones come",
        Story(extensions=lambda _: _DEMO),
        only([Dialect.V2, Dialect.MCP], "extensions are of version 2"),
    ),
    case(
        "accept/extension-echoed",
        _echoes,
        absent=only([Dialect.V2], "extensions are of version 2, and only its header shows them"),
    )(Story(extensions=lambda _: _DEMO)),
    case(
        "accept/events",
        demand("A tool with a stream of events as answer", texts.explicit(texts.MCP_EVENTS))(
            bought
        ),
        absent=only([Dialect.MCP], "only tools are answered by a stream of events"),
    )(Story(as_events=True)),
    case(
        "accept/free",
        demand(
            "Free goods are bought all the same",
            texts.ours(because="a payer that expects a 402 breaks where prices fall to 0"),
        )(served),
        absent={
            Dialect.MCP: "a tool that is free is no matter of payment",
            Dialect.SESSION: "who opens a session has not asked for the price",
        },
    )(Story(first=_free)),
]
