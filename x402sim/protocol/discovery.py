"""What a resource says of itself, for indexes: the extension bazaar, and the entry of an index."""

from typing import Any, Literal

from x402sim.protocol.messages import Wire
from x402sim.protocol.x402 import AnyRequirements, Version

BAZAAR = "bazaar"
"""The extension by which a resource declares its input and output, to be listed."""


class Item(Wire, frozen=True, omit_defaults=True):
    """One resource, and how it is paid; `last_updated` is in Unix seconds.

    `extensions` has what its 402 declared, its input and output among it.
    """

    resource: str
    type: Literal["http", "mcp"]
    x402_version: Version
    accepts: list[AnyRequirements]
    last_updated: int
    description: str | None = None
    mime_type: str | None = None
    extensions: dict[str, Any] | None = None


def declared_in(extensions: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return what a payment of version 2 repeats of the 402's declaration; None if there is none.

    It has an input, of a request ("http") or of a tool ("mcp").
    """
    match extensions:
        case {"bazaar": {"info": {"input": {"type": "http" | "mcp"}}} as said}:
            return {BAZAAR: said}
        case _:
            return None


def declaration(method: str, output: Any, body: Any = None) -> dict[str, Any]:
    """Return the extension of a resource over HTTP, with examples of its body and its answer."""
    sent: dict[str, Any] = {"type": "http", "method": method}
    if body is not None:
        sent |= {"bodyType": "json", "body": body}
    info = {"input": sent, "output": {"type": "json", "example": output}}
    wanted = {"type": "object", "required": list(sent)}
    schema = {"type": "object", "properties": {"input": wanted}, "required": ["input"]}
    return {BAZAAR: {"info": info, "schema": schema}}
