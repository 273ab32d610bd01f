"""The token contract: ERC-20, EIP-3009, EIP-2612's permits, and Circle's mint, pause and blacklist,
by selector.

The token's owner is the one minter, pauser and blacklister. Circle's functions that burn, and that
change minters, roles and the implementation behind the proxy, are not here.

The tables of `frame.py` decide when an authorization is refused. This file and `Frame` check all
other calls, and apply accepted calls. A reverted call changes no state. Clauses: 5/nonce-once.
"""

import operator
from collections.abc import Callable

from x402sim.chain.base import Reverted
from x402sim.chain.ledger import gas
from x402sim.chain.ledger.frame import (
    LARGEST_BALANCE,
    OUT_OF_GAS,
    TO_NOBODY,
    TOO_LARGE,
    Arguments,
    Execution,
    Frame,
    Spend,
)
from x402sim.protocol import abi, eip3009
from x402sim.protocol.crypto import ZERO_ADDRESS, Address
from x402sim.protocol.money import MAX_UINT256

Run = Callable[[Frame, Arguments], bytes]

# --- authorizations ------------------------------------------------------------------


def _with_authorization(receive: bool, packed: bool) -> Run:

    def run(frame: Frame, arguments: Arguments) -> bytes:
        auth = arguments.authorization()
        signature = frame.any_signature(arguments, 6) if packed else arguments.signature(6)
        other = (eip3009.RECEIVE_TYPEHASH,) if receive else ()
        digest = eip3009.transfer_digest(auth, frame.token.network.domain, *other)
        frame.looked_up = auth.from_, auth.to
        frame.require("receive" if receive else "transfer", auth, digest, signature)
        frame.use(abi.AUTHORIZATION_USED, auth.from_, auth.nonce)
        frame.move(auth.from_, auth.to, auth.value)
        return b""

    return run


def _cancel(packed: bool) -> Run:
    """Return an overload of cancelAuthorization, which checks no window and no blacklist."""

    def run(frame: Frame, arguments: Arguments) -> bytes:
        authorizer, nonce = arguments.address(0), arguments.bytes32(1)
        signature = frame.any_signature(arguments, 2) if packed else arguments.signature(2)
        digest = eip3009.cancel_digest(authorizer, nonce, frame.token.network.domain)
        auth = eip3009.Authorization(authorizer, ZERO_ADDRESS, 0, 0, 0, nonce)
        frame.require("cancel", auth, digest, signature)
        frame.use(abi.AUTHORIZATION_CANCELED, authorizer, nonce)
        return b""

    return run


# --- movements and allowances --------------------------------------------------------


def _transfer(frame: Frame, arguments: Arguments) -> bytes:
    frame.transfer(frame.call.sender, arguments.address(0), arguments.uint(1))
    return abi.word(1)


def _transfer_from(frame: Frame, arguments: Arguments) -> bytes:
    """Move another's tokens, and use up the allowance."""
    payer, to, amount_base = arguments.address(0), arguments.address(1), arguments.uint(2)
    spender = frame.call.sender
    frame.looked_up = spender, payer, to
    allowed_base = frame.state.allowances.get((payer, spender), 0)
    frame.need_running()
    frame.need_free(spender=spender, payer=payer, payee=to)
    frame.need(amount_base <= allowed_base, "ERC20: transfer amount exceeds allowance")
    frame.move(payer, to, amount_base)
    if spender in (payer, to):
        frame.gas_used -= gas.KNOWN_SLOT  # whether the caller is blacklisted was read before
    frame.write(frame.state.allowances, (payer, spender), allowed_base - amount_base)
    return abi.word(1)


def _allowance(change: Callable[[int, int], int]) -> Run:
    """Return the function that changes an allowance of the caller's tokens, given the old allowance
    and the argument.
    """

    def run(frame: Frame, arguments: Arguments) -> bytes:
        owner, spender = frame.call.sender, arguments.address(0)
        old_base = frame.state.allowances.get((owner, spender), 0)
        new_base = change(old_base, arguments.uint(1))
        frame.need_running()
        frame.need(new_base <= MAX_UINT256, "SafeMath: addition overflow")
        frame.need(new_base >= 0, "ERC20: decreased allowance below zero")
        frame.need(owner != ZERO_ADDRESS, "ERC20: approve from the zero address")
        frame.need(spender != ZERO_ADDRESS, TO_NOBODY)
        _allow(frame, owner, spender, new_base)
        return abi.word(1)

    return run


