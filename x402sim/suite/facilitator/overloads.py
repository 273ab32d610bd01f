"""The token of a room on anvil, OpenZeppelin's, with the overload that Circle's has besides.

Facilitators may call transferWithAuthorization with a signature as (v, r, s), or as bytes. Before
the token's code stands code of ours that turns the second into the first.
"""

from x402sim.chain.base import Chain, Controls
from x402sim.protocol import abi
from x402sim.protocol.crypto import Address, keccak256

_CODE_AT = Address(keccak256(b"the token's own code")[12:])
"""Where the token's own code is moved to; its storage stays."""


def _code() -> bytes:
    """Return code that calls the token's own, in the token's storage."""
    call = b"\x73" + _CODE_AT + bytes.fromhex("5af4")  # delegatecall(gas, code, …)
    other = (
        # the first four bytes are the overload's?
        bytes.fromhex("5f3560e01c63") + abi.TRANSFER_WITH_AUTHORIZATION_BYTES + bytes.fromhex("14")
    )
    as_it_is = bytes.fromhex("365f5f37" + "5f5f365f") + call
    in_three = (
        bytes.fromhex("5b" + "60c45f5f37")  # the six words stay
        + bytes.fromhex("5f3560201b60201c63")  # another selector
        + abi.TRANSFER_WITH_AUTHORIZATION
        + bytes.fromhex("60e01b175f52")
        + bytes.fromhex("6101443560f81c60c452")  # v
        + bytes.fromhex("604061010460e437")  # r, s
        + bytes.fromhex("5f5f6101245f")
        + call
    )
    start = len(other) + 3 + len(as_it_is) + 3
    end = start + len(in_three)
    back = bytes.fromhex("5b3d5f5f3e60") + bytes([end + 11]) + bytes.fromhex("573d5ffd5b3d5ff3")
    jump_over = bytes([0x60, end, 0x56])
    return other + bytes([0x60, start, 0x57]) + as_it_is + jump_over + in_three + back


async def add(chain: Chain, controls: Controls) -> None:
    """Give the chain's token the overload."""
    await controls.set_code(_CODE_AT, await chain.code(chain.token))
    await controls.set_code(chain.token, _code())
