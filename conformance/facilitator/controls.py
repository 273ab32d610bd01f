"""Controls: a good payment. A facilitator that does not settle a good payment is not judged."""

from x402sim.suite import texts
from x402sim.suite.facilitator.case import demand, is_paid, pays

ROWS = [
    pays(
        "control/settles",
        demand(
            "A good payment is valid, and settles by a single transfer, with the right hash",
            texts.explicit(texts.EXECUTES, texts.TRANSFER_IS_CORRECT),
        )(is_paid),
        changes=lambda draft: draft,
        is_control=True,
    ),
]
