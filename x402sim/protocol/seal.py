"""Self-authenticating ids: a service reads its own without storing them.

A sealed text is a MAC + the enciphered content; the MAC is also the cipher's IV. So it is opaque,
nobody can guess or change one, and equal contents give equal texts.
Clauses: 2.2/payment-id.
"""

import base64
import hmac
import re
from collections.abc import Callable
from hashlib import sha256

MAC_BYTES = 16
CONTENT_BYTES = 29
"""With the MAC 45 bytes, which are 60 letters of base64 without padding."""
_SPELLING = re.compile("[A-Za-z0-9_-]{60}")


def _hmac_from(key: bytes, begin: bytes) -> Callable[[bytes], bytes]:
    """Return HMAC-SHA256 (RFC 2104) of texts that begin so; the key has at most 64 bytes.

    To copy hashes that have read key and beginning takes half of what `hmac` takes.
    """
    block = key.ljust(64, b"\0")
    inner = sha256(bytes(byte ^ 0x36 for byte in block) + begin)
    outer = sha256(bytes(byte ^ 0x5C for byte in block))

    def digest(rest: bytes) -> bytes:
        within, whole = inner.copy(), outer.copy()
        within.update(rest)
        whole.update(within.digest())
        return whole.digest()

    return digest


class Seal:
    """A secret key, and the context that a sealed text is valid in."""

    def __init__(self, key: bytes, context: bytes) -> None:
        self._macs, self._ciphers = _hmac_from(key, context), _hmac_from(key, b"cipher")

    def seal(self, content: bytes) -> str:
        """Return the sealed text of 29 bytes."""
        mac = self._mac(content)
        return base64.urlsafe_b64encode(mac + self._cipher(mac, content)).decode()

    def open(self, text: str) -> bytes | None:
        """Return the content of a text; None if it was not sealed here."""
        if not _SPELLING.fullmatch(text):
            return None
        raw = base64.urlsafe_b64decode(text)
        mac, sealed = raw[:MAC_BYTES], raw[MAC_BYTES:]
        content = self._cipher(mac, sealed)
        return content if hmac.compare_digest(mac, self._mac(content)) else None

    def _mac(self, content: bytes) -> bytes:
        return self._macs(content)[:MAC_BYTES]

    def _cipher(self, mac: bytes, text: bytes) -> bytes:
        """Encipher or decipher at most 32 bytes under the MAC of their plain text."""
        stream = self._ciphers(mac)[: len(text)]
        return (int.from_bytes(text) ^ int.from_bytes(stream)).to_bytes(len(text))
