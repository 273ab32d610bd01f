"""Writes a 402, to be paid in two steps (2.2) or, by the standard, in one.

The body has section 2.2 beside the fields of version 1; version 2 is in a header.
"""

import base64
from functools import lru_cache

import msgspec
from msgspec.structs import replace

from x402sim.protocol import x402
from x402sim.protocol.messages import PaymentRequired, encode
from x402sim.protocol.networks import Network

PAYMENT_ID = "paymentId"
"""The name of the payment id in `extra`, as the public Cronos paywall has it."""


class OfferBody(PaymentRequired, frozen=True, omit_defaults=True):
    """The body of a 402; `reason` states the fault of the payment in the request."""

    x402_version: int
    accepts: list[x402.RequirementsV1]
    reason: str | None = None


class Offers(msgspec.Struct, frozen=True):
    """The body of a 402, and its header PAYMENT-REQUIRED."""

    body: OfferBody
    header: str


def offers(
    required: PaymentRequired,
    network: Network,
    *,
    url: str,
    error: str = "",
    reason: str | None = None,
    flow: x402.PaymentFlow | None = None,
    version: x402.Version | None = None,
) -> Offers:
    """Return a 402 for the whole URL of a resource; `error` is the standard's word for a refusal.

    Without a word the text is section 2.2's, as in the body unless the refused payment is of
    `version` 1: clients of version 1 read the body (decision 2.2/refused-error). The payment id
    stands in `extra`, too: a payer of version 2 sends the accepted `extra` back.
    """
    wanted, extra = required.payment_requirements, x402.flow_extra(flow)
    extra[PAYMENT_ID] = required.payment_id
    header = x402.RequiredV2(
        x402_version=2,
        error=error or required.error,
        resource=x402.Resource(
            url=url, description=wanted.description or "", mime_type=x402.MIME_TYPE
        ),
        accepts=[x402.requirements_v2(wanted, network, **extra)],
        extensions=x402.IDENTIFIER_OFFER,
    )
    accepts = [x402.requirements_v1(wanted, network, url=url, **extra)]
    body = OfferBody(
        error=(version == 1 and error) or required.error,
        payment_id=required.payment_id,
        payment_requirements=wanted,
        message=required.message,
        network=required.network,
        x402_version=1,
        accepts=accepts,
        reason=reason,
    )
    return Offers(body, x402.to_base64(header))


_ID = "\ue000"  # stands for the payment id in the encoded rest; no URL can hold this character
_LONG_URL = 2000
"""Above so many characters of a URL, with a host of anybody's choice, no 402 is cached."""


def written(
    required: PaymentRequired,
    network: Network,
    *,
    url: str,
    error: str,
    reason: str | None,
    flow: x402.PaymentFlow | None,
    version: x402.Version | None = None,
) -> tuple[bytes, str]:
    """Return the body and the header of `offers` as sent.

    Without an error, all 402s of a resource differ in the payment id only: the rest is encoded
    once.
    """
    if error or reason or len(url) > _LONG_URL:
        made = offers(
            required, network, url=url, error=error, reason=reason, flow=flow, version=version
        )
        return encode(made.body), made.header
    body, header = _common(replace(required, payment_id=_ID), network, url, flow)
    payment_id = required.payment_id.encode()
    return payment_id.join(body), base64.b64encode(payment_id.join(header)).decode()


@lru_cache(maxsize=16)
def _common(
    rest: PaymentRequired, network: Network, url: str, flow: x402.PaymentFlow | None
) -> tuple[list[bytes], list[bytes]]:
    """Return the parts around each payment id in the body, and in the JSON of the header."""
    made, mark = offers(rest, network, url=url, flow=flow), _ID.encode()
    return encode(made.body).split(mark), base64.b64decode(made.header).split(mark)
