"""Random inputs from Hypothesis, the same in every run."""

from collections.abc import Callable
from tempfile import TemporaryDirectory
from types import CodeType
from typing import Any

from x402sim.suite.verdict import Skipped

_GENERATED: dict[tuple[int, CodeType], list[Any]] = {}
"""The inputs of this process so far: generating them again would give the same."""


def examples(count: int, strategy: Callable[[Any], Any]) -> list[Any]:
    """Return at most `count` inputs; raises `Skipped` without Hypothesis.

    `strategy` is called with the module `hypothesis.strategies`; it must not use a closure.
    """
    code: CodeType = strategy.__code__
    key = count, code
    if key not in _GENERATED:
        _GENERATED[key] = _generate(count, strategy)
    return list(_GENERATED[key])


def _generate(count: int, strategy: Callable[[Any], Any]) -> list[Any]:
    """Generate inputs with Hypothesis, without leaving files on disk."""
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
