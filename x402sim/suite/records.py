"""Reads a stored payment, or a session.

The specification does not say where a service shows it: it may be anywhere in the answer, and its
names may be written in camelCase.
"""

from typing import Any

from x402sim.suite.answers import Paid, TargetAnswer
from x402sim.suite.places import filled, find
from x402sim.suite.probe import Probe
from x402sim.suite.target import at
from x402sim.suite.verdict import Inconclusive


async def record_of(probe: Probe, paid: Paid) -> dict[str, Any]:
    """Return a payment's stored record, with the names of 2.4; raises `Inconclusive`."""
    path = filled(probe.target.record.path, "paymentId", paid.challenge.payment_id)
    answer = await probe.send("GET", path)
    record = shown(answer, "payment_id")
    if answer.status != 200 or record is None:
        raise Inconclusive(f"the payment record cannot be read: {answer.summary}")
    return record


def shown(answer: TargetAnswer, *names: str) -> dict[str, Any] | None:
    """Return the first object in an answer that has these fields; None if there is none."""

    def has_all(_: str, value: Any) -> bool:
        return isinstance(value, dict) and set(names) <= {snake(name) for name in value}

    body = answer.body
    found = body if has_all("", body) else at(body, find(body, has_all))
    return {snake(name): value for name, value in found.items()} if found is not None else None


def snake(name: str) -> str:
    """Return a field's name in snake_case."""
    return "".join("_" + letter.lower() if letter.isupper() else letter for letter in name)
