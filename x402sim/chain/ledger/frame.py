"""The execution of one call of the token: arguments, authorization rules, state, events and gas.

The ledger runs no code. Besides the token the ledger knows one contract, the smart wallet of
`chain/contract`: an account's own code, or code by delegation (EIP-7702). Any other code reverts.

A table lists when Circle's FiatToken v2.2 refuses an authorization, in the order of its checks: the
window and the nonce come before the signature. Both edges of the window are outside it. An
experiment may leave a row out.
Clauses: 5/signature-proves, 5/nonce-once, 5/window.
"""

from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from typing import Any, NoReturn, TypeVar

import msgspec

from x402sim.chain import contract
from x402sim.chain.base import Call, Reverted
from x402sim.chain.ledger import gas
from x402sim.chain.ledger.state import LedgerState
from x402sim.protocol import abi
from x402sim.protocol.crypto import ZERO_ADDRESS, Address, BadSignature, recover
from x402sim.protocol.eip3009 import Authorization, is_early, is_late
from x402sim.protocol.money import MAX_UINT256
from x402sim.protocol.networks import Network
from x402sim.protocol.rules import Rule, Rules, without


class Arguments:
    """The argument words of a call; reading past the end reverts, unused bits are ignored."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def uint(self, position: int) -> int:
        """Return argument `position` as an integer."""
        return int.from_bytes(self.bytes32(position))

    def bytes32(self, position: int) -> bytes:
        """Return argument `position` as 32 bytes."""
        chunk = self._data[32 * position : 32 * position + 32]
        if len(chunk) < 32:
            raise Reverted("")
        return chunk

    def address(self, position: int) -> Address:
        """Return argument `position` as an address."""
        return Address(self.bytes32(position)[12:])

    def signature(self, position: int) -> bytes:
        """Return (v, r, s) from argument `position` on as r || s || v."""
        words = self._data[32 * position : 32 * position + 96]
        if len(words) < 96:
            raise Reverted("")
        return words[32:] + words[31:32]

    def tail(self, position: int) -> bytes:
        """Return argument `position` as bytes of any length."""
        start = self.uint(position)
        size = int.from_bytes(self._data[start : start + 32]) if start < len(self._data) else 0
        chunk = self._data[start + 32 : start + 32 + size]
        if len(chunk) < size or start + 32 > len(self._data):
            raise Reverted("")
        return chunk

    def authorization(self) -> Authorization:
        """Return the first six arguments as an authorization."""
        data = self._data
        if len(data) < 6 * 32:
            raise Reverted("")
        return Authorization(
            Address(data[12:32]),
            Address(data[44:64]),
            int.from_bytes(data[64:96]),
            int.from_bytes(data[96:128]),
            int.from_bytes(data[128:160]),
            data[160:192],
        )


# --- contracts other than the token -----------------------------------------------------

DELEGATION = bytes.fromhex("ef0100")
"""How the code of an account begins that uses the code of another (EIP-7702)."""
INVALID = b"\xff" * 4 + bytes(28)


def call_other(state: LedgerState, account: Address, data: bytes) -> bytes:
    """Return what an account's contract answers; empty without one. Raises `Reverted`."""
    code = state.codes.get(account, b"")
    if code[:3] == DELEGATION:
        code = state.codes.get(Address(code[3:]), b"")
    if not code:
        return b""
    if code != contract.wallet_code() or data[:4] != abi.IS_VALID_SIGNATURE:
        raise Reverted("")
    arguments = Arguments(data[4:])
    digest, signature = arguments.bytes32(0), arguments.tail(1)
    owner = state.slots.get((account, bytes(32)), bytes(32))[12:]
    try:
        signer = recover(digest, signature)
    except BadSignature:
        return INVALID
    return abi.VALID_SIGNATURE if signer in (owner, account) else INVALID


