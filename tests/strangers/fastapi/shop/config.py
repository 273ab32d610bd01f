"""Settings from the environment, and the two switches CHOICES and DEFECT."""

from functools import lru_cache
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

CHOICES = frozenset(
    [
        "bad_request_400",
        "issued_terms_win",
        "uuid_payment_ids",
        "settle_errors_400",
        "settle_errors_402",
        "settle_errors_409",
        "unknown_id_400",
        "error_field",
        "problem_json",
        "session_snake",
        "session_nested",
        "session_location",
        "session_claim",
        "session_by_repeat",
        "duration_minutes",
        "budget_403",
        "session_first",
        "both_headers_refused",
        "probe_with_get",
        "no_records",
        "records_in_ms",
        "no_session_view",
        "agents_bare_list",
        "agents_paid",
        "rate_limit",
        "repeat_receipt",
        "session_cap",
        "lenient_max_spend",
        "strict_content_type",
        "ids_any_case",
        "strict_window",
        "no_description",
        "message_grouped",
        "collapse_slashes",
        "lowercase_addresses",
        "x402_compat",
        "side_enum",
        "refuse_extra_fields",
        "bad_header_is_signature",
        "first_index_late",
    ]
)

DEFECTS = frozenset(
    [
        "bare_payment_id",
        "clock_ids",
        "amount_as_number",
        "error_text_case",
        "network_is_chain_id",
        "message_in_tokens",
        "resource_full_url",
        "resource_keeps_query",
        "timeout_3600",
        "price_1000",
        "float_budget",
        "quoted_llms",
        "bad_proof_403",
        "unvalidated_pay",
        "record_in_tokens",
        "record_swapped",
        "block_at_creation",
        "bare_session_id",
        "last_unit_unspendable",
        "receipt_in_seconds",
        "any_resource",
        "overpay_accepted",
        "echo_trusted",
        "double_settle",
        "foreign_id_accepted",
        "raw_nonce_text",
        "raw_balance_text",
        "expired_as_invalid",
        "price_as_text",
        "overspend_race",
        "charges_refused_requests",
        "entitled_after_verify",
        "double_deduction",
        "burnt_id",
        "one_use",
        "deposit_names_quote",
        "refund_full",
        "duration_times_1000",
        "cache_only",
        "indexer_hourly",
        "no_reputation",
        "refund_twice",
        "lost_settlement",
        "verify_answer_ignored",
        "indexer_dies",
    ]
)


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
    defect: str = ""

    @field_validator("choices", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        return (
            frozenset(filter(None, map(str.strip, value.split(","))))
            if isinstance(value, str)
            else value
        )

    @field_validator("choices")
    @classmethod
    def _known_choices(cls, value: frozenset[str]) -> frozenset[str]:
        if unknown := value - CHOICES:
            raise ValueError(f"unknown choices: {', '.join(sorted(unknown))}")
        return value

    @field_validator("defect")
    @classmethod
    def _known_defect(cls, value: str) -> str:
        if unknown := set(filter(None, value.split(","))) - DEFECTS:
            raise ValueError(f"unknown defect: {', '.join(sorted(unknown))}")
        return value

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
    return name in settings().defect.split(",")
