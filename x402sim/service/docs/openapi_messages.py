"""The messages in the OpenAPI document: their schemas, and one valid example of each.

Schemas are generated from the wire messages, and examples are messages themselves, so
neither can differ from what the service reads and sends. The words for each field are
those of section 2.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from x402sim.protocol.crypto import checksum
from x402sim.protocol.messages import (
    Agent,
    ErrorBody,
    HeaderPayload,
    PaymentHeader,
    PaymentRecord,
    PaymentRequired,
    PaymentRequirements,
    Quote,
    QuoteRequest,
    Receipt,
    SessionRequest,
    SessionView,
    SettlementRequest,
    encode,
)
from x402sim.protocol.money import to_decimal
from x402sim.protocol.networks import network_named
from x402sim.spec.decisions import Decisions

MESSAGES = (
    PaymentRequired,
    SettlementRequest,
    Receipt,
    ErrorBody,
    QuoteRequest,
    Quote,
    SessionRequest,
    SessionView,
    PaymentRecord,
    Agent,
)
Json = dict[str, Any]


def schemas(decisions: Decisions) -> Json:
    """Return the schemas of the wire messages, with the words of section 2 for each field."""
    _, named = msgspec.json.schema_components(MESSAGES, ref_template="#/components/schemas/{name}")
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


_FIELDS: Mapping[str, Mapping[str, str]] = {
    "PaymentRequirements": {
        "scheme": 'Payment scheme; the only value is "exact".',
        "network": "Network selector.",
        "payTo": "Merchant wallet address: the service provider receives the payment.",
        "asset": "Address of the stablecoin token contract on the selected network.",
        "maxAmountRequired": "Amount in base units of the token, which has 6 decimals. "
        "It must match exactly.",
        "maxTimeoutSeconds": "Validity timeout of the requirement in seconds.",
        "resource": "Path of the protected endpoint the payment is for.",
        "description": "Optional text, present in the 402 and absent from the settlement request.",
    },
    "PaymentRequired": {
        "error": 'Fixed text "Payment Required".',
        "paymentId": "Identifier of the payment: pay_ and an opaque part.",
        "message": "Text stating the amount in base units required.",
        "network": "Same network value as in paymentRequirements.",
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
        "final": "In errors of POST /api/pay. True: this attempt is over; it charged nothing, and "
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

# --- examples ------------------------------------------------------------------------

PAYMENT_ID = "pay_" + "k3W7r2M5x4Qa6tZd" * 3 + "h2N5v7Cb-9_x"
SESSION_ID = "session_" + "5e1d3a7b" * 5
_PAYER = "0x70997970C51812dc3A010C7d01b50e0d17dc79C8"
_PAY_TO = "0xf39Fd6e51aad88F6F4ce6aB8827279cffFb92266"
_TX_HASH = "0x" + "5e1d3a7b" * 8
_TIME_MS = 1_767_225_600_000
_DEPOSIT_BASE = 1_000_000


def examples_of(decisions: Decisions, price_base: int, network: str) -> Json:
    """Return one valid example of each message, by the name of its schema."""
    examples = {
        **_payment_examples(price_base, network),
        **_quote_examples(decisions, price_base),
        **_session_examples(decisions, price_base),
    }
    return {name: plain(message) for name, message in examples.items()}


def _payment_examples(price_base: int, network: str) -> dict[str, msgspec.Struct]:
    """Return the payments required, and how that of a quote goes on."""
    quote = _required("/api/perp/quote", price_base, "A quote for a perpetual position", network)
    deposit = "The deposit of a session budget"
    sent_back = msgspec.structs.replace(quote.payment_requirements, description=msgspec.UNSET)
    return {
        "PaymentRequired": quote,
        "DepositRequired": _required("/api/sessions/create", _DEPOSIT_BASE, deposit, network),
        "AgentsRequired": _required("/api/agents", price_base, "The list of agents", network),
        "SettlementRequest": SettlementRequest(
            payment_id=PAYMENT_ID,
            payment_header=_payment_header(network, sent_back.asset, price_base),
            payment_requirements=sent_back,
        ),
        "Receipt": Receipt(
            success=True, payment_id=PAYMENT_ID, tx_hash=_TX_HASH, timestamp=_TIME_MS
        ),
        "PaymentRecord": PaymentRecord(
            payment_id=PAYMENT_ID,
            tx_hash=_TX_HASH,
            from_address=_PAYER,
            to_address=_PAY_TO,
            amount=str(price_base),
            resource_url="/api/perp/quote",
            status="settled",
            block_number=None,
            timestamp=_TIME_MS,
        ),
    }


def _quote_examples(decisions: Decisions, price_base: int) -> dict[str, msgspec.Struct]:
    """Return what is sold: a quote, and the agent that sells it."""
    return {
        "QuoteRequest": QuoteRequest(
            pair="BTC-USDC", side=decisions.sides[0], leverage=10, size_usd=1000
        ),
        "Quote": Quote(
            pair="BTC-USDC",
            entry_price=64210.5,
            liquidation_price=58110.5,
            funding_rate=0.0001,
            best_venue="Meridian",
        ),
        "Agent": Agent(
            id="perp-quotes",
            name="Perpetual quotes",
            description="Entry and liquidation price, funding rate and best venue of a position",
            resource="/api/perp/quote",
            price=str(price_base),
            pay_to=_PAY_TO,
            reputation=12,
        ),
    }


def _session_examples(decisions: Decisions, price_base: int) -> dict[str, msgspec.Struct]:
    """Return a session of an hour, of which one quote has been paid."""
    return {
        "SessionRequest": SessionRequest(
            max_spend=to_decimal(_DEPOSIT_BASE, 6), duration=3600 // decisions.duration_unit_s
        ),
        "SessionView": SessionView(
            session_id=SESSION_ID,
            deposited=str(_DEPOSIT_BASE),
            released=str(price_base),
            remaining=str(_DEPOSIT_BASE - price_base),
            expires_at=_TIME_MS + 3_600_000,
            status="active",
        ),
    }


def _required(resource: str, amount_base: int, description: str, network: str) -> PaymentRequired:
    """Return the 402 of a resource; raises `ValueError` for a network that is not known."""
    return PaymentRequired(
        error="Payment Required",
        payment_id=PAYMENT_ID,
        payment_requirements=PaymentRequirements(
            scheme="exact",
            network=network,
            pay_to=_PAY_TO,
            asset=checksum(network_named(network).asset),
            max_amount_required=str(amount_base),
            max_timeout_seconds=300,
            resource=resource,
            description=description,
        ),
        message=f"Payment of {amount_base} base units is required to access {resource}",
        network=network,
    )


def _payment_header(network: str, asset: str, amount_base: int) -> str:
    """Return a well-formed payment header; its signature is of zeros, and so invalid."""
    payload = HeaderPayload(
        from_=_PAYER,
        to=_PAY_TO,
        value=str(amount_base),
        valid_after=_TIME_MS // 1000 - 60,
        valid_before=_TIME_MS // 1000 + 300,
        nonce="0x" + "00" * 32,
        signature="0x" + "00" * 65,
        asset=asset,
    )
    header = PaymentHeader(x402_version=1, scheme="exact", network=network, payload=payload)
    return "0x" + encode(header).hex()


def plain(message: msgspec.Struct) -> Json:
    """Return a message as it is on the wire, in plain dictionaries."""
    plain: Json = msgspec.to_builtins(message)
    return plain
