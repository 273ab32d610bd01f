"""Checks the numbers, words and objects that a notebook gives; an error names the argument.

mypy sees a wrong type, and Python a misspelt name. Neither sees a negative time, and a notebook
runs without mypy: `World(seed="7")`, `quote_price=0.05` or `retry=SameAuthorization` would fail
much later, or not at all. `explained` wraps a function or a class, and checks each argument whose
annotation is a number, a text, a number within a `Range`, a word of a `Literal`, or a class.
"""

import functools
import inspect
import math
import numbers
from collections.abc import Callable
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Literal,
    Protocol,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from x402sim.text.words import as_given, unknown

Target = TypeVar("Target", bound=Callable[..., Any])
_WORDS = {
    str: "a text",
    int: "a whole number",
    float: "a number",
    bool: "True or False",
    NoneType: "None",
}


@dataclass(frozen=True, slots=True, repr=False)
class Range:
    """The range of a finite number: from `least`, or above it, to `most`."""

    least: float
    most: float = math.inf
    is_above: bool = False

    def __contains__(self, value: Any) -> bool:
        is_least = value > self.least if self.is_above else value >= self.least
        return bool(is_least and value <= self.most and value < math.inf)

    def __repr__(self) -> str:
        least = f"{'above' if self.is_above else 'from'} {self.least:g}"
        return least if self.most == math.inf else f"{least} to {self.most:g}"


FromZero = Annotated[float, Range(0)]
AboveZero = Annotated[float, Range(0, is_above=True)]
ZeroToOne = Annotated[float, Range(0, 1)]
WholeFromZero = Annotated[int, Range(0)]
WholeAboveZero = Annotated[int, Range(0, is_above=True)]


def explained(target: Target) -> Target:
    """Wrap a function, or a class, so that errors explain wrong arguments with `ValueError`."""
    if isinstance(target, type):
        target.__init__ = _wrapped(target.__init__)  # type: ignore[misc]
        return target
    wrapped: Any = _wrapped(target)
    return wrapped  # type: ignore[no-any-return]


def _wrapped(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*given: Any, **named: Any) -> Any:
        signature, kinds = _facts(function)
        try:
            bound = signature.bind(*given, **named)
        except TypeError:
            return function(*given, **named)  # Python's own error names the function, too
        for argument, value in bound.arguments.items():
            if argument in kinds:
                require_kind(argument, value, *kinds[argument])
        return function(*given, **named)

    return call


@functools.cache
def _facts(function: Callable[..., Any]) -> tuple[inspect.Signature, dict[str, tuple[Any, ...]]]:
    """Return the signature, and the types of each argument whose annotation can be checked."""
    signature, hints = inspect.signature(function), get_type_hints(function, include_extras=True)
    kinds = {}
    for name, parameter in signature.parameters.items():
        is_union = get_origin(hints.get(name)) in (Union, UnionType)
        members = get_args(hints[name]) if is_union else (hints.get(name, Any),)
        is_one = parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        if is_one and all(
            get_origin(kind) in (Literal, Annotated)
            or (isinstance(kind, type) and kind not in (object, Any) and get_origin(kind) is None)
            for kind in members
        ):
            kinds[name] = members
    return signature, kinds


def require_kind(argument: str, value: object, *kinds: Any) -> None:
    """Raise `ValueError` unless a value has one of these types; True is not a number."""
    if any(_fits(value, kind) for kind in kinds):
        return
    words = [word for kind in kinds if get_origin(kind) is Literal for word in get_args(kind)]
    if isinstance(value, str) and any(isinstance(word, str) for word in words):
        raise ValueError(f"{argument}: {unknown('word', value, words)}")
    got = as_given(value)
    if isinstance(value, type):
        got = f"the class {value.__name__}; did you mean {value.__name__}(…)?"
    raise ValueError(f"{argument}: expected {' or '.join(map(_in_words, kinds))}, got {got}")


def _fits(value: object, kind: Any) -> bool:
    if get_origin(kind) is Literal:
        return value in get_args(kind)
    if get_origin(kind) is Annotated:
        return _fits(value, kind.__origin__) and value in kind.__metadata__[0]
    if isinstance(value, bool) and kind in (int, float):
        return False
    if Protocol in getattr(kind, "__bases__", ()):  # mypy compares the methods
        return not isinstance(value, type | str | numbers.Number | None)
    return isinstance(value, numbers.Real if kind is float else kind)


def _in_words(kind: Any) -> str:
    if get_origin(kind) is Literal:
        return " or ".join(map(repr, get_args(kind)))
    if get_origin(kind) is Annotated:
        return f"{_in_words(kind.__origin__)} {kind.__metadata__[0]}"
    return _WORDS.get(kind) or str(kind.__name__)
