"""Checks the arguments of a call. Errors name the argument, what it may be, and the nearest word.

`explained` wraps a function or a class. An unknown name raises `TypeError`. A value that does not
fit its annotation raises `ValueError`, if the annotation can be checked: numbers and texts, numbers
within a `Range`, words of a `Literal`, objects of a class, and objects with the methods of a
`Protocol`.
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

import msgspec

from x402sim.text.keys import secret_in
from x402sim.text.words import as_given, unknown

Target = TypeVar("Target", bound=Callable[..., Any])
_WORDS = {str: "a text", int: "a whole number", float: "a number", bool: "True or False"}


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
    """Wrap a function, or a class, so that errors explain wrong arguments."""
    if isinstance(target, type):
        target.__init__ = _wrapped(target.__init__, target.__name__)  # type: ignore[misc]
        return target
    wrapped: Any = _wrapped(target, target.__name__)
    return wrapped  # type: ignore[no-any-return]


def _wrapped(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*given: Any, **named: Any) -> Any:
        signature, kinds = _facts(function)
        try:
            bound = signature.bind(*given, **named)
        except TypeError as error:
            raise TypeError(_unfit(name, signature, given, named, str(error))) from None
        for argument, value in bound.arguments.items():
            if argument in kinds:
                require_kind(argument, value, *kinds[argument])
        return function(*given, **named)

    return call


class ExplainedMeta(msgspec.StructMeta):
    """Metaclass of structs; errors name misspelt fields."""

    def __call__(self, *given: Any, **named: Any) -> Any:
        """Make a struct; raises `TypeError` for a field that it does not have."""
        fields = dict.fromkeys(self.__struct_fields__)
        for name in named:
            if name not in fields:
                raise TypeError(f"{self.__name__}: {unknown('field', name, fields)}")
        if len(given) > len(self.__match_args__):
            first = next(iter(fields))
            raise TypeError(f"{self.__name__}: fields are given by name, such as {first}=…")
        return super().__call__(*given, **named)


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
    wanted = " or ".join(map(_in_words, kinds))
    raise ValueError(f"{argument}: expected {wanted}, got {_shown(value)}{_meant(value, kinds)}")


def _fits(value: object, kind: Any) -> bool:
    if get_origin(kind) is Literal:
        return value in get_args(kind)
    if get_origin(kind) is Annotated:
        return _fits(value, kind.__origin__) and value in kind.__metadata__[0]
    if isinstance(value, bool) and kind in (int, float):
        return False
    if Protocol in getattr(kind, "__bases__", ()):
        return not isinstance(value, type) and all(hasattr(value, each) for each in _methods(kind))
    return isinstance(value, numbers.Real if kind is float else kind)


@functools.cache
def _methods(protocol: type) -> list[str]:
    """Return the public methods of a protocol."""
    found = inspect.getmembers_static(protocol, inspect.isfunction)
    return [name for name, _ in found if name[0] != "_"]


def _in_words(kind: Any) -> str:
    if kind is NoneType:
        return "None"
    if get_origin(kind) is Literal:
        return " or ".join(map(repr, get_args(kind)))
    if get_origin(kind) is Annotated:
        return f"{_in_words(kind.__origin__)} {kind.__metadata__[0]}"
    if Protocol in getattr(kind, "__bases__", ()):
        return f"an object with {' and '.join(f'`{each}`' for each in _methods(kind))}"
    return _WORDS.get(kind) or str(kind.__name__)


def _shown(value: object) -> str:
    return f"the class {value.__name__}" if isinstance(value, type) else as_given(value)


def _meant(value: object, kinds: tuple[Any, ...]) -> str:
    """Return a hint at what was meant: an object, not its class; a number, not a text.

    A secret is not repeated in it; if a class is wanted that takes a private key, it is named.
    """
    if secret_in(value):
        return "".join(f"; write {kind.__name__}(key)" for kind in kinds if _takes_key(kind))
    kinds = tuple(each.__origin__ if get_origin(each) is Annotated else each for each in kinds)
    if isinstance(value, type):
        return f"; did you mean {value.__name__}(…)?"
    if isinstance(value, int | float) and not isinstance(value, bool) and str in kinds:
        return f"; did you mean {str(value)!r}?"
    wanted = {type(word) for kind in kinds for word in get_args(kind)} | set(kinds)
    if type(value).__module__ == "numpy" and int in kinds:  # a journal cannot store it
        return f"; did you mean {value}?"
    if isinstance(value, str) and wanted & {int, float}:
        try:
            return f"; did you mean {float(value):g}?"
        except ValueError:
            return ""
    return ""


def _takes_key(kind: Any) -> bool:
    """Tell whether a class is made of a private key: an argument is named so."""
    made = vars(kind).get("__init__") if isinstance(kind, type) else None
    return "private_key" in getattr(made, "__annotations__", {})


def _unfit(
    name: str, signature: inspect.Signature, given: Any, named: dict[str, Any], error: str
) -> str:
    """Return why a call does not fit a signature."""
    known = [each for each in signature.parameters if each != "self"]
    for each in named:
        if each not in known:
            return f"{name}: {unknown('argument', each, known)}"
    if "too many positional" in error:
        return f"{name}: arguments are given by name, such as {known[0]}=…: {', '.join(known)}"
    return f"{name}: {error}"
