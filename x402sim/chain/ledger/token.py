"""The token contract: ERC-20, EIP-3009 and Circle's pause and blacklist, by selector.

`token_rules` decides when a call is refused; this file applies accepted calls. A reverted call
changes no state. Clauses: 5/nonce-once.
"""

from collections.abc import Callable

from x402sim.chain.ledger import allowances, gas, governing, minting, proxy
from x402sim.chain.ledger.frame import Arguments, Frame
from x402sim.chain.ledger.state import Used
from x402sim.chain.ledger.token_rules import Spend
from x402sim.protocol import abi
from x402sim.protocol.crypto import ZERO_ADDRESS
from x402sim.protocol.eip3009 import (
    CANCEL_TYPEHASH,
    PERMIT_TYPEHASH,
    RECEIVE_TYPEHASH,
    TRANSFER_TYPEHASH,
    Authorization,
    cancel_digest,
    separator,
    transfer_digest,
)


def _with_authorization(receive: bool, packed: bool) -> Callable[[Frame, Arguments], bytes]:
    """Return transferWithAuthorization or receiveWithAuthorization, in one of its overloads."""

    def run(frame: Frame, arguments: Arguments) -> bytes:
        auth = arguments.authorization()
        signature = frame.any_signature(arguments, 6) if packed else arguments.signature(6)
        other = (RECEIVE_TYPEHASH,) if receive else ()
        digest = transfer_digest(auth, frame.token.network.domain, *other)
        rules = frame.token.rules.receive if receive else frame.token.rules.transfer
        frame.looked_up = auth.from_, auth.to
        spend = Spend(frame.state, frame.call.sender, frame.now_s, auth, digest, signature)
        frame.require(rules, spend)
        frame.proved(auth.from_, signature)
        frame.use(auth.from_, auth.nonce, Used.SETTLED)
        frame.move(auth.from_, auth.to, auth.value)
        return b""

    return run


def _cancel(packed: bool) -> Callable[[Frame, Arguments], bytes]:
    """Return cancelAuthorization, in one of its overloads; it checks no window and no blacklist."""

    def run(frame: Frame, arguments: Arguments) -> bytes:
        authorizer, nonce = arguments.address(0), arguments.bytes32(1)
        signature = frame.any_signature(arguments, 2) if packed else arguments.signature(2)
        digest = cancel_digest(authorizer, nonce, frame.token.network.domain)
        auth = Authorization(authorizer, ZERO_ADDRESS, 0, 0, 0, nonce)
        spend = Spend(frame.state, frame.call.sender, frame.now_s, auth, digest, signature)
        frame.require(frame.token.rules.cancel, spend)
        frame.proved(authorizer, signature)
        frame.use(authorizer, nonce, Used.CANCELED)
        return b""

    return run


def _transfer(frame: Frame, arguments: Arguments) -> bytes:
    sender, to, amount_base = frame.call.sender, arguments.address(0), arguments.uint(1)
    frame.looked_up = sender, to
    frame.require(frame.token.rules.send, frame.movement(sender, to, amount_base))
    frame.move(sender, to, amount_base)
    return abi.word(1)


def _pause(on: bool) -> Callable[[Frame, Arguments], bytes]:
    def run(frame: Frame, _: Arguments) -> bytes:
        frame.require_role("pauser", "Pausable: caller is not the pauser")
        was = frame.state.put(frame.state.switches, "paused", on)
        frame.wrote(1 + bool(was), 1 + on)  # the word holds the pauser's address, too
        frame.emit(abi.topic("Pause()" if on else "Unpause()"))
        return b""

    return run


def _blacklist(on: bool) -> Callable[[Frame, Arguments], bytes]:
    def run(frame: Frame, arguments: Arguments) -> bytes:
        account = arguments.address(0)
        frame.require_role("blacklister", "Blacklistable: caller is not the blacklister")
        held = frame.state.balances.get(account, 0)
        was = frame.state.put(frame.state.blacklisted, account, on)
        frame.wrote(held + bool(was), held + on)  # one word holds the balance and this bit
        frame.emit(abi.topic("Blacklisted(address)" if on else "UnBlacklisted(address)"), account)
        return b""

    return run


