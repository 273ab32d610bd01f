"""The private keys of a BIP-39 phrase, on Ethereum's path m/44'/60'/0'/0/i (BIP-32).

Nothing is checked here: `payer.wallet.Wallet.from_mnemonic` refuses what is no phrase.
"""

import hashlib
import hmac
import unicodedata

from btclib_secp256k1.keys import prvkey_tweak_add, pubkey_from_prvkey

KNOWN = "test test test test test test test test test test test junk"
"""The phrase of anvil and Hardhat: everybody has its keys."""
_HARDENED = 1 << 31
_PATH = (44 | _HARDENED, 60 | _HARDENED, _HARDENED, 0)


def keys_of(words: str, count: int) -> list[bytes]:
    """Return the first `count` private keys of a phrase without a password, 32 bytes each."""
    text = unicodedata.normalize("NFKD", " ".join(words.split())).encode()
    seed = hashlib.pbkdf2_hmac("sha512", text, b"mnemonic", 2048)
    root = hmac.digest(b"Bitcoin seed", seed, "sha512")
    key, chain_code = root[:32], root[32:]
    for index in _PATH:
        key, chain_code = _child(key, chain_code, index)
    return [_child(key, chain_code, index)[0] for index in range(count)]


def _child(key: bytes, chain_code: bytes, index: int) -> tuple[bytes, bytes]:
    """Return a child key and its chain code; a hardened index derives from the private key."""
    parent = b"\0" + key if index & _HARDENED else pubkey_from_prvkey(key)
    digest = hmac.digest(chain_code, parent + index.to_bytes(4), "sha512")
    return prvkey_tweak_add(key, digest[:32]), digest[32:]
