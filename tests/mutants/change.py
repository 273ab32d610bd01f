"""Changes that make a service defective: a `Change` takes a world and returns another one.

Nothing is patched: every change is a rule left out, a setting, a decision, a wrapped
collaborator (`wrapper.py`), or middleware (`middleware.py`), so that the service can be
rewritten without touching the mutants.
"""

from collections.abc import Callable
from copy import copy
from dataclasses import replace
from functools import partial
from typing import Any

from x402sim import World
from x402sim.protocol.rules import Presented
from x402sim.service.environment import Environment
from x402sim.service.state import Service

Change = Callable[[World], World]


def all_of(*changes: Change) -> Change:
    """Make one change of several; they are applied in this order."""

    def change(world: World) -> World:
        for each in changes:
            world = each(world)
        return world

    return change


def setting(**values: Any) -> Change:
    """Change settings of the service."""
    return on_setup(lambda setup: replace(setup, settings=replace(setup.settings, **values)))


def decision(**values: Any) -> Change:
    """Change decisions of the service; here they may have impossible values."""

    def change(setup: Environment) -> Environment:
        decisions = copy(setup.settings.decisions)
        for name, value in values.items():
            object.__setattr__(decisions, name, value)
        return replace(setup, settings=replace(setup.settings, decisions=decisions))

    return on_setup(change)


def leave_out(table: str, clause: str) -> Change:
    """Leave a row out of a rule table."""
    return lambda world: replace(world, without=(*world.without, (table, clause)))


def settlement_rule(clause: str, holds: Callable[[Presented], bool]) -> Change:
    """Let a row of the settlement's table hold in other cases."""

    def change(service: Service) -> Service:
        rules = service.settlement_rules
        assert clause in [rule.clause for rule in rules]
        other = [replace(rule, holds=holds) if rule.clause == clause else rule for rule in rules]
        return replace(service, settlement_rules=tuple(other))

    return on_service(change)


def freshness(holds: Callable[[Presented], bool]) -> Change:
    """Let requirements be paid as long as this holds."""

    def change(service: Service) -> Service:
        rules = tuple(replace(rule, holds=holds) for rule in service.freshness_rules)
        return replace(service, freshness_rules=rules)

    return on_service(change)


def _on(hook: str, change: Callable[..., Any]) -> Change:
    """Change what a hook of the world gives, once more after the changes before.

    `change` gets what the hook gets, with the last of it as the changes before have left it.
    """

    def changed(world: World) -> World:
        before = getattr(world.hooks, hook)

        def both(*given: Any) -> Any:
            return change(*given[:-1], before(*given))

        return replace(world, hooks=replace(world.hooks, **{hook: both}))

    return changed


on_setup, on_service, on_app, on_facilitator = (
    partial(_on, hook) for hook in ("setup", "service", "app", "facilitator")
)
"""Change the service's setup, the service, its application (middleware around it), or the facilitator."""
