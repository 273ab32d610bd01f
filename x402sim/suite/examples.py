"""Inputs that a check can send: random ones from Hypothesis, and other orders."""

from collections.abc import Callable
from tempfile import TemporaryDirectory
from types import CodeType
from typing import Any

from x402sim.suite.probe import Probe
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


def other_orders(probe: Probe) -> list[dict[str, Any]]:
    """Return orders of another size, leverage and pair; a target need not take them.

    They show what a service decides by the first one.
    """
    endpoint = probe.target.protected
    order = probe.usual_body
    others: list[dict[str, Any]] = []
    size, leverage = order.get("sizeUsd"), order.get("leverage")
    if isinstance(size, int | float) and not isinstance(size, bool):
        others += [{**order, "sizeUsd": each} for each in (size * 2, size * 250, size / 8)]
    if isinstance(leverage, int | float) and not isinstance(leverage, bool):
        others += [{**order, "leverage": each} for each in (1, leverage + 2)]
    base, dash, quote = str(order.get("pair")).partition("-")
    if endpoint.second_pair and "pair" in order:
        others.append({**order, "pair": endpoint.second_pair})
    elif dash:
        others.append({**order, "pair": f"{'BTC' if base == 'ETH' else 'ETH'}-{quote}"})
    return others
