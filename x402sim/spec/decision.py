"""The type of a decision: one question that the specification leaves open, and our answer."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Decision:
    """One "not shown" of the specification.

    `id` is section/slug; `field` names the switch in `Decisions`, or is None.
    `alternative` is the other value of that switch.
    """

    id: str
    question: str
    choice: str
    alternatives: str
    reason: str
    field: str | None = None
    default: object = None
    alternative: object = None
