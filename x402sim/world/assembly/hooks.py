"""How to change the parts of a world before they start: policies, middleware, defects.

`Recipe(hooks=Hooks(service=lambda it: replace(it, store=MyStore(it.store))))` puts another store
into the service. Each hook gets a part and returns the one to use.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from starlette.types import ASGIApp

from x402sim.facilitator.engine import Facilitator
from x402sim.service.setup import Setup
from x402sim.service.state import Service

Part = TypeVar("Part")


def _unchanged(part: Part) -> Part:
    return part


def _no_middleware(_: Service, app: ASGIApp) -> ASGIApp:
    return app


@dataclass(frozen=True, slots=True, kw_only=True)
class Hooks:
    """A function for each part that can be changed; the defaults change nothing.

    `service` and `app` run at each start of the service, also after a crash, and lose what they
    hold in memory. `app` wraps the ASGI application of the service.
    """

    setup: Callable[[Setup], Setup] = _unchanged
    service: Callable[[Service], Service] = _unchanged
    app: Callable[[Service, ASGIApp], ASGIApp] = _no_middleware
    facilitator: Callable[[Facilitator], Facilitator] = _unchanged


NO_HOOKS = Hooks()
"""Hooks that change nothing."""
