"""The compiled contracts: our token with constructor data and storage layout, a smart wallet,
Multicall, several calls in one, and Permit2 with the x402 proxies.

`build.mjs` makes `Stablecoin.json` from `Stablecoin.sol`, and likewise the others; all are shipped.
"""

from functools import cache

import msgspec

from x402sim.protocol import abi
from x402sim.protocol.crypto import Address, keccak256
from x402sim.protocol.networks import Network
from x402sim.protocol.permit2 import EXACT_PROXY, PERMIT2, UPTO_PROXY
from x402sim.text.words import as_given


class Artifact(msgspec.Struct, frozen=True):
    """The compiler's output, as far as a world needs it."""

    storage: dict[str, int]
    """The storage slot of each variable."""
    errors: list[str]
    """Signatures."""
    creation: str
    runtime: str
    """Hex; zeros stand in place of the constructor's immutable values."""

    @property
    def code(self) -> bytes:
        """`runtime` as bytes."""
        return bytes.fromhex(self.runtime[2:])


@cache
def artifact(name: str = "Stablecoin") -> Artifact:
    """Return the committed artifact of a contract: "Stablecoin", "SmartWallet" or "Multicall"."""
    from importlib.resources import files  # few worlds need the code of a contract

    return msgspec.json.decode(files(__name__).joinpath(f"{name}.json").read_bytes(), type=Artifact)


def creation_code(network: Network, owner: Address) -> bytes:
    """Return the deployment data of a network's token: creation code and constructor arguments."""
    from eth_abi.abi import encode  # which takes a while

    texts = network.token_name, network.token_symbol, network.token_version
    code = bytes.fromhex(artifact().creation[2:])
    return code + encode(("string", "string", "string", "address"), (*texts, owner))


def storage(network: Network, owner: Address, balances: dict[Address, int]) -> dict[bytes, bytes]:
    """Return the storage of a newly deployed token whose owner has minted `balances`. Raises
    `ValueError` for a name or a symbol longer than one slot (31 bytes).
    """
    for text in (network.token_name, network.token_symbol):
        if len(text.encode()) > 31:
            raise ValueError(
                f"a token's name and symbol have at most 31 bytes, got {as_given(text)}"
            )
    slots = artifact().storage
    written = {
        abi.word(slots["_name"]): text_word(network.token_name),
        abi.word(slots["_symbol"]): text_word(network.token_symbol),
        abi.word(slots["_owner"]): abi.word(owner),
        abi.word(slots["_totalSupply"]): abi.word(sum(balances.values())),
    }
    for account, amount_base in balances.items():
        slot = keccak256(abi.word(account) + abi.word(slots["_balances"]))
        written[slot] = abi.word(amount_base)
    return written


def text_word(text: str) -> bytes:
    """Return Solidity's word in the slot of a string: the bytes and twice the length. The bytes of
    a string longer than 31 are elsewhere: the word is twice the length plus 1.
    """
    raw = text.encode()
    if len(raw) > 31:
        return abi.word(2 * len(raw) + 1)
    return raw.ljust(31, b"\0") + bytes([2 * len(raw)])


MULTICALL = Address(bytes.fromhex("ca11bde05977b3631167028862be2a173976ca11"))
"""The address of Multicall3 on nearly every chain."""


def shared_codes() -> dict[Address, bytes]:
    """Return the code of our own Multicall, of Permit2 and of both x402 proxies, by address."""
    from importlib.resources import files

    at = {"Permit2": PERMIT2, "ExactProxy": EXACT_PROXY, "UptoProxy": UPTO_PROXY}
    runtime = msgspec.json.decode(files(__name__).joinpath("Permit2.json").read_bytes())["runtime"]
    codes = {address: bytes.fromhex(runtime[name]) for name, address in at.items()}
    return {MULTICALL: artifact("Multicall").code, **codes}


@cache
def wallet_code() -> bytes:
    """Return the code of a smart wallet, an account that is a contract (EIP-1271)."""
    return artifact("SmartWallet").code


def wallet_storage(owner: Address) -> dict[bytes, bytes]:
    """Return the storage of a smart wallet: the owner, whose signatures the wallet accepts."""
    return {abi.word(artifact("SmartWallet").storage["_owner"]): abi.word(owner)}


def wallet_address(owner: Address) -> Address:
    """Return where the world puts the smart wallet of an owner."""
    return Address(keccak256(b"smart wallet" + owner)[12:])
