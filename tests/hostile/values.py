"""What Hypothesis draws for decoders: any text, JSON that is almost right, and messages."""

import types
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import msgspec
from hypothesis import strategies as st
from msgspec import Meta, UnsetType

from tests.hostile.inputs import VALUES
from tests.strategies import json_values

SPECIAL = [value for value in VALUES if isinstance(value, str) and len(value) < 500]
texts = st.one_of(
    st.text(max_size=80),
    st.text("0x123456789abcdefABCDEF.-+_eE ", max_size=70),
    st.sampled_from(SPECIAL),
    st.sampled_from(SPECIAL).flatmap(lambda it: st.text(max_size=3).map(lambda end: it + end)),
)
"""Any text, most of it close to a number, an address or an id."""
numbers = st.integers() | st.floats() | st.sampled_from([2**63, 2**64, 2**256, -(2**63) - 1])
anything = json_values | texts | numbers | st.sampled_from(VALUES)


def messages(kind: Any) -> st.SearchStrategy[Any]:
    """Return a strategy for the values of a type that the decoder accepts."""
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        fields = msgspec.structs.fields(kind)
        return st.builds(kind, **{field.name: messages(field.type) for field in fields})
    origin, inner = get_origin(kind), get_args(kind)
    if origin is Annotated:
        limits = [each for each in inner[1:] if isinstance(each, Meta) and _limits(each)]
        return _limited(inner[0], *limits) if limits else messages(inner[0])
    if origin in (Union, types.UnionType):
        kept = [each for each in inner if each is not UnsetType]
        return st.one_of([messages(each) for each in kept])
    if origin is Literal:
        return st.sampled_from(inner)
    if origin is list or Ellipsis in inner:
        return st.lists(messages(inner[0]), max_size=4).map(origin)
    if origin is dict:
        return st.dictionaries(messages(inner[0]), messages(inner[1]), max_size=4)
    if origin is tuple:
        return st.tuples(*map(messages, inner))
    return _PLAIN[kind]


_PLAIN: dict[Any, st.SearchStrategy[Any]] = {
    str: st.text(st.characters(exclude_categories=["Cs"]), max_size=40),
    int: st.integers(-(2**63), 2**64 - 1),
    float: st.floats(allow_nan=False, allow_infinity=False),
    bool: st.booleans(),
    type(None): st.none(),
    Any: json_values,
}


def _limits(meta: Meta) -> bool:
    """Whether it limits the values, and does not only describe them."""
    return (meta.pattern, meta.ge, meta.gt, meta.le) != (None,) * 4


def _limited(kind: Any, meta: Meta) -> st.SearchStrategy[Any]:
    if meta.pattern is not None:
        return st.from_regex(meta.pattern.removesuffix(r"\Z"), fullmatch=True)
    least, most = meta.ge if meta.ge is not None else meta.gt, meta.le
    if kind is int:
        return st.integers(least, 2**64 - 1 if most is None else most)
    return st.floats(least, most, exclude_min=meta.gt is not None)
