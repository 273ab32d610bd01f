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
        help="Sell a path of your own: method, path and price in tokens, such as `GET /weather "
        "0.01`; repeatable. A path may have holes: /users/{id}, /files/*. `GET /chat upto 0.05` is "
        "sold by the amount used, at most 0.05; `GET /chat 0.012 upto 0.05` always uses 0.012. "
        "`GET /report permit2 0.02` is sold by Permit2, too.",
        metavar="GOOD",
    ),
]
Body = Annotated[
    list[Path] | None,
    typer.Option(
        help="The answer of the --sell at the same place, from FILE; repeatable.", metavar="FILE"
    ),
]
OpenApi = Annotated[
    Path | None,
    typer.Option(
        "--openapi",
        help="Sell the operations of an OpenAPI document that have `x-price`, with their examples "
        "as answers; the others are free. YAML needs the extra `openapi`.",
        metavar="FILE",
    ),
]
UpstreamUrl = Annotated[
    str | None,
    typer.Option(
        "--upstream",
        help="Be a paywall before the API at URL: a path with a --price is sold, others are free.",
        metavar="URL",
    ),
]
Price = Annotated[
    list[str] | None,
    typer.Option(
        help="Price of paths of --upstream in tokens, such as `/premium/* 0.05` or `POST /report "
        "0.10`; repeatable. Of `/chat upto 0.05`, the answer's header X-Amount-Used has the amount "
        "used, in tokens; `/report permit2 0.02` is sold by Permit2, too.",
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
