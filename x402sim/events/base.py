"""The base class of all events, and the types of their fields."""

from typing import ClassVar, Literal

import msgspec

ServiceName = str
"""The name of a service: "service", "service 2" and so on, or one that the world gives it."""
MOST_SERVICES = 20
"""The most services of one world."""
Part = str
"""The name of a part that answers HTTP requests: a service, a facilitator, or one of `OUTSIDE`."""
OUTSIDE = ("facilitator", "explorer", "rpc")
"""What a service calls; further facilitators have names of their own."""
Skewable = Literal["service", "facilitator", "explorer", "chain"]
"""The actors whose clocks can be skewed."""
Outcome = Literal["passed", "failed", "skipped"]
"""The outcomes of a run."""
Seconds = int | float
MAX_TEXT = 120
"""The characters that an event keeps of a text from a message, such as an id or an error."""
MAX_REASON = 300
"""The characters that an event keeps of the reason of a refusal."""
Scalar = str | int | float | bool | None
"""A JSON value other than an array or an object."""


def _in_words(name: str) -> str:
    """Return the name of a class in words: "PaymentSettled" is "payment settled"."""
    return "".join(f" {each.lower()}" if each.isupper() else each for each in name).lstrip()


class BaseEvent(msgspec.Struct, frozen=True, gc=False, tag_field="event", tag=_in_words):
    """The base of all events: frozen, with the name as the tag."""

    meaning: ClassVar[str]
    """When it is written, and what its fields are: the text of the reference."""


def name_of(event: BaseEvent | type[BaseEvent]) -> str:
    """Return the name of an event, or of a kind of event, as it is in the journal."""
    return str(event.__struct_config__.tag)


def service_name(number: int) -> ServiceName:
    """Return the name of the service with this number, from 1, unless the world names it."""
    return "service" if number == 1 else f"service {number}"


def clipped(text: str, most: int = MAX_TEXT) -> str:
    """Return the beginning of another party's text, in ASCII: one byte a character in memory.

    Any other character is written as an escape such as `\\u20ac`. Without this a journal full of
    emoji takes four times as much memory.
    """
    if text.isascii():
        return text[:most]
    return text[:most].encode("ascii", "backslashreplace")[:most].decode("ascii")
