"""The options that name goods of the user's own: for `serve` and `service`."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from x402sim.service.goods import Good
from x402sim.service.sources import behind, flagged, of_openapi, selling as selling

Sell = Annotated[
    list[str] | None,
    typer.Option(
        help="Sell a path for tokens: `GET /weather 0.01`, `GET /users/{id} 0.02`, `GET /chat upto "
        "0.05` (by the amount used), `GET /report permit2 0.02` (by Permit2, too); repeatable.",
        metavar="GOOD",
    ),
]
Body = Annotated[
    list[Path] | None,
    typer.Option(help="Answer of the --sell at the same place; repeatable.", metavar="FILE"),
]
OpenApi = Annotated[
    Path | None,
    typer.Option(
        help="Sell the operations with `x-price` of an OpenAPI document; their examples are the "
        "answers. YAML needs the extra `openapi`.",
        metavar="FILE",
    ),
]
UpstreamUrl = Annotated[
    str | None,
    typer.Option(
        help="Be a paywall before this API: paths with a --price are sold, others free.",
        metavar="URL",
    ),
]
Price = Annotated[
    list[str] | None,
    typer.Option(
        help="Price of paths of --upstream, written like --sell, or without a method for all; "
        "repeatable. An `upto` answer's header X-Amount-Used has the amount used.",
        metavar="PRICE",
    ),
]


def goods(
    sell: Sequence[str] | None,
    body: Sequence[Path] | None,
    openapi: Path | None,
    upstream: str | None,
    price: Sequence[str] | None,
) -> tuple[Good, ...]:
    """Return the list of goods that the options name; raises `ValueError`."""
    if body and not sell:
        raise ValueError("--body: it is the answer of a --sell, and there is none")
    if price and not upstream:
        raise ValueError("--price: it is for paths of an --upstream, and there is none")
    if upstream and not price:
        raise ValueError("--upstream: without a --price nothing is sold, such as `/premium/* 0.05`")
    found = list(flagged(sell or (), body or ()))
    if openapi is not None:
        found += of_openapi(openapi)
    if upstream is not None:
        found += behind(upstream, price or ())
    return tuple(found)