# --- when an authorization is refused ---------------------------------------------------


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

        If the payer is a contract, only the contract's answer counts (EIP-1271).
        """
        payer = self.authorization.from_
        try:
            if payer in self.state.codes:
                asked = abi.is_valid_signature(self.digest, self.signature)
                is_valid = call_other(self.state, payer, asked)[:32] == abi.VALID_SIGNATURE
            else:
                is_valid = recover(self.digest, self.signature) == payer
        except BadSignature as bad:
            return str(bad)
        except Reverted:
            is_valid = False
        return "" if is_valid else gas.NOT_SIGNED


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
    gas.NOT_SIGNED,
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
"""The clauses of the token that a scenario can cite: the rows of the tables, and the other checks
of `token.py` and of this file."""


# --- the call ---------------------------------------------------------------------------

Key = TypeVar("Key")
OUT_OF_GAS = "out of gas"
LARGEST_BALANCE = MAX_UINT256 >> 1
"""A balance has 255 bits: the highest bit of its word blacklists the account."""
TOO_LARGE = "FiatTokenV2_2: Balance exceeds (2^255 - 1)"
TO_NOBODY = "ERC20: approve to the zero address"
DELEGATED = 23
"""The length of the code of an account that uses another's (EIP-7702)."""
PADDED = (
    "ERC20: transfer amount exceeds balance",
    "ERC20: transfer to the zero address",
    *(TO_NOBODY, TOO_LARGE),
)
SIGNED = (
    *(abi.TRANSFER_WITH_AUTHORIZATION, abi.TRANSFER_WITH_AUTHORIZATION_BYTES),
    *(abi.RECEIVE_WITH_AUTHORIZATION, abi.RECEIVE_WITH_AUTHORIZATION_BYTES),
    *(abi.PERMIT, abi.PERMIT_BYTES),
)
"""The functions whose revert data, for a reason of `PADDED`, ends with the length of the signature,
a leftover of the compiler's memory."""
AT_ONCE = {
    *("Pausable: paused", "FiatTokenV2: permit is expired", "FiatToken: caller is not a minter"),
    *(f"token/{who}-not-blacklisted" for who in ("minter", "spender", "payer")),
}
"""The refusals before the call writes anything or reads a slot twice: their gas never varies."""


class Token:
    """The token contract: constants, owner, rules and prices.

    `left_out` are the rows that its tables lack, by (name of the table, clause); raises `KeyError`
    if there is no such row.
    """

    def __init__(
        self, network: Network, owner: Address, left_out: Iterable[tuple[str, str]]
    ) -> None:
        self.network, self.owner, self.prices = network, owner, gas.prices()
        self.rules = dict(TABLES)
        for table, clause in left_out:
            self.rules[table] = without(self.rules[table], clause)


Event = tuple[Address, tuple[bytes, ...], bytes]
"""The contract, the topics and the data of an event."""


class Execution(msgspec.Struct, frozen=True, gc=False):
    """What the call of a transaction did; a reverted call leaves the state as before."""

    gas_used: int = 0
    revert_reason: str | None = None
    refund: int = 0
    logs: Sequence[Event] = ()


