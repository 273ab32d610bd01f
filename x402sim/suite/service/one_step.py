"""Services that are paid in one step: version 2 of the x402 standard, whose 402 is a header.

There is no settlement endpoint (`pay.path` is empty) and no payment id: the request itself pays,
and what it buys is in the same answer. The 402 is read in the words of the specification (2.1), and
the payment is written in those of the standard.
"""

import base64
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import httpx
import msgspec

from x402sim.protocol.header import authorization_of
from x402sim.protocol.messages import BadMessage, decoded
from x402sim.protocol.networks import Network
from x402sim.protocol.x402 import (
    PAYMENT_HEADERS,
    REQUIRED_HEADER,
    RESPONSE_HEADERS,
    exact_payload,
    json_in,
)
from x402sim.suite.service.target import PaymentRequiredShape, ReceiptShape, Target

PAYMENT, RESPONSE = PAYMENT_HEADERS[2], RESPONSE_HEADERS[2]
WHY_NOT = (
    "not applicable: the service is paid in one step, without a settlement endpoint and payment ids"
)
_NAMES = {"maxAmountRequired": "amount"}
"""Fields of 2.1 that the standard calls otherwise."""


def completed(target: Target) -> Target:
    """Return a target with the places of the standard, if it is paid in one step."""
    if not target.is_one_step:
        return target
    nowhere = PaymentRequiredShape(
        error="", payment_id="", requirements="", message="", network="", max_timeout_s=None,
        description=False, asset=target.payment_required.asset,
    )  # fmt: skip
    receipt = ReceiptShape(
        success=f"/{RESPONSE}/success", payment_id="", tx_hash=f"/{RESPONSE}/transaction",
        timestamp="",
    )  # fmt: skip
    return msgspec.structs.replace(target, payment_required=nowhere, receipt=receipt)


def body_of(response: httpx.Response, target: Target) -> Any:
    """Return the JSON of an answer; in one step, with what the standard's headers say."""
    body = decoded(response.content)
    return _with_headers(body, response.headers) if target.is_one_step else body


def offers_of(headers: httpx.Headers) -> list[Any]:
    """Return the ways to pay in the header of a 402; none without it."""
    return offers(_with_headers(None, headers), {})


def _with_headers(body: Any, headers: httpx.Headers) -> Any:
    in_headers = {
        name: json_in(headers[name]) for name in (REQUIRED_HEADER, RESPONSE) if name in headers
    }
    return {**body, **in_headers} if isinstance(body, dict) else in_headers or body


def offers(body: Any, networks: Mapping[str, Network]) -> list[Any]:
    """Return the ways to pay in the header of a 402, each in the words of the specification.

    A known network has its own name; `accepted` is the offer as it was made.
    """
    required = body.get(REQUIRED_HEADER) if isinstance(body, dict) else None
    required = required if isinstance(required, dict) else {}
    names = {network.caip2: name for name, network in networks.items()}
    resource = required.get("resource")
    url = resource.get("url") if isinstance(resource, dict) else None
    accepts = required.get("accepts")
    return [
        {
            **each,
            "maxAmountRequired": each.get("amount"),
            "network": names.get(str(each.get("network")), each.get("network")),
            "resource": _path(url),
            "accepted": each,
            "of": resource,
        }
        for each in (accepts if isinstance(accepts, list) else ())
        if isinstance(each, dict)
    ]


def _path(url: Any) -> Any:
    """Return the path of a URL; anything else as it is, for a check to say so."""
    try:
        return urlsplit(url).path if isinstance(url, str) else url
    except ValueError:
        return url


def payment(header: str, wanted: Mapping[str, Any], changes: Mapping[str, Any] | None) -> bytes:
    """Return the header of a payment, given the specification's (2.3), also if it is malformed.

    `changes` replace fields of what was accepted; None leaves one out.
    """
    try:
        auth, signature = authorization_of(header)
    except BadMessage:
        return _respelled(header.strip())
    accepted = {
        **wanted["accepted"],
        **{_NAMES.get(name, name): value for name, value in (changes or {}).items()},
    }
    payment = {
        "x402Version": 2,
        "resource": wanted["of"],
        "accepted": {name: value for name, value in accepted.items() if value is not None},
        "payload": exact_payload(auth, signature),
    }
    return base64.b64encode(msgspec.json.encode(payment))


def _respelled(malformed: str) -> bytes:
    """Return what is no payment in base64, as the standard writes headers; no hex as it is."""
    try:
        return base64.b64encode(bytes.fromhex(malformed.removeprefix("0x")))
    except ValueError:
        return malformed.encode()
