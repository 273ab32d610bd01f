"""What of the x402 standard is supported: one scheme, one transfer method, two payment flows.

What a payment or its requirements name besides is refused by its name.
"""

from collections.abc import Mapping
from typing import Any, Literal, get_args

from x402sim.protocol.messages import BadMessage
from x402sim.protocol.rpc_values import shown

SCHEME = "exact"
TRANSFER_METHOD = "eip3009"
PaymentFlow = Literal["authorization", "upfront"]
"""When a payment in one step is settled: after the endpoint has worked, or before it works."""
PAYMENT_FLOW = "paymentFlow"
"""The name of the flow in `extra`; if it is missing, the flow is "authorization"."""
_RESERVED = {
    "assetTransferMethod": ("unsupported_asset_transfer_method", (TRANSFER_METHOD,)),
    PAYMENT_FLOW: ("unsupported_payment_flow", get_args(PaymentFlow)),
}
"""Names in `extra` with a meaning: the word for any other value, and those supported."""


class Unsupported(BadMessage):
    """A payment in a way that we do not have; `reason` is the standard's word for it."""

    def __init__(self, reason: str, seen: str, wanted: str) -> None:
        super().__init__(f"{seen}; supported: {wanted}")
        self.reason = reason


def unsupported_in(extra: Mapping[str, Any] | None) -> Unsupported | None:
    """Return what the `extra` of requirements names that is not supported; None if nothing."""
    for name, (reason, values) in _RESERVED.items():
        said = (extra or {}).get(name)
        if said is not None and said not in values:
            seen = repr(said[:40]) if isinstance(said, str) else shown(said)
            return Unsupported(reason, f"extra.{name}: {seen}", " and ".join(values))
    return None


def flow_said(flow: PaymentFlow | None) -> dict[str, str]:
    """Return what the `extra` of requirements says of the flow."""
    return {} if flow is None else {PAYMENT_FLOW: flow}
