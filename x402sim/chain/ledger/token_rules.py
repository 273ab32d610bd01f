"""Rules of authorizations, as tables: when Circle's FiatToken v2.2 refuses one.

The order of the rows is the order of its checks: the window and the nonce come before the
signature. Both edges of the window are outside it. An experiment may leave a row out.
Clauses: 5/signature-proves, 5/nonce-once, 5/window.
"""

from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import Any

import msgspec

from x402sim.chain.ledger import wallets
from x402sim.chain.ledger.state import LedgerState
from x402sim.protocol.crypto import Address, BadSignature, recover
from x402sim.protocol.eip3009 import Authorization, is_early, is_late
from x402sim.protocol.rules import Rule, Rules, without


class Spend(msgspec.Struct, frozen=True, gc=False):
    """The input of the authorization rules: a transfer or a cancellation, and its signature."""

    state: LedgerState
    caller: Address
    now_s: int
    authorization: Authorization
    digest: bytes
    signature: bytes

    def signature_fault(self) -> str:
        """Return why the signature does not prove the payer's consent; empty if it does.

        A payer that is a contract is asked (EIP-1271), and nothing else counts.
        """
        payer = self.authorization.from_
        if payer in self.state.codes:
            is_valid = wallets.accepts(self.state, payer, self.digest, self.signature)
            return "" if is_valid else "FiatTokenV2: invalid signature"
        try:
            signer = recover(self.digest, self.signature)
        except BadSignature as bad:
            return str(bad)
        return "" if signer == payer else "FiatTokenV2: invalid signature"


_NOT_PAUSED: Rule[Any, str] = Rule(
    "token/not-paused", lambda case: not case.state.switches.get("paused"), "Pausable: paused"
)


def _not_blacklisted(clause: str, account: Callable[[Spend], Address]) -> Rule[Spend, str]:
    return Rule(
        clause,
        lambda case: not case.state.blacklisted.get(account(case)),
        "Blacklistable: account is blacklisted",
    )


_UNUSED: Rule[Spend, str] = Rule(
    "5/nonce-once",
    lambda c: (c.authorization.from_, c.authorization.nonce) not in c.state.authorizations,
    "FiatTokenV2: authorization is used or canceled",
)
_SIGNED: Rule[Spend, str] = Rule(
    "5/signature-proves",
    lambda c: not c.signature_fault(),
    "FiatTokenV2: invalid signature",
    Spend.signature_fault,
)
TRANSFER: Rules[Spend, str] = (
    _NOT_PAUSED,
    _not_blacklisted("token/payer-not-blacklisted", attrgetter("authorization.from_")),
    _not_blacklisted("token/payee-not-blacklisted", attrgetter("authorization.to")),
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
TABLES: dict[str, Rules[Spend, str]] = {"transfer": TRANSFER, "receive": RECEIVE, "cancel": CANCEL}

CLAUSES = (
    *dict.fromkeys(rule.clause for table in TABLES.values() for rule in table),
    *("token/minter", "token/minter-not-blacklisted", "token/payee", "token/amount"),
    *("token/minter-allowance", "token/supply", "token/largest-balance", "token/payer"),
    "token/balance",
)
"""What a scenario can cite: the rows here, and what `token.py` and `frame.py` demand of calls."""


def without_rows(left_out: Iterable[tuple[str, str]]) -> dict[str, Rules[Spend, str]]:
    """Return the tables without some rows, given by (name of the table, clause).

    Raises `KeyError` if there is no such row.
    """
    tables = dict(TABLES)
    for table, clause in left_out:
        tables[table] = without(tables[table], clause)
    return tables
