"""The content: quotes from a synthetic market, a snapshot of it, and the list of agents.

A quote depends on the pair, the side and the leverage only: it is reproducible, needs no
network, and cannot be mistaken for advice.
Clauses: 2.7/agent, 4.2/quote, 4.3/list.
"""

from functools import lru_cache

from x402sim.http.web import bad_body
from x402sim.protocol.crypto import checksum, keccak256
from x402sim.protocol.messages import Agent, Market, MarketPair, Quote, QuoteRequest
from x402sim.protocol.routes import QUOTE
from x402sim.service.policies import Track
from x402sim.service.settings import Settings
from x402sim.service.state import Service

VENUES = ("Fulcrum", "Helios", "Meridian", "Parallax")
PAIRS = ("BTC-USD", "ETH-USD", "SOL-USD")
_LEVELS = {"BTC-USD": 60_000.0, "ETH-USD": 3_000.0, "SOL-USD": 150.0}
"""Dollars: invented prices, of a size that a reader expects."""
_MAINTENANCE_MARGIN = 0.005


def quote(settings: Settings, order: QuoteRequest) -> Quote:
    """Return the quote for an order (4.2/quote); raises `Refused` 400 for an unknown side."""
    first, second = settings.decisions.sides
    if order.side not in (first, second):
        reason = f"expected `{first}` or `{second}`, got {order.side[:40]!r} - at `$.side`"
        raise bad_body(reason)
    return _quoted(order.pair, 1 if order.side == first else -1, order.leverage)


@lru_cache(maxsize=1024)
def _quoted(pair: str, direction: int, leverage: float) -> Quote:
    best, entry = _best(pair, direction)
    distance = max(0.0, 1 / leverage - _MAINTENANCE_MARGIN)
    return Quote(
        pair=pair,
        entry_price=entry,
        liquidation_price=_round(entry * (1 - direction * distance)),
        funding_rate=_funding_rate(pair),
        best_venue=best,
    )


def market() -> Market:
    """Return the pairs of the snapshot, each with what it costs a buyer now."""
    pairs = []
    for pair in PAIRS:
        best, price = _best(pair, 1)
        pairs.append(
            MarketPair(pair=pair, price=price, funding_rate=_funding_rate(pair), best_venue=best)
        )
    return Market(market=pairs)


def _funding_rate(pair: str) -> float:
    return round((_draw(pair, "funding") - 0.5) * 2e-4, 8)


@lru_cache(maxsize=1024)
def _best(pair: str, direction: int) -> tuple[str, float]:
    """Return the cheapest venue and its price; for a seller (-1) the dearest."""
    prices = {venue: _price(pair, venue) for venue in VENUES}
    best = min(VENUES, key=lambda venue: direction * prices[venue])
    return best, prices[best]


def _price(pair: str, venue: str) -> float:
    """Return a pair's price at one venue: 0.01 to 100,000 dollars, within 0.1 % elsewhere."""
    level = _LEVELS.get(pair) or 10 ** (_draw(pair, "level") * 7 - 2)
    return _round(level * (1 + (_draw(pair, venue) - 0.5) * 1e-3))


@lru_cache(maxsize=1024)
def _draw(*names: str) -> float:
    """Return a number in [0, 1) that depends on the names only."""
    return int.from_bytes(keccak256("|".join(names).encode())[:6]) / 2**48


def _round(price: float) -> float:
    return float(f"{price:.8g}")


def agents(service: Service) -> list[Agent]:
    """Return the agents, their resources, prices and reputations (4.3/list, 2.7/agent)."""
    env, nothing = service.env, service.env.settings.reputation.of(Track())
    if env.shop:
        # an agent for each path; with holes, it sums up what was bought
        shop, scores = env.shop, service.store.payments.reputations()
        sold = {good.path: (good, price_base) for good, price_base in shop.priced}
        made = []
        for path, (good, price_base) in sold.items():
            mine = [value for bought, value in scores.items() if shop.sells(bought, path)]
            made.append(
                Agent(
                    id=good.name,
                    name=good.name,
                    description=good.description or good.name,
                    resource=path,
                    price=str(price_base),
                    pay_to=checksum(env.pay_to),
                    reputation=sum(mine) if mine else nothing,
                )
            )
        return made
    known = service.store.payments.reputation(QUOTE)
    reputation = nothing if known is None else known
    return [agent(env.quote_price_base, checksum(env.pay_to), reputation)]


def agent(price_base: int, pay_to: str, reputation: int) -> Agent:
    """Return the agent that sells quotes."""
    return Agent(
        id="perp-quotes",
        name="Perpetual quotes",
        description="Entry and liquidation price, funding rate and best venue of a position",
        resource=QUOTE,
        price=str(price_base),
        pay_to=pay_to,
        reputation=reputation,
    )
