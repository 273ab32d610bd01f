"""The token contract: ERC-20, EIP-3009, EIP-2612's permits, and Circle's minters, pause, blacklist
and roles, by selector.

The token is behind a proxy, with an administrator and the address of the implementation. The ledger
has one implementation; nobody upgrades. The administrator cannot use the token.

The tables of `frame.py` decide when an authorization is refused. This file and `Frame` check all
other calls, and apply accepted calls. A reverted call changes no state. Clauses: 5/nonce-once.
"""

import operator
from collections.abc import Callable

from x402sim.chain.base import Reverted
from x402sim.chain.ledger import gas
from x402sim.chain.ledger.frame import (
    LARGEST_BALANCE,
    TO_NOBODY,
    TOO_LARGE,
    Arguments,
    Frame,
    Spend,
    call_other,
)
from x402sim.protocol import abi, eip3009
from x402sim.protocol.crypto import ZERO_ADDRESS, Address, keccak256
from x402sim.protocol.money import MAX_UINT256

PROXY_ADMIN = Address(b"proxy admin".rjust(20, b"\x01"))
IMPLEMENTATION = Address(keccak256(b"\xd6\x94" + PROXY_ADMIN + b"\x01")[12:])
"""The address of the second contract that the administrator creates (CREATE, nonce 1)."""
PROXY_SLOTS = {
    keccak256(b"org.zeppelinos.proxy.implementation"): abi.word(IMPLEMENTATION),
    keccak256(b"org.zeppelinos.proxy.admin"): abi.word(PROXY_ADMIN),
}
"""The proxy's own slots, in the token's storage."""
PROXY_FUNCTIONS = tuple(map(abi.selector, ("implementation()", "admin()")))
"""The proxy's functions, answered to the administrator, too."""
NOT_FOR_ADMIN = "Cannot call fallback function from the proxy admin"


# --- roles ------------------------------------------------------------------------------

Run = Callable[[Frame, Arguments], bytes]
FIRST_ROLES = ("owner", "pauser", "blacklister", "masterMinter")
"""The roles that the token's owner has at first; nobody is the rescuer."""


def role_getter(name: str) -> Run:
    """Return the getter of a role: the account, as a word."""
    return lambda frame, _: frame.state.roles.get(name, ZERO_ADDRESS)


def _role_setter(name: str, refusal: str, event: str) -> Run:

    def run(frame: Frame, arguments: Arguments) -> bytes:
        account = arguments.address(0)
        frame.require_role("owner", "Ownable: caller is not the owner")
        if account == ZERO_ADDRESS:
            frame.refuse(f"{refusal} is the zero address")
        was = frame.state.put(frame.state.roles, name, account) or ZERO_ADDRESS
        frame.wrote(int.from_bytes(was), int.from_bytes(account))
        if name == "owner":
            data = abi.word(was) + abi.word(account)
            frame.emit(abi.OWNERSHIP_TRANSFERRED, data=data)
        else:
            frame.emit(abi.topic(event), account)
        return b""

    return run


def _rescue(frame: Frame, arguments: Arguments) -> bytes:
    """Let the rescuer move tokens that were sent to the token's own address."""
    token, to, amount_base = arguments.address(0), arguments.address(1), arguments.uint(2)
    frame.require_role("rescuer", "Rescuable: caller is not the rescuer")
    if token not in frame.state.codes:
        frame.refuse("Address: call to non-contract")
    if token == frame.call.to:
        frame.transfer(token, to, amount_base)
        return b""
    try:
        call_other(frame.state, token, abi.transfer(to, amount_base))
    except Reverted:
        frame.refuse("SafeERC20: low-level call failed")
    return b""


def _initialized(words: int, texts: tuple[int, ...], refusal: str) -> Run:
    """Return an initializer that refuses: the token was initialized when deployed.

    Before that, the arguments are decoded: `words` words, and a text of any length at each position
    of `texts`.
    """

    def run(frame: Frame, arguments: Arguments) -> bytes:
        arguments.bytes32(words - 1)
        for position in texts:
            arguments.tail(position)
        frame.refuse(refusal)

    return run


_INITIALIZERS = {
    "initialize(string,string,string,uint8,address,address,address,address)": _initialized(
        8, (0, 1, 2), "FiatToken: contract is already initialized"
    ),
    "initializeV2(string)": _initialized(1, (0,), ""),
    "initializeV2_1(address)": _initialized(1, (), ""),
    "initializeV2_2(address[],string)": _initialized(2, (1,), ""),
}
ROLE_FUNCTIONS: dict[bytes, Run] = {
    **{abi.selector(signature): run for signature, run in _INITIALIZERS.items()},
    abi.TRANSFER_OWNERSHIP: _role_setter("owner", "Ownable: new owner", ""),
    abi.UPDATE_PAUSER: _role_setter("pauser", "Pausable: new pauser", "PauserChanged(address)"),
    abi.UPDATE_BLACKLISTER: _role_setter(
        "blacklister", "Blacklistable: new blacklister", "BlacklisterChanged(address)"
    ),
    abi.UPDATE_MASTER_MINTER: _role_setter(
        "masterMinter", "FiatToken: new masterMinter", "MasterMinterChanged(address)"
    ),
    abi.UPDATE_RESCUER: _role_setter(
        "rescuer", "Rescuable: new rescuer", "RescuerChanged(address)"
    ),
    abi.RESCUE: _rescue,
}
"""The functions of the roles, by selector."""