def _permit(packed: bool) -> Run:
    """Return an overload of permit: an owner's signature sets the allowance."""

    def run(frame: Frame, arguments: Arguments) -> bytes:
        owner, spender = arguments.address(0), arguments.address(1)
        amount_base, deadline_s = arguments.uint(2), arguments.uint(3)
        signature = frame.any_signature(arguments, 4) if packed else arguments.signature(4)
        nonce = frame.state.permit_nonces.get(owner, 0)
        permit = eip3009.Permit(owner, spender, amount_base, nonce, deadline_s)
        digest = eip3009.permit_digest(permit, frame.token.network.domain)
        frame.write(frame.state.permit_nonces, owner, nonce + 1)  # undone if it is refused
        if deadline_s == MAX_UINT256:
            frame.gas_used += frame.token.prices.endless_permit
        auth = eip3009.Authorization(owner, spender, amount_base, 0, deadline_s, abi.word(nonce))
        case = Spend(frame.state, frame.call.sender, frame.now_s, auth, digest, signature)
        frame.need_running()
        frame.need(frame.now_s <= deadline_s, "FiatTokenV2: permit is expired")
        if fault := case.signature_fault():
            frame.refuse_signature(case, fault.replace("FiatTokenV2", "EIP2612"))
        frame.proved(owner, signature)
        frame.need(spender != ZERO_ADDRESS, TO_NOBODY)
        _allow(frame, owner, spender, amount_base)
        return b""

    return run


def _allow(frame: Frame, owner: Address, spender: Address, new_base: int) -> None:
    frame.write(frame.state.allowances, (owner, spender), new_base)
    frame.emit(abi.APPROVAL_EVENT, owner, spender, data=abi.word(new_base))


# --- minters, pause and blacklist ----------------------------------------------------


def _mint(frame: Frame, arguments: Arguments) -> bytes:
    """Make tokens; uses up the minter's allowance."""
    to, amount_base = arguments.address(0), arguments.uint(1)
    minter, state = frame.call.sender, frame.state
    frame.looked_up = minter, to
    frame.need_running()
    frame.need(minter in state.minter_allowances, "FiatToken: caller is not a minter")
    frame.need_free(minter=minter, payee=to)
    new_base = state.balances.get(to, 0) + amount_base
    left_base = state.minter_allowances[minter] - amount_base
    frame.need(to != ZERO_ADDRESS, "FiatToken: mint to the zero address")
    frame.need(amount_base > 0, "FiatToken: mint amount not greater than 0")
    frame.need(left_base >= 0, "FiatToken: mint amount exceeds minterAllowance")
    frame.need(state.supply + amount_base <= MAX_UINT256, "SafeMath: addition overflow")
    frame.need(new_base <= LARGEST_BALANCE, TOO_LARGE)
    frame.wrote(state.supply, state.supply + amount_base)
    frame.write(state.balances, to, new_base)
    frame.gas_used -= gas.KNOWN_SLOT if to == minter else 0
    frame.write(state.minter_allowances, minter, left_base)
    frame.emit(abi.MINT_EVENT, minter, to, data=abi.word(amount_base))
    frame.emit(abi.TRANSFER_EVENT, ZERO_ADDRESS, to, data=abi.word(amount_base))
    return abi.word(1)


def _pause(on: bool) -> Run:
    def run(frame: Frame, _: Arguments) -> bytes:
        frame.need_owner("Pausable: caller is not the pauser")
        was = frame.state.put(frame.state.switches, "paused", on)
        frame.wrote(1 + bool(was), 1 + on)  # the word holds the pauser's address, too
        frame.emit(abi.topic("Pause()" if on else "Unpause()"))
        return b""

    return run


def _blacklist(on: bool) -> Run:
    def run(frame: Frame, arguments: Arguments) -> bytes:
        account = arguments.address(0)
        frame.need_owner("Blacklistable: caller is not the blacklister")
        held = frame.state.balances.get(account, 0)
        was = frame.state.put(frame.state.blacklisted, account, on)
        frame.wrote(held + bool(was), held + on)  # a word holds balance and blacklist bit
        frame.emit(abi.topic("Blacklisted(address)" if on else "UnBlacklisted(address)"), account)
        return b""

    return run


