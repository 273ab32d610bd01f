"""The token contract: ERC-20, EIP-3009 and Circle's pause and blacklist, by selector.

`token_rules` decides when a call is refused; this file applies accepted calls. A reverted call
changes no state. Clauses: 5/nonce-once.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from x402sim.chain.base import Call, Reverted
from x402sim.chain.ledger import gas
from x402sim.chain.ledger.state import State, Used
from x402sim.chain.ledger.token_rules import Movement, Spend, TokenRules
from x402sim.protocol import abi
from x402sim.protocol.crypto import ZERO_ADDRESS, Address
from x402sim.protocol.eip3009 import (
    CANCEL_TYPEHASH,
    RECEIVE_TYPEHASH,
    TRANSFER_TYPEHASH,
    Authorization,
    cancel_digest,
    separator,
    transfer_digest,
)
from x402sim.protocol.networks import Network
from x402sim.protocol.rules import Rules, first_broken

Case = TypeVar("Case")


@dataclass(slots=True)
class Frame:
    """One running call of the token: its events and its gas so far."""

    token: "Token"
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

    def set_balance(self, account: Address, amount_base: int) -> None:
        """Write one balance."""
        old_base = self.state.put(self.state.balances, account, amount_base)
        self.gas_used += gas.amount(old_base or 0, amount_base)

    def movement(self, sender: Address, to: Address, amount_base: int) -> Movement:
        """Return the input of the movement rules."""
        return Movement(self.state, self.call.sender, self.token.owner, sender, to, amount_base)

    def move(self, sender: Address, to: Address, amount_base: int) -> None:
        """Move tokens, as ERC-20's _transfer; raises `Reverted`."""
        self.require(self.token.rules.move, self.movement(sender, to, amount_base))
        balances = self.state.balances
        if sender == to:
            self.gas_used += gas.to_oneself()
        else:
            self.set_balance(sender, balances.get(sender, 0) - amount_base)
            self.set_balance(to, balances.get(to, 0) + amount_base)
        self.emit(abi.TRANSFER_EVENT, sender, to, data=abi.word(amount_base))

    def use(self, authorizer: Address, nonce: bytes, used: Used) -> None:
        """Mark a nonce as used or cancelled, permanently (5/nonce-once)."""
        self.state.put(self.state.authorizations, (authorizer, nonce), used)
        event = abi.AUTHORIZATION_USED if used is Used.SETTLED else abi.AUTHORIZATION_CANCELED
        self.emit(event, authorizer, nonce)


class Token:
    """The token contract: its constants, its owner, its rules and its functions."""

    def __init__(self, network: Network, owner: Address, rules: TokenRules | None = None) -> None:
        self.network = network
        self.owner = owner
        self.rules = rules or TokenRules()

    def run(self, state: State, call: Call, now_s: int) -> tuple[bytes, Frame]:
        """Run one call; return its result and its frame. Raises `Reverted`."""
        frame = Frame(self, state, call, now_s, gas.accepted(call.data))
        function = FUNCTIONS.get(call.data[:4])
        if function is None or call.data[:4] in self.rules.lacks or call.value:
            raise Reverted("")
        return function(frame, Arguments(call.data[4:])), frame


class Arguments:
    """The argument words of a call; reading past the end, or a word with dirty bits, reverts."""

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
        chunk = self.bytes32(position)
        if any(chunk[:12]):
            raise Reverted("")
        return Address(chunk[12:])

    def signature(self, position: int) -> bytes:
        """Return (v, r, s) from argument `position` on as r || s || v."""
        v = self.uint(position)
        if v > 255:
            raise Reverted("")
        return self.bytes32(position + 1) + self.bytes32(position + 2) + bytes([v])

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


def _spend(frame: Frame, auth: Authorization, digest: bytes, signature: bytes) -> Spend:
    return Spend(frame.state, frame.call.sender, frame.now_s, auth, digest, signature)


def _with_authorization(receive: bool, packed: bool) -> Callable[[Frame, Arguments], bytes]:
    """Return transferWithAuthorization or receiveWithAuthorization, in one of its overloads."""

    def run(frame: Frame, arguments: Arguments) -> bytes:
        auth = arguments.authorization()
        signature = arguments.tail(6) if packed else arguments.signature(6)
        typehash = RECEIVE_TYPEHASH if receive else TRANSFER_TYPEHASH
        digest = transfer_digest(auth, frame.token.network.domain, typehash)
        rules = frame.token.rules.receive if receive else frame.token.rules.transfer
        frame.require(rules, _spend(frame, auth, digest, signature))
        frame.use(auth.from_, auth.nonce, Used.SETTLED)
        frame.move(auth.from_, auth.to, auth.value)
        return b""

    return run


