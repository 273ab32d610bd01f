"""The private keys of a BIP-39 phrase, on Ethereum's path m/44'/60'/0'/0/i (BIP-32).

Nothing is checked here: `payer.wallet.Wallet.from_mnemonic` refuses what is no phrase.
"""

import hashlib
import hmac
import unicodedata

from coincurve import PrivateKey

KNOWN = "test test test test test test test test test test test junk"
"""The phrase of anvil and Hardhat: everybody has its keys."""
_HARDENED = 1 << 31
_PATH = (44 | _HARDENED, 60 | _HARDENED, _HARDENED, 0)


def keys_of(words: str, count: int) -> list[bytes]:
    """Return the first `count` private keys of a phrase without a password, 32 bytes each."""
    text = unicodedata.normalize("NFKD", " ".join(words.split())).encode()
    seed = hashlib.pbkdf2_hmac("sha512", text, b"mnemonic", 2048)
    node = _split(hmac.digest(b"Bitcoin seed", seed, "sha512"))
    for index in _PATH:
        node = _child(*node, index)
    return [_child(*node, index)[0].secret for index in range(count)]


def _child(key: PrivateKey, chain_code: bytes, index: int) -> tuple[PrivateKey, bytes]:
    """Return a child key and its chain code; a hardened index derives from the private key."""
    parent = b"\0" + key.secret if index & _HARDENED else key.public_key.format()
    tweak, code = _halves(hmac.digest(chain_code, parent + index.to_bytes(4), "sha512"))
    return key.add(tweak), code


def _split(digest: bytes) -> tuple[PrivateKey, bytes]:
    secret, code = _halves(digest)
    return PrivateKey(secret), code


def _halves(digest: bytes) -> tuple[bytes, bytes]:
    return digest[:32], digest[32:]
