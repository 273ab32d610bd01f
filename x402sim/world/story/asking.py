"""What a story asks the facilitator, as a service does: in two steps, or as the standard says."""

from typing import Any

from msgspec import to_builtins

from x402sim.facilitator import standard
from x402sim.protocol import cronos, x402
from x402sim.protocol.header import authorization_of
from x402sim.protocol.x402 import exact_payload, read_required
from x402sim.text.suggest import unknown
from x402sim.world.story.answers import Answer

TWO_STEPS = {"verify": cronos.VERIFY_PATH, "settle": cronos.SETTLE_PATH}
STANDARD = {"verify": standard.VERIFY_PATH, "settle": standard.SETTLE_PATH}


def facilitator_request(
    verb: str,
    required: Answer,
    header: str,
    version: int | None,
    requirements: dict[str, Any],
) -> tuple[str, dict[str, Any]]:
    """Return the path and the body of a request to "verify" or "settle".

    `header` is that of a payment in two steps, of which a `version` of the standard takes what is
    signed. `requirements` replace fields of the 402's. Raises `ValueError` for another verb or
    version.
    """
    if verb not in TWO_STEPS:
        raise ValueError(unknown("verb", verb, TWO_STEPS))
    if version is None:
        wanted = {**required.requirements, **requirements}
        body = {"paymentHeader": header, "paymentRequirements": wanted}
        return TWO_STEPS[verb], {"x402Version": cronos.VERSION, **body}
    if version not in x402.VERSIONS:
        raise ValueError(f"version: the x402 standard has 1 and 2, not {version}")
    payload, payment = exact_payload(*authorization_of(header)), object()
    if version == 1:
        wanted = required.body["accepts"][0]
        payment = x402.PaymentV1(1, wanted["scheme"], wanted["network"], payload)
    else:
        offered = read_required(required.standard_offer or "")
        wanted = to_builtins(offered.accepts[0])
        payment = x402.PaymentV2(2, offered.accepts[0], payload, offered.resource)
    return STANDARD[verb], {
        "x402Version": version,
        "paymentPayload": to_builtins(payment),
        "paymentRequirements": {**wanted, **requirements},
    }
