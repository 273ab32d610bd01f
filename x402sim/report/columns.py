"""The types of the columns of frames, and the columns of events that frames are made of.

A kind turns the values of one column (None: missing; or an Arrow array) into an array of one dtype,
which an empty column has too. A column `x_base` is an amount in base units, exact; `frame`
puts its twin `x`, in whole tokens as floats, beside it.
"""

from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

import msgspec
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from x402sim.events.base import BaseEvent
from x402sim.journal import Journal
from x402sim.journal.columns import Texts
from x402sim.protocol.money import MAX_STORED

Kind = Callable[[Any], Any]
_EXACT = 1 << 53
"""Integers up to this one are floats."""


def table(journal: Journal, kind: type[BaseEvent], *names: str) -> dict[str, Any]:
    """Return fields of all events of a kind as Arrow arrays, and `at_ms`, each event's moment."""
    texts, parts = journal.columns(kind)
    types = {field.name: field.type for field in msgspec.structs.fields(kind)} | {"at_ms": int}
    return {
        name: _joined(texts, [part[name] for part in parts], types[name])
        for name in ("at_ms", *names)
    }


def _joined(texts: Texts, parts: list[Sequence[Any]], kind: Any) -> pa.Array:
    """Return the parts of a column as one Arrow array."""
    if kind in (bool, bool | None):
        return pa.array(list(chain.from_iterable(parts)), pa.bool_())
    if not all(isinstance(part, array) for part in parts):  # a number beyond 63 bits
        return pa.array(list(chain.from_iterable(parts)), pa.int64())
    joined = pa.array(np.concatenate([np.empty(0, "int64"), *map(np.asarray, parts)]))
    return joined if kind is int else _texts(texts).take(joined)


def since(at_ms: Any, start_ms: Any) -> Any:
    """Return the seconds from one moment to another, both in milliseconds, of Arrow arrays."""
    return pc.divide(pc.subtract(at_ms, start_ms).cast(pa.float64()), 1000.0)


def _texts(texts: Texts) -> pa.Array:
    """Return all texts of a journal by number."""
    if texts.made is None or len(texts.made) < len(texts.all):
        texts.made = pa.array(texts.all, pa.string())
    return texts.made


def seconds(values: Any) -> Any:
    """Return float64; NaN is missing."""
    return _arrow(values, pa.float64()).to_numpy(zero_copy_only=False).copy()


def moment(values: Any) -> Any:
    """Return UTC timestamps with milliseconds, from Unix milliseconds."""
    made = _arrow(values, pa.int64()).to_numpy().astype("datetime64[ms]")
    return pd.Series(made).dt.tz_localize("UTC")


def integer(values: Any) -> Any:
    """Return Int64."""
    made = _arrow(values, pa.int64())
    is_missing = made.is_null().to_numpy(zero_copy_only=False)
    return pd.arrays.IntegerArray(made.fill_null(0).to_numpy().copy(), is_missing.copy())


def text(values: Any) -> Any:
    """Return strings."""
    return pd.array(_arrow(values, pa.large_string()), dtype="string")


def flag(values: Sequence[bool]) -> Any:
    """Return bool."""
    return np.array(values, dtype="bool")


def category(values: Any) -> Any:
    """Return a categorical, its categories in the order of their first appearance."""
    made = _arrow(values, pa.string()).dictionary_encode()
    return _categorical(made.indices, made.dictionary.to_pylist())


def one_of(*names: str) -> Kind:
    """Return the kind of a categorical with just these categories."""
    known = pa.array(names, pa.string())
    return lambda values: _categorical(
        pc.index_in(_arrow(values, pa.string()), value_set=known), names
    )


def amount(values: Any) -> Any:
    """Return base units as Int64 if even all of them together fit into 63 bits.

    A token's amounts go up to 2^256. Where they do not fit, the column holds Python
    integers (dtype object), so that neither a value nor a sum is ever wrong.
    """
    fits = sum(map(abs, filter(None, values))) <= MAX_STORED
    return integer(values) if fits else _objects(values)


_KINDS: dict[str, Kind] = {
    **dict.fromkeys(
        ("exchange", "status", "order", "served_times", "requests", "attempts"), integer
    ),
    **dict.fromkeys(("attempts", "payments", "block", "gas", "gas_price_wei"), integer),
    **dict.fromkeys(("matched", "reverted", "unknown", "unanswered", "backlog"), integer),
    **dict.fromkeys(("payer", "service", "caller", "sender", "to", "party", "network"), category),
    **dict.fromkeys(("method", "path", "resource", "call", "clause"), category),
    **dict.fromkeys(("payment_id", "session_id", "tx", "refund_tx"), text),
    **dict.fromkeys(("sender_address", "to_address"), text),
    **dict.fromkeys(("error", "expected", "actual", "revert_reason"), text),
    **dict.fromkeys(("ok", "charged", "granted", "served", "refunded", "undone"), flag),
    **dict.fromkeys(("fee_coins", "fee"), seconds),
    "at": moment,
}
"""What a name means in every frame; `_base` at its end is an amount, and `_s` are seconds."""


def kinds(names: str, **own: Kind) -> dict[str, Kind]:
    """Return the columns of a frame, given their names; `own` are kinds of this frame only."""
    known, units = _KINDS | own, {"base": amount, "s": seconds}
    return {name: known.get(name) or units[name.rpartition("_")[2]] for name in names.split()}


def frame(
    columns: Mapping[str, Kind], rows: Iterable[Sequence[Any]], decimals: int
) -> pd.DataFrame:
    """Return the frame of these rows, which have a value for each column."""
    by_column = list(zip(*rows, strict=True)) or [()] * len(columns)
    return of_columns(columns, by_column, decimals)


def of_columns(columns: Mapping[str, Kind], values: Iterable[Any], decimals: int) -> pd.DataFrame:
    """Return the frame of these columns, each with a value for each row."""
    made = {}
    for (name, kind), given in zip(columns.items(), values, strict=True):
        made[name] = kind(given)
        if kind is amount:
            made[name.removesuffix("_base")] = _in_tokens(given, decimals)
    return pd.DataFrame(made)


def _arrow(values: Any, kind: Any) -> Any:
    return values.cast(kind) if isinstance(values, pa.Array) else pa.array(values, kind)


def _categorical(codes: Any, names: Sequence[str]) -> Any:
    dtype = pd.CategoricalDtype(pd.Index(names, dtype="str"))
    return pd.Categorical.from_codes(codes.fill_null(-1).to_numpy(), dtype=dtype)


def _in_tokens(values: Sequence[int | None], decimals: int) -> Any:
    """Return whole tokens as float64: of each amount the nearest there is."""
    unit = 10**decimals
    if unit <= _EXACT and max(map(abs, filter(None, values)), default=0) <= _EXACT:
        return seconds(values) / unit
    return seconds([None if value is None else value / unit for value in values])


def _objects(values: Sequence[Any]) -> Any:
    column = np.empty(len(values), dtype="object")
    column[:] = values
    return column
