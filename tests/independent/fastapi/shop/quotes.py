"""Prices of perpetual positions. A market data feed would stand here."""

import hashlib
from typing import Any

from .config import bug
from .models import QuoteRequest

VENUES = ("Fulcrum", "Moonlander", "Tectonic", "Veno")
PRICES = {"BTC": 97_250.0, "ETH": 3_420.0, "CRO": 0.1425, "SOL": 188.5}


def quote(request: QuoteRequest) -> dict[str, Any]:
    base = request.pair.split("-")[0].upper()
    seed = int.from_bytes(hashlib.sha256(request.pair.upper().encode()).digest()[:4])
    price = PRICES.get(base, 0.5 + seed % 10_000 / 100)
    short = request.side.lower() in ("short", "sell")
    impact = price * min(request.sizeUsd / 5e8, 0.02)
    entry = round(price - impact if short else price + impact, 6)
    room = 0.95 / request.leverage
    liquidation = round(entry * (1 + room if short else max(0.0, 1 - room)), 6)
    return {
        "pair": request.pair,
        "entryPrice": f"{entry:.2f}" if bug("price_as_text") else entry,
        "liquidationPrice": liquidation,
        "fundingRate": round((seed % 200 - 80) / 1e6, 6),
        "bestVenue": VENUES[seed % len(VENUES)],
    }
