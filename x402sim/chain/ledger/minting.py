"""Minting and burning: by minters, each with an allowance that the owner sets."""

from x402sim.chain.ledger import gas
from x402sim.chain.ledger.frame import Arguments, Frame
from x402sim.protocol import abi
from x402sim.protocol.crypto import ZERO_ADDRESS, Address

_NOT_MASTER = "FiatToken: caller is not the masterMinter"


def mint(frame: Frame, arguments: Arguments) -> bytes:
    """Make tokens; uses up the minter's allowance."""
    to, amount_base = arguments.address(0), arguments.uint(1)
    minter, state = frame.call.sender, frame.state
    frame.looked_up = minter, to
    frame.require(frame.token.rules.mint, frame.movement(ZERO_ADDRESS, to, amount_base))
    frame.wrote(state.supply, state.supply + amount_base)
    frame.set_balance(to, state.balances.get(to, 0) + amount_base)
    frame.gas_used -= gas.KNOWN_SLOT if to == minter else 0
    _allow(frame, minter, state.minter_allowances[minter] - amount_base)
    frame.emit(abi.MINT_EVENT, minter, to, data=abi.word(amount_base))
    frame.emit(abi.TRANSFER_EVENT, ZERO_ADDRESS, to, data=abi.word(amount_base))
    return abi.word(1)


def burn(frame: Frame, arguments: Arguments) -> bytes:
    """Destroy tokens that the calling minter has."""
    minter, amount_base, state = frame.call.sender, arguments.uint(0), frame.state
    frame.require(frame.token.rules.burn, frame.movement(minter, ZERO_ADDRESS, amount_base))
    frame.wrote(state.supply, state.supply - amount_base)
    frame.set_balance(minter, state.balances.get(minter, 0) - amount_base)
    frame.emit(abi.BURN_EVENT, minter, data=abi.word(amount_base))
    frame.emit(abi.TRANSFER_EVENT, minter, ZERO_ADDRESS, data=abi.word(amount_base))
    return b""


def configure(frame: Frame, arguments: Arguments) -> bytes:
    """Make an account a minter, and set its allowance."""
    minter, allowance_base = arguments.address(0), arguments.uint(1)
    frame.require(frame.token.rules.configure, frame.movement(minter, ZERO_ADDRESS, 0))
    if minter not in frame.state.minter_allowances:
        frame.gas_used += frame.token.prices.new_flag
    _allow(frame, minter, allowance_base)
    frame.emit(abi.MINTER_CONFIGURED, minter, data=abi.word(allowance_base))
    return abi.word(1)


def remove(frame: Frame, arguments: Arguments) -> bytes:
    """Make a minter an account like any other."""
    minter, allowances = arguments.address(0), frame.state.minter_allowances
    frame.require_role("masterMinter", _NOT_MASTER)
    frame.wrote(int(minter in allowances), 0)
    frame.wrote(allowances.get(minter, 0), 0)
    if minter in allowances:
        frame.state.remove(allowances, minter)
    frame.emit(abi.MINTER_REMOVED, minter)
    return abi.word(1)


def _allow(frame: Frame, minter: Address, allowance_base: int) -> None:
    old = frame.state.put(frame.state.minter_allowances, minter, allowance_base)
    frame.wrote(old or 0, allowance_base)
