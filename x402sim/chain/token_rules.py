"""When does the token refuse an authorization? Circle's FiatToken v2.2, as tables.

The order of the rows is the order of its checks: the window and the nonce come before
the signature. Both edges of the window are outside it.
Clauses: 5/signature-proves, 5/nonce-once, 5/window.
"""

from dataclasses import dataclass

from x402sim.chain.state import State
from x402sim.protocol.crypto import Address, BadSignature, recover
from x402sim.protocol.eip3009 import Authorization, is_early, is_late
from x402sim.protocol.rules import Rule, Rules


@dataclass(frozen=True, slots=True)
class Spend:
    """An authorized transfer or a cancellation, as the token is about to judge it."""

    state: State
    caller: Address
    now_s: int
    authorization: Authorization
    digest: bytes
    signature: bytes

    def is_blacklisted(self, account: Address) -> bool:
        """Tell whether the token refuses to deal with an account."""
        return self.state.blacklisted.get(account, False)

    def is_unused(self) -> bool:
        """Tell whether this nonce of this payer was neither used nor cancelled."""
        auth = self.authorization
        return (auth.from_, auth.nonce) not in self.state.authorizations

    def signature_fault(self) -> str:
        """Return why the signature does not prove the payer's consent; empty if it does."""
        try:
            signer = recover(self.digest, self.signature)
        except BadSignature as bad:
            return str(bad)
        return "" if signer == self.authorization.from_ else "FiatTokenV2: invalid signature"


_NOT_PAUSED: Rule[Spend, str] = Rule(
    "token/not-paused", lambda c: not c.state.switches.get("paused"), "Pausable: paused"
)
_UNUSED: Rule[Spend, str] = Rule(
    "5/nonce-once", Spend.is_unused, "FiatTokenV2: authorization is used or canceled"
)
_SIGNED: Rule[Spend, str] = Rule(
    "5/signature-proves",
    lambda c: not c.signature_fault(),
    "FiatTokenV2: invalid signature",
    Spend.signature_fault,
)
TRANSFER: Rules[Spend, str] = (
    _NOT_PAUSED,
    Rule(
        "token/payer-not-blacklisted",
        lambda c: not c.is_blacklisted(c.authorization.from_),
        "Blacklistable: account is blacklisted",
    ),
    Rule(
        "token/payee-not-blacklisted",
        lambda c: not c.is_blacklisted(c.authorization.to),
        "Blacklistable: account is blacklisted",
    ),
    Rule(
        "5/window-opens",
        lambda c: not is_early(c.authorization, c.now_s),
        "FiatTokenV2: authorization is not yet valid",
    ),
    Rule(
        "5/window-closes",
        lambda c: not is_late(c.authorization, c.now_s),
        "FiatTokenV2: authorization is expired",
    ),
    _UNUSED,
    _SIGNED,
)
RECEIVE: Rules[Spend, str] = (
    *TRANSFER[:3],
    Rule(
        "token/payee-calls",
        lambda c: c.caller == c.authorization.to,
        "FiatTokenV2: caller must be the payee",
    ),
    *TRANSFER[3:],
)
CANCEL: Rules[Spend, str] = (_NOT_PAUSED, _UNUSED, _SIGNED)


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRules:
    """The three tables; an experiment may run a token with a row left out."""

    transfer: Rules[Spend, str] = TRANSFER
    receive: Rules[Spend, str] = RECEIVE
    cancel: Rules[Spend, str] = CANCEL
