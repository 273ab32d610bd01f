"""How a defect is made without HTTP: a rule left out, a setting, a decision, a wrapped collaborator."""

from collections.abc import Callable
from copy import copy
from dataclasses import replace
from functools import partial
from inspect import isfunction
from typing import Any

import msgspec

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


# --- collaborators in the place of the service's ---------------------------------------------


class Wrapper:
    """Has every attribute of `inner`, except for what a subclass overrides.

    A subclass that overrides what `inner` no longer has is an error: its defect would
    never show.
    """

    def __init__(self, inner: Any, service: Service) -> None:
        self.inner, self.service = inner, service
        public = [name for name, it in vars(type(self)).items() if isfunction(it)]
        for name in public:
            if not name.startswith("_") and not hasattr(inner, name):
                raise LookupError(f"{type(self).__name__} overrides {name}, which is gone")

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def __len__(self) -> int:
        return len(self.inner)


def collaborator(**wrappers: Callable[[Any, Service], Any]) -> Change:
    """Wrap collaborators of the service, by their names in `Service` or in its store.

    Each wrapper gets the real one and the service as it was before.
    """

    def change(service: Service) -> Service:
        made: dict[str, Any] = {}
        store = Wrapper(service.store, service)
        for name, wrap in wrappers.items():
            if hasattr(service.store, name):
                setattr(store, name, wrap(getattr(service.store, name), service))
                made["store"] = store
            else:
                made[name] = wrap(getattr(service, name), service)
        return replace(service, **made)

    return on_service(change)


def overriding(part: str, **methods: Callable[..., Any]) -> Change:
    """Override methods of one collaborator; each gets the wrapper around the real one, too."""
    return collaborator(**{part: type(f"Other{part}", (Wrapper,), methods)})


def altered(message: Any, **changes: Any) -> Any:
    """Return a dataclass or a message with other values in some fields."""
    is_message = isinstance(message, msgspec.Struct)
    return (msgspec.structs.replace if is_message else replace)(message, **changes)


def into(place: str, *states: Callable[[], Any]) -> Callable[[Any], Change]:
    """Put a wrapper around a collaborator of the service, or a function in place of a method.

    The function gets a new state of each kind for each world, before its other arguments.
    """
    part, _, method = place.partition(".")
    if not method:
        return lambda wrapper: collaborator(**{part: wrapper})

    def changing(function: Any) -> Change:
        def change(world: World) -> World:
            made = [state() for state in states]
            return overriding(part, **{method: lambda *of: function(*made, *of)})(world)

        return change

    return changing
