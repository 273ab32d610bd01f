"""The code of hostile tokens and wallets: `chain/contract/build.mjs` compiles Hostile.sol."""

from functools import cache
from importlib.resources import files

import msgspec

from x402sim.protocol.crypto import Address, keccak256


class _Compiled(msgspec.Struct, frozen=True):
    source: str
    runtime: dict[str, str]


TOKEN_AT = Address(keccak256(b"the token's own code")[12:])
"""Where a token's own code is moved to, if it gets the code of `Overload`."""
ASKED_AT = Address(keccak256(b"the code of a token that asks wallets")[12:])
"""Where it is moved to, if it gets the code of `AsksWallets`."""


@cache
def compiled() -> _Compiled:
    """Return what the compiler made: the hash of its source, and each contract's code in hex."""
    return msgspec.json.decode(
        files(__name__).joinpath("Hostile.json").read_bytes(), type=_Compiled
    )


def code(name: str) -> bytes:
    """Return the code of a contract of Hostile.sol, such as "Silent"."""
    return bytes.fromhex(compiled().runtime[name])
