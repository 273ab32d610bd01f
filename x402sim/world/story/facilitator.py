"""Asks the facilitator for a story, as a service does."""

from typing import Any

import httpx

from x402sim.protocol import cronos
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
