"""The code of hostile tokens and wallets: `chain/contract/build.mjs` compiles Hostile.sol."""

from functools import cache
from importlib.resources import files

import msgspec

from x402sim.protocol.crypto import Address, keccak256


class _Compiled(msgspec.Struct, frozen=True):
    source: str
    runtime: dict[str, str]


TOKEN_AT = Address(keccak256(b"the token's own code")[12:])
"""The new place of a token's own code, if the token gets the code of `Overload`."""
ASKED_AT = Address(keccak256(b"the code of a token that asks wallets")[12:])
"""The new place, if the token gets the code of `AsksWallets`."""


@cache
def compiled() -> _Compiled:
    """Return the compiler's output: the source's hash, and the code of each contract in hex."""
    return msgspec.json.decode(
        files(__name__).joinpath("Hostile.json").read_bytes(), type=_Compiled
    )


def code(name: str) -> bytes:
    """Return the code of a contract of Hostile.sol, such as "Silent"."""
    return bytes.fromhex(compiled().runtime[name])
