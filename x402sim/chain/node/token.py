"""Reads the description of a token from its contract, and checks it.

The contract says its name, version and decimals. Its EIP-712 domain must be the one computed from
them, or no signature would be valid.
"""

from dataclasses import replace

from x402sim.chain.base import Call, Chain, ChainError, Reverted
from x402sim.protocol import abi
from x402sim.protocol.crypto import ZERO_ADDRESS, checksum, to_hex
from x402sim.protocol.eip3009 import separator
from x402sim.protocol.networks import Network

MOST_DECIMALS = 36
"""As in a file of networks."""


async def described(chain: Chain, where: str, network: Network, *, read: bool) -> Network:
    """Return the network with its token as the contract itself describes it; what the contract
    does not say is the network's.

    Raises `ChainError` unless the contract describes the network's own token, or with `read` any
    EIP-3009 token.
    """
    name, decimals = await _text(chain, abi.NAME), await _number(chain, abi.DECIMALS)
    says = replace(
        network,
        token_name=network.token_name if name is None or not (name or read) else name,
        token_version=await _text(chain, abi.VERSION) or network.token_version,
        decimals=network.decimals if decimals is None else decimals,
    )
    address = checksum(chain.token)
    if read:
        if name is None or decimals is None or decimals > MOST_DECIMALS:
            lacking = "name() and decimals(): it is no ERC-20 token"
            raise ChainError(f"{address} on {where} has no {lacking}")
        if await _number(chain, abi.authorization_state(ZERO_ADDRESS, bytes(32))) is None:
            lacking = "authorizationState(): it is no EIP-3009 token"
            raise ChainError(f"{address} on {where} has no {lacking}")
        says = replace(says, token_symbol=await _text(chain, abi.SYMBOL) or network.token_symbol)
    elif says != network:
        raise ChainError(
            f"the token {address} on {where} says {_shown(says)}; wanted {_shown(network)}, "
            f"as of {network.name}; take what it says with --token {address}, or describe it in a "
            "--network-file"
        )
    await _check_domain(chain, says)
    return says


async def _check_domain(chain: Chain, network: Network) -> None:
    """Raise `ChainError` for another EIP-712 domain; a token need not tell its own."""
    actual = await _answer(chain, abi.DOMAIN_SEPARATOR)
    wanted = separator(network.domain)
    if actual is not None and actual != wanted:
        raise ChainError(
            f"the EIP-712 domain of {checksum(chain.token)} is not name {network.token_name!r} and "
            f"version {network.token_version!r} on chain {network.chain_id}: DOMAIN_SEPARATOR() is "
            f"{to_hex(actual)}, wanted {to_hex(wanted)}; describe the token in a --network-file"
        )


def _shown(network: Network) -> str:
    name, version = network.token_name, network.token_version
    return f"name {name!r}, version {version!r}, {network.decimals} decimals"


async def _answer(chain: Chain, data: bytes) -> bytes | None:
    """Return what a function answers; None if the contract lacks it."""
    try:
        return await chain.call(Call(chain.token, chain.token, data)) or None
    except Reverted:
        return None


async def _number(chain: Chain, data: bytes) -> int | None:
    answer = await _answer(chain, data)
    return None if answer is None or len(answer) < 32 else int.from_bytes(answer[:32])


async def _text(chain: Chain, function: bytes) -> str | None:
    answer = await _answer(chain, function)
    return None if answer is None or len(answer) < 64 else abi.read_text(answer)
