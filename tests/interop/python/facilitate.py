"""A server asks a facilitator, with the public client: supported, verify, settle, settle again.

It reads {"facilitator", "version", "requirements", "required", "key"} from stdin and prints each
answer, as JSON. The payment is signed by the public client of the same version.
"""

import json
import sys

from eth_account import Account
from x402 import x402ClientSync
from x402.http import FacilitatorConfig, HTTPFacilitatorClientSync
from x402.mechanisms.evm import EthAccountSigner
from x402.mechanisms.evm.exact.register import register_exact_evm_client
from x402.schemas import PaymentRequired, PaymentRequirements
from x402.schemas.v1 import PaymentRequiredV1, PaymentRequirementsV1

told = json.load(sys.stdin)
REQUIRED, REQUIREMENTS = {
    1: (PaymentRequiredV1, PaymentRequirementsV1),
    2: (PaymentRequired, PaymentRequirements),
}[told["version"]]
wanted = REQUIREMENTS.model_validate(told["requirements"])
required = REQUIRED(x402_version=told["version"], accepts=[wanted])
payer = x402ClientSync()
register_exact_evm_client(payer, EthAccountSigner(Account.from_key(told["key"])))
payment = payer.create_payment_payload(required)
other = wanted.model_copy(update={"pay_to": "0x" + "99" * 20})

facilitator = HTTPFacilitatorClientSync(FacilitatorConfig(url=told["facilitator"]))
answers = {
    "supported": facilitator.get_supported(),
    "verified": facilitator.verify(payment, wanted),
    "mismatch": facilitator.verify(payment, other),
    "settled": facilitator.settle(payment, wanted),
    "again": facilitator.settle(payment, wanted),
    "used": facilitator.verify(payment, wanted),
}
print(json.dumps({name: it.model_dump(by_alias=True) for name, it in answers.items()}))
