"""Defects of the 402: its status, its body, the requirements, the payment id."""

from collections.abc import Callable
from typing import Any

from tests.mutants.change import Change, answers, edit, setting, swap
from tests.mutants.mutant import Kind
from x402sim.protocol.crypto import checksum
from x402sim.protocol.networks import MAINNET
from x402sim.service import app
from x402sim.service.issue import Issuer, Terms
from x402sim.world.assembly import parts

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


def ids(spell: Callable[[Issuer, Terms, int], str]) -> Change:
    """Let an issuer remember its payment ids, which are spelled so (the last is a count)."""

    class Remembering(Issuer):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            self.known: dict[str, Terms] = {}

        def _seal(self, terms: Terms) -> str:
            name = spell(self, terms, len(self.known) + 1)
            self.known[name] = terms
            return name

        def read(self, payment_id: str) -> Terms | None:
            return self.known.get(payment_id)

    return swap(parts, "Issuer", Remembering)


ROWS = (
    required(
        "unpaid-is-401",
        "1/unpaid-402",
        "A request without proof of payment is answered 401.",
        edit(app.payment_required, "now_s), 402)", "now_s), 401)"),
    ),
    required(
        "content-in-the-402",
        "1/unpaid-402",
        "The 402 already has the content in it.",
        body(lambda it: it.update(quote={"pair": "BTC-USD", "entryPrice": 1.0})),
        broad="every answer that refuses something has the content",
    ),
    required(
        "unpaid-is-a-web-page",
        "2.2/body",
        "The 402 has a page of HTML for a body.",
        edit(
            app.payment_required,
            "web.answer(service.issuer.issue(resource, amount_base, now_s), 402)",
            "Response('<h1>Payment Required</h1>', 402, media_type='text/html')",
        ),
    ),
    required(
        "error-in-lower-case",
        "2.2/body",
        'The 402 says "payment required".',
        body(lambda it: it.update(error="payment required")),
    ),
    required(
        "no-message",
        "2.2/body",
        "The 402 has no message.",
        body(lambda it: it.pop("message") and None),
    ),
    required(
        "message-without-the-amount",
        "2.2/body",
        "The message of the 402 does not state the amount.",
        body(lambda it: it.update(message="Payment is required")),
    ),
    required(
        "message-in-tokens",
        "2.2/body",
        "The message states the amount in tokens, not in base units.",
        body(lambda it: it.update(message="Payment of 0.01 USDC is required")),
    ),
    required(
        "two-networks",
        "2.2/body",
        "The network beside the requirements is another one than in them.",
        body(lambda it: it.update(network=it["network"].removesuffix("-testnet"))),
    ),
    required(
        "no-payee",
        "2.1/requirements",
        "The requirements have no payTo.",
        requirements(payTo=None),
    ),
    required(
        "no-scheme",
        "2.1/requirements",
        "The requirements have no scheme.",
        requirements(scheme=None),
    ),
    required(
        "scheme-upto",
        "2.1/scheme",
        'The scheme is "upto".',
        requirements(scheme="upto"),
    ),
    required(
        "network-by-number",
        "2.1/network",
        "The network is named by its chain id.",
        requirements(network="eip155:338"),
        body(lambda it: it.update(network="eip155:338")),
    ),
    required(
        "payee-is-the-token",
        "2.1/pay-to",
        "The payTo of a quote is the token's own address.",
        edit(Issuer.requirements, "else settings.pay_to", "else settings.network.asset"),
        needs="world",
    ),
    required(
        "token-of-mainnet",
        "2.1/asset",
        "The asset on the testnet is the token of mainnet.",
        requirements(asset=checksum(MAINNET.asset)),
        needs="world",
    ),
    required(
        "token-without-0x",
        "2.1/asset",
        "The asset is written without 0x.",
        requirements(asset=lambda address: address[2:]),
    ),
    required(
        "amount-as-a-number",
        "2.1/amount",
        "maxAmountRequired is a JSON number.",
        requirements(maxAmountRequired=int),
    ),
    required(
        "amount-in-tokens",
        "2.1/amount",
        "maxAmountRequired is in tokens, with a decimal point.",
        requirements(maxAmountRequired=lambda amount: str(int(amount) / 10**6)),
    ),
    required(
        "timeout-as-text",
        "2.1/timeout",
        "maxTimeoutSeconds is a string.",
        requirements(maxTimeoutSeconds=str),
    ),
    required(
        "timeout-of-a-minute",
        "8/timeout",
        "maxTimeoutSeconds is 60.",
        setting(max_timeout_s=60),
    ),
    required(
        "price-of-a-thousand",
        "4.2/price 8/quote-price",
        "A quote costs 1000 base units.",
        setting(quote_price_base=1000),
    ),
    required(
        "resource-is-a-url",
        "2.1/resource",
        "The resource is a whole URL.",
        requirements(resource=lambda path: f"https://api.example{path}"),
    ),
    required(
        "resource-with-a-slash",
        "2.1/resource",
        "The resource has a slash at its end, which the path has not.",
        requirements(resource=lambda path: path + "/"),
    ),
    required(
        "ids-count-up",
        "2.2/payment-id",
        "Payment ids are pay_1, pay_2, …: whoever has one can guess another's.",
        ids(lambda issuer, terms, n: f"pay_{n}"),
    ),
    required(
        "ids-are-times",
        "2.2/payment-id",
        "A payment id is the time at which it was issued, and a count.",
        ids(lambda issuer, terms, n: f"pay_{terms.expires_s}{n:03}"),
    ),
    required(
        "ids-come-again",
        "2.2/payment-id",
        "Whoever asks for the same resource in the same second gets the same payment id.",
        edit(Issuer._seal, "self._salts.randbytes(_SALT_BYTES)", "bytes(_SALT_BYTES)"),
    ),
    required(
        "ids-with-another-prefix",
        "2.2/payment-id",
        "Payment ids begin with payment_.",
        ids(lambda issuer, terms, n: f"payment_{issuer._salts.randbytes(20).hex()}"),
    ),
    required(
        "ids-of-four-digits",
        "2.2/payment-id",
        "The opaque part of a payment id has sixteen bits, which can be tried out.",
        ids(lambda issuer, terms, n: f"pay_{issuer._salts.randbytes(2).hex()}"),
    ),
    required(
        "ids-of-the-payers-choice",
        "2.2/payment-id",
        "The 402 for an unknown payment id gives that very id, which anybody may have chosen.",
        edit(
            app.payment_required,
            "web.answer(service.issuer.issue(resource, amount_base, now_s), 402)",
            "web.answer(\n"
            "        __import__('msgspec').structs.replace(\n"
            "            service.issuer.issue(resource, amount_base, now_s),\n"
            "            **{'payment_id': it for it in [request.headers.get('x-payment-id')] if it},\n"
            "        ),\n"
            "        402,\n"
            "    )",
        ),
    ),
    required(
        "wrong-proof-is-403",
        "7/payment-required",
        "An unknown payment id is answered 403, without requirements.",
        edit(
            app.payment_required,
            "    now_s = service",
            '    if "x-payment-id" in request.headers:\n'
            '        return web.error(403, "Payment invalid")\n'
            "    now_s = service",
        ),
        broad="every check that sees that nothing was paid for expects a 402",
    ),
    required(
        "wrong-proof-has-another-402",
        "7/payment-required",
        "The 402 for an unknown payment id has only an error text for a body.",
        edit(
            app.payment_required,
            "    now_s = service",
            '    if "x-payment-id" in request.headers:\n'
            '        return web.error(402, "Payment not found")\n'
            "    now_s = service",
        ),
    ),
    required(
        "paths-with-a-version",
        "9/no-version-segment",
        "Everything is served below /v1.",
        edit(
            app.service_app,
            'route("/api/pay", pay, "POST")',
            'route("/v1/api/pay", pay, "POST")',
            'route(QUOTE, perp_quote, "POST")',
            'route("/v1" + QUOTE, perp_quote, "POST")',
            'route(SESSIONS, create_session, "POST")',
            'route("/v1" + SESSIONS, create_session, "POST")',
            "route(AGENTS, list_agents)",
            'route("/v1" + AGENTS, list_agents)',
        ),
    ),
)
