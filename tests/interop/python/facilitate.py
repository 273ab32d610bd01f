"""A server asks a facilitator, with the public client: supported, verify, settle, settle again.

It reads {"facilitator"} and what `signing.py` needs from stdin, and prints each answer, as JSON.
"""

import json
import sys

from signing import signed
from x402.http import FacilitatorConfig, HTTPFacilitatorClientSync

told = json.load(sys.stdin)
payment, wanted = signed(told)
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
