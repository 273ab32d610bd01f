"""Which services does a world have, and with which settings?"""

from collections.abc import Mapping
from typing import cast

from x402sim.service.settings import Settings

MOST = 20
"""The most services of one world."""
FIRST = "service"
"""The name of a world's only service."""


def shops(service: Settings | None, services: Mapping[str, Settings] | None) -> dict[str, Settings]:
    """Return the settings of each service by name, from the options of a world.

    Raises `ValueError` for both options, an impossible name, or too many services.
    """
    if service is not None and services is not None:
        raise ValueError("give `service` or `services`, not both")
    given = {FIRST: service or Settings()} if services is None else dict(services)
    if not 1 <= len(given) <= MOST:
        raise ValueError(f"services: expected 1 to {MOST} by name, got {len(given)}")
    for name, settings in given.items():
        if not isinstance(cast(object, settings), Settings):
            option = "service" if services is None else f"services[{name!r}]"
            raise ValueError(f"{option}: expected Settings, got {settings!r}")
    return given
