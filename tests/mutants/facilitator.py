"""Defects of the facilitator that the service relies on: rules of verification and transfer.

A deployment that has its payments verified and settled by such a one does not keep
section 5, though its own code may be right.
"""

from dataclasses import replace
from typing import Any, cast

from msgspec import structs

from tests.mutants.change import leave_out, on_facilitator
from tests.mutants.mutant import Kind
from tests.mutants.wrapper import altered, overriding
from x402sim.chain.base import Call, ChainClient
from x402sim.facilitator.engine import Facilitator
from x402sim.protocol.crypto import Address
from x402sim.world.process import FacilitatorNode

facilitator = Kind("facilitator")
WORD = 32


class SentByThePayer:
    """A chain on which the payer of an authorization sends the facilitator's transactions."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def send(self, call: Call) -> Any:
        payer = Address(call.data[4 : 4 + WORD][-20:])  # the first argument, after the selector
        await self._inner.controls.set_native_balance(payer, 10**24)
        return await self._inner.send(structs.replace(call, sender=payer))


def sent_by_the_payer(honest: Facilitator) -> Facilitator:
    """Return a facilitator whose transactions the payers send."""
    node = cast(FacilitatorNode, honest.chain)
    return replace(honest, chain=cast(ChainClient, SentByThePayer(node.direct)))


async def canceled_is_unused(it: Any, *of: Any) -> Any:
    """Say of a nonce that was cancelled that it is unused."""
    state = await it.inner.nonce_state(*of)
    is_canceled = state.use is not None and state.use.canceled
    return altered(state, is_used=False, use=None) if is_canceled else state


# --- the defects ---

facilitator("payer-sends-it-himself", "1/payer-pays-no-gas",
    "The transaction is sent from the payer's account, which pays the gas.",
    on_facilitator(sent_by_the_payer))  # fmt: skip
facilitator("amount-is-not-compared", "5/exact-amount",
    "An authorization of another amount than was required is settled.",
    leave_out("verification", "5/exact-amount"))  # fmt: skip
facilitator("recipient-is-not-compared", "5/exact-recipient",
    "An authorization that pays another account is settled.",
    leave_out("verification", "5/exact-recipient"))  # fmt: skip
facilitator("signature-is-not-recovered",
    "5/signature-proves 4.1/verify-signature 7/invalid-signature",
    "Whoever signed, the authorization is settled.",
    leave_out("verification", "5/signature-proves"),
    leave_out("transfer", "5/signature-proves"))  # fmt: skip
facilitator("window-has-no-beginning", "5/window", "An authorization is settled before validAfter.",
    leave_out("transfer", "5/window-opens"))  # fmt: skip
facilitator("window-has-no-end", "5/window 7/authorization-expired",
    "An authorization is settled after validBefore.",
    leave_out("transfer", "5/window-closes"))  # fmt: skip
facilitator("nonce-is-good-for-ever", "5/nonce-once 7/nonce-already-used",
    "A nonce that was cancelled is used all the same.", leave_out("transfer", "5/nonce-once"),
    overriding("rpc", nonce_state=canceled_is_unused))  # fmt: skip
