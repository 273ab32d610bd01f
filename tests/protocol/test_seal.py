"""Sealed texts: their MAC and their cipher are HMAC-SHA256, as the standard library has it."""

import base64
import hmac

from hypothesis import given, strategies as st

from x402sim.protocol.seal import CONTENT_BYTES, MAC_BYTES, Seal


@given(
    st.binary(min_size=1, max_size=64),
    st.binary(max_size=80),
    st.binary(min_size=CONTENT_BYTES, max_size=CONTENT_BYTES),
)
def test_a_sealed_text_is_made_by_hmac(key: bytes, context: bytes, content: bytes) -> None:
    mac = hmac.digest(key, context + content, "sha256")[:MAC_BYTES]
    stream = hmac.digest(key, b"cipher" + mac, "sha256")
    sealed = bytes(a ^ b for a, b in zip(content, stream, strict=False))
    text = Seal(key, context).seal(content)
    assert base64.urlsafe_b64decode(text) == mac + sealed
    assert Seal(key, context).open(text) == content