OWNERS = ("owner()", "pauser()", "blacklister()", "masterMinter()")
"""The functions that name who has a role: always the token's owner."""
VIEWS: dict[str, Callable[[Frame, Arguments], int | bytes]] = {
    **dict.fromkeys(OWNERS, lambda f, _: f.token.owner),
    "decimals()": lambda f, _: f.token.network.decimals,
    "totalSupply()": lambda f, _: f.state.supply,
    "paused()": lambda f, _: int(f.state.switches.get("paused", False)),
    "DOMAIN_SEPARATOR()": lambda f, _: eip3009.separator(f.token.network.domain),
    "PERMIT_TYPEHASH()": lambda *_: eip3009.PERMIT_TYPEHASH,
    "TRANSFER_WITH_AUTHORIZATION_TYPEHASH()": lambda *_: eip3009.TRANSFER_TYPEHASH,
    "RECEIVE_WITH_AUTHORIZATION_TYPEHASH()": lambda *_: eip3009.RECEIVE_TYPEHASH,
    "CANCEL_AUTHORIZATION_TYPEHASH()": lambda *_: eip3009.CANCEL_TYPEHASH,
    "balanceOf(address)": lambda f, a: f.state.balances.get(a.address(0), 0),
    "nonces(address)": lambda f, a: f.state.permit_nonces.get(a.address(0), 0),
    "isMinter(address)": lambda f, a: int(a.address(0) in f.state.minter_allowances),
    "minterAllowance(address)": lambda f, a: f.state.minter_allowances.get(a.address(0), 0),
    "isBlacklisted(address)": lambda f, a: int(f.state.blacklisted.get(a.address(0), False)),
    "allowance(address,address)": lambda f, a: f.state.allowances.get(
        (a.address(0), a.address(1)), 0
    ),
    "authorizationState(address,bytes32)": lambda f, a: int(
        (a.address(0), a.bytes32(1)) in f.state.authorizations
    ),
}
"""The functions that read one word, by signature."""


def _view(read: Callable[[Frame, Arguments], int | bytes]) -> Run:
    return lambda frame, arguments: abi.word(read(frame, arguments))


FUNCTIONS: dict[bytes, Run] = {
    abi.TRANSFER_WITH_AUTHORIZATION: _with_authorization(receive=False, packed=False),
    abi.TRANSFER_WITH_AUTHORIZATION_BYTES: _with_authorization(receive=False, packed=True),
    abi.RECEIVE_WITH_AUTHORIZATION: _with_authorization(receive=True, packed=False),
    abi.RECEIVE_WITH_AUTHORIZATION_BYTES: _with_authorization(receive=True, packed=True),
    abi.CANCEL_AUTHORIZATION: _cancel(packed=False),
    abi.CANCEL_AUTHORIZATION_BYTES: _cancel(packed=True),
    abi.TRANSFER: _transfer,
    abi.APPROVE: _allowance(lambda _, given_base: given_base),
    abi.INCREASE_ALLOWANCE: _allowance(operator.add),
    abi.DECREASE_ALLOWANCE: _allowance(operator.sub),
    abi.TRANSFER_FROM: _transfer_from,
    abi.PERMIT: _permit(packed=False),
    abi.PERMIT_BYTES: _permit(packed=True),
    abi.MINT: _mint,
    abi.PAUSE: _pause(True),
    abi.UNPAUSE: _pause(False),
    abi.BLACKLIST: _blacklist(True),
    abi.UNBLACKLIST: _blacklist(False),
    abi.NAME: lambda f, _: abi.text(f.token.network.token_name),
    abi.SYMBOL: lambda f, _: abi.text(f.token.network.token_symbol),
    abi.VERSION: lambda f, _: abi.text(f.token.network.token_version),
    abi.selector("currency()"): lambda *_: abi.text("USD"),
    **{abi.selector(signature): _view(read) for signature, read in VIEWS.items()},
}
"""Every function of the token, by selector."""


def run(frame: Frame) -> bytes:
    """Run one call of the token; return its result. Raises `Reverted`."""
    call = frame.call
    if call.value:
        frame.refuse("", gas.WITH_VALUE)
    function = FUNCTIONS.get(call.data[:4])
    if function is None:
        frame.refuse("")
    return function(frame, Arguments(call.data[4:]))


def execute(frame: Frame, left: int, *, is_forced: bool) -> Execution:
    """Run a transaction's call with the gas that is left; a forced revert does nothing else."""
    mark = frame.state.mark()
    try:
        if is_forced:
            frame.refuse("forced revert")
        run(frame)
        if frame.gas_used + gas.SENTRY + left // gas.LENT > left and frame.least() > left:
            raise Reverted(OUT_OF_GAS)
    except Reverted as reverted:
        frame.state.undo(mark)
        reason, cost = frame.refused(str(reverted), left)
        return Execution(cost, reason)
    return Execution(frame.gas_used, None, frame.refund, frame.logs)
