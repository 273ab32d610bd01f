"""The official facilitator of the standard, with its own signer, settles on the chain it is given."""

import json
import sys

from signing import signed
from x402 import x402FacilitatorSync
from x402.mechanisms.evm import FacilitatorWeb3Signer
from x402.mechanisms.evm.exact import register_exact_evm_facilitator

given = json.load(sys.stdin)
facilitator = x402FacilitatorSync()
signer = FacilitatorWeb3Signer(given["bob"], given["rpc"])
register_exact_evm_facilitator(facilitator, signer, networks=f"eip155:{given['chainId']}")
payment, asked = signed(given)
steps = {
    "verified": facilitator.verify(payment, asked),
    "settled": facilitator.settle(payment, asked),
    "again": facilitator.settle(payment, asked),
    "checked again": facilitator.verify(payment, asked),
}
print(json.dumps({name: it.model_dump(mode="json", by_alias=True) for name, it in steps.items()}))
