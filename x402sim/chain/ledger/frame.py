"""One running call of the token: the contract, its state, its arguments, its events and its gas."""

from dataclasses import dataclass, field
from typing import TypeVar

from x402sim.chain.base import Call, Reverted
from x402sim.chain.ledger import gas
from x402sim.chain.ledger.state import State, Used
from x402sim.chain.ledger.token_rules import Movement, TokenRules
from x402sim.protocol import abi
from x402sim.protocol.crypto import Address
from x402sim.protocol.eip3009 import Authorization
from x402sim.protocol.networks import Network
from x402sim.protocol.rules import Rules, first_broken

Case = TypeVar("Case")


class Token:
    """The token contract: its constants, its owner, its rules and its prices."""

    def __init__(self, network: Network, owner: Address, rules: TokenRules | None = None) -> None:
        self.network = network
        self.owner = owner
        self.rules = rules or TokenRules()
        self.prices = gas.prices()


@dataclass(slots=True)
class Frame:
    """One running call of the token: its events and its gas so far."""

    token: Token
    state: State
    call: Call
    now_s: int
    gas_used: int
    logs: list[tuple[tuple[bytes, ...], bytes]] = field(default_factory=list)

    def emit(self, event: bytes, *indexed: bytes, data: bytes = b"") -> None:
        """Emit an event."""
        self.logs.append(((event, *map(abi.word, indexed)), data))

    def require(self, rules: Rules[Case, str], case: Case) -> None:
        """Check the rows of a table; raises `Reverted` with the reason of the first that fails."""
        broken = first_broken(rules, case)
        if broken:
            raise Reverted(broken.reason(case) or broken.refusal)

    def require_owner(self, refusal: str) -> None:
        """Raise `Reverted` unless the token's owner calls."""
        if self.call.sender != self.token.owner:
            raise Reverted(refusal)

    def wrote(self, old: int, new: int) -> None:
        """Charge the write of one word of storage."""
        self.gas_used += self.token.prices.amount(old, new)

    def proved(self, payer: Address, signature: bytes) -> None:
        """Charge what a valid signature costs more or less than the one in the table.

        Circle's code compares `v` with 27 first. A payer that sends its own transaction is an
        account that the transaction has touched.
        """
        prices = self.token.prices
        if payer in self.state.codes:
            self.gas_used += prices.of_wallet
        elif signature[64] == 28:
            self.gas_used += prices.other_v
        if payer == self.call.sender:
            self.gas_used -= gas.KNOWN_ACCOUNT

    def set_balance(self, account: Address, amount_base: int) -> None:
        """Write one balance."""
        old_base = self.state.put(self.state.balances, account, amount_base)
        self.wrote(old_base or 0, amount_base)

    def movement(self, sender: Address, to: Address, amount_base: int) -> Movement:
        """Return the input of the movement rules."""
        return Movement(self.state, self.call.sender, self.token.owner, sender, to, amount_base)

    def move(self, sender: Address, to: Address, amount_base: int) -> None:
        """Move tokens, as ERC-20's _transfer; raises `Reverted`."""
        self.require(self.token.rules.move, self.movement(sender, to, amount_base))
        balances = self.state.balances
        if sender == to:
            self.gas_used += self.token.prices.to_oneself
        else:
            self.set_balance(sender, balances.get(sender, 0) - amount_base)
            self.set_balance(to, balances.get(to, 0) + amount_base)
        self.emit(abi.TRANSFER_EVENT, sender, to, data=abi.word(amount_base))

    def use(self, authorizer: Address, nonce: bytes, used: Used) -> None:
        """Mark a nonce as used or cancelled, permanently (5/nonce-once)."""
        self.state.put(self.state.authorizations, (authorizer, nonce), used)
        event = abi.AUTHORIZATION_USED if used is Used.SETTLED else abi.AUTHORIZATION_CANCELED
        self.emit(event, authorizer, nonce)


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
        v = self.bytes32(position)[31:]
        return self.bytes32(position + 1) + self.bytes32(position + 2) + v

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
        return Authorization(
            self.address(0),
            self.address(1),
            self.uint(2),
            self.uint(3),
            self.uint(4),
            self.bytes32(5),
        )