# --- the token --------------------------------------------------------------------------

NO_MASTER = "FiatToken: caller is not the masterMinter"

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
    _need_minter(frame)
    frame.need_free(payee=to)
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


def _burn(frame: Frame, arguments: Arguments) -> bytes:
    """Destroy tokens that the calling minter has."""
    minter, amount_base, state = frame.call.sender, arguments.uint(0), frame.state
    left_base = state.balances.get(minter, 0) - amount_base
    _need_minter(frame)
    frame.need(amount_base > 0, "FiatToken: burn amount not greater than 0")
    frame.need(left_base >= 0, "FiatToken: burn amount exceeds balance")
    frame.wrote(state.supply, state.supply - amount_base)
    frame.write(state.balances, minter, left_base)
    frame.emit(abi.BURN_EVENT, minter, data=abi.word(amount_base))
    frame.emit(abi.TRANSFER_EVENT, minter, ZERO_ADDRESS, data=abi.word(amount_base))
    return b""


def _need_minter(frame: Frame) -> None:
    caller = frame.call.sender
    frame.need_running()
    frame.need(caller in frame.state.minter_allowances, "FiatToken: caller is not a minter")
    frame.need_free(minter=caller)


def _configure(frame: Frame, arguments: Arguments) -> bytes:
    """Make an account a minter, and set its allowance."""
    minter, allowance_base = arguments.address(0), arguments.uint(1)
    frame.need_running()
    frame.require_role("masterMinter", NO_MASTER)
    if minter not in frame.state.minter_allowances:
        frame.gas_used += frame.token.prices.new_flag
    frame.write(frame.state.minter_allowances, minter, allowance_base)
    frame.emit(abi.MINTER_CONFIGURED, minter, data=abi.word(allowance_base))
    return abi.word(1)


def _remove(frame: Frame, arguments: Arguments) -> bytes:
    """Make a minter an account like any other."""
    minter, allowances = arguments.address(0), frame.state.minter_allowances
    frame.require_role("masterMinter", NO_MASTER)
    frame.wrote(int(minter in allowances), 0)
    frame.wrote(allowances.get(minter, 0), 0)
    if minter in allowances:
        frame.state.remove(allowances, minter)
    frame.emit(abi.MINTER_REMOVED, minter)
    return abi.word(1)


def _pause(on: bool) -> Run:
    def run(frame: Frame, _: Arguments) -> bytes:
        frame.require_role("pauser", "Pausable: caller is not the pauser")
        was = frame.state.put(frame.state.switches, "paused", on)
        frame.wrote(1 + bool(was), 1 + on)  # the word holds the pauser's address, too
        frame.emit(abi.topic("Pause()" if on else "Unpause()"))
        return b""

    return run


def _blacklist(on: bool) -> Run:
    def run(frame: Frame, arguments: Arguments) -> bytes:
        account = arguments.address(0)
        frame.require_role("blacklister", "Blacklistable: caller is not the blacklister")
        held = frame.state.balances.get(account, 0)
        was = frame.state.put(frame.state.blacklisted, account, on)
        frame.wrote(held + bool(was), held + on)  # a word holds balance and blacklist bit
        frame.emit(abi.topic("Blacklisted(address)" if on else "UnBlacklisted(address)"), account)
        return b""

    return run


VIEWS: dict[str, Callable[[Frame, Arguments], int | bytes]] = {
    **{f"{role}()": role_getter(role) for role in (*FIRST_ROLES, "rescuer")},
    "decimals()": lambda f, _: f.token.network.decimals,
    "totalSupply()": lambda f, _: f.state.supply,
    "paused()": lambda f, _: int(f.state.switches.get("paused", False)),
    "implementation()": lambda *_: IMPLEMENTATION,
    "admin()": lambda *_: PROXY_ADMIN,
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
    abi.BURN: _burn,
    abi.CONFIGURE_MINTER: _configure,
    abi.REMOVE_MINTER: _remove,
    abi.PAUSE: _pause(True),
    abi.UNPAUSE: _pause(False),
    abi.BLACKLIST: _blacklist(True),
    abi.UNBLACKLIST: _blacklist(False),
    abi.NAME: lambda f, _: abi.text(f.token.network.token_name),
    abi.SYMBOL: lambda f, _: abi.text(f.token.network.token_symbol),
    abi.VERSION: lambda f, _: abi.text(f.token.network.token_version),
    **ROLE_FUNCTIONS,
    abi.selector("currency()"): lambda *_: abi.text("USD"),
    **{abi.selector(signature): _view(read) for signature, read in VIEWS.items()},
}
"""Every function of the token, by selector."""


def run(frame: Frame) -> bytes:
    """Run one call of the token; return its result. Raises `Reverted`."""
    call = frame.call
    if call.sender == PROXY_ADMIN and call.data[:4] not in PROXY_FUNCTIONS:
        frame.refuse(NOT_FOR_ADMIN)
    if call.value:
        frame.refuse("", gas.WITH_VALUE)
    function = FUNCTIONS.get(call.data[:4])
    if function is None:
        frame.refuse("")
    return function(frame, Arguments(call.data[4:]))
