"""A valid example of each message, for the OpenAPI document.

Examples are wire messages themselves, so they cannot differ from what the service reads
and sends.
"""

import msgspec
from msgspec.structs import replace

from x402sim.protocol import messages
from x402sim.protocol.crypto import parse_address
from x402sim.protocol.eip3009 import Authorization
from x402sim.protocol.header import encode_header
from x402sim.protocol.money import to_decimal
from x402sim.protocol.networks import Network
from x402sim.protocol.offers import offers
from x402sim.service.agents import agent
from x402sim.service.docs.schemas import Json
from x402sim.service.issue import AGENTS, MARKET, QUOTE, SESSIONS, asked
from x402sim.spec.decisions import Decisions

PAYMENT_ID = "pay_" + "k3W7r2M5x4Qa6tZd" * 3 + "h2N5v7Cb-9_x"
SESSION_ID = "session_" + "5e1d3a7b" * 5
_PAYER = "0x70997970C51812dc3A010C7d01b50e0d17dc79C8"
_PAY_TO = "0xf39Fd6e51aad88F6F4ce6aB8827279cffFb92266"
_TX_HASH = "0x" + "5e1d3a7b" * 8
_TIME_MS = 1_767_225_600_000


def examples_of(decisions: Decisions, price_base: int, network: Network) -> Json:
    """Return one valid example of each message, by the name of its schema."""
    examples = {
        **_payment_examples(price_base, network),
        **_quote_examples(decisions, price_base),
        **_session_examples(decisions, price_base, network.decimals),
    }
    return {name: plain(message) for name, message in examples.items()}


def _payment_examples(price_base: int, network: Network) -> dict[str, msgspec.Struct]:
    """Return the payments required, and how that of a quote goes on."""
    quote = _required(QUOTE, price_base, network)
    sent_back = replace(quote.payment_requirements, description=msgspec.UNSET)
    return {
        "PaymentRequired": quote,
        "DepositRequired": _required(SESSIONS, 10**network.decimals, network),
        "MarketRequired": _required(MARKET, price_base, network),
        "AgentsRequired": _required(AGENTS, price_base, network),
        "SettlementRequest": messages.SettlementRequest(
            payment_id=PAYMENT_ID,
            payment_header=_payment_header(network, price_base),
            payment_requirements=sent_back,
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
    }


def _quote_examples(decisions: Decisions, price_base: int) -> dict[str, msgspec.Struct]:
    """Return what is sold: a quote, and the agent that sells it."""
    return {
        "QuoteRequest": messages.QuoteRequest(
            pair="BTC-USD", side=decisions.sides[0], leverage=10, size_usd=1000
        ),
        "Quote": messages.Quote(
            pair="BTC-USD",
            entry_price=64210.5,
            liquidation_price=58110.5,
            funding_rate=0.0001,
            best_venue="Meridian",
        ),
        "Market": messages.Market(
            market=[
                messages.MarketPair(
                    pair="BTC-USD", price=64210.5, funding_rate=0.0001, best_venue="Meridian"
                )
            ]
        ),
        "Agent": agent(price_base, _PAY_TO, reputation=12),
    }


def _session_examples(
    decisions: Decisions, price_base: int, decimals: int
) -> dict[str, msgspec.Struct]:
    """Return a session of 1.00 token and an hour, of which one quote has been paid."""
    deposit_base = 10**decimals
    return {
        "SessionRequest": messages.SessionRequest(
            max_spend=to_decimal(deposit_base, decimals), duration=3600 // decisions.duration_unit_s
        ),
        "SessionView": messages.SessionView(
            session_id=SESSION_ID,
            deposited=str(deposit_base),
            released=str(price_base),
            remaining=str(deposit_base - price_base),
            expires_at=_TIME_MS + 3_600_000,
            status="active",
        ),
    }


def _required(resource: str, amount_base: int, network: Network) -> messages.PaymentRequired:
    """Return the 402 of a resource; a deposit is not paid in one step."""
    required = asked(network, parse_address(_PAY_TO), 300, resource, amount_base)
    required = replace(required, payment_id=PAYMENT_ID)
    if resource == SESSIONS:
        return required
    return offers(required, network, url=f"https://api.example.com{resource}").body


def _payment_header(network: Network, amount_base: int) -> str:
    """Return a well-formed payment header; its signature is of zeros, and so invalid."""
    payer, to, now_s = parse_address(_PAYER), parse_address(_PAY_TO), _TIME_MS // 1000
    auth = Authorization(payer, to, amount_base, now_s - 60, now_s + 300, nonce=bytes(32))
    return encode_header(auth, bytes(65), network)


def plain(message: msgspec.Struct) -> Json:
    """Return a message as it is on the wire, in plain dictionaries."""
    plain: Json = msgspec.to_builtins(message)
    return plain
