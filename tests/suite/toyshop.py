"""A newcomer's shop, paid in one step (version 2 of x402), with faults that can be switched on.

It sells the weather, always the same, and has the facilitator verify and settle each payment.
"""

from base64 import b64decode, b64encode
from json import dumps, loads
from typing import Any

import httpx
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from x402sim import BASE_SEPOLIA, World
from x402sim.protocol.crypto import checksum
from x402sim.report.results import Result
from x402sim.suite.service import one_step
from x402sim.suite.service.engine import all_checks
from x402sim.suite.service.local import judge
from x402sim.suite.service.target import PayEndpoint, ProtectedEndpoint, Target
from x402sim.world.running_world import RunningWorld
from x402sim.world.transport.link import Asgi

PATH = "/weather"
TARGET = one_step.completed(
    Target(
        protected=ProtectedEndpoint(path=PATH, method="GET", bodies=[{}], content="/weather"),
        pay=PayEndpoint(path=""),
    )
)
FAULTS = {
    "free": "a request without payment gets the content",
    "replay": "the service takes one authorization more than once (replay)",
    "again": "the service takes one authorization more than once (replay)",
    "unsettled": "the service serves what was not settled on the chain",
    "unserved": "a payment that is signed as the 402 asks is not settled, or not served",
    "expired": "the service does not check the time window",
    "early": "the service does not check the time window",
    "forged": "the service does not check who signed",
    "payee": "the service does not check the payee that the payer sends back",
    "amount": "the service does not check the amount that the payer sends back",
    "receipt": "the receipt of a payment (in one step, the header PAYMENT-RESPONSE) is missing",
    "status": "a malformed payment header breaks the service (5xx)",
    "forbidden": "a request without payment gets the content, or is not asked to pay with a 402",
    "welcome": "a request without payment gets the content, or is not asked to pay with a 402",
    "polite": "the service answers a payment that it refuses as if it were served (2xx)",
    "pending": "the service answers a payment that it refuses as if it were served (2xx)",
    "nonces": "the service refuses a valid payment, because another payer has used the same nonce",
    "unasked": "the service serves what was not settled on the chain",
}
"""The faults, and how a report begins to tell each.

"again" answers something else each time, "unsettled" does not look at what came of a settlement,
"unasked" does not ask for any; "pending" says with a 202 that it may still come. "forbidden" asks to pay with a 403, "welcome" with a 200.
"""
FIRST = "pay first"
REASONS = {"expired": "valid_before", "early": "valid_after", "forged": "signature"}


class Toyshop:
    """One shop; its memory is that of the process."""

    def __init__(self, facilitator: httpx.AsyncClient, pay_to: str, *faults: str) -> None:
        assert set(faults) <= set(FAULTS)
        self.facilitator, self.faults, self.served = facilitator, faults, dict[Any, str]()
        self.offer = {
            "scheme": "exact",
            "network": BASE_SEPOLIA.caip2,
            "amount": "10000",
            "asset": "0x" + BASE_SEPOLIA.asset.hex(),
            "payTo": pay_to,
            "maxTimeoutSeconds": 300,
            "extra": {"name": BASE_SEPOLIA.token_name, "version": BASE_SEPOLIA.token_version},
        }
        self.app = Starlette(routes=[Route(PATH, self.sell)])

    async def sell(self, request: Request) -> Response:
        """Sell the weather."""
        header = request.headers.get("payment-signature")
        if header is None and "free" in self.faults:
            return self.answer({})
        if header is None:
            return self.refusal(request, FIRST)
        try:
            payment = loads(b64decode(header, validate=True))
            auth, accepted = payment["payload"]["authorization"], payment["accepted"]
            signed = {"payee": {"payTo": auth["to"]}, "amount": {"amount": auth["value"]}}
            signed["unasked"] = {"maxTimeoutSeconds": accepted["maxTimeoutSeconds"]}
        except (ValueError, LookupError, TypeError, RecursionError):
            status = 500 if "status" in self.faults else 200 if "polite" in self.faults else 400
            return JSONResponse({"error": "what?"}, status)
        believed = {k: v for name in self.faults for k, v in signed.get(name, {}).items()}
        if {**accepted, **believed} != (wanted := {**self.offer, **believed}):
            return self.refusal(request, "that was not offered")
        payer = "" if "nonces" in self.faults else auth["from"]
        url = self.served.get(which := (payer, int(auth["nonce"], 16)))
        if url and "nonces" in self.faults:
            return self.refusal(request, "this nonce was used")
        if url and "replay" in self.faults:
            return self.answer({})
        if url == str(request.url) and "again" in self.faults:
            return JSONResponse({"weather": "still sunny"})
        told = await self.ask("verify", payment, wanted)
        if any(REASONS.get(name, "-") in str(told.get("invalidReason")) for name in self.faults):
            return self.answer({})
        if told.get("isValid") is True and "unasked" in self.faults:
            return self.answer({"success": True, "transaction": auth["nonce"]})
        if told.get("isValid") is True:
            told = await self.ask("settle", payment, wanted)
            if "pending" in self.faults and told.get("success") is not True:
                return JSONResponse({"state": "pending"}, 202)
            if told.get("success") is True or "unsettled" in self.faults:
                self.served[which] = str(request.url)
                if "unserved" in self.faults:
                    return JSONResponse({}, 500)
                return self.answer(told)
        return self.refusal(request, str(told))

    def answer(self, settled: dict[str, Any]) -> Response:
        """Return the weather, and what came of the settlement."""
        headers = {} if "receipt" in self.faults else {"PAYMENT-RESPONSE": in_base64(settled)}
        return JSONResponse({"weather": "sunny"}, headers=headers)

    def refusal(self, request: Request, why: str) -> Response:
        """Return a 402; after a payment, a polite shop says what is wrong with 200."""
        if "polite" in self.faults and "payment-signature" in request.headers:
            return JSONResponse({"error": why})
        resource = {"url": str(request.url.replace(query="")), "mimeType": "application/json"}
        told = {"x402Version": 2, "error": why, "resource": resource, "accepts": [self.offer]}
        unpaid = {"forbidden": 403, "welcome": 200} if why == FIRST else {}
        status = next((code for name, code in unpaid.items() if name in self.faults), 402)
        return JSONResponse({}, status, {"PAYMENT-REQUIRED": in_base64(told)})

    async def ask(self, verb: str, payment: Any, wanted: Any) -> dict[str, Any]:
        """Ask the facilitator; an answer of another kind is no success."""
        body = {"x402Version": 2, "paymentPayload": payment, "paymentRequirements": wanted}
        try:
            said = (await self.facilitator.post(verb, json=body)).json()
        except (httpx.TransportError, ValueError):
            said = None
        return said if isinstance(said, dict) else {}


def in_base64(message: Any) -> str:
    """Return the header of a message."""
    return b64encode(dumps(message).encode()).decode()


def judged(*faults: str, part: str = "") -> dict[str, Result]:
    """Judge a toyshop by the cases whose names contain a part, in virtual time."""
    checks = [each for each in all_checks() if each.one_step and part in each.name]

    def opens(parts: RunningWorld) -> None:
        wire = Asgi(parts.process.outside[parts.options.first_facilitator])
        facilitator = httpx.AsyncClient(transport=wire, base_url="http://there", timeout=90)
        pay_to = checksum(parts.service.env.pay_to)
        parts.process._app = Toyshop(facilitator, pay_to, *faults).app

    world = World(network=BASE_SEPOLIA, seed=1)
    return {each.id: each for each in judge(world, target=TARGET, checks=checks, mutate=opens)}
