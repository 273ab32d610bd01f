"""Defects of the 402: its status, its body, the requirements, the payment id.

And of what is for sale, and of what is free: quotes, agents, documentation.
"""

import hashlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec

from tests.mutants.changes import Change, Wrapper, collaborator, into, overriding, setting
from tests.mutants.messages import CRASHED, Answer, Request, answer, page
from tests.mutants.middleware import answers, instead, paths, replies, statuses
from tests.mutants.mutant import Kind
from tests.mutants.payments import with_id
from x402sim import World
from x402sim.protocol.crypto import checksum
from x402sim.protocol.networks import MAINNET
from x402sim.protocol.routes import AGENTS, PAY, QUOTE, SESSIONS
from x402sim.rng import Stream
from x402sim.service.issue import Issuer

required = Kind("required-402")


def body(change: Callable[[Any], Any]) -> Change:
    """Change the body of every 402."""
    return answers(402, "/", lambda it: change(it) if "paymentRequirements" in it else None)


def requirements(**changes: Any) -> Change:
    """Show other requirements than are meant; None leaves a field out."""

    def change(it: Any) -> None:
        shown = it["paymentRequirements"]
        for name, value in changes.items():
            shown[name] = value(shown[name]) if callable(value) else value
        it["paymentRequirements"] = {k: v for k, v in shown.items() if v is not None}

    return body(change)


def dearer(path: str, when: Callable[[dict[str, Any]], bool]) -> Change:
    """Ask twice as much for some bodies of requests."""

    def changed(request: Request, it: Answer) -> Answer:
        asked = request.json
        if it.status != 402 or not isinstance(asked, dict) or not when(asked):
            return it
        wanted = it.json["paymentRequirements"]
        more = {**wanted, "maxAmountRequired": str(2 * int(wanted["maxAmountRequired"]))}
        return answer(402, {**it.json, "paymentRequirements": more})

    return replies(path, changed)


def ids(spell: Callable[[bytes, int, int], str]) -> Change:
    """Spell payment ids from 32 bytes of luck, the time of expiry in seconds, and a count."""

    def change(world: World) -> World:
        real: dict[str, str] = {}  # it outlives a crash, as the real ids do

        def issue(it: Any, *terms: Any) -> Any:
            required = it.inner.issue(*terms)
            count = len(real) + 1
            luck = hashlib.sha256(str(count).encode()).digest()
            name = spell(luck, it.inner.read(required.payment_id).expires_s, count)
            real[name] = required.payment_id
            return msgspec.structs.replace(required, payment_id=name)

        def read(it: Any, payment_id: str) -> Any:
            return it.inner.read(real.get(payment_id, ""))

        return overriding("issuer", issue=issue, read=read)(world)

    return change


class NoLuck(Stream):
    """Random bytes that are all zero."""

    def randbytes(self, n: int) -> bytes:
        return bytes(n)


def wrong_proof(change: Callable[[Request, Answer], Answer]) -> Change:
    """Change the 402 for a quote that was requested with a payment id."""

    def changed(request: Request, reply: Answer) -> Answer:
        is_wrong = reply.status == 402 and "x-payment-id" in request.headers
        return change(request, reply) if is_wrong else reply

    return replies(QUOTE, changed)


def below_v1(path: str) -> str:
    """Return the path that is meant by one, where everything is below /v1."""
    return path.removeprefix("/v1") if path.startswith("/v1/") else f"/gone{path}"


API = (PAY, QUOTE, SESSIONS, AGENTS)


# --- the defects ---

required("unpaid-is-401", "1/unpaid-402", "A request without proof of payment is answered 401.",
    statuses(QUOTE, 402, 401))  # fmt: skip
required("content-in-the-402", "1/unpaid-402", "The 402 already has the content in it.",
    body(lambda it: it.update(quote={"pair": "BTC-USD", "entryPrice": 1.0})),
    broad="every answer that refuses something has the content")  # fmt: skip
