"""Inputs that Hypothesis makes up, the same in every run."""

from collections.abc import Callable
from tempfile import TemporaryDirectory
from types import CodeType
from typing import Any

from x402sim.suite.verdict import Skipped

_MADE: dict[tuple[int, CodeType], list[Any]] = {}
"""What was made up already in this process: it would be the same again."""


def examples(count: int, strategy: Callable[[Any], Any]) -> list[Any]:
    """Return at most `count` inputs; raises `Skipped` without Hypothesis.

    `strategy` is a function of the module `hypothesis.strategies`, and of nothing else.
    """
    code: CodeType = strategy.__code__
    key = count, code
    if key not in _MADE:
        _MADE[key] = _make_up(count, strategy)
    return list(_MADE[key])


def _make_up(count: int, strategy: Callable[[Any], Any]) -> list[Any]:
    """Have Hypothesis make inputs up; it leaves nothing on disk."""
    try:
        import hypothesis
        from hypothesis.configuration import set_hypothesis_home_dir
    except ImportError as error:
        raise Skipped("it needs Hypothesis: pip install 'x402sim[conformance]'") from error
    found: list[Any] = []

    @hypothesis.settings(
        max_examples=count,
        derandomize=True,
        database=None,
        deadline=None,
        phases=[hypothesis.Phase.generate],
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    @hypothesis.given(strategy(hypothesis.strategies))
    def collect(example: Any) -> None:
        found.append(example)

    with TemporaryDirectory() as scratch:
        set_hypothesis_home_dir(scratch)
        try:
            collect()
        finally:
            set_hypothesis_home_dir(None)
    return found
