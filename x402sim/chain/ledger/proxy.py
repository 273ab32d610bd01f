"""Circle's token lives behind a proxy: the code at another address, and the proxy's administrator.

The ledger has one implementation: nobody upgrades it. Its administrator cannot use the token.
"""

from x402sim.protocol import abi
from x402sim.protocol.crypto import Address, keccak256

ADMIN = Address(b"proxy admin".rjust(20, b"\x01"))
IMPLEMENTATION = Address(keccak256(b"\xd6\x94" + ADMIN + b"\x01")[12:])
"""Where the second contract is that the administrator has created."""
SLOTS = {
    keccak256(b"org.zeppelinos.proxy.implementation"): abi.word(IMPLEMENTATION),
    keccak256(b"org.zeppelinos.proxy.admin"): abi.word(ADMIN),
}
"""Where the proxy keeps them, in the token's own storage."""
OWN = tuple(map(abi.selector, ("implementation()", "admin()")))
"""The functions that the proxy itself answers, whoever asks."""
NOT_FOR_ADMIN = "Cannot call fallback function from the proxy admin"
