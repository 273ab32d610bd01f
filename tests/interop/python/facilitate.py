"""A payment of the official client is verified and settled, twice, and each answer printed, as JSON.

By the facilitator that is told, with the public client of facilitators; or by the official facilitator
itself, with a signer of its own, on the chain that is told. It reads what `signed` needs from stdin.
"""

import json
import sys
from typing import Any

from eth_account import Account
from x402 import x402ClientSync, x402FacilitatorSync
from x402.http import FacilitatorConfig, HTTPFacilitatorClientSync
from x402.mechanisms.evm import EthAccountSigner, FacilitatorWeb3Signer
from x402.mechanisms.evm.exact import register_exact_evm_facilitator
from x402.mechanisms.evm.exact.register import register_exact_evm_client
from x402.schemas import PaymentRequired, PaymentRequirements
from x402.schemas.v1 import PaymentRequiredV1, PaymentRequirementsV1


def signed(told: dict[str, Any]) -> tuple[Any, Any]:
    """Sign `amount` to `shop` by `alice`, in either version; return the payment, and what it is for."""
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


told = json.load(sys.stdin)
facilitator: Any
if "facilitator" in told:
    facilitator = HTTPFacilitatorClientSync(FacilitatorConfig(url=told["facilitator"]))
else:
    facilitator, signer = x402FacilitatorSync(), FacilitatorWeb3Signer(told["bob"], told["rpc"])
    register_exact_evm_facilitator(facilitator, signer, networks=f"eip155:{told['chainId']}")
payment, wanted = signed(told)
other = wanted.model_copy(update={"pay_to": "0x" + "99" * 20})
answers = {
    "supported": facilitator.get_supported(),
    "verified": facilitator.verify(payment, wanted),
    "mismatch": facilitator.verify(payment, other),
    "settled": facilitator.settle(payment, wanted),
    "again": facilitator.settle(payment, wanted),
    "used": facilitator.verify(payment, wanted),
}
print(json.dumps({name: it.model_dump(mode="json", by_alias=True) for name, it in answers.items()}))
