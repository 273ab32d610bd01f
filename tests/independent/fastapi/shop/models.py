"""What travels over HTTP, and the errors."""

import re
from decimal import Decimal
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from starlette.exceptions import HTTPException

from .config import SESSION_CAP, TOKEN_DECIMALS, bug, on

Address = Annotated[str, Field(pattern=r"^0x[0-9a-fA-F]{40}$")]


class ApiError(HTTPException):
    def __init__(self, status: int, text: str, **headers: str) -> None:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        super().__init__(status, text, named)


class PaymentRequired(Exception):
    def __init__(self, body: dict[str, Any]) -> None:
        self.body = body


class Body(BaseModel):
    model_config = ConfigDict(strict=True)

    @model_validator(mode="before")
    @classmethod
    def _no_extras(cls, data: Any) -> Any:
        if (
            on("refuse_extra_fields")
            and isinstance(data, dict)
            and (extra := set(data) - set(cls.model_fields))
        ):
            raise ValueError(f"unknown fields: {', '.join(sorted(map(str, extra)))}")
        return data


def _amount_text(value: Any) -> Any:
    return str(value) if bug("amount_as_number") and type(value) is int else value


class Requirements(BaseModel):
    """The client's echo of what it was asked to pay; further fields are of no concern to us."""

    model_config = ConfigDict(strict=True)

    scheme: str
    network: str
    payTo: str
    asset: str
    maxAmountRequired: Annotated[str, BeforeValidator(_amount_text)]
    maxTimeoutSeconds: int
    resource: str

    def same_terms(self, issued: "Requirements") -> bool:
        def plain(terms: Requirements) -> dict[str, object]:
            fields = terms.model_dump()
            return fields | {name: fields[name].lower() for name in ("payTo", "asset")}

        return plain(self) == plain(issued)


class PayRequest(Body):
    paymentId: str = Field(min_length=1, max_length=200)
    paymentHeader: str = Field(min_length=3, max_length=20_000)
    paymentRequirements: Requirements


class Authorization(BaseModel):
    """The payload of a decoded payment header."""

    from_: Address = Field(alias="from")
    to: Address
    value: str = Field(pattern=r"^\d{1,78}$")
    validAfter: int
    validBefore: int
    nonce: str = Field(pattern=r"^0x[0-9a-fA-F]{64}$")
    signature: str
    asset: Address | None = None

    @property
    def key(self) -> str:
        """What the token contract uses up: one nonce of one payer."""
        return f"{self.from_}:{self.nonce}".lower()


def _side(value: str) -> str:
    if on("side_enum") and value.lower() not in ("long", "short"):
        raise ValueError("side must be long or short")
    return value


class QuoteRequest(Body):
    pair: str = Field(pattern=r"^[A-Za-z0-9]{1,15}-[A-Za-z0-9]{1,15}$")
    side: Annotated[str, Field(min_length=1, max_length=20), AfterValidator(_side)]
    leverage: float = Field(gt=0, le=1000, allow_inf_nan=False)
    sizeUsd: float = Field(gt=0, le=1e12, allow_inf_nan=False)


def base_units(max_spend: str) -> int:
    if bug("float_budget"):
        return int(float(max_spend) * 100) * 10 ** (TOKEN_DECIMALS - 2)
    return int(Decimal(max_spend) * 10**TOKEN_DECIMALS)


def _budget(value: str) -> str:
    lenient = on("lenient_max_spend")
    if not re.fullmatch(
        r"[0-9]{1,12}(\.[0-9]{1,2})?" if lenient else r"[0-9]{1,12}\.[0-9]{2}", value
    ):
        raise ValueError('maxSpend is a decimal amount such as "1.00"')
    if base_units(value) <= 0:
        raise ValueError("maxSpend must be more than zero")
    if on("session_cap") and base_units(value) > SESSION_CAP:
        raise ValueError("maxSpend is at most 100.00")
    return value


class SessionRequest(Body):
    maxSpend: Annotated[str, AfterValidator(_budget)]
    duration: int = Field(gt=0, le=10 * 366 * 86400)

    @property
    def seconds(self) -> int:
        return self.duration * (60 if on("duration_minutes") else 1)
