"""The grid of a sweep: an experiment, and its cells.

An experiment is a function, or a `functools.partial` of one. A cell is one combination of
parameters, with labels for the frame.
"""

import inspect
import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import FunctionType
from typing import Any

import msgspec

from x402sim.rng import Rng
from x402sim.text.words import as_given, unknown


def function_of(experiment: Any) -> FunctionType | None:
    """Return the Python function that an experiment calls in the end, or None."""
    while isinstance(experiment, partial):
        experiment = experiment.func
    function = inspect.unwrap(experiment) if callable(experiment) else None
    return function if isinstance(function, FunctionType) else None


def name_of(experiment: Any) -> str:
    """Return the name of an experiment's function."""
    while isinstance(experiment, partial):
        experiment = experiment.func
    return str(getattr(experiment, "__name__", None) or type(experiment).__name__)


def line_of(experiment: Callable[..., Any], given: str) -> str:
    """Return the Python line that calls an experiment with the arguments `given`, as code."""
    while isinstance(experiment, partial):
        named = [f"{name}={value!r}" for name, value in experiment.keywords.items()]
        given = ", ".join([*map(repr, experiment.args), *named, given])
        experiment = experiment.func
    module = inspect.getmodule(experiment)
    where, name = module.__name__ if module else "__main__", name_of(experiment)
    before = "" if where == "__main__" else f"from {where} import {name}; "
    return f"{before}{name}({given})"


Label = str | int | float | bool | None
"""How a frame shows a parameter's value."""
Grid = Mapping[str, Iterable[Any] | Mapping[str, Any]]
"""The values of each parameter, all combined; of objects, by their labels."""
RESERVED = ("seed", "error", "trace", "replay")
"""Columns of every sweep."""
OF_SUMMARIES = (
    *("result", "seeds", "rows", "failed", "mean", "low", "high", "std"),
    *("unit", "independent"),
)
"""Columns of a summary, beside parameters and quantiles."""
QUANTILES = {"q05": 0.05, "q50": 0.5, "q95": 0.95}
"""The quantiles of a summary, by the names of their columns."""
_SEED_BYTES = 6
_LABELS = (str, int, float, bool)


@dataclass(frozen=True, slots=True)
class Cell:
    """One combination of parameters: the values for the experiment, and their labels."""

    labels: dict[str, Label]
    values: dict[str, Any]

    @property
    def key(self) -> str:
        """The labels as JSON, which name the cell in every sweep."""
        return msgspec.json.encode(self.labels, order="sorted").decode()


def labels_of(key: str) -> dict[str, Label]:
    """Return the labels of a cell from its key, sorted by name."""
    return msgspec.json.decode(key, type=dict[str, Label])


def cells(grid: Grid) -> list[Cell]:
    """Return the cells of a grid; the first parameter varies slowest.

    Raises `ValueError` for an empty grid, for values without a label, for labels of several types,
    and for two cells with the same labels.
    """
    for name in grid:
        if name in RESERVED:
            raise ValueError(
                f"a parameter cannot be named {as_given(name)}: it is a column of every sweep"
            )
        if name in (*OF_SUMMARIES, *QUANTILES):
            raise ValueError(
                f"a parameter cannot be named {as_given(name)}: it is a column of `summarize`"
            )
    columns = [_named(name, values) for name, values in grid.items()]
    for column in columns:
        labels = [label for _, label, _ in column if label is not None]
        kinds = {float if type(each) is int else type(each) for each in labels}
        if len(kinds) > 1:
            raise ValueError(
                f"{column[0][0]}: the labels {', '.join(map(repr, labels[:4]))} are of several "
                "types, and a column has one: give texts, such as {'3': 3}"
            )
    found = [
        Cell({name: label for name, label, _ in cell}, {name: value for name, _, value in cell})
        for cell in itertools.product(*columns)
    ]
    if not found:
        raise ValueError("the grid has no cells: a parameter has no values")
    key, times = Counter(cell.key for cell in found).most_common(1)[0]
    if times > 1:
        raise ValueError(f"two cells of the grid have the same labels: {key}")
    return found


_Named = tuple[str, Label, Any]  # a parameter's name, the label of its value, and the value


def _named(name: str, values: Iterable[Any] | Mapping[str, Any]) -> list[_Named]:
    if isinstance(values, Mapping):
        return [(name, label, value) for label, value in values.items()]
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        raise ValueError(f"{name}: a list of values is needed, not {as_given(values)}")
    return [(name, _label(name, value), value) for value in values]


def is_label(value: Any) -> bool:
    """Tell whether a value is its own label: a number (also of numpy), a text, None."""
    if hasattr(value, "item") and not isinstance(value, _LABELS):
        value = value.item() if getattr(value, "ndim", 0) == 0 else value
    return value is None or isinstance(value, _LABELS)


def _label(name: str, value: Any) -> Label:
    """Return the label of a value; raises `ValueError` if it differs from process to process."""
    if is_label(value):
        return value if value is None or isinstance(value, _LABELS) else value.item()
    shown = getattr(value, "__name__", None) or repr(value)
    if " at 0x" in shown or shown == "<lambda>":
        raise ValueError(f"{name}: {shown} has no lasting label; give {{'a label': value, ...}}")
    return str(shown)


def labels_key(labels: Iterable[Any]) -> tuple[Any, ...]:
    """Return labels as a dict key; NaN, which a frame makes of None, becomes None again."""
    return tuple(None if each is None or each != each else each for each in labels)


def require_fit(experiment: Callable[..., Any], found: Sequence[Cell]) -> None:
    """Raise `TypeError` unless the experiment takes every parameter, and `seed`, by name."""
    name, function = name_of(experiment), function_of(experiment)
    if function is None or inspect.iscoroutinefunction(function):
        raise TypeError(
            f"{name}: an experiment is a plain function that plays a world and returns numbers"
        )
    if isinstance(experiment, partial):  # `signature` below does not check a partial's arguments
        try:
            inspect.signature(experiment.func).bind_partial(*experiment.args, **experiment.keywords)
        except TypeError as error:
            raise TypeError(f"{name}: the arguments of the partial do not fit: {error}") from error
    signature = inspect.signature(experiment)
    try:
        signature.bind(**found[0].values, seed=0)
    except TypeError as error:
        given = [*found[0].values, "seed"]
        surplus = [each for each in given if each not in signature.parameters]
        hint = f"; {unknown('parameter', surplus[0], signature.parameters)}" if surplus else ""
        raise TypeError(
            f"{name}{signature} is called with {', '.join(given)}: {error}{hint}"
        ) from error


def seeds_of(cell: Cell, seeds: Sequence[int], *, common: bool) -> list[int]:
    """Return the seeds of a cell: `seeds` if common, else for each seed a number of this cell."""
    if common:
        return list(seeds)
    return [int.from_bytes(Rng(seed).secret(f"cell {cell.key}")[:_SEED_BYTES]) for seed in seeds]
