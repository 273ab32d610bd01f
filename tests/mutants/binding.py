"""Defects of bindings: a payment that counts for something else than was asked for."""

from dataclasses import replace
from unittest.mock import patch
from urllib.parse import unquote

from tests.mutants.change import edit, leave_out, paths, settlement_rule
from tests.mutants.mutant import Kind
from x402sim.protocol.rules import FRESHNESS, Presented
from x402sim.service import payments
from x402sim.service.entitlements import Entitlements
from x402sim.service.issue import QUOTE, Issuer
from x402sim.service.store import Store
from x402sim.world.assembly import parts

binding = Kind("binding")


def paid_and_asked(case: Presented) -> tuple[int, int]:
    """Return the amounts that were sent back and issued."""
    return int(case.requirements.max_amount_required), int(case.issued.max_amount_required)


FOR_A_MINUTE = tuple(
    replace(rule, holds=lambda case: case.now_s <= case.expires_s - 240) for rule in FRESHNESS
)

ROWS = (
    *(
        binding(
            f"any-{name}",
            f"2.1/{name}",
            f"Requirements are taken whatever their {name} is.",
            leave_out("settlement", f"2.1/{name}"),
            needs="world" if name in ("scheme", "network", "asset") else "",
        )
        for name in ("scheme", "network", "pay-to", "asset", "amount", "timeout", "resource")
    ),
    binding(
        "requirements-live-for-ever",
        "2.1/validity",
        "Requirements can be paid after maxTimeoutSeconds.",
        leave_out("freshness", "2.1/validity"),
        needs="clock",
    ),
    binding(
        "requirements-end-early",
        "8/timeout",
        "Requirements that say 300 seconds can be paid for one minute.",
        lambda: patch.dict(parts.TABLES, {"freshness": FOR_A_MINUTE}),
        needs="clock",
    ),
    binding(
        "less-is-enough",
        "2.1/amount",
        "Requirements with a smaller amount than was issued are taken.",
        settlement_rule(
            "2.1/amount", lambda case: paid_and_asked(case)[0] <= paid_and_asked(case)[1]
        ),
    ),
    binding(
        "more-is-welcome",
        "2.1/amount",
        "Requirements with a larger amount than was issued are taken.",
        settlement_rule(
            "2.1/amount", lambda case: paid_and_asked(case)[0] >= paid_and_asked(case)[1]
        ),
    ),
    binding(
        "one-percent-less",
        "2.1/amount",
        "Amounts may differ by one percent.",
        settlement_rule(
            "2.1/amount",
            lambda case: abs(paid_and_asked(case)[0] / paid_and_asked(case)[1] - 1) <= 0.01,
        ),
    ),
    binding(
        "payee-by-its-beginning",
        "2.1/pay-to",
        "Only the first letters of payTo are compared.",
        settlement_rule(
            "2.1/pay-to",
            lambda case: case.requirements.pay_to.lower()[:10] == case.issued.pay_to.lower()[:10],
        ),
    ),
    binding(
        "resource-by-its-beginning",
        "2.1/resource",
        "Requirements for a part of the path are taken.",
        settlement_rule(
            "2.1/resource", lambda case: case.issued.resource.startswith(case.requirements.resource)
        ),
    ),
    binding(
        "resource-in-any-case",
        "2.1/resource",
        "Resources are compared without regard to upper and lower case.",
        settlement_rule(
            "2.1/resource",
            lambda case: case.issued.resource.lower() == case.requirements.resource.lower(),
        ),
    ),
    binding(
        "requirements-are-believed",
        "2.1/amount 2.1/pay-to 2.1/resource 2.1/timeout",
        "What the payer sends back is taken for what was issued.",
        edit(
            payments.validate, "_require(service.settlement_rules, service, request, terms)", "pass"
        ),
    ),
    binding(
        "invented-ids-settle",
        "2.2/payment-id",
        "A payment id that was never issued settles like any other.",
        edit(
            payments.validate,
            'raise SettlementRefused(Refusal.MISMATCH, "this payment id was not issued here")',
            "terms = Terms(\n"
            "            request.payment_requirements.resource,\n"
            "            service.settings.quote_price_base,\n"
            "            service.clock.now_s() + 300,\n"
            "        )",
        ),
    ),
    binding(
        "altered-ids-settle",
        "2.2/payment-id",
        "The seal of a payment id is not compared, so an altered one settles.",
        edit(Issuer.read, "if not hmac.compare_digest(mac, self._mac(plain)):", "if False:"),
    ),
    binding(
        "cache-forgets-the-resource",
        "5/resource-binding",
        "A cached entitlement opens every resource: a session's deposit also buys quotes.",
        edit(Entitlements.grants, "and found.resource_url == resource ", ""),
    ),
    binding(
        "records-forget-the-resource",
        "5/resource-binding",
        "A stored payment opens every resource.",
        edit(Store.grants, "resource_url = ?", "? != ''"),
    ),
    binding(
        "path-by-its-beginning",
        "5/resource-binding",
        "A payment also opens the paths that begin with the path paid for.",
        paths(lambda path: QUOTE if path.startswith(QUOTE) else path),
    ),
    binding(
        "path-in-any-case",
        "kit/5/exact-path",
        "A payment also opens the path in upper case.",
        paths(lambda path: QUOTE if path.lower() == QUOTE else path),
    ),
    binding(
        "path-with-a-slash",
        "kit/5/exact-path",
        "A payment also opens the path with a slash at its end.",
        paths(lambda path: QUOTE if path == QUOTE + "/" else path),
    ),
    binding(
        "path-decoded-twice",
        "kit/5/exact-path",
        "Percent signs in the path are decoded twice.",
        paths(unquote),
    ),
)
