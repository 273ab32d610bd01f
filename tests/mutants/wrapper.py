"""Defective collaborators in the place of those of the service.

A defective store, issuer, cache or client is a `Wrapper` around the real one that
overrides a public method or two.
"""

from collections.abc import Callable
from dataclasses import replace
from inspect import isfunction
from typing import Any

import msgspec

from tests.mutants.change import Change, Service, on_service


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
