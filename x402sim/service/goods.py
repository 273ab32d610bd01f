"""The goods of a user: a list of what a service sells, or gives away, at paths of the user's own.

Flags, an OpenAPI document, an API behind the service and Python write the same list
(`service/sources.py`). `Shop` finds the good and the price of a request. A payment is bound to a
path (5/resource-binding), so all methods of a path have the same price.
"""

import re
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from x402sim.protocol.money import MAX_STORED, to_base
from x402sim.text.words import as_given

Answer = Callable[[Request], Awaitable[Response]]
AMOUNT_USED = "X-Amount-Used"
"""The header of an answer sold `upto`: the amount used, in tokens."""
MAX_PATH = 512
"""The most bytes of a path for sale: a payment id contains the path."""
_METHOD = re.compile("[A-Z]+")
_PATH = re.compile(r"/[^\s?#]*")
_HOLE = re.compile(r"(/\*$|\*|\{[^{}/]+\})")
_HOLES = {"/*": "(/.*)?", "*": "[^/]*"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Good:
    """A path, its price in tokens as text, and the function that makes the answer.

    `path` may have holes: `/users/{id}`, `/files/*.csv`, and `/premium/*`, which is `/premium` and
    everything below. A path is compared without regard to case and to a slash at the end, because
    many servers do the same. `price` None is free. `method` "" is every method. `works` says that
    an answer costs work: then a payment is verified first. An answer of status 400 or more is not
    charged. `upto` sells by the amount used: `price` is the maximum, and the answer's header
    X-Amount-Used has the amount in tokens, by default the maximum (`service/metered.py`).
    `permit2` sells by Permit2, too, at the same price. Raises `ValueError` for a bad path or
    method.
    """

    path: str
    price: str | None
    answer: Answer
    method: str = ""
    description: str = ""
    works: bool = False
    upto: bool = False
    permit2: bool = False

    def __post_init__(self) -> None:
        if not _PATH.fullmatch(self.path):
            raise ValueError(f"a path begins with /, such as /weather, not {as_given(self.path)}")
        if self.method and not _METHOD.fullmatch(self.method):
            raise ValueError(f"a method is such as GET or POST, not {as_given(self.method)}")

    @property
    def name(self) -> str:
        """The method, if there is one, and the path."""
        return f"{self.method} {self.path}".strip()

    @property
    def is_exact(self) -> bool:
        """Whether the path is one path, without holes."""
        return _HOLE.search(self.path) is None

    @property
    def sample(self) -> str:
        """A path that fits; for a star, PATH stands for what only the API knows."""
        return _HOLE.sub(lambda hole: "/PATH" if hole[0] == "/*" else "1", self.path)

    @property
    def named(self) -> tuple[str, list[str]]:
        """The path with a name in each hole, as OpenAPI writes it, and the names: `/a/{rest}`."""
        names, parts = list[str](), _HOLE.split(self.path)
        for n in range(1, len(parts), 2):
            name = parts[n].strip("{}") if parts[n].startswith("{") else "rest"
            name = f"{name}_{len(names) + 1}" if name in names else name
            names.append(name)
            parts[n] = f"{'/' if parts[n] == '/*' else ''}{{{name}}}"
        return "".join(parts), names

    def takes(self, method: str) -> bool:
        """Tell whether the good answers a method; HEAD is asked like GET."""
        return self.method in ("", method) or (method == "HEAD" and self.method == "GET")


class Found(NamedTuple):
    """A good, and the price of its path in base units; None is free."""

    good: Good
    price_base: int | None


class Shop:
    """The goods of one service; `decimals` are the decimals of the service's token.

    Exact paths come before paths with holes; otherwise the first that fits counts. Raises
    `ValueError` for a price that the token cannot pay, and for two prices of one path.
    """

    def __init__(self, goods: Iterable[Good], decimals: int) -> None:
        prices: dict[str, tuple[int, str]] = {}
        self.sold: list[Found] = []
        for good in goods:
            price = None if good.price is None else _price(good, decimals)
            if price is not None:
                earlier = prices.setdefault(plain_path(good.path), (price, good.name))
                if earlier[0] != price:
                    raise ValueError(
                        f"{good.name} and {earlier[1]} have different prices; a payment is bound "
                        "to a path, so give all methods of a path one price"
                    )
            self.sold.append(Found(good, price))
        self.sold.sort(key=lambda each: not each.good.is_exact)
        self._patterns = [_pattern(each.good.path) for each in self.sold]
        self._fitting = lru_cache(maxsize=1024)(self._fit)

    def __bool__(self) -> bool:
        return bool(self.sold)

    @property
    def tools(self) -> dict[str, Found]:
        """The goods by the name of a tool: `get_weather` is GET /weather."""
        found: dict[str, Found] = {}
        for each in self.sold:
            text = f"{each.good.method or 'GET'} {each.good.path}".lower()
            name = whole = re.sub("[^a-z0-9]+", "_", text).strip("_")[:60]
            for number in range(2, len(self.sold) + 1):
                name = f"{whole}_{number}" if name in found else name
            found[name] = each
        return found

    @property
    def priced(self) -> list[tuple[Good, int]]:
        """The goods with a price, in base units, without those of `upto`."""
        return [(good, price) for good, price in self.sold if price is not None and not good.upto]

    @property
    def by_permit2(self) -> bool:
        """Whether a good is sold by Permit2: by the amount used, or at a price."""
        return any(each.good.upto or each.good.permit2 for each in self.sold)

    def takes_permit2(self, path: str) -> bool:
        """Tell whether a path is sold by Permit2."""
        return any(each.good.upto or each.good.permit2 for each in self._fitting(path))

    def at(self, path: str, method: str) -> Found | None:
        """Return the good for a request; None if no good has the path.

        Raises 405 for a method that the path does not have. Later goods of the list can give more
        methods to a path, but only free or at the path's price: else the payment for a cheap method
        would open a dear one.
        """
        if not (fitting := self._fitting(path)):
            return None
        price = self.price(path)
        found = next((each for each in fitting if each.good.takes(method)), None)
        if found is None or found.price_base not in (None, price):
            allowed = [each.good.method for each in fitting if each.price_base in (None, price)]
            raise HTTPException(405, headers={"Allow": ", ".join(filter(None, allowed))})
        return found

    def takes(self, path: str, method: str) -> bool:
        """Tell whether a good answers a method at a path."""
        return any(each.good.takes(method) for each in self._fitting(path))

    def price(self, path: str) -> int | None:
        """Return the price of a path in base units; None if it is free, or unknown."""
        prices = (each.price_base for each in self._fitting(path))
        return next((each for each in prices if each is not None), None)

    def sells(self, path: str, as_part_of: str) -> bool:
        """Tell whether a path is sold as the good, or as one of the goods, at `as_part_of`."""
        return next((good.path for good in self._sold_at(path)), None) == as_part_of

    def description(self, path: str) -> str | None:
        """Return the description of what is sold at a path; None if nothing is."""
        return next((good.description or good.name for good in self._sold_at(path)), None)

    def _sold_at(self, path: str) -> Iterator[Good]:
        return (each.good for each in self._fitting(path) if each.price_base is not None)

    def _fit(self, path: str) -> tuple[Found, ...]:
        both = zip(self.sold, self._patterns, strict=True)
        return tuple(each for each, pattern in both if pattern.fullmatch(path))


def plain_path(path: str) -> str:
    """Return a path as paths are compared: without regard to case and to a slash at the end."""
    return path.rstrip("/").casefold()


def _pattern(path: str) -> re.Pattern[str]:
    """Return what a path must match. A hole ends at the first text that follows in the pattern, and
    that is not tried again: else a long path would take minutes.
    """
    parts = _HOLE.split(path if path.endswith("*") else path.rstrip("/"))
    pattern = re.escape(parts[0])
    for n in range(1, len(parts), 2):
        hole, text = _HOLES.get(parts[n], "[^/]+"), re.escape(parts[n + 1])
        if parts[n + 2 :] in ([], ["/*", ""]):
            pattern += hole + text
        elif text:
            pattern += f"(?>{hole}?{text})"
        else:  # the next hole takes all but the first character of this one
            pattern += "" if hole.endswith("*") else "[^/]"
    return re.compile(f"{pattern}/?", re.IGNORECASE | re.DOTALL)


def _price(good: Good, decimals: int) -> int:
    try:
        price = to_base(good.price or "", decimals)
    except (TypeError, ValueError) as wrong:
        raise ValueError(f"the price of {good.name}: {wrong}") from None
    if not 0 < price <= MAX_STORED:
        raise ValueError(
            f"the price of {good.name}: expected more than 0 tokens, and no more than can be "
            f"stored, got {as_given(good.price)}"
        )
    return price
