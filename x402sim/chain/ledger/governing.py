"""Who may do what: the roles of Circle's token, which its owner gives to others."""

from collections.abc import Callable

from x402sim.chain.base import Reverted
from x402sim.chain.ledger import wallets
from x402sim.chain.ledger.arguments import Arguments
from x402sim.chain.ledger.frame import Frame
from x402sim.protocol import abi
from x402sim.protocol.crypto import ZERO_ADDRESS

Run = Callable[[Frame, Arguments], bytes]
FIRST = ("owner", "pauser", "blacklister", "masterMinter")
"""What the token's owner is at first; nobody is its rescuer."""


def teller(name: str) -> Run:
    """Return the function that tells who has a role: one word."""
    return lambda frame, _: frame.state.roles.get(name, ZERO_ADDRESS)


def _giver(name: str, refusal: str, event: str) -> Run:
    """Return the function by which the owner gives a role to somebody."""

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
    """The rescuer moves what the token itself has of some token."""
    token, to, amount_base = arguments.address(0), arguments.address(1), arguments.uint(2)
    frame.require_role("rescuer", "Rescuable: caller is not the rescuer")
    if token not in frame.state.codes:
        frame.refuse("Address: call to non-contract")
    if token == frame.call.to:
        frame.transfer(token, to, amount_base)
        return b""
    try:
        wallets.call(frame.state, token, abi.transfer(to, amount_base))
    except Reverted:
        frame.refuse("SafeERC20: low-level call failed")
    return b""


def _initialized(words: int, texts: tuple[int, ...], refusal: str) -> Run:
    """Return an initializer, which refuses, as it ran before; `texts` are of any length."""

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
FUNCTIONS: dict[bytes, Run] = {
    **{abi.selector(signature): run for signature, run in _INITIALIZERS.items()},
    abi.TRANSFER_OWNERSHIP: _giver("owner", "Ownable: new owner", ""),
    abi.UPDATE_PAUSER: _giver("pauser", "Pausable: new pauser", "PauserChanged(address)"),
    abi.UPDATE_BLACKLISTER: _giver(
        "blacklister", "Blacklistable: new blacklister", "BlacklisterChanged(address)"
    ),
    abi.UPDATE_MASTER_MINTER: _giver(
        "masterMinter", "FiatToken: new masterMinter", "MasterMinterChanged(address)"
    ),
    abi.UPDATE_RESCUER: _giver("rescuer", "Rescuable: new rescuer", "RescuerChanged(address)"),
    abi.RESCUE: _rescue,
}
"""The functions of the roles, by selector."""
