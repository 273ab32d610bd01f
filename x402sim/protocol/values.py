"""Amounts and times of messages: text for people, data for programs."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from x402sim.protocol.crypto import to_hex
from x402sim.protocol.money import parse_base, to_decimal
from x402sim.protocol.networks import Network
from x402sim.protocol.ways import Way
from x402sim.text.times import distance, moment


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


@dataclass(frozen=True, slots=True)
class Answer:
    """What a server answered: its status, and what it says of an error."""

    status: int
    says: str = ""

    def __str__(self) -> str:
        return f"{self.status} {self.says}".strip()


@dataclass(frozen=True, slots=True)
class Change:
    """An amount before and after."""

    before: Amount
    after: Amount

    def __str__(self) -> str:
        return f"{self.before.short} -> {self.after.short}"


@dataclass(frozen=True, slots=True)
class Moment:
    """A point in time, as a message wrote it: in Unix seconds, or in milliseconds."""

    value: int
    now_s: int
    is_ms: bool = False

    def __str__(self) -> str:
        at_s = self.value // 1000 if self.is_ms else self.value
        return f"{self.value} = {moment(at_s, self.now_s)}"


@dataclass(frozen=True, slots=True)
class Window:
    """From when to when an authorization can be used, in Unix seconds."""

    after: int
    before: int
    now_s: int

    def __str__(self) -> str:
        return f"{distance(self.after - self.now_s)} to {moment(self.before, self.now_s)}"


@dataclass(frozen=True, slots=True)
class Seconds:
    """A time span; any value that a message has in its place."""

    value: Any

    def __str__(self) -> str:
        return f"{self.value} s"


@dataclass(frozen=True, slots=True)
class Shortened:
    """A long text, of which people see the beginning."""

    value: str

    def __str__(self) -> str:
        return f"{self.value[:42]}… ({len(self.value)} characters)"


@dataclass(frozen=True, slots=True)
class Named:
    """A value, and what it stands for: an address and its token, a chain id and its name."""

    value: Any
    meaning: str
    joint: str = " = "

    def __str__(self) -> str:
        value = "" if self.value is None else str(self.value)
        return f"{value}{self.joint if value else ''}{self.meaning}" if self.meaning else value


def data_of(value: Any) -> Any:
    """Return a fact as JSON holds it: amounts in base units and decimals, times as numbers.

    Base units are a string: no number of JSON's readers holds 256 bits.
    """
    match value:
        case Amount(base=base, decimals=decimals, symbol=symbol):
            return {"base": str(base), "decimal": to_decimal(base, decimals), "symbol": symbol}
        case Answer(status=status, says=says):
            return {"status": status} | ({"says": says} if says else {})
        case Change(before=old, after=new):
            return {"before": data_of(old), "after": data_of(new)}
        case Window(after=after, before=before):
            return {"validAfter": after, "validBefore": before}
        case (
            Moment(value=plain) | Seconds(value=plain) | Named(value=plain) | Shortened(value=plain)
        ):
            return plain
        case Mapping():
            return {name: data_of(each) for name, each in value.items()}
        case _:
            return value


def amount_of(way: Way, known: Mapping[str, Network]) -> Any:
    """Return what a way to pay asks for; as it is, if its token is not known."""
    network = way.network(known)
    asset = str(way.fields.get("asset")).lower()
    return amount_in(way.amount, network if network and asset == to_hex(network.asset) else None)


def amount_in(amount: Any, network: Network | None) -> Any:
    """Return base units with their token; the amount as it is, if it or the network is unknown."""
    try:
        base = parse_base(amount) if isinstance(amount, str) else None
    except ValueError:
        base = None
    if base is None or network is None:
        return amount
    return Amount(base, network.decimals, network.token_symbol)
