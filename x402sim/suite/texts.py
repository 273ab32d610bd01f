"""The public texts that demands come from, each named with the revision in which it was read.

The core of x402 (versions 1 and 2), its schemes, transports and extensions are named by the commit
of x402-foundation/x402 in which they were read; of version 1, of coinbase/x402.
"""

from x402sim.spec.ground import Ground, GroundType
from x402sim.spec.sentences import Sentence

_SOURCES = {
    "principles": "x402, Principles (README.md, 0022a09a)",
    "v1": "x402 version 1, {} (x402-specification-v1.md, 1ac505c1)",
    "v2": "x402 version 2, {} (x402-specification-v2.md, 8efa37d7)",
    "exact": "x402, scheme exact, {} (scheme_exact.md, 02834ce7)",
    "exact-evm": "x402, scheme exact on EVM, {} (scheme_exact_evm.md, 03f722fe)",
    "http": "x402 version 2, transport HTTP, {} (transports-v2/http.md, 03f722fe)",
    "http-v1": "x402 version 1, transport HTTP, {} (transports-v1/http.md, 5dc34292)",
    "identifier": "x402, extension payment-identifier, {} (payment_identifier.md, 0ce3e9c0)",
    "sign-in": "x402, extension sign-in-with-x, {} (sign-in-with-x.md, 1ecf9251)",
    "mcp-core": "Model Context Protocol 2025-06-18, {}",
    "mcp": "x402 version 2, transport MCP, {} (transports-v2/mcp.md, 2cbfc56b)",
    "eip-3009": "EIP-3009, {} (draft of 2020-09-28)",
    "bazaar": "x402, extension bazaar, {} (bazaar.md, 5dc34292)",
    "rfc-9110": "RFC 9110, {}",
    "rfc-9111": "RFC 9111, {}",
}


def sentence(source: str, where: str, text: str) -> Sentence:
    """Return a sentence of a source, where it stands there, and its words."""
    return Sentence(_SOURCES[source].format(where), text)


def explicit(*sentences: Sentence) -> Ground:
    """Return the ground of what these sentences state."""
    return Ground(GroundType.EXPLICIT, sentences)


def derived(*sentences: Sentence, so: str) -> Ground:
    """Return the ground of what follows from these sentences, with the step."""
    return Ground(GroundType.DERIVED, sentences, so)


def ours(*sentences: Sentence, because: str) -> Ground:
    """Return the ground of a demand of the kit: the harm, and where it happened."""
    return Ground(GroundType.OURS, sentences, because)


def silent(*sentences: Sentence, why: str) -> Ground:
    """Return the ground of an observation."""
    return Ground(GroundType.SILENT, sentences, why)
