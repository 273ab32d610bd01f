"""The events of a chain; the actor is "chain", of a further network "chain NAME"."""

from typing import Literal

from x402sim.events.base import BaseEvent


class _Chain(BaseEvent, frozen=True, kw_only=True):
    actor: str = "chain"


class TransactionMined(_Chain, frozen=True, kw_only=True):
    """Written for each transaction in a new block, whether it succeeded or reverted.

    `call` is the function of the token that it calls, empty for any other call; `gas` is
    the gas used; `revert_reason` is None if it succeeded.
    """

    tx_hash: str
    block: int
    block_time_s: int
    sender: str
    call: str
    gas: int
    gas_price_wei: str
    revert_reason: str | None


class Transfer(_Chain, frozen=True, kw_only=True):
    """Written for each Transfer event of the token in a new block."""

    tx_hash: str
    block: int
    sender: str
    to: str
    amount_base: str


class AuthorizationConsumed(_Chain, frozen=True, kw_only=True):
    """Written for each authorization that a new block uses or cancels.

    `authorization` is its nonce, in hex.
    """

    tx_hash: str
    authorizer: str
    authorization: str
    use: Literal["used", "canceled"]


class TransactionUndone(_Chain, frozen=True, kw_only=True):
    """Written for each transaction of a block that a reorganisation removes."""

    tx_hash: str