class Frame(msgspec.Struct, gc=False):
    """One running call of the token: events and gas so far."""

    token: Token
    state: LedgerState
    call: Call
    now_s: int
    gas_used: int = 0
    """Refunds are not counted."""
    logs: list[Event] = []
    refund: int = 0
    last: int = 0
    """The extra gas of the last write, relative to a usual change."""
    looked_up: tuple[Address, ...] = ()
    """The accounts that must not be blacklisted, in the order of the checks."""
    read: int = 0
    """The extra gas of reading a signature that has not 65 bytes."""
    broken: str = gas.SHORT
    """Why the call was refused: the name of its row in the table of gas."""

    def __post_init__(self) -> None:
        self.gas_used = self.token.prices.accepted(self.call.data)

    def emit(self, event: bytes, *indexed: bytes, data: bytes = b"") -> None:
        """Emit an event."""
        topics = (event, *[each.rjust(32, b"\0") for each in indexed])
        self.logs.append((self.call.to, topics, data))

    def require(self, table: str, auth: Authorization, digest: bytes, signature: bytes) -> None:
        """Check the rows of a table, and charge the signature; raises `Reverted` with the reason of
        the first row that fails.
        """
        case = Spend(self.state, self.call.sender, self.now_s, auth, digest, signature)
        for rule in self.token.rules[table]:
            if rule.holds(case):
                continue
            reason = rule.reason(case) or rule.refusal
            if rule.clause == "5/signature-proves":
                self.refuse_signature(case, reason)
            self.refuse(reason, rule.clause if rule.clause.endswith("blacklisted") else reason)
        self.proved(auth.from_, signature)

    def refuse_signature(self, case: Spend, reason: str) -> NoReturn:
        """Raise `Reverted` after the signature was checked; a malformed one is never recovered, and
        costs less.
        """
        is_recovered = not reason.startswith("ECRecover: invalid signature ")
        self.proved(case.authorization.from_, case.signature if is_recovered else b"")
        self.refuse(reason)

    def refuse(self, reason: str, row: str | None = None) -> NoReturn:
        """Raise `Reverted`; `row` is the row of gas costs, where the reason is not its name."""
        self.broken = reason if row is None else row
        leaves_its_length = reason in PADDED and self.call.data[:4] in SIGNED
        raise Reverted(reason, 65 if leaves_its_length else 0)

    def need(self, holds: bool, refusal: str) -> None:
        """Raise `Reverted` unless a condition holds."""
        if not holds:
            self.refuse(refusal)

    def need_running(self) -> None:
        """Raise `Reverted` while the token is paused."""
        self.need(not self.state.switches.get("paused"), "Pausable: paused")

    def need_free(self, **accounts: Address) -> None:
        """Raise `Reverted` for the first blacklisted account; the keywords are roles in the call,
        such as `payer`.
        """
        for role, account in accounts.items():
            if self.state.blacklisted.get(account):
                row = f"token/{role}-not-blacklisted"
                self.refuse("Blacklistable: account is blacklisted", row)

    def need_owner(self, refusal: str) -> None:
        """Raise `Reverted` unless the token's owner calls."""
        self.need(self.call.sender == self.token.owner, refusal)

    def least(self) -> int:
        """Return the gas that the accepted call needs."""
        return self.token.prices.least(self.call.data, self.gas_used, self.last)

    def refused(self, reason: str, left: int) -> tuple[str, int]:
        """Return why a call was refused and its gas; "out of gas" if more than is `left`."""
        prices, data = self.token.prices, self.call.data
        cost = prices.refused(data, self.broken, reason)
        if self.broken in AT_ONCE:
            cost += self.read
        else:
            again = len(self.looked_up) - len(set(self.looked_up))
            cost += self.gas_used - prices.accepted(data) - gas.KNOWN_SLOT * again
        if reason == OUT_OF_GAS or prices.least(data, cost, gas.SENTRY) > left:
            return OUT_OF_GAS, prices.wasted(data, left)
        return reason, cost

    def write(self, words: dict[Key, int], key: Key, new: int) -> None:
        """Write one word of storage, such as a balance, and charge the gas."""
        self.wrote(self.state.put(words, key, new) or 0, new)

    def wrote(self, old: int, new: int) -> None:
        """Charge the write of one word of storage."""
        self.last = self.token.prices.amount(old, new)
        self.gas_used += self.last
        if old and not new:
            self.refund += gas.CLEARED

    def proved(self, payer: Address, signature: bytes) -> None:
        """Charge the difference of a valid signature from the table's signature.

        Circle's code compares `v` with 27 first. The transaction has touched two accounts already:
        the sender, who may be the payer, and the zero address, the coinbase.
        """
        prices, code = self.token.prices, self.state.codes.get(payer)
        if code is not None:
            delegates = len(code) == DELEGATED
            self.gas_used += prices.of_delegate if delegates else prices.of_wallet
        elif signature[64:] == b"\x1c":
            self.gas_used += prices.other_v
        if payer in (self.call.sender, ZERO_ADDRESS):
            self.gas_used -= gas.KNOWN_ACCOUNT

    def any_signature(self, arguments: Arguments, position: int) -> bytes:
        """Return a signature of any length, whose reading is charged."""
        signature = arguments.tail(position)
        self.read = gas.COPIED_WORD * ((len(signature) + 31) // 32 - 3)
        self.gas_used += self.read
        return signature

    def transfer(self, sender: Address, to: Address, amount_base: int) -> None:
        """Move tokens, as ERC-20's transfer of an account; raises `Reverted`."""
        self.looked_up = sender, to
        self.need_running()
        self.need_free(payer=sender, payee=to)
        self.move(sender, to, amount_base)

    def move(self, sender: Address, to: Address, amount_base: int) -> None:
        """Move tokens, as ERC-20's _transfer; raises `Reverted`."""
        balances = self.state.balances
        held, received = balances.get(sender, 0) - amount_base, balances.get(to, 0) + amount_base
        if sender == ZERO_ADDRESS:
            self.refuse("ERC20: transfer from the zero address")
        if to == ZERO_ADDRESS:
            self.refuse("ERC20: transfer to the zero address")
        if held < 0:
            self.refuse("ERC20: transfer amount exceeds balance")
        if sender != to and received > LARGEST_BALANCE:
            self.refuse(TOO_LARGE)
        if sender == to:
            self.gas_used += self.token.prices.to_oneself
            self.last = self.token.prices.amount(0, 0)
            if amount_base:  # the second write restores what the first has changed
                self.gas_used += gas.RESTORED
                self.refund += gas.RESTORED
        else:
            self.write(balances, sender, held)
            self.write(balances, to, received)
        self.emit(abi.TRANSFER_EVENT, sender, to, data=abi.word(amount_base))

    def use(self, event: bytes, authorizer: Address, nonce: bytes) -> None:
        """Mark a nonce as used for ever (5/nonce-once); emit the use or the cancellation."""
        state = self.state
        state.put(state.authorizations, (authorizer, nonce), state.height + 1)
        self.emit(event, authorizer, nonce)
