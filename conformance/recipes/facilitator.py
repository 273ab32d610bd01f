"""The official facilitator in Python, behind FastAPI much as its repository's basic example has it.

What the library raises becomes a 500 in the example, and a 400 and a line of the log here, so that
the library is judged.

Its environment says where: PORT, RPC_URL, X402SIM_PRIVATE_KEY and X402SIM_NETWORK (CAIP-2). With
METERED it settles `upto`, too, which the example does not.
"""

import logging
import os
from typing import Any

import uvicorn
from fastapi import FastAPI, HTTPException
from pydantic import BaseModel
from x402 import x402Facilitator
from x402.mechanisms.evm import FacilitatorWeb3Signer
from x402.mechanisms.evm.exact import register_exact_evm_facilitator
from x402.schemas import parse_payment_payload, parse_payment_requirements

signer = FacilitatorWeb3Signer(os.environ["X402SIM_PRIVATE_KEY"], os.environ["RPC_URL"])
facilitator = x402Facilitator()
register_exact_evm_facilitator(facilitator, signer, networks=os.environ["X402SIM_NETWORK"])
if "METERED" in os.environ:
    from x402.mechanisms.evm.upto import UptoEvmFacilitatorScheme  # older versions have none

    facilitator.register([os.environ["X402SIM_NETWORK"]], UptoEvmFacilitatorScheme(signer))
app = FastAPI()


class Asked(BaseModel):
    """The body of a request."""

    paymentPayload: dict[str, Any]  # noqa: N815 - as it is on the wire
    paymentRequirements: dict[str, Any]  # noqa: N815


@app.post("/{name}")
async def act(name: str, asked: Asked) -> Any:
    """Verify or settle; what the library raises becomes a 400."""
    if name not in ("verify", "settle"):
        raise HTTPException(404)
    try:
        payment = parse_payment_payload(asked.paymentPayload)
        wanted = parse_payment_requirements(payment.x402_version, asked.paymentRequirements)
        answer = await getattr(facilitator, name)(payment, wanted)
        return answer.model_dump(by_alias=True, exclude_none=True)
    except Exception as wrong:
        logging.error("%s: %r", name, wrong)
        raise HTTPException(400, str(wrong)) from wrong


@app.get("/supported")
async def supported() -> Any:
    """List the kinds of payments."""
    said = facilitator.get_supported()
    kinds = [kind.model_dump(by_alias=True, exclude_none=True) for kind in said.kinds]
    return {"kinds": kinds, "extensions": said.extensions, "signers": said.signers}


uvicorn.run(app, host="127.0.0.1", port=int(os.environ["PORT"]), log_level="warning")