required("unpaid-is-a-web-page", "2.2/body", "The 402 has a page of HTML for a body.",
    replies(QUOTE, lambda _, it:
        page("<h1>Payment Required</h1>", 402) if it.status == 402 else it))  # fmt: skip
required("error-in-lower-case", "2.2/body", 'The 402 says "payment required".',
    body(lambda it: it.update(error="payment required")))  # fmt: skip
required("message-in-tokens", "2.2/body",
    "The message states the amount in tokens, not in base units.",
    body(lambda it: it.update(message="Payment of 0.01 USDC is required")))  # fmt: skip
required("two-networks", "2.2/body", "The network beside the requirements is not the one in them.",
    body(lambda it: it.update(network=it["network"].removesuffix("-testnet"))))  # fmt: skip
required("no-payee", "2.1/requirements", "The requirements have no payTo.",
    requirements(payTo=None))  # fmt: skip
required("no-scheme", "2.1/requirements", "The requirements have no scheme.",
    requirements(scheme=None))  # fmt: skip
required("scheme-upto", "2.1/scheme", 'The scheme is "upto".', requirements(scheme="upto"))
required("network-by-number", "2.1/network", "The network is named by its chain id.",
    requirements(network="eip155:338"),
    body(lambda it: it.update(network="eip155:338")))  # fmt: skip


@required.defect("payee-is-the-token", "2.1/pay-to", into("issuer"))
class PaysTheToken(Wrapper):
    """The payTo of a quote is the token's own address."""

    def issue(self, *terms: Any) -> Any:
        issued = self.inner.issue(*terms)
        shown = self._paid_to_the_token(issued.payment_requirements)
        return msgspec.structs.replace(issued, payment_requirements=shown)

    def requirements(self, *terms: Any) -> Any:
        return self._paid_to_the_token(self.inner.requirements(*terms))

    def _paid_to_the_token(self, shown: Any) -> Any:
        if shown.resource == SESSIONS:
            return shown
        return msgspec.structs.replace(shown, pay_to=shown.asset)


required("token-of-mainnet", "2.1/asset", "The asset on the testnet is the token of mainnet.",
    requirements(asset=checksum(MAINNET.asset)))  # fmt: skip
required("token-without-0x", "2.1/asset", "The asset is written without 0x.",
    requirements(asset=lambda address: address[2:]))  # fmt: skip
required("amount-as-a-number", "2.1/amount", "maxAmountRequired is a JSON number.",
    requirements(maxAmountRequired=int))  # fmt: skip
required("amount-in-tokens", "2.1/amount", "maxAmountRequired is in tokens, with a decimal point.",
    requirements(maxAmountRequired=lambda amount: str(int(amount) / 10**6)))  # fmt: skip
required("timeout-as-text", "2.1/timeout", "maxTimeoutSeconds is a string.",
    requirements(maxTimeoutSeconds=str))  # fmt: skip
required("timeout-of-a-minute", "8/timeout", "maxTimeoutSeconds is 60.", setting(max_timeout_s=60))
required("price-of-a-thousand", "4.2/price 8/quote-price", "A quote costs 1000 base units.",
    setting(quote_price="0.001"))  # fmt: skip
required("resource-is-a-url", "2.1/resource", "The resource is a whole URL.",
    requirements(resource=lambda path: f"https://api.example{path}"))  # fmt: skip
required("ids-count-up", "kit/2.2/payment-id",
    "Payment ids are pay_1, pay_2, …: whoever has one can guess another payer's.",
    ids(lambda luck, expires_s, n: f"pay_{n}"))  # fmt: skip
required("ids-come-again", "2.2/payment-id",
    "Two requests for the same resource in the same second get the same payment id.",
    collaborator(issuer=lambda _, service: Issuer(service.env, NoLuck())))  # fmt: skip
