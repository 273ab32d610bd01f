"""Additions of a shop to an offer, beside the terms: no reason to refuse a payment."""

from x402sim.suite import texts
from x402sim.suite.dialect import Dialect
from x402sim.suite.facilitator.case import Demand, is_paid, pays
from x402sim.suite.facilitator.payment import RESOURCE, Draft

LONG = "A report about the weather of tomorrow, hour by hour. " * 40


def _described(draft: Draft) -> Draft:
    if draft.dialect is Dialect.V2:
        return draft.with_value("payment.resource", {"url": RESOURCE, "description": LONG})
    return draft.with_value("requirements.description", LONG)


ROWS = [
    pays(
        "fields/description-long",
        Demand(
            title="A good payment settles for goods described in two thousand characters",
            ground=texts.ours(
                texts.DESCRIBED,
                because="a hosted facilitator refuses more than 500, and its shops lose sales "
                "for a word too many (x402-foundation/x402#2832)",
            ),
            test=is_paid,
        ),
        changes=_described,
    ),
]
