"""Calldata and addresses; the digests are in the vectors, `tests/suite_vectors/permit2.py`."""

from x402sim.protocol.crypto import checksum
from x402sim.protocol.permit2 import (
    EXACT_PROXY,
    PERMIT2,
    UPTO_PROXY,
    separator,
)


def test_the_addresses_and_the_domain_of_ethereum_are_the_published_ones():
    assert checksum(PERMIT2) == "0x000000000022D473030F116dDEE9F6B43aC78BA3"
    assert checksum(EXACT_PROXY) == "0x402085c248EeA27D92E8b30b2C58ed07f9E20001"
    assert checksum(UPTO_PROXY) == "0x4020A4f3b7b90ccA423B9fabCc0CE57C6C240002"
    published = "866a5aba21966af95d6c7ab78eb2b2fc913915c28be3b9aa07cc04ff903e3f28"
    assert separator(1).hex() == published
