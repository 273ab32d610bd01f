"""The two token profiles of the ledger: Circle's (the default) and OpenZeppelin's.

`circle` is FiatToken v2.2 behind its proxy. `openzeppelin` is the contract in `chain/contract`,
based on OpenZeppelin's ERC3009, which our anvil runs. Tests compare each profile with its contract
on an EVM. Both accept and refuse the same payments, except to the token's own address, and differ
in:

| | `circle` | `openzeppelin` |
|---|---|---|
| revert reason | a sentence | a custom error with values |
| order of checks | (payee), window, nonce, signature | signature, (payee), window, nonce |
| early and late | two texts | one, `ERC3009InvalidAuthorizationTime` |
| v not 27 or 28, or no key | two texts | one, `ECDSAInvalidSignature` |
| window with bit 47 set at both ends | seconds | numbers of blocks |
| signature as `bytes` | overloads for any length | no such functions |
| unused bits of an argument | ignored | reverts without a reason |
| pause, blacklist | yes | no such functions |
| payment to the token's own address | refused: blacklisted | accepted |
| a payer that is a contract | EIP-1271 | refused |
| typehashes | getters | no such functions |
| minting | minters with allowances, event `Mint` | the owner |
| allowance of 2**256 - 1 | is used up | stays |
| permit, increase, decrease | yes | no such functions |
| minting 0 | refused | succeeds with an event |
| most | 2**255 - 1 an account | 2**256 - 1 in all |
| gas of a payment | 85,732 | 65,855 |

In both, the edges of the window are outside it; a cancellation uses the nonce and has no window;
transferWithAuthorization and receiveWithAuthorization need different signatures but share one
nonce; a revert changes no state; zero value and paying oneself are valid. Clauses:
5/signature-proves, 5/nonce-once, 5/window.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from x402sim.chain.ledger.token_rules import Grant, Movement, Spend, TokenRules
from x402sim.chain.reverts import error
from x402sim.protocol import abi
from x402sim.protocol.crypto import HALF_ORDER, ZERO_ADDRESS, BadSignature, recover
from x402sim.protocol.money import MAX_UINT256
from x402sim.protocol.rules import Rule, Rules, without

BLOCK_NUMBERS = 1 << 47
"""With this bit set at both ends of a window, the ends are block numbers."""


def _is_open(case: Spend) -> bool:
    auth = case.authorization
    flag = auth.valid_after & auth.valid_before & BLOCK_NUMBERS
    current = case.state.head.number + 1 if flag else case.now_s
    return auth.valid_after & ~flag < current < auth.valid_before & ~flag


def _signature_fault(case: Spend) -> str:
    s = case.signature[32:64]
    if int.from_bytes(s) > HALF_ORDER:
        return error("ECDSAInvalidSignatureS", s)
    try:
        signer = recover(case.digest, case.signature)
    except BadSignature:
        return error("ECDSAInvalidSignature")
    return "" if signer == case.authorization.from_ else error("ERC3009InvalidSignature")


_SIGNED: Rule[Spend, str] = Rule(
    "5/signature-proves",
    lambda c: not _signature_fault(c),
    "ERC3009InvalidSignature",
    _signature_fault,
)
_PAYEE_CALLS: Rule[Spend, str] = Rule(
    "token/payee-calls",
    lambda c: c.caller == c.authorization.to,
    "ERC20InvalidReceiver",
    lambda c: error("ERC20InvalidReceiver", c.authorization.to),
)
_OPEN: Rule[Spend, str] = Rule(
    "5/window",
    _is_open,
    "ERC3009InvalidAuthorizationTime",
    lambda c: error(
        "ERC3009InvalidAuthorizationTime",
        c.authorization.valid_after,
        c.authorization.valid_before,
    ),
)
_UNUSED: Rule[Spend, str] = Rule(
    "5/nonce-once",
    Spend.is_unused,
    "ERC3009UsedAuthorization",
    lambda c: error("ERC3009UsedAuthorization", c.authorization.from_, c.authorization.nonce),
)
_PAYEE: Rule[Movement, str] = Rule(
    "token/payee",
    lambda m: m.to != ZERO_ADDRESS,
    "ERC20InvalidReceiver",
    lambda m: error("ERC20InvalidReceiver", m.to),
)
_MINT: Rules[Movement, str] = (
    Rule(
        "token/minter",
        lambda m: m.caller == m.owner,
        "OwnableUnauthorizedAccount",
        lambda m: error("OwnableUnauthorizedAccount", m.caller),
    ),
    _PAYEE,
    Rule(
        "token/supply",
        lambda m: m.state.supply + m.amount_base <= MAX_UINT256,
        "Panic(0x11)",
    ),
)
_MOVE: Rules[Movement, str] = (
    Rule(
        "token/payer",
        lambda m: m.from_ != ZERO_ADDRESS,
        "ERC20InvalidSender",
        lambda m: error("ERC20InvalidSender", m.from_),
    ),
    _PAYEE,
    Rule(
        "token/balance",
        lambda m: m.amount_base <= m.held_base,
        "ERC20InsufficientBalance",
        lambda m: error("ERC20InsufficientBalance", m.from_, m.held_base, m.amount_base),
    ),
)
_APPROVE: Rules[Grant, str] = (
    Rule(
        "token/owner",
        lambda g: g.owner != ZERO_ADDRESS,
        "ERC20InvalidApprover",
        lambda g: error("ERC20InvalidApprover", g.owner),
    ),
    Rule(
        "token/spender",
        lambda g: g.spender != ZERO_ADDRESS,
        "ERC20InvalidSpender",
        lambda g: error("ERC20InvalidSpender", g.spender),
    ),
)
_SPEND: Rules[Movement, str] = (
    Rule(
        "token/allowance",
        lambda m: m.amount_base <= m.allowed_base,
        "ERC20InsufficientAllowance",
        lambda m: error("ERC20InsufficientAllowance", m.caller, m.allowed_base, m.amount_base),
    ),
    Rule(
        "token/owner",
        lambda m: m.from_ != ZERO_ADDRESS,
        "ERC20InvalidApprover",
        lambda m: error("ERC20InvalidApprover", m.from_),
    ),
)
_LACKS = frozenset(
    (
        abi.INCREASE_ALLOWANCE,
        abi.DECREASE_ALLOWANCE,
        abi.PERMIT,
        abi.PERMIT_BYTES,
        abi.NONCES,
        abi.PERMIT_TYPEHASH,
        abi.TRANSFER_WITH_AUTHORIZATION_BYTES,
        abi.RECEIVE_WITH_AUTHORIZATION_BYTES,
        abi.CANCEL_AUTHORIZATION_BYTES,
        abi.PAUSE,
        abi.UNPAUSE,
        abi.PAUSED,
        abi.BLACKLIST,
        abi.UNBLACKLIST,
        abi.IS_BLACKLISTED,
        abi.TRANSFER_TYPEHASH,
        abi.RECEIVE_TYPEHASH,
        abi.CANCEL_TYPEHASH,
        abi.BURN,
        abi.CONFIGURE_MINTER,
        abi.REMOVE_MINTER,
        abi.MASTER_MINTER,
        abi.PAUSER,
        abi.BLACKLISTER,
        abi.IS_MINTER,
        abi.MINTER_ALLOWANCE,
    )
)

CIRCLE = TokenRules()
OPENZEPPELIN = TokenRules(
    transfer=(_SIGNED, _OPEN, _UNUSED),
    receive=(_SIGNED, _PAYEE_CALLS, _OPEN, _UNUSED),
    cancel=(_SIGNED, _UNUSED),
    send=(),
    mint=_MINT,
    move=_MOVE,
    approve=_APPROVE,
    spend=_SPEND,
    permit=(),
    lacks=_LACKS,
    contract="openzeppelin",
    has_minters=False,
    uses_endless=False,
    asks_wallets=False,
    is_strict=True,
)
PROFILES = {"circle": CIRCLE, "openzeppelin": OPENZEPPELIN}
"""The profiles by name."""


def token_rules(profile: str, left_out: Iterable[tuple[str, str]] = ()) -> TokenRules:
    """Return a profile without some rows, given by (name of the table, clause).

    Raises `KeyError` if the profile has no such row.
    """
    rules = PROFILES[profile]
    for table, clause in left_out:
        changed: dict[str, Any] = {table: without(getattr(rules, table), clause)}
        rules = replace(rules, **changed)
    return rules
