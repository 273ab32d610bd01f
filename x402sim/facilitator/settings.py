"""The settings of one facilitator of a world."""

from dataclasses import dataclass

from x402sim.text.arguments import AboveZero, FromZero, explained


@explained
@dataclass(frozen=True, slots=True, kw_only=True)
class FacilitatorSettings:
    """The settings of a facilitator. Raises `ValueError` for an impossible value.

    receipt_timeout_s
        Seconds that it waits for a transaction to be mined; then settle answers 504, or in the
        dialects of the x402 standard that it is pending.
    simulates_verify
        Whether verify simulates the call, too, in the dialects of the x402 standard; the Cronos
        dialect's never does.
    simulates
        Whether it simulates a call before it sends it. If not, a transfer that the token refuses
        is mined nevertheless, and costs the facilitator its gas.
    native
        Native coins that its account has for gas, 0 or more. Without enough for the gas limit of
        another transaction, settle answers that it failed; verify does not look. Default None:
        more than it can spend.
    """

    receipt_timeout_s: AboveZero = 120
    simulates: bool = True
    simulates_verify: bool = True
    native: FromZero | None = None
