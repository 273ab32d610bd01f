"""The official facilitator of the standard, with its own signer, settles on the chain it is given."""

import json
import sys
from typing import Any

from eth_account import Account
from x402 import x402ClientSync, x402FacilitatorSync
from x402.mechanisms.evm import EthAccountSigner, FacilitatorWeb3Signer
from x402.mechanisms.evm.exact import register_exact_evm_client, register_exact_evm_facilitator
from x402.schemas import PaymentRequired, PaymentRequirements
from x402.schemas.v1 import PaymentRequiredV1, PaymentRequirementsV1

given = json.load(sys.stdin)
network = f"eip155:{given['chainId']}"
facilitator = x402FacilitatorSync()
register_exact_evm_facilitator(
    facilitator, FacilitatorWeb3Signer(given["bob"], given["rpc"]), networks=network
)
payer = x402ClientSync()
register_exact_evm_client(payer, EthAccountSigner(Account.from_key(given["alice"])))
common = {
    "scheme": "exact",
    "asset": given["token"],
    "pay_to": given["shop"],
    "max_timeout_seconds": 300,
    "extra": {"name": given["name"], "version": given["version"]},
}


def required(version: int, amount: int) -> tuple[Any, Any]:
    """Return what a 402 asks for, whole and the one way to pay."""
    if version == 2:
        asked = PaymentRequirements(network=network, amount=str(amount), **common)
        return PaymentRequired(accepts=[asked]), asked
    more = {"resource": "http://shop.test/", "description": "", "mime_type": "text/plain"}
    name = given["network"]
    asked_v1 = PaymentRequirementsV1(
        network=name, max_amount_required=str(amount), **common, **more
    )
    return PaymentRequiredV1(error="", accepts=[asked_v1]), asked_v1


whole, asked = required(given["x402"], given["amount"])
payment = payer.create_payment_payload(whole)
steps = {
    "verified": facilitator.verify(payment, asked),
    "settled": facilitator.settle(payment, asked),
    "again": facilitator.settle(payment, asked),
    "checked again": facilitator.verify(payment, asked),
}
print(
    json.dumps(
        {name: json.loads(step.model_dump_json(by_alias=True)) for name, step in steps.items()}
    )
)
