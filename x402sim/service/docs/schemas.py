"""The schemas of the messages, for the OpenAPI document.

They are generated from the wire messages, so they cannot differ from what the service
reads and sends. The words for each field are those of section 2.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from x402sim.protocol import messages
from x402sim.spec.decisions import Decisions

Json = dict[str, Any]


def schemas(decisions: Decisions) -> Json:
    """Return the schemas of the wire messages, with the words of section 2 for each field."""
    kinds = [getattr(messages, name) for name in _FIELDS]
    _, named = msgspec.json.schema_components(kinds, ref_template="#/components/schemas/{name}")
    for name, schema in named.items():
        for field, about in _FIELDS[name].items():
            schema["properties"][field]["description"] = about
    quote = named["QuoteRequest"]["properties"]
    quote["pair"]["pattern"] = quote["pair"]["pattern"].replace("\\Z", "$")  # ECMA has no \Z
    quote["side"]["enum"] = list(decisions.sides)
    session = named["SessionRequest"]["properties"]
    session["maxSpend"]["pattern"] = r"^(0|[1-9][0-9]*)\.[0-9]{2}$"
    session["duration"]["description"] = (
        f"Session length, in units of {decisions.duration_unit_s} s (4.4)."
    )
    return named


_FIELDS: Mapping[str, Mapping[str, str]] = {  # in the order of the document
    "PaymentRequired": {
        "error": 'Fixed text "Payment Required".',
        "paymentId": "Identifier of the payment: pay_ and an opaque part.",
        "message": "Text stating the amount in base units required.",
        "network": "Same network value as in paymentRequirements.",
    },
    "PaymentRequirements": {
        "scheme": 'Payment scheme; the only value is "exact".',
        "network": "Network selector.",
        "payTo": "Merchant wallet address: the service provider receives the payment.",
        "asset": "Address of the stablecoin token contract on the selected network.",
        "maxAmountRequired": "Amount in base units of the token. It must match exactly.",
        "maxTimeoutSeconds": "Validity timeout of the requirement in seconds.",
        "resource": "Path of the protected endpoint the payment is for.",
        "description": "Optional text, present in the 402 and absent from the settlement request.",
    },
    "SettlementRequest": {
        "paymentId": "Id received in the 402 body.",
        "paymentHeader": "Payment header (2.3): 0x and the hex of its UTF-8 JSON.",
    },
    "Receipt": {
        "success": "Always true.",
        "paymentId": "The payment that was settled.",
        "txHash": "Hex transaction hash.",
        "timestamp": "Epoch milliseconds.",
    },
    "ErrorBody": {
        "error": "What happened, as one of the known texts.",
        "reason": "Details, where there are any.",
        "final": "In settlement errors (7). True: this attempt is over; it charged nothing, and "
        "it never will. False: it may still be paid; send the same payment header again, and "
        "sign no other before the first has expired.",
    },
    "QuoteRequest": {
        "pair": "Trading pair, <BASE>-<QUOTE>.",
        "side": "Direction of the position.",
        "leverage": "Leverage multiple.",
        "sizeUsd": "Position size in US dollars.",
    },
    "Quote": {
        "pair": "The trading pair of the request.",
        "entryPrice": "US dollars.",
        "liquidationPrice": "US dollars.",
        "fundingRate": "Per 8 hours.",
        "bestVenue": "Name of the venue with the best price.",
    },
    "Market": {"market": "The pairs, each with its price now."},
    "MarketPair": {
        "pair": "Trading pair, <BASE>-<QUOTE>.",
        "price": "US dollars, at the best venue for a buyer.",
        "fundingRate": "Per 8 hours.",
        "bestVenue": "Name of the venue with the best price.",
    },
    "SessionRequest": {
        "maxSpend": "The session budget: a decimal amount with two fraction digits.",
    },
    "SessionView": {
        "sessionId": "The id to carry in X-Session-Id.",
        "deposited": "Base units deposited.",
        "released": "Base units spent so far.",
        "remaining": "deposited - released.",
        "expiresAt": "Epoch milliseconds; the unspent balance is refunded afterwards.",
        "status": "Whether it can be spent, has expired, or has been refunded.",
        "refundTxHash": "The refund's transaction hash, once there is one.",
    },
    "PaymentRecord": {
        "payment_id": "The paymentId.",
        "tx_hash": "On-chain transaction hash returned by settlement.",
        "from_address": "Payer address.",
        "to_address": "Equals payTo.",
        "amount": "Equals maxAmountRequired, in base units.",
        "resource_url": "Equals resource.",
        "status": 'pending, settled or failed; only "settled" grants access.',
        "block_number": "Null at creation; filled in by the indexer.",
        "timestamp": "Creation time, epoch milliseconds.",
    },
    "Agent": {
        "id": "Identifier of the agent.",
        "name": "What it is called.",
        "description": "What it sells.",
        "resource": "The protected path it answers on.",
        "price": "Base units for one request.",
        "payTo": "The address that is paid.",
        "reputation": "Settled payments for its resource that the indexer has found in a block.",
    },
}
