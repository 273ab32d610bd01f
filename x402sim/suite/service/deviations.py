"""The keys of a target file that depart from a sentence of the specification.

A target file describes what the specification leaves open, and it may say more: another price,
another text. A demand judged by such a value is not kept, even if the service does what the file
says: its id is observed, and names the sentence.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from x402sim.spec.ground import Sentence, sentence
from x402sim.suite.service.target import SPEC, Target, value_of

SHAPE = tuple(
    f"payment_required.{key}" for key in ("error", "error_text", "payment_id", "requirements")
)
"""The keys that say where the parts of a 402 are, and its text."""


@dataclass(frozen=True, slots=True)
class Deviation:
    """A key of a target file ("pay.spelling"), its value, and the sentence that it departs from."""

    key: str
    value: Any
    sentence: Sentence

    def __str__(self) -> str:
        """Return the key, its value and the sentence."""
        return f"{self.key} = {json.dumps(self.value)}; {self.sentence}"


Legal = Callable[[Any, Target], bool]


def _is_no_quote(_: Any, target: Target) -> bool:
    """Accept anything for another endpoint than the quote: section 4.2 is about that one only."""
    return target.protected.path != SPEC.protected.path


_LEGAL: dict[str, Legal] = {
    "protected.amount_base": lambda value, target: value == 0 or _is_no_quote(value, target),
    "protected.content": _is_no_quote,
    "protected.fields": _is_no_quote,
    # the path, also with the prefix of a gateway
    "protected.resource": lambda value, target: (
        str(value).startswith("/") and str(value).endswith(target.protected.path)
    ),
    "payment_required.max_timeout_s": lambda value, _: value is None,
    # query parameters: section 4.3 does not show them
    "agents.path": lambda value, _: str(value).partition("?")[0] == SPEC.agents.path,
}
"""Which other values of a key are legal all the same."""
_SENTENCES = {
    "protected.amount_base": "8: Quote price",
    "protected.content": "4.2: Proof of payment accepted",
    "protected.fields": "4.2: Proof of payment accepted",
    "protected.resource": "4.2: Its resource",
    "payment_required.error": "2.2: error",
    "payment_required.error_text": "2.2: error",
    "payment_required.payment_id": "2.2: paymentId",
    "payment_required.requirements": "2.2: paymentRequirements",
    "payment_required.message": "2.2: message",
    "payment_required.network": "2.2: network",
    "payment_required.max_timeout_s": "8: maxTimeoutSeconds",
    "pay.spelling": "2.3: An opaque hex string",
    "receipt.success": "4.1: success",
    "receipt.payment_id": "4.1: paymentId | string",
    "receipt.tx_hash": "4.1: txHash",
    "receipt.timestamp": "4.1: timestamp",
    "sessions.exists": "1: Alternatively, a client funds",
    "sessions.header": "2.6: A session is identified by an id",
    "agents.exists": "1: The service also lists agents",
    "agents.path": "1: The service also lists agents",
    "llms.exists": "4.5: A plain-text index",
    "llms.path": "4.5: A plain-text index",
}
"""Each key, and the sentence that gives its default."""


def deviations(target: Target) -> dict[str, Deviation]:
    """Return the keys of a target file that depart from a sentence, in the order of the file."""
    found = {}
    for key, name in _SENTENCES.items():
        value, is_legal = value_of(target, key), _LEGAL.get(key)
        is_other = value != value_of(SPEC, key)
        if is_other and not (is_legal and is_legal(value, target)):
            found[key] = Deviation(key, value, sentence(name))
    return found
