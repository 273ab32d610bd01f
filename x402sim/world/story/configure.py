"""Which services, facilitators and explorer does a world have? Read from its options."""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import TypeVar, cast

from x402sim.events import MOST_SERVICES, OUTSIDE
from x402sim.explorer.settings import ExplorerSettings
from x402sim.facilitator.settings import FacilitatorSettings
from x402sim.service.settings import Settings
from x402sim.spec.decisions import Decisions
from x402sim.text.suggest import unknown
from x402sim.world.stages.stage import Stage

Options = TypeVar("Options", Settings, FacilitatorSettings)
_SERVICE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9 _.-]{0,39}")
_FACILITATOR_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,39}")
_TAKEN = {*OUTSIDE, "chain", "world", "visitor"}
"""The names of other actors."""


def require_own_world(stage: Stage, options: Mapping[str, object]) -> None:
    """Raise `ValueError` if an option is given on a stage whose world somebody else has built."""
    for option, given in options.items():
        if given is not None and not stage.builds_world:
            raise ValueError(f"{option}: {stage.name} has its own, which cannot be set here")


def services_of(
    service: Settings | None,
    services: Mapping[str, Settings] | None,
    decisions: Decisions | None,
) -> dict[str, Settings]:
    """Return the settings of each service by name; `decisions` are those of each without any.

    Raises `ValueError` for options that exclude each other, a name, or a number of services.
    """
    given = _by_name(("service", "services"), service, services, Settings())
    for name in given:
        if not _SERVICE_NAME.fullmatch(name) or name in _TAKEN:
            raise ValueError(
                f"services: {name!r} is no name for a service: expected up to 40 letters, digits, "
                f"spaces, '_', '.' and '-', and none of {', '.join(sorted(_TAKEN))}"
            )
    if decisions is None:
        return given
    for name, settings in given.items():
        if settings.decisions not in (Decisions(), decisions):
            raise ValueError(f"decisions: the settings of {name!r} have others")
    return {name: replace(settings, decisions=decisions) for name, settings in given.items()}


def facilitators_of(
    facilitator: FacilitatorSettings | None,
    facilitators: Mapping[str, FacilitatorSettings] | None,
    services: Mapping[str, Settings],
) -> dict[str, FacilitatorSettings]:
    """Return the settings of each facilitator by name.

    Raises `ValueError` for options that exclude each other, a name, or a service with another
    facilitator.
    """
    options = ("facilitator", "facilitators")
    given = _by_name(options, facilitator, facilitators, FacilitatorSettings())
    for name in given:
        is_free = name == "facilitator" or name not in {*_TAKEN, *services}
        if not _FACILITATOR_NAME.fullmatch(name) or not is_free:
            raise ValueError(
                f"facilitators: {name!r} is no name for a facilitator: expected up to 40 small "
                "letters, digits and '-', and not the name of another part"
            )
    for name, settings in services.items():
        if settings.facilitator is not None and settings.facilitator not in given:
            hint = unknown("facilitator", settings.facilitator, given)
            raise ValueError(f"the settings of {name!r}: {hint}")
    return given


def explorer_of(explorer: ExplorerSettings | None, lag_s: float) -> ExplorerSettings:
    """Return the settings of the explorer; raises `ValueError` for two lags."""
    if explorer is None:
        return ExplorerSettings(lag_s=lag_s)
    if not isinstance(cast(object, explorer), ExplorerSettings):
        raise ValueError(f"explorer: expected ExplorerSettings, got {explorer!r}")
    if lag_s:
        raise ValueError("give `explorer_lag_s` or `explorer`, not both")
    return explorer


def _by_name(
    options: tuple[str, str],
    one: Options | None,
    several: Mapping[str, Options] | None,
    default: Options,
) -> dict[str, Options]:
    """Return what an option for one part, or an option for several by name, gives."""
    single, plural = options
    if one is not None and several is not None:
        raise ValueError(f"give `{single}` or `{plural}`, not both")
    given = {single: default if one is None else one} if several is None else dict(several)
    if not 1 <= len(given) <= MOST_SERVICES:
        raise ValueError(f"{plural}: expected 1 to {MOST_SERVICES} by name, got {len(given)}")
    for name, settings in given.items():
        if not isinstance(cast(object, settings), type(default)):
            option = single if several is None else f"{plural}[{name!r}]"
            raise ValueError(f"{option}: expected {type(default).__name__}, got {settings!r}")
    return given
