"""Reads the services and facilitators of a world from its options."""

import re
from collections.abc import Mapping
from typing import TypeVar

from x402sim.events import MOST_SERVICES, OUTSIDE
from x402sim.facilitator.settings import FacilitatorSettings
from x402sim.service.settings import Settings
from x402sim.text.arguments import require_kind
from x402sim.text.suggest import unknown
from x402sim.world.chains.backend import ChainBackend
from x402sim.world.chains.parse import DEFAULT_CHAIN
from x402sim.world.stages.stage import Stage

Options = TypeVar("Options", Settings, FacilitatorSettings)
_SERVICE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9 _.-]{0,39}")
_FACILITATOR_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,39}")
_TAKEN = {*OUTSIDE, "chain", "world", "visitor"}
"""The names of other actors."""


def require_own_world(stage: Stage, chain: ChainBackend, options: Mapping[str, object]) -> None:
    """Raise `ValueError` if a chain or an option is given to a stage that cannot use it."""
    if stage.needs_virtual_time and not chain.is_virtual:
        raise ValueError(
            f"{stage.name} needs virtual time, which {chain.name} lacks; use in-process"
        )
    if stage.builds_world:
        return
    if chain != DEFAULT_CHAIN:
        said = f"chain {chain.name} cannot be combined with {stage.name}"
        raise ValueError(f"{said}, which has its own")
    for option, given in options.items():
        if given is not None:
            raise ValueError(f"{option}: {stage.name} has its own, which cannot be set here")


def services_of(given: Settings | Mapping[str, Settings] | None) -> dict[str, Settings]:
    """Return the settings of each service by name; raises `ValueError` for a name or a number."""
    services = _by_name("service", given, Settings())
    for name in services:
        if not _SERVICE_NAME.fullmatch(name) or name in _TAKEN:
            raise ValueError(
                f"service: {name!r} is no name for a service: expected up to 40 letters, digits, "
                f"spaces, '_', '.' and '-', and none of {', '.join(sorted(_TAKEN))}"
            )
    return services


def facilitators_of(
    given: FacilitatorSettings | Mapping[str, FacilitatorSettings] | None,
    services: Mapping[str, Settings],
) -> dict[str, FacilitatorSettings]:
    """Return the settings of each facilitator by name.

    Raises `ValueError` for a name, or a service with a facilitator that is not there.
    """
    facilitators = _by_name("facilitator", given, FacilitatorSettings())
    for name in facilitators:
        is_free = name == "facilitator" or name not in {*_TAKEN, *services}
        if not _FACILITATOR_NAME.fullmatch(name) or not is_free:
            raise ValueError(
                f"facilitator: {name!r} is no name for a facilitator: expected up to 40 small "
                "letters, digits and '-', and not the name of another part"
            )
    for name, settings in services.items():
        if settings.facilitator is not None and settings.facilitator not in facilitators:
            hint = unknown("facilitator", settings.facilitator, facilitators)
            raise ValueError(f"the settings of {name!r}: {hint}")
    return facilitators


def _by_name(
    option: str, given: Options | Mapping[str, Options] | None, default: Options
) -> dict[str, Options]:
    """Return the settings of the parts of a kind by name, or of the one part by the option's."""
    if not isinstance(given, Mapping):
        one = default if given is None else given
        require_kind(option, one, type(default))
        return {option: one}
    if not 1 <= len(given) <= MOST_SERVICES:
        raise ValueError(f"{option}: expected 1 to {MOST_SERVICES} by name, got {len(given)}")
    for name, settings in given.items():
        require_kind(f"{option}[{name!r}]", settings, type(default))
    return dict(given)
