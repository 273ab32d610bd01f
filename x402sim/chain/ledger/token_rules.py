"""Rules of the token, as tables: when Circle's FiatToken v2.2 refuses a call.

The order of the rows is the order of its checks: the window and the nonce come before the
signature. Both edges of the window are outside it. An experiment may leave a row out.
Clauses: 5/signature-proves, 5/nonce-once, 5/window.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any, TypeVar

import msgspec

from x402sim.chain.ledger import wallets
from x402sim.chain.ledger.state import State
from x402sim.protocol.crypto import ZERO_ADDRESS, Address, BadSignature, recover
from x402sim.protocol.eip3009 import Authorization, is_early, is_late
from x402sim.protocol.money import MAX_UINT256
from x402sim.protocol.rules import Rule, Rules, without


class Spend(msgspec.Struct, frozen=True, gc=False):
    """The input of the authorization rules: a transfer or a cancellation, and its signature."""

    state: State
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


class Movement(msgspec.Struct, frozen=True, gc=False):
    """The input of the movement rules: minted tokens come from the zero address. It is the input of
    the allowance rules, too: a new allowance, from its owner to its spender, is below 0 if too much
    was taken off.
    """

    state: State
    caller: Address
    from_: Address
    to: Address
    amount_base: int

    @property
    def held_base(self) -> int:
        """The sender's balance."""
        return self.state.balances.get(self.from_, 0)


LARGEST_BALANCE = MAX_UINT256 >> 1
Case = TypeVar("Case", bound=Spend | Movement)


_NOT_PAUSED: Rule[Any, str] = Rule(
    "token/not-paused", lambda case: not case.state.switches.get("paused"), "Pausable: paused"
)


def _not_blacklisted(clause: str, account: Callable[[Case], Address]) -> Rule[Case, str]:
    return Rule(
        clause,
        lambda case: not case.state.blacklisted.get(account(case)),
        "Blacklistable: account is blacklisted",
    )


# --- authorizations ------------------------------------------------------------------

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

# --- movements -----------------------------------------------------------------------

_PARTIES: Rules[Movement, str] = (
    _not_blacklisted("token/payer-not-blacklisted", attrgetter("from_")),
    _not_blacklisted("token/payee-not-blacklisted", attrgetter("to")),
)
SEND: Rules[Movement, str] = (_NOT_PAUSED, *_PARTIES)
"""Rules of ERC-20's transfer."""

_IS_MINTER: Rule[Movement, str] = Rule(
    "token/minter",
    lambda m: m.caller in m.state.minter_allowances,
    "FiatToken: caller is not a minter",
)
_NOT_TOO_MUCH: Rule[Movement, str] = Rule(
    "token/largest-balance",
    lambda m: m.from_ == m.to or m.state.balances.get(m.to, 0) + m.amount_base <= LARGEST_BALANCE,
    "FiatTokenV2_2: Balance exceeds (2^255 - 1)",
)
"""A balance has 255 bits, as the last one of its word says whether the account is blacklisted."""

_BY_MINTER: Rules[Movement, str] = (
    _NOT_PAUSED,
    _IS_MINTER,
    _not_blacklisted("token/minter-not-blacklisted", attrgetter("caller")),
)
MINT: Rules[Movement, str] = (
    *_BY_MINTER,
    _not_blacklisted("token/payee-not-blacklisted", attrgetter("to")),
    Rule("token/payee", lambda m: m.to != ZERO_ADDRESS, "FiatToken: mint to the zero address"),
    Rule("token/amount", lambda m: m.amount_base > 0, "FiatToken: mint amount not greater than 0"),
    Rule(
        "token/minter-allowance",
        lambda m: m.amount_base <= m.state.minter_allowances[m.caller],
        "FiatToken: mint amount exceeds minterAllowance",
    ),
    Rule(
        "token/supply",
        lambda m: m.state.supply + m.amount_base <= MAX_UINT256,
        "SafeMath: addition overflow",
    ),
    _NOT_TOO_MUCH,
)
BURN: Rules[Movement, str] = (
    *_BY_MINTER,
    Rule("token/amount", lambda m: m.amount_base > 0, "FiatToken: burn amount not greater than 0"),
    Rule(
        "token/balance",
        lambda m: m.amount_base <= m.held_base,
        "FiatToken: burn amount exceeds balance",
    ),
)
CONFIGURE: Rules[Movement, str] = (
    _NOT_PAUSED,
    Rule(
        "token/master-minter",
        lambda m: m.caller == m.state.roles["masterMinter"],
        "FiatToken: caller is not the masterMinter",
    ),
)
"""Rules of configureMinter."""

