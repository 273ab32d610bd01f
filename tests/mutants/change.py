"""Changes that make a service defective: a `Change` takes a recipe and returns another one.

Nothing is patched: every change is a rule left out, a setting, a decision, a wrapped
collaborator (`wrapper.py`), or middleware (`middleware.py`), so that the service can be
rewritten without touching the mutants.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from starlette.types import ASGIApp

from x402sim.facilitator.engine import Facilitator
from x402sim.protocol.rules import Presented
from x402sim.service.setup import Setup
from x402sim.service.state import Service
from x402sim.world.assembly.recipe import Recipe

Change = Callable[[Recipe], Recipe]


def all_of(*changes: Change) -> Change:
    """Make one change of several; they are applied in this order."""

    def change(recipe: Recipe) -> Recipe:
        for each in changes:
            recipe = each(recipe)
        return recipe

    return change


def setting(**values: Any) -> Change:
    """Change settings of the service."""
    return on_setup(lambda setup: replace(setup, settings=replace(setup.settings, **values)))


def decision(**values: Any) -> Change:
    """Change decisions of the service; here they may have impossible values."""

    def change(setup: Setup) -> Setup:
        decisions = replace(setup.settings.decisions, **values)
        return replace(setup, settings=replace(setup.settings, decisions=decisions))

    return on_setup(change)


def leave_out(table: str, clause: str) -> Change:
    """Leave a row out of a rule table."""
    return lambda recipe: replace(recipe, without=(*recipe.without, (table, clause)))


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
    return on_service(
        lambda service: replace(
            service,
            freshness_rules=tuple(replace(rule, holds=holds) for rule in service.freshness_rules),
        )
    )


def on_setup(change: Callable[[Setup], Setup]) -> Change:
    """Change the service's setup once more, after the changes before."""

    def changed(recipe: Recipe) -> Recipe:
        before = recipe.hooks.setup
        hooks = replace(recipe.hooks, setup=lambda setup: change(before(setup)))
        return replace(recipe, hooks=hooks)

    return changed


def on_service(change: Callable[[Service], Service]) -> Change:
    """Change the service once more, after the changes before."""

    def changed(recipe: Recipe) -> Recipe:
        before = recipe.hooks.service
        hooks = replace(recipe.hooks, service=lambda service: change(before(service)))
        return replace(recipe, hooks=hooks)

    return changed


def on_app(change: Callable[[Service, ASGIApp], ASGIApp]) -> Change:
    """Put middleware around the service's application, outside of the changes before."""

    def changed(recipe: Recipe) -> Recipe:
        before = recipe.hooks.app

        def app(service: Service, inner: ASGIApp) -> ASGIApp:
            return change(service, before(service, inner))

        return replace(recipe, hooks=replace(recipe.hooks, app=app))

    return changed


def on_facilitator(change: Callable[[Facilitator], Facilitator]) -> Change:
    """Change the facilitator."""
    return lambda recipe: replace(recipe, hooks=replace(recipe.hooks, facilitator=change))
