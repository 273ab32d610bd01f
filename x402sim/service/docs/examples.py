"""A valid example of each message, for the OpenAPI document.

Examples are made from the wire messages and from the service's own content, so they cannot differ
from the service's requests and answers.
"""

from typing import Any

import msgspec
from msgspec.structs import replace

from x402sim.protocol import messages
from x402sim.protocol.crypto import parse_address
from x402sim.protocol.eip3009 import Authorization
from x402sim.protocol.header import encode_header
from x402sim.protocol.money import to_decimal
from x402sim.protocol.networks import Network
from x402sim.protocol.offers import offers
from x402sim.protocol.routes import AGENTS, MARKET, QUOTE, SESSIONS
from x402sim.service import content
from x402sim.service.issue import required_without_id
from x402sim.service.settings import Settings
from x402sim.spec.decisions import Decisions

Json = dict[str, Any]
PAYMENT_ID = "pay_" + "k3W7r2M5x4Qa6tZd" * 3 + "h2N5v7Cb-9_x"
SESSION_ID = "session_" + "5e1d3a7b" * 5
_PAYER = "0x70997970C51812dc3A010C7d01b50e0d17dc79C8"
_PAY_TO = "0xf39Fd6e51aad88F6F4ce6aB8827279cffFb92266"
_TX_HASH = "0x" + "5e1d3a7b" * 8
_TIME_MS = 1_767_225_600_000


def examples_of(decisions: Decisions, price_base: int, network: Network) -> Json:
    """Return one valid example of each message, by the name of its schema, and of each 402."""
    side, deposit_base = decisions.sides[0], 10**network.decimals
    required = _required(QUOTE, price_base, network)
    payer, to, now_s = parse_address(_PAYER), parse_address(_PAY_TO), _TIME_MS // 1000
    auth = Authorization(payer, to, price_base, now_s - 60, now_s + 300, nonce=bytes(32))
    order = messages.QuoteRequest(pair="BTC-USD", side=side, leverage=10, size_usd=1000)
    examples = {
        "PaymentRequired": required,
        "DepositRequired": _required(SESSIONS, deposit_base, network),
        "MarketRequired": _required(MARKET, price_base, network),
        "AgentsRequired": _required(AGENTS, price_base, network),
        "SettlementRequest": messages.SettlementRequest(
            payment_id=PAYMENT_ID,
            payment_header=encode_header(auth, bytes(65), network),  # its signature is invalid
            payment_requirements=replace(required.payment_requirements, description=msgspec.UNSET),
        ),
        "Receipt": messages.Receipt(
            success=True, payment_id=PAYMENT_ID, tx_hash=_TX_HASH, timestamp=_TIME_MS
        ),
        "PaymentRecord": messages.PaymentRecord(
            payment_id=PAYMENT_ID,
            tx_hash=_TX_HASH,
            from_address=_PAYER,
            to_address=_PAY_TO,
            amount=str(price_base),
            resource_url=QUOTE,
            status="settled",
            block_number=None,
            timestamp=_TIME_MS,
        ),
        "QuoteRequest": order,
        "Quote": content.quote(Settings(decisions=decisions), order),
        "Market": content.market(),
        "Agent": content.agent(price_base, _PAY_TO, reputation=12),
        "SessionRequest": messages.SessionRequest(
            max_spend=to_decimal(deposit_base, network.decimals),
            duration=3600 // decisions.duration_unit_s,
        ),
        "SessionView": messages.SessionView(  # of an hour, of which one quote has been paid
            session_id=SESSION_ID,
            deposited=str(deposit_base),
            released=str(price_base),
            remaining=str(deposit_base - price_base),
            expires_at=_TIME_MS + 3_600_000,
            status="active",
        ),
    }
    plain: Json = msgspec.to_builtins(examples)
    return plain


def _required(resource: str, amount_base: int, network: Network) -> messages.PaymentRequired:
    """Return the 402 of a resource; a deposit is not paid in one step."""
    required = required_without_id(network, parse_address(_PAY_TO), 300, resource, amount_base)
    required = replace(required, payment_id=PAYMENT_ID)
    if resource == SESSIONS:
        return required
    return offers(required, network, url=f"https://api.example.com{resource}").body
