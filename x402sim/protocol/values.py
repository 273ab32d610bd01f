"""Amounts and times of messages: text for people, data for programs."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from x402sim.protocol.crypto import to_hex
from x402sim.protocol.money import base_in, to_decimal
from x402sim.protocol.networks import Network
from x402sim.protocol.ways import Way
from x402sim.text.words import distance, moment


@dataclass(frozen=True, slots=True)
class Fact:
    """A value for people, and the `data` for JSON."""

    text: str
    data: Any

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class Amount:
    """An amount of a token, in base units."""

    base: int
    decimals: int
    symbol: str

    def __str__(self) -> str:
        return f"{self.base} = {self.short}"

    @property
    def short(self) -> str:
        """The amount in tokens: "0.01 USDC"."""
        return f"{to_decimal(self.base, self.decimals)} {self.symbol}"

    @property
    def data(self) -> dict[str, str]:
        """Base units and decimals. Strings: no number of JSON's readers holds 256 bits."""
        tokens = to_decimal(self.base, self.decimals)
        return {"base": str(self.base), "decimal": tokens, "symbol": self.symbol}


def answer(status: int, says: str = "") -> Fact:
    """Return a server's answer: the status, and the words of an error."""
    data = {"status": status} | ({"says": says} if says else {})
    return Fact(f"{status} {says}".strip(), data)


def change(before: Amount, after: Amount) -> Fact:
    """Return an amount before and after."""
    data = {"before": before.data, "after": after.data}
    return Fact(f"{before.short} -> {after.short}", data)


def point(value: int, now_s: int, *, is_ms: bool = False) -> Fact:
    """Return a point in time as a message wrote it: in Unix seconds, or in milliseconds."""
    return Fact(f"{value} = {moment(value // 1000 if is_ms else value, now_s)}", value)


def window(after: int, before: int, now_s: int) -> Fact:
    """Return from when to when an authorization can be used, in Unix seconds."""
    text = f"{distance(after - now_s)} to {moment(before, now_s)}"
    return Fact(text, {"validAfter": after, "validBefore": before})


def shortened(value: str) -> Fact:
    """Return a long text, of which people see the beginning."""
    return Fact(f"{value[:42]}… ({len(value)} characters)", value)


def meant(value: Any, meaning: str, joint: str = " = ") -> Fact:
    """Return a value and the meaning: an address and the token, a chain id and the name."""
    shown = "" if value is None else str(value)
    return Fact(f"{shown}{joint if shown else ''}{meaning}" if meaning else shown, value)


def data_of(value: Any) -> Any:
    """Return a fact, or a mapping of facts, as JSON holds it."""
    match value:
        case Amount() | Fact():
            return value.data
        case Mapping():
            return {name: data_of(each) for name, each in value.items()}
        case _:
            return value


def amount_of(way: Way, known: Mapping[str, Network]) -> Any:
    """Return the amount of a way to pay; unchanged for an unknown token."""
    network = way.network(known)
    asset = str(way.fields.get("asset")).lower()
    return amount_in(way.amount, network if network and asset == to_hex(network.asset) else None)


def amount_in(amount: Any, network: Network | None) -> Any:
    """Return base units with the token; the plain amount for an unknown network."""
    base = base_in(amount)
    if base is None or network is None:
        return amount
    return Amount(base, network.decimals, network.token_symbol)
