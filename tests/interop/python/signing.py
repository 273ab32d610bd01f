"""A payment that the official client signs, and what it is for, in either version of the standard."""

from typing import Any

from eth_account import Account
from x402 import x402ClientSync
from x402.mechanisms.evm import EthAccountSigner
from x402.mechanisms.evm.exact.register import register_exact_evm_client
from x402.schemas import PaymentRequired, PaymentRequirements
from x402.schemas.v1 import PaymentRequiredV1, PaymentRequirementsV1


def signed(told: dict[str, Any]) -> tuple[Any, Any]:
    """Sign `amount` to `shop` by `alice`; return the payment, and the requirements."""
    payer = x402ClientSync()
    register_exact_evm_client(payer, EthAccountSigner(Account.from_key(told["alice"])))
    common = {
        "scheme": "exact",
        "asset": told["token"],
        "pay_to": told["shop"],
        "max_timeout_seconds": 300,
        "extra": {"name": told["name"], "version": told["version"]},
    }
    required: Any
    asked: Any
    if told["x402"] == 2:
        network, amount = f"eip155:{told['chainId']}", str(told["amount"])
        asked = PaymentRequirements(network=network, amount=amount, **common)
        required = PaymentRequired(accepts=[asked])
    else:
        shown = {"resource": "http://shop.test/", "description": "", "mime_type": "text/plain"}
        wanted = {"network": told["network"], "max_amount_required": str(told["amount"])}
        asked = PaymentRequirementsV1(**common, **shown, **wanted)
        required = PaymentRequiredV1(error="", accepts=[asked])
    return payer.create_payment_payload(required), asked
