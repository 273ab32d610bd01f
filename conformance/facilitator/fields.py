"""Fields that are wrong by themselves, in what was signed, and in what was only written."""

from x402sim.suite.facilitator import texts
from x402sim.suite.facilitator.case import Row, must_refuse, refuses

ROWS = [
    Row(
        section="fields",
        slug="amount-less",
        play=refuses(lambda draft: draft.signed(value=draft.auth.value - 1)),
        demands=must_refuse(
            "A payment of one base unit less than required is refused",
            texts.AMOUNT,
            texts.AMOUNT_V1,
        ),
    ),
]
