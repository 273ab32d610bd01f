"""Settings from the environment, and the two switches CHOICES and DEFECT."""

import os
import tomllib
from functools import lru_cache
from pathlib import Path
from types import SimpleNamespace

QUOTE_PRICE = 10_000
TOKEN_DECIMALS = 6
OFFER_SECONDS = 300
ENTITLEMENT_SECONDS = 24 * 3600
CACHE_CLEAR_SECONDS = 3600
INDEX_SECONDS = float(os.environ.get("INDEX_SECONDS", "300"))
INDEX_BATCH = 100
SESSION_CAP = 100 * 10**TOKEN_DECIMALS  # with the choice session_cap

_TOLD = tomllib.loads(Path(__file__).parents[1].joinpath("implementation.toml").read_text("utf-8"))
CHOICES, DEFECTS = frozenset(_TOLD["choices"]), frozenset(_TOLD["defects"])


@lru_cache
def settings() -> SimpleNamespace:
    read = os.environ.get
    switches = {
        name: frozenset(filter(None, read(name.upper(), "").split(",")))
        for name in ("choices", "defect")
    }
    return SimpleNamespace(
        private_key=read("PRIVATE_KEY"),
        merchant_address=read("MERCHANT_ADDRESS"),
        facilitator_url=read("FACILITATOR_URL"),
        explorer_url=read("EXPLORER_URL"),
        rpc_url=read("RPC_URL"),
        network=read("NETWORK", "cronos-testnet"),
        chain_id=int(read("CHAIN_ID", "338")),
        token_address=read("TOKEN_ADDRESS"),
        port=int(read("PORT", "8402")),
        state=read("STATE", ""),
        **switches,
    )


def on(choice: str) -> bool:
    assert choice in CHOICES, choice
    return choice in settings().choices


def bug(name: str) -> bool:
    assert name in DEFECTS, name
    return name in settings().defect
