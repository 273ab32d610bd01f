"""Settings from the environment, and the two switches CHOICES and DEFECT."""

import tomllib
from functools import lru_cache
from pathlib import Path
from typing import Annotated

from pydantic import field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

QUOTE_PRICE = 10_000
TOKEN_DECIMALS = 6
OFFER_SECONDS = 300
ENTITLEMENT_SECONDS = 24 * 3600
CACHE_CLEAR_SECONDS = 3600
INDEX_SECONDS = 300
INDEX_BATCH = 100
RATE_LIMIT = 10  # requests a second and client, with the choice rate_limit
SESSION_CAP = 100 * 10**TOKEN_DECIMALS  # with the choice session_cap

_TOLD = tomllib.loads(Path(__file__).parents[1].joinpath("strangers.toml").read_text("utf-8"))
CHOICES, DEFECTS = frozenset(_TOLD["choices"]), frozenset(_TOLD["defects"])


class Settings(BaseSettings):
    model_config = SettingsConfigDict(case_sensitive=False)

    private_key: str
    merchant_address: str
    facilitator_url: str
    explorer_url: str
    rpc_url: str
    network: str = "cronos-testnet"
    chain_id: int = 338
    token_address: str
    port: int = 8402
    state: str = ""
    choices: Annotated[frozenset[str], NoDecode] = frozenset()
    defect: Annotated[frozenset[str], NoDecode] = frozenset()

    @field_validator("choices", "defect", mode="before")
    @classmethod
    def _split(cls, value: str) -> frozenset[str]:
        names = frozenset(filter(None, value.split(",")))
        if unknown := names - CHOICES - DEFECTS:
            raise ValueError(f"unknown: {', '.join(sorted(unknown))}")
        return names

    @field_validator("facilitator_url", "explorer_url", "rpc_url")
    @classmethod
    def _no_slash(cls, value: str) -> str:
        return value.rstrip("/")


@lru_cache
def settings() -> Settings:
    return Settings()  # type: ignore[call-arg]


def on(choice: str) -> bool:
    assert choice in CHOICES, choice
    return choice in settings().choices


def bug(name: str) -> bool:
    assert name in DEFECTS, name
    return name in settings().defect
