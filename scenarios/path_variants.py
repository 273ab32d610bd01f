"""Mallory asks for the quote under every spelling of its path that she can think of: encoded
letters, slashes, dots, other cases, other methods, a query, a version. Some of them are the
endpoint and answer 402; the others do not exist. None is served.
"""

from x402sim import LiveWorld, scenario

ENDPOINT = ("/api/perp/quote?free=1", "/api/perp/%71uote", "/api/perp/x/../quote")
ELSEWHERE = (
    *("/api/perp/quote/", "/api/perp//quote", "/api/perp/quote;free", "/api/perp/quote.json"),
    *("/api/perp/quote%00", "/api/perp/quote%2F", "/api/perp%5Cquote", "/API/PERP/QUOTE"),
    *("/api/perp/quote/..;/quote", "/llms.txt/../api/perp/quote/", "/api/perp/quot%65%20"),
)
VERSIONED = ("/v1/api/perp/quote", "/api/v1/perp/quote", "/api/perp/v1/quote")
METHODS = ("GET", "HEAD", "PUT", "PATCH", "DELETE", "TRACE")
ORDER = {"pair": "BTC-USD", "side": "long", "leverage": 10, "sizeUsd": 1000}


@scenario(
    title="Path variants: no spelling of a protected path bypasses the payment",
    covers="1/unpaid-402, 5/resource-binding, 9/no-version-segment",
)
async def path_variants(world: LiveWorld) -> None:
    mallory = await world.payer("mallory")
    for path in ENDPOINT:
        asked = await mallory.send("POST", path, json=ORDER)
        world.expect(f"{path}: {asked.status}", f"{path}: 402", "1/unpaid-402")
        world.expect(asked.requirements["resource"], "/api/perp/quote", "5/resource-binding")
    for path in ELSEWHERE:
        missed = await mallory.send("POST", path, json=ORDER)
        world.expect(f"{path}: {missed.status}", f"{path}: 404", "1/unpaid-402")
    for path in VERSIONED:
        missed = await mallory.send("POST", path, json=ORDER)
        world.expect(f"{path}: {missed.status}", f"{path}: 404", "9/no-version-segment")
    for method in METHODS:
        refused = await mallory.send(method, "/api/perp/quote", json=ORDER)
        world.expect(f"{method}: {refused.status}", f"{method}: 405", "1/unpaid-402")
