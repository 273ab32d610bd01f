"""The client core: messages and signatures of a payment in two steps, the next step, and errors.

A payer requests a resource, signs the 402, settles it, and repeats the request with the proof. This
file builds the messages, without I/O and without a clock; httpx authentication (`auth`, `session`),
the payers of scenarios, the conformance suite and tests send them. `reading` parses answers with
suspicion; `standard` pays in one step.
Clauses: 1/sign-settle-repeat.
"""

from collections.abc import Mapping
from enum import Enum
from typing import Any

from msgspec.structs import replace

from x402sim.payer.wallet import Wallet
from x402sim.protocol import routes
from x402sim.protocol.crypto import parse_address
from x402sim.protocol.eip3009 import Authorization
from x402sim.protocol.header import Spelling, authorization_of, encode_header
from x402sim.protocol.networks import Network
from x402sim.protocol.refusals import Refusal
from x402sim.text.words import printable, unknown


class PaymentFailed(Exception):
    """The payment was not made, or its outcome is unknown.

    The text has the outcome, the server's answer, escaped, and what to do. `why` is the text
    without the last part, `todo`, for a program that goes on by itself.
    """

    def __init__(self, why: str, todo: str = "") -> None:
        self.why = printable(why)
        super().__init__(f"{self.why}. {printable(todo)}" if todo else self.why)


class PaidNotServed(PaymentFailed):
    """The server took a payment and answers 402 again; nothing more was signed.

    The text has the payment, and how to go on.
    """


class SpendingCapExceeded(PaymentFailed):
    """The server asks for more than this payer may spend; nothing was signed.

    The text has the required and the allowed amount, and the option that raises the cap.
    """


PAYMENT_ID_HEADER, SESSION_ID_HEADER = "X-Payment-Id", "X-Session-Id"
PAY_PATH = routes.PAY
"""Where a payment in two steps is settled, unless a payer sets another path."""
_SAYS_PAID = (Refusal.ALREADY_SETTLED.text, Refusal.NONCE_USED.text)
"""Errors of a payment that was made: nonces are random, so only this payer has used the nonce."""


class Next(Enum):
    """The next action after the answer to a settlement, for a payer that believes the service."""

    REPEAT = "the payment is made: repeat the request with its proof"
    RESEND = "it may still be made: send the same payment header again"
    SIGN = "it is over and was not charged: only another authorization can pay"


def next_step(status: int | None, body: Mapping[str, Any]) -> Next:
    """Return what to do after the answer to a settlement; the status is None if none came."""
    if status == 200 or body.get("error") in _SAYS_PAID:
        return Next.REPEAT
    return Next.SIGN if body.get("final") is True else Next.RESEND


# --- messages ----------------------------------------------------------------------------


def proofs(payment_id: str | None = None, session_id: str | None = None) -> dict[str, str]:
    """Return the headers for a proof of payment or a session."""
    named = {PAYMENT_ID_HEADER: payment_id, SESSION_ID_HEADER: session_id}
    return {name: proof for name, proof in named.items() if proof is not None}


def settlement(
    payment_id: str, header: str, requirements: Mapping[str, Any], changes: Any = None
) -> dict[str, Any]:
    """Return the body of POST /api/pay: the requirements of a 402 without the description (2.1).

    `changes` replace single fields; None leaves a field out.
    """
    wanted = {**requirements, "description": None, **(changes or {})}
    return {
        "paymentId": payment_id,
        "paymentHeader": header,
        "paymentRequirements": {name: each for name, each in wanted.items() if each is not None},
    }


# --- signatures --------------------------------------------------------------------------


def changed(auth: Authorization, changes: Mapping[str, Any]) -> Authorization:
    """Return an authorization with other fields; `to` may be an address as text.

    Raises `TypeError` for a field that an authorization does not have.
    """
    if not changes:
        return auth
    known = Authorization.__struct_fields__
    for name in changes:
        if name not in known:
            raise TypeError(unknown("field of an authorization", name, known))
    to = changes.get("to")
    return replace(auth, **{**changes, "to": parse_address(to)} if isinstance(to, str) else changes)


def signed_header(
    auth: Authorization,
    by: Wallet,
    network: Network,
    spelling: Spelling = "hex",
    *,
    receive: bool = False,
) -> str:
    """Return the payment header for an authorization, signed by any wallet (2.3/hex-header)."""
    signature = by.sign(auth, network.domain, receive=receive)
    return encode_header(auth, signature, network, spelling)


def rewritten_header(
    header: str, network: Network, spelling: Spelling = "hex", **changes: Any
) -> str:
    """Return a header whose authorization was changed after signing."""
    auth, signature = authorization_of(header)
    return encode_header(changed(auth, changes), signature, network, spelling)
