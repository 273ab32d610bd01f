"""What the policies of a service and of a payer share: one object for each choice."""

from typing import ClassVar

import msgspec

from x402sim.text.arguments import ExplainedMeta
from x402sim.text.printable import described


class Choices(msgspec.Struct, frozen=True, kw_only=True, metaclass=ExplainedMeta):
    """One object for each choice; it must have the method that `METHODS` names for its field.

    A field that is not in `METHODS` is a plain value.

    Raises `ValueError` for any other object. Its text shows what differs from the defaults.
    """

    METHODS: ClassVar[dict[str, str]] = {}

    def __post_init__(self) -> None:
        for field in msgspec.structs.fields(type(self)):
            given, method = getattr(self, field.name), self.METHODS.get(field.name)
            if method is None:
                continue
            if isinstance(given, type) or not callable(getattr(given, method, None)):
                raise ValueError(
                    f"{field.name}: expected an object with the method {method!r}, such as "
                    f"{field.default!r}, got {described(given)}"
                )

    def __repr__(self) -> str:
        changed = (
            f"{field.name}={described(given)}"
            for field in msgspec.structs.fields(type(self))
            if (given := getattr(self, field.name)) != field.default
        )
        return f"{type(self).__name__}({', '.join(changed)})"