VIEWS: dict[str, Callable[[Frame, Arguments], int | bytes]] = {
    **{f"{role}()": governing.teller(role) for role in (*governing.FIRST, "rescuer")},
    "decimals()": lambda f, _: f.token.network.decimals,
    "totalSupply()": lambda f, _: f.state.supply,
    "paused()": lambda f, _: int(f.state.switches.get("paused", False)),
    "implementation()": lambda *_: proxy.IMPLEMENTATION,
    "admin()": lambda *_: proxy.ADMIN,
    "DOMAIN_SEPARATOR()": lambda f, _: separator(f.token.network.domain),
    "PERMIT_TYPEHASH()": lambda *_: PERMIT_TYPEHASH,
    "TRANSFER_WITH_AUTHORIZATION_TYPEHASH()": lambda *_: TRANSFER_TYPEHASH,
    "RECEIVE_WITH_AUTHORIZATION_TYPEHASH()": lambda *_: RECEIVE_TYPEHASH,
    "CANCEL_AUTHORIZATION_TYPEHASH()": lambda *_: CANCEL_TYPEHASH,
    "balanceOf(address)": lambda f, a: f.state.balances.get(a.address(0), 0),
    "nonces(address)": lambda f, a: f.state.permit_nonces.get(a.address(0), 0),
    "isMinter(address)": lambda f, a: int(a.address(0) in f.state.minter_allowances),
    "minterAllowance(address)": lambda f, a: f.state.minter_allowances.get(a.address(0), 0),
    "isBlacklisted(address)": lambda f, a: int(f.state.blacklisted.get(a.address(0), False)),
    "allowance(address,address)": lambda f, a: allowances.allowance_base(
        f, a.address(0), a.address(1)
    ),
    "authorizationState(address,bytes32)": lambda f, a: int(
        (a.address(0), a.bytes32(1)) in f.state.authorizations
    ),
}
"""The functions that read one word, by signature."""


def _view(read: Callable[[Frame, Arguments], int | bytes]) -> Callable[[Frame, Arguments], bytes]:
    return lambda frame, arguments: abi.word(read(frame, arguments))


FUNCTIONS: dict[bytes, Callable[[Frame, Arguments], bytes]] = {
    abi.TRANSFER_WITH_AUTHORIZATION: _with_authorization(receive=False, packed=False),
    abi.TRANSFER_WITH_AUTHORIZATION_BYTES: _with_authorization(receive=False, packed=True),
    abi.RECEIVE_WITH_AUTHORIZATION: _with_authorization(receive=True, packed=False),
    abi.RECEIVE_WITH_AUTHORIZATION_BYTES: _with_authorization(receive=True, packed=True),
    abi.CANCEL_AUTHORIZATION: _cancel(packed=False),
    abi.CANCEL_AUTHORIZATION_BYTES: _cancel(packed=True),
    abi.TRANSFER: _transfer,
    abi.APPROVE: allowances.approve,
    abi.INCREASE_ALLOWANCE: allowances.increase,
    abi.DECREASE_ALLOWANCE: allowances.decrease,
    abi.TRANSFER_FROM: allowances.transfer_from,
    abi.PERMIT: allowances.permit(packed=False),
    abi.PERMIT_BYTES: allowances.permit(packed=True),
    abi.MINT: minting.mint,
    abi.BURN: minting.burn,
    abi.CONFIGURE_MINTER: minting.configure,
    abi.REMOVE_MINTER: minting.remove,
    abi.PAUSE: _pause(True),
    abi.UNPAUSE: _pause(False),
    abi.BLACKLIST: _blacklist(True),
    abi.UNBLACKLIST: _blacklist(False),
    abi.NAME: lambda f, _: abi.text(f.token.network.token_name),
    abi.SYMBOL: lambda f, _: abi.text(f.token.network.token_symbol),
    abi.VERSION: lambda f, _: abi.text(f.token.network.token_version),
    **governing.functions(_transfer),
    abi.selector("currency()"): lambda *_: abi.text("USD"),
    **{abi.selector(signature): _view(read) for signature, read in VIEWS.items()},
}
"""Every function of the token, by selector."""


def run(frame: Frame) -> bytes:
    """Run one call of the token; return its result. Raises `Reverted`."""
    call = frame.call
    if call.sender == proxy.ADMIN and call.data[:4] not in proxy.OWN:
        frame.refuse(proxy.NOT_FOR_ADMIN)
    if call.value:
        frame.refuse("", gas.WITH_VALUE)
    function = FUNCTIONS.get(call.data[:4])
    if function is None:
        frame.refuse("")
    return function(frame, Arguments(call.data[4:]))
