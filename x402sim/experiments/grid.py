"""What a sweep plays: an experiment, and the cells of its grid.

An experiment is a function, a partial, a bound method, or an object with `__call__`. A cell is one
combination of parameters, with labels for the frame.
"""

import inspect
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import FunctionType, MethodType
from typing import Any

import msgspec

from x402sim.rng import Rng
from x402sim.text.words import as_given, unknown


def function_of(experiment: Any) -> FunctionType | None:
    """Return the Python function that an experiment calls in the end; None if there is none."""
    while True:
        if isinstance(experiment, partial):
            experiment = experiment.func
        elif isinstance(experiment, MethodType):
            experiment = experiment.__func__
        elif hasattr(experiment, "__wrapped__"):
            experiment = inspect.unwrap(experiment)
        elif isinstance(experiment, FunctionType):
            return experiment
        elif isinstance(experiment, type):
            return None
        else:
            called = vars_of(type(experiment)).get("__call__")
            return called if isinstance(called, FunctionType) else None


def vars_of(kind: type) -> dict[str, Any]:
    """Return the attributes of a class, inherited ones included."""
    return {name: value for each in reversed(kind.__mro__) for name, value in vars(each).items()}


def name_of(experiment: Any) -> str:
    """Return the name of an experiment: a function, "Class.method", or a class."""
    if isinstance(experiment, partial):
        return name_of(experiment.func)
    if isinstance(experiment, MethodType):
        owner = experiment.__self__
        kind = owner if isinstance(owner, type) else type(owner)
        return f"{kind.__name__}.{experiment.__func__.__name__}"
    return str(getattr(experiment, "__name__", None) or type(experiment).__name__)


def line_of(experiment: Callable[..., Any], given: str) -> str:
    """Return the Python line that calls an experiment with the arguments `given`, as code.

    No line can make the object of a method: then the line calls `experiment`, the value that the
    user passed to `sweep`.
    """
    if isinstance(experiment, partial) and isinstance(experiment.func, FunctionType):
        named = [f"{name}={value!r}" for name, value in experiment.keywords.items()]
        given = ", ".join([*map(repr, experiment.args), *named, given])
        experiment = experiment.func
    if not isinstance(inspect.unwrap(experiment), FunctionType):
        return f"experiment({given})  # {name_of(experiment)}"
    module = inspect.getmodule(experiment)
    where, name = module.__name__ if module else "__main__", name_of(experiment)
    before = "" if where == "__main__" else f"from {where} import {name}; "
    return f"{before}{name}({given})"


Label = str | int | float | bool | None
"""How a frame shows a parameter's value."""
Grid = Mapping[str, Iterable[Any] | Mapping[str, Any]] | Sequence[Mapping[str, Any]]
"""The values of each parameter, to combine all; or a list of cells."""
RESERVED = ("seed", "error", "trace", "replay")
"""Columns of every sweep."""
OF_SUMMARIES = (
    *("result", "seeds", "rows", "failed", "mean", "low", "high", "std"),
    *("unit", "independent"),
)
"""Columns of a summary, beside parameters and quantiles."""
_QUANTILES = ("q05", "q50", "q95")
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
    """Return the cells of a grid: of a mapping, the first parameter varies slowest.

    Raises `ValueError` for an empty grid, for parameters without a label, and for two cells with
    the same labels.
    """
    named: Iterable[Sequence[_Named]]
    if isinstance(grid, Mapping):
        named = itertools.product(*(_named(name, values) for name, values in grid.items()))
    else:
        named = [[(name, _label(name, v), v) for name, v in cell.items()] for cell in grid]
    found = [
        Cell({name: label for name, label, _ in cell}, {name: value for name, _, value in cell})
        for cell in named
    ]
    if not found:
        raise ValueError("the grid has no cells: a parameter has no values")
    for name in found[0].labels:
        if name in RESERVED:
            raise ValueError(
                f"a parameter cannot be named {as_given(name)}: it is a column of every sweep"
            )
        if name in (*OF_SUMMARIES, *_QUANTILES):
            raise ValueError(
                f"a parameter cannot be named {as_given(name)}: it is a column of `summarize`"
            )
    keys = [cell.key for cell in found]
    for cell in found:
        if keys.count(cell.key) > 1:
            raise ValueError(f"two cells of the grid have the same labels: {cell.key}")
        if cell.labels.keys() != found[0].labels.keys():
            raise ValueError(f"the cells of a grid have the same parameters; one has {cell.key}")
    return found


_Named = tuple[str, Label, Any]
"""A parameter's name, the label of its value, and the value."""


def _named(name: str, values: Iterable[Any] | Mapping[str, Any]) -> list[_Named]:
    """Return the values of one parameter with their labels."""
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
    name = name_of(experiment)
    is_async = inspect.iscoroutinefunction(function_of(experiment))
    if not callable(experiment) or isinstance(experiment, type) or is_async:
        raise TypeError(
            f"{name}: an experiment is a plain function that plays a world and returns numbers"
        )
    if isinstance(experiment, partial):  # `signature` below does not check its arguments
        try:
            inspect.signature(experiment.func).bind_partial(*experiment.args, **experiment.keywords)
        except TypeError as error:
            raise TypeError(f"{name}: the arguments of the partial do not fit: {error}") from error
    try:
        signature = inspect.signature(experiment)
    except ValueError as error:
        raise TypeError(
            f"{name}: its parameters cannot be told: {error}; write a function"
        ) from error
    try:
        signature.bind(**found[0].values, seed=0)
    except TypeError as error:
        given = [*found[0].values, "seed"]
        surplus = [each for each in given if each not in signature.parameters]
        hint = f"; {unknown('parameter', surplus[0], signature.parameters)}" if surplus else ""
        raise TypeError(
            f"{name}{signature} is called with {', '.join(given)}: {error}{hint}"
        ) from (error)


def seeds_of(cell: Cell, seeds: Sequence[int], *, common: bool) -> list[int]:
    """Return the seeds of a cell: `seeds` if common, else numbers drawn from them and the cell."""
    if common:
        return list(seeds)
    return [int.from_bytes(Rng(seed).secret(f"cell {cell.key}")[:_SEED_BYTES]) for seed in seeds]