MOVE: Rules[Movement, str] = (
    Rule("token/payer", lambda m: m.from_ != ZERO_ADDRESS, "ERC20: transfer from the zero address"),
    Rule("token/payee", lambda m: m.to != ZERO_ADDRESS, "ERC20: transfer to the zero address"),
    Rule(
        "token/balance",
        lambda m: m.amount_base <= m.held_base,
        "ERC20: transfer amount exceeds balance",
    ),
    _NOT_TOO_MUCH,
)
"""Rules of every movement of tokens from an account."""


# --- allowances ----------------------------------------------------------------------

_NO_SPENDER = "ERC20: approve to the zero address"
APPROVE: Rules[Movement, str] = (
    _NOT_PAUSED,
    Rule("token/increase", lambda m: m.amount_base <= MAX_UINT256, "SafeMath: addition overflow"),
    Rule("token/decrease", lambda m: m.amount_base >= 0, "ERC20: decreased allowance below zero"),
    Rule("token/owner", lambda m: m.from_ != ZERO_ADDRESS, "ERC20: approve from the zero address"),
    Rule("token/spender", lambda m: m.to != ZERO_ADDRESS, _NO_SPENDER),
)
"""Rules of approve, increaseAllowance and decreaseAllowance."""

SPEND: Rules[Movement, str] = (
    _NOT_PAUSED,
    _not_blacklisted("token/spender-not-blacklisted", attrgetter("caller")),
    *_PARTIES,
    Rule(
        "token/allowance",
        lambda m: m.amount_base <= m.state.allowances.get((m.from_, m.caller), 0),
        "ERC20: transfer amount exceeds allowance",
    ),
)
"""Rules of transferFrom."""


def _permit_fault(case: Spend) -> str:
    fault = case.signature_fault()
    return "EIP2612: invalid signature" if fault.startswith("FiatTokenV2") else fault


PERMIT: Rules[Spend, str] = (
    _NOT_PAUSED,
    Rule(
        "token/deadline",
        lambda c: c.now_s <= c.authorization.valid_before,
        "FiatTokenV2: permit is expired",
    ),
    Rule(
        "token/permit-signed",
        lambda c: not c.signature_fault(),
        "EIP2612: invalid signature",
        _permit_fault,
    ),
    Rule("token/spender", lambda c: c.authorization.to != ZERO_ADDRESS, _NO_SPENDER),
)
"""Rules of permit: the authorization is of the owner to the spender, up to the deadline."""


@dataclass(frozen=True, slots=True)
class TokenRules:
    """All rule tables of the token."""

    transfer: Rules[Spend, str] = TRANSFER
    receive: Rules[Spend, str] = RECEIVE
    cancel: Rules[Spend, str] = CANCEL
    send: Rules[Movement, str] = SEND
    mint: Rules[Movement, str] = MINT
    burn: Rules[Movement, str] = BURN
    configure: Rules[Movement, str] = CONFIGURE
    move: Rules[Movement, str] = MOVE
    approve: Rules[Movement, str] = APPROVE
    spend: Rules[Movement, str] = SPEND
    permit: Rules[Spend, str] = PERMIT

    def without(self, left_out: Iterable[tuple[str, str]]) -> "TokenRules":
        """Return the tables without some rows, given by (name of the table, clause).

        Raises `KeyError` if there is no such row.
        """
        rules = self
        for table, clause in left_out:
            changed: dict[str, Any] = {table: without(getattr(rules, table), clause)}
            rules = replace(rules, **changed)
        return rules
