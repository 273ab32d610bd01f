"""Other orders that a check can send: they show what a service decides by the first one."""

from typing import Any

from x402sim.suite.probe import Probe


def other_orders(probe: Probe) -> list[dict[str, Any]]:
    """Return orders of another size, leverage and pair; a target need not take them."""
    endpoint = probe.target.protected
    order = probe.state.body or endpoint.bodies[0]
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