def _cancel(packed: bool) -> Callable[[Frame, Arguments], bytes]:
    """Return cancelAuthorization, in one of its overloads; it checks no window and no blacklist."""

    def run(frame: Frame, arguments: Arguments) -> bytes:
        authorizer, nonce = arguments.address(0), arguments.bytes32(1)
        signature = arguments.tail(2) if packed else arguments.signature(2)
        digest = cancel_digest(authorizer, nonce, frame.token.network.domain)
        auth = Authorization(authorizer, ZERO_ADDRESS, 0, 0, 0, nonce)
        frame.require(frame.token.rules.cancel, _spend(frame, auth, digest, signature))
        frame.use(authorizer, nonce, Used.CANCELED)
        return b""

    return run


def _transfer(frame: Frame, arguments: Arguments) -> bytes:
    sender, to, amount_base = frame.call.sender, arguments.address(0), arguments.uint(1)
    frame.require(frame.token.rules.send, frame.movement(sender, to, amount_base))
    frame.move(sender, to, amount_base)
    return abi.word(1)


def _mint(frame: Frame, arguments: Arguments) -> bytes:
    to, amount_base = arguments.address(0), arguments.uint(1)
    frame.require(frame.token.rules.mint, frame.movement(ZERO_ADDRESS, to, amount_base))
    supply_base = frame.state.supply
    frame.gas_used += gas.amount(supply_base, supply_base + amount_base)
    frame.set_balance(to, frame.state.balances.get(to, 0) + amount_base)
    frame.emit(abi.TRANSFER_EVENT, ZERO_ADDRESS, to, data=abi.word(amount_base))
    return abi.word(1)


def _only_owner(frame: Frame, refusal: str) -> None:
    if frame.call.sender != frame.token.owner:
        raise Reverted(refusal)


def _pause(on: bool) -> Callable[[Frame, Arguments], bytes]:
    def run(frame: Frame, _: Arguments) -> bytes:
        _only_owner(frame, "Pausable: caller is not the pauser")
        frame.state.put(frame.state.switches, "paused", on)
        frame.emit(abi.topic("Pause()" if on else "Unpause()"))
        return b""

    return run


def _blacklist(on: bool) -> Callable[[Frame, Arguments], bytes]:
    def run(frame: Frame, arguments: Arguments) -> bytes:
        _only_owner(frame, "Blacklistable: caller is not the blacklister")
        account = arguments.address(0)
        frame.state.put(frame.state.blacklisted, account, on)
        frame.emit(abi.topic("Blacklisted(address)" if on else "UnBlacklisted(address)"), account)
        return b""

    return run


def _view(read: Callable[[Frame, Arguments], int | bytes]) -> Callable[[Frame, Arguments], bytes]:
    """Return a function that reads one word."""

    def run(frame: Frame, arguments: Arguments) -> bytes:
        return abi.word(read(frame, arguments))

    return run


FUNCTIONS: dict[bytes, Callable[[Frame, Arguments], bytes]] = {
    abi.TRANSFER_WITH_AUTHORIZATION: _with_authorization(receive=False, packed=False),
    abi.TRANSFER_WITH_AUTHORIZATION_BYTES: _with_authorization(receive=False, packed=True),
    abi.RECEIVE_WITH_AUTHORIZATION: _with_authorization(receive=True, packed=False),
    abi.RECEIVE_WITH_AUTHORIZATION_BYTES: _with_authorization(receive=True, packed=True),
    abi.CANCEL_AUTHORIZATION: _cancel(packed=False),
    abi.CANCEL_AUTHORIZATION_BYTES: _cancel(packed=True),
    abi.TRANSFER: _transfer,
    abi.MINT: _mint,
    abi.PAUSE: _pause(True),
    abi.UNPAUSE: _pause(False),
    abi.BLACKLIST: _blacklist(True),
    abi.UNBLACKLIST: _blacklist(False),
    abi.NAME: lambda f, _: abi.text(f.token.network.token_name),
    abi.SYMBOL: lambda f, _: abi.text(f.token.network.token_symbol),
    abi.VERSION: lambda f, _: abi.text(f.token.network.token_version),
    abi.DECIMALS: _view(lambda f, _: f.token.network.decimals),
    abi.TOTAL_SUPPLY: _view(lambda f, _: f.state.supply),
    abi.BALANCE_OF: _view(lambda f, a: f.state.balances.get(a.address(0), 0)),
    abi.AUTHORIZATION_STATE: _view(
        lambda f, a: int((a.address(0), a.bytes32(1)) in f.state.authorizations)
    ),
    abi.DOMAIN_SEPARATOR: _view(lambda f, _: separator(f.token.network.domain)),
    abi.PAUSED: _view(lambda f, _: int(f.state.switches.get("paused", False))),
    abi.IS_BLACKLISTED: _view(lambda f, a: int(f.state.blacklisted.get(a.address(0), False))),
    abi.TRANSFER_TYPEHASH: _view(lambda *_: TRANSFER_TYPEHASH),
    abi.RECEIVE_TYPEHASH: _view(lambda *_: RECEIVE_TYPEHASH),
    abi.CANCEL_TYPEHASH: _view(lambda *_: CANCEL_TYPEHASH),
}
"""Every function of the token, by selector."""
