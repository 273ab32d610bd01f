"""What an experiment may be: a function, a partial, a bound method, or an object that is called."""

import inspect
from collections.abc import Callable
from functools import partial
from types import FunctionType, MethodType
from typing import Any


def function_of(experiment: Any) -> FunctionType | None:
    """Return the function that an experiment calls in the end; None if none in Python."""
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
    """Return the attributes of a class, with those it inherits."""
    return {name: value for each in reversed(kind.__mro__) for name, value in vars(each).items()}


def name_of(experiment: Any) -> str:
    """Return the name of an experiment: of a function, of a class and its method, of a class."""
    if isinstance(experiment, partial):
        return name_of(experiment.func)
    if isinstance(experiment, MethodType):
        owner = experiment.__self__
        kind = owner if isinstance(owner, type) else type(owner)
        return f"{kind.__name__}.{experiment.__func__.__name__}"
    return str(getattr(experiment, "__name__", None) or type(experiment).__name__)


def line_of(experiment: Callable[..., Any], given: str) -> str:
    """Return the Python line that calls an experiment; `given` are the arguments in a call.

    Of an object's method it cannot name the object: there it is `experiment`, as it was given.
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
