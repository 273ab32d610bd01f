"""What a story does in the place of others: it asks the facilitator, and calls the token."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx

from x402sim.protocol import cronos
from x402sim.protocol.crypto import to_hex
from x402sim.protocol.messages import wire_body
from x402sim.text.suggest import unknown

PATHS = {"verify": cronos.VERIFY_PATH, "settle": cronos.SETTLE_PATH}


async def asked_as_a_service(
    http: httpx.AsyncClient, verb: str, header: str, requirements: dict[str, Any]
) -> httpx.Response:
    """Ask it to "verify" or "settle" a payment header; raises `ValueError` for another verb."""
    if verb not in PATHS:
        raise ValueError(unknown("verb", verb, PATHS))
    body = wire_body(
        cronos.FacilitatorRequest,
        x402_version=cronos.VERSION,
        payment_header=header,
        payment_requirements=requirements,
    )
    return await http.send(http.build_request("POST", PATHS[verb], json=body))


@asynccontextmanager
async def between(world: Any, on: bytes, off: bytes) -> AsyncIterator[None]:
    """Send a call of the token's owner at the beginning of a `with` block, another at its end."""
    owner = str(world.start_state.token_owner)
    await world.transact(owner, to_hex(on))
    try:
        yield
    finally:
        await world.transact(owner, to_hex(off))
