"""Self-authenticating ids: a service reads own ids without storing ids.

A sealed text is a MAC + the enciphered content; the MAC is also the cipher's IV. So a text is
opaque, nobody can guess or change a text, and equal contents give equal texts.
Clauses: 2.2/payment-id.
"""

import hmac
import re
from binascii import a2b_base64, b2a_base64
from hashlib import blake2b

MAC_BYTES = 16
CONTENT_BYTES = 29
"""The fewest bytes of a content. With the MAC 45 bytes, which are 60 letters of base64 without
padding; a longer content has a multiple of 3 bytes more."""
_URL_SAFE, _STANDARD = bytes.maketrans(b"+/", b"-_"), bytes.maketrans(b"-_", b"+/")
_SPELLING = re.compile("[A-Za-z0-9_-]{60}(?:[A-Za-z0-9_-]{4})*")


class Seal:
    """A secret key of at most 64 bytes, and the context of valid texts.

    Both hashes are keyed BLAKE2b, and have read the part common to all texts.
    """

    def __init__(self, key: bytes, context: bytes) -> None:
        self._macs = blake2b(context, key=key, digest_size=MAC_BYTES, person=b"mac")
        self._ciphers = blake2b(key=key, digest_size=CONTENT_BYTES, person=b"cipher")

    def seal(self, content: bytes) -> str:
        """Return the sealed text of 29 bytes, or 3, 6, 9… more."""
        mac = self._mac(content)
        text = b2a_base64(mac + self._cipher(mac, content), newline=False)
        return text.translate(_URL_SAFE).decode()

    def open(self, text: str) -> bytes | None:
        """Return the content of a text; None if it was not sealed here."""
        if not _SPELLING.fullmatch(text):
            return None
        raw = a2b_base64(text.encode().translate(_STANDARD))
        mac, sealed = raw[:MAC_BYTES], raw[MAC_BYTES:]
        content = self._cipher(mac, sealed)
        return content if hmac.compare_digest(mac, self._mac(content)) else None

    def _mac(self, content: bytes) -> bytes:
        mac = self._macs.copy()
        mac.update(content)
        return mac.digest()

    def _cipher(self, mac: bytes, text: bytes) -> bytes:
        """Encipher or decipher a content under the MAC of its plain text."""
        cipher, key = self._ciphers.copy(), b""
        while len(key) < len(text):  # most contents need one turn
            cipher.update(mac)
            key += cipher.digest()
        return (int.from_bytes(text) ^ int.from_bytes(key[: len(text)])).to_bytes(len(text))
