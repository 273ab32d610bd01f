"""ERC-20's allowances, and EIP-2612's permits that set them."""

from collections.abc import Callable

from x402sim.chain.ledger import gas
from x402sim.chain.ledger.frame import Arguments, Frame
from x402sim.chain.ledger.token_rules import Spend
from x402sim.protocol import abi
from x402sim.protocol.crypto import Address
from x402sim.protocol.eip3009 import Authorization, Permit, permit_digest
from x402sim.protocol.money import MAX_UINT256


def allowance_base(frame: Frame, owner: Address, spender: Address) -> int:
    """Return what a spender may take from an owner, in base units."""
    return frame.state.allowances.get((owner, spender), 0)


def approve(frame: Frame, arguments: Arguments) -> bytes:
    """Set an allowance of the caller's tokens."""
    return _change(frame, arguments.address(0), lambda _: arguments.uint(1))


def increase(frame: Frame, arguments: Arguments) -> bytes:
    """Increase an allowance of the caller's tokens."""
    return _change(frame, arguments.address(0), lambda old_base: old_base + arguments.uint(1))


def decrease(frame: Frame, arguments: Arguments) -> bytes:
    """Decrease an allowance of the caller's tokens."""
    return _change(frame, arguments.address(0), lambda old_base: old_base - arguments.uint(1))


def _change(frame: Frame, spender: Address, new: Callable[[int], int]) -> bytes:
    owner = frame.call.sender
    new_base = new(allowance_base(frame, owner, spender))
    frame.require(frame.token.rules.approve, frame.movement(owner, spender, new_base))
    _write(frame, owner, spender, new_base)
    frame.emit(abi.APPROVAL_EVENT, owner, spender, data=abi.word(new_base))
    return abi.word(1)


def transfer_from(frame: Frame, arguments: Arguments) -> bytes:
    """Move another's tokens, and use up the allowance."""
    payer, to, amount_base = arguments.address(0), arguments.address(1), arguments.uint(2)
    spender = frame.call.sender
    frame.looked_up = spender, payer, to
    frame.require(frame.token.rules.spend, frame.movement(payer, to, amount_base))
    frame.move(payer, to, amount_base)
    if spender in (payer, to):
        frame.gas_used -= gas.KNOWN_SLOT  # whether the caller is blacklisted was read before
    left_base = allowance_base(frame, payer, spender)
    _write(frame, payer, spender, left_base - amount_base)
    return abi.word(1)


def permit(packed: bool) -> Callable[[Frame, Arguments], bytes]:
    """Return permit, in one of its overloads: an owner's signature sets the allowance."""

    def run(frame: Frame, arguments: Arguments) -> bytes:
        owner, spender = arguments.address(0), arguments.address(1)
        amount_base, deadline_s = arguments.uint(2), arguments.uint(3)
        signature = frame.any_signature(arguments, 4) if packed else arguments.signature(4)
        nonce = frame.state.permit_nonces.get(owner, 0)
        asked = Permit(owner, spender, amount_base, nonce, deadline_s)
        digest = permit_digest(asked, frame.token.network.domain)
        frame.state.put(frame.state.permit_nonces, owner, nonce + 1)  # undone if it is refused
        frame.wrote(nonce, nonce + 1)
        if deadline_s == MAX_UINT256:
            frame.gas_used += frame.token.prices.endless_permit
        auth = Authorization(owner, spender, amount_base, 0, deadline_s, abi.word(nonce))
        case = Spend(frame.state, frame.call.sender, frame.now_s, auth, digest, signature)
        frame.require(frame.token.rules.permit, case)
        frame.proved(owner, signature)
        _write(frame, owner, spender, amount_base)
        frame.emit(abi.APPROVAL_EVENT, owner, spender, data=abi.word(amount_base))
        return b""

    return run


def _write(frame: Frame, owner: Address, spender: Address, new_base: int) -> None:
    old = frame.state.put(frame.state.allowances, (owner, spender), new_base)
    frame.wrote(old or 0, new_base)
