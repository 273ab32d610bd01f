"""The events of an HTTP exchange."""

from x402sim.events.base import BaseEvent, Part


class RequestSent(BaseEvent, frozen=True):
    """Written when a caller (a payer's name, or "service") sends a request to a part.

    `exchange` numbers the exchange; `path` is the JSON-RPC method if `to` is rpc. Ids are
    those in header or body, `authorization` is the nonce of a payment header, in hex, or
    "unreadable".
    """

    actor: str
    exchange: int
    to: Part
    method: str
    path: str
    payment_id: str | None = None
    session_id: str | None = None
    authorization: str | None = None


class AnswerReceived(BaseEvent, frozen=True):
    """Written when the answer of an exchange reaches the caller.

    `ok` is `isValid` or `success` in the body; `final` is False if a refused payment may still
    move money, None if the answer does not say.
    """

    actor: str
    exchange: int
    to: Part
    status: int
    error: str | None = None
    final: bool | None = None
    payment_id: str | None = None
    session_id: str | None = None
    tx_hash: str | None = None
    ok: bool | None = None


class NoAnswer(BaseEvent, frozen=True):
    """Written when a caller stops waiting; `reason`: timeout, given up, or a transport error."""

    actor: str
    exchange: int
    to: Part
    reason: str


class AnswerSent(BaseEvent, frozen=True):
    """Written when a part begins to answer a request, as seen by the part."""

    actor: Part
    method: str
    path: str
    status: int