required("ids-with-another-prefix", "2.2/payment-id", "Payment ids begin with payment_.",
    ids(lambda luck, expires_s, n: f"payment_{luck[:20].hex()}"))  # fmt: skip
required("ids-of-nanoseconds", "kit/2.2/payment-id",
    "A payment id is a time in nanoseconds, and a count.",
    ids(lambda luck, expires_s, n: f"pay_{10**9 * expires_s + 987_654_321 * n}-{n}"))  # fmt: skip
required("ids-of-the-payers-choice", "kit/2.2/payment-id",
    "The 402 for an unknown payment id gives that very id, which anybody may have chosen.",
    wrong_proof(lambda request, it: with_id(it, request.headers["x-payment-id"])))  # fmt: skip
required("wrong-proof-is-403", "7/payment-required",
    "An unknown payment id is answered 403, without requirements.",
    wrong_proof(lambda *_: answer(403, {"error": "Payment invalid"})),
    broad="every check that sees that nothing was paid for expects a 402")  # fmt: skip
required("wrong-proof-has-another-402", "7/payment-required",
    "The 402 for an unknown payment id has only an error text for a body.",
    wrong_proof(lambda *_: answer(402, {"error": "Payment not found"})))  # fmt: skip
required("paths-with-a-version", "1/unpaid-402", "Everything is served below /v1.",
    paths(lambda path: below_v1(path) if path in API or path.startswith("/v1/") else path))  # fmt: skip


# --- what is for sale ------------------------------------------------------------------------


content = Kind("content")

LLMS = "/llms.txt"
FRONT_PAGE = page("<!doctype html><div id=root></div>")
NOWHERE = "/nowhere"


# --- the defects ---

content("quote-without-a-venue", "4.2/quote", "A quote has no bestVenue.",
    answers(200, QUOTE, lambda it: it["quote"].pop("bestVenue") and None))  # fmt: skip
content("prices-as-text", "4.2/quote", "The entry price of a quote is a string.",
    answers(200, QUOTE, lambda it: it["quote"].update(entryPrice=str(it["quote"]["entryPrice"]))))  # fmt: skip
content("pair-spelled-otherwise", "4.2/quote", 'The pair comes back as "BTC/USD".',
    answers(200, QUOTE, lambda it: it["quote"].update(pair=it["quote"]["pair"].replace("-", "/"))))  # fmt: skip
content("quote-not-under-its-name", "4.2/quote 1/repeat-served",
    "The fields of the quote stand in the body itself.",
    answers(200, QUOTE, lambda it: it["quote"]),
    broad="what is paid for is never seen, so nothing that is paid is served")  # fmt: skip
content("no-agents", "4.3/list", "There is nothing at /api/agents.",
    paths(lambda path: NOWHERE if path == AGENTS else path))  # fmt: skip
content("agents-crash", "4.3/list", "The list of agents is an internal error.",
    instead(AGENTS, CRASHED))  # fmt: skip
content("agents-are-a-page", "4.3/list", "The list of agents is a page of HTML.",
    instead(AGENTS, page("<ul><li>perp-quotes</li></ul>")))  # fmt: skip
content("no-llms-txt", "4.5/llms-txt", "There is nothing at /llms.txt.",
    paths(lambda path: NOWHERE if path == LLMS else path))  # fmt: skip
content("llms-txt-is-a-page", "4.5/llms-txt",
    "The documentation index is the front page of a web application.",
    instead(LLMS, FRONT_PAGE))  # fmt: skip
content("llms-txt-is-empty", "4.5/llms-txt", "The documentation index lists nothing.",
    instead(LLMS, replace(page(""), media_type="text/plain; charset=utf-8")))  # fmt: skip
content("llms-txt-leads-nowhere", "4.5/llms-txt",
    "The pages in the documentation index do not exist.",
    paths(lambda path: NOWHERE if path.startswith("/docs/") else path))  # fmt: skip
