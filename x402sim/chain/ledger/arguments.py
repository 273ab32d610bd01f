"""Reads the arguments of a call from its calldata, as Solidity does."""

from x402sim.chain.base import Reverted
from x402sim.protocol.crypto import Address
from x402sim.protocol.eip3009 import Authorization


class Arguments:
    """The argument words of a call; reading past the end reverts, unused bits are ignored."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def uint(self, position: int) -> int:
        """Return argument `position` as an integer."""
        return int.from_bytes(self.bytes32(position))

    def bytes32(self, position: int) -> bytes:
        """Return argument `position` as 32 bytes."""
        chunk = self._data[32 * position : 32 * position + 32]
        if len(chunk) < 32:
            raise Reverted("")
        return chunk

    def address(self, position: int) -> Address:
        """Return argument `position` as an address."""
        return Address(self.bytes32(position)[12:])

    def signature(self, position: int) -> bytes:
        """Return (v, r, s) from argument `position` on as r || s || v."""
        words = self._data[32 * position : 32 * position + 96]
        if len(words) < 96:
            raise Reverted("")
        return words[32:] + words[31:32]

    def tail(self, position: int) -> bytes:
        """Return argument `position` as bytes of any length."""
        start = self.uint(position)
        size = int.from_bytes(self._data[start : start + 32]) if start < len(self._data) else 0
        chunk = self._data[start + 32 : start + 32 + size]
        if len(chunk) < size or start + 32 > len(self._data):
            raise Reverted("")
        return chunk

    def authorization(self) -> Authorization:
        """Return the first six arguments as an authorization."""
        data = self._data
        if len(data) < 6 * 32:
            raise Reverted("")
        return Authorization(
            Address(data[12:32]),
            Address(data[44:64]),
            int.from_bytes(data[64:96]),
            int.from_bytes(data[96:128]),
            int.from_bytes(data[128:160]),
            data[160:192],
        )
