"""Sealed texts: their MAC and their cipher are keyed BLAKE2b, begun anew for each."""

import base64
from hashlib import blake2b

from hypothesis import given, strategies as st

from x402sim.protocol.seal import CONTENT_BYTES, MAC_BYTES, Seal


@given(
    st.binary(min_size=1, max_size=64),
    st.binary(max_size=80),
    st.binary(min_size=CONTENT_BYTES, max_size=CONTENT_BYTES),
)
def test_a_sealed_text_is_made_by_blake2b(key: bytes, context: bytes, content: bytes) -> None:
    mac = blake2b(context + content, key=key, digest_size=MAC_BYTES, person=b"mac").digest()
    stream = blake2b(mac, key=key, digest_size=CONTENT_BYTES, person=b"cipher").digest()
    sealed = bytes(a ^ b for a, b in zip(content, stream, strict=True))
    text = Seal(key, context).seal(content)
    assert base64.urlsafe_b64decode(text) == mac + sealed
    assert Seal(key, context).open(text) == content
