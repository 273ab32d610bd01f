"""The keys of a target file that depart from a sentence of the specification.

A target file describes what the specification leaves open, and it may say more: another price,
another text. A demand judged by such a value is not kept, even if the service does what the file
says: its id is observed, and names the sentence.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from x402sim.spec.sentences import Sentence, sentence
from x402sim.suite.target import Target

SPEC = Target()
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


def _no(value: Any, target: Target) -> bool:
    return False


def _no_quote(value: Any, target: Target) -> bool:
    """Accept anything for another endpoint than the quote: section 4.2 is about that one only."""
    return target.protected.path != SPEC.protected.path


def _price(value: Any, target: Target) -> bool:
    return value == 0 or _no_quote(value, target)


def _resource(value: Any, target: Target) -> bool:
    """Accept the path, also with the prefix of a gateway."""
    return str(value).startswith("/") and str(value).endswith(target.protected.path)


def _query(value: Any, target: Target) -> bool:
    """Accept query parameters: section 4.3 does not show them."""
    return str(value).partition("?")[0] == SPEC.agents.path


def _open(value: Any, target: Target) -> bool:
    return value is None


_RULES: tuple[tuple[str, str, Legal], ...] = (
    ("protected.amount_base", "8: Quote price", _price),
    ("protected.content", "4.2: Proof of payment accepted", _no_quote),
    ("protected.fields", "4.2: Proof of payment accepted", _no_quote),
    ("protected.resource", "4.2: Its resource", _resource),
    ("payment_required.error", "2.2: error", _no),
    ("payment_required.error_text", "2.2: error", _no),
    ("payment_required.payment_id", "2.2: paymentId", _no),
    ("payment_required.requirements", "2.2: paymentRequirements", _no),
    ("payment_required.message", "2.2: message", _no),
    ("payment_required.network", "2.2: network", _no),
    ("payment_required.max_timeout_s", "8: maxTimeoutSeconds", _open),
    ("pay.spelling", "2.3: An opaque hex string", _no),
    ("receipt.success", "4.1: success", _no),
    ("receipt.payment_id", "4.1: paymentId | string", _no),
    ("receipt.tx_hash", "4.1: txHash", _no),
    ("receipt.timestamp", "4.1: timestamp", _no),
    ("sessions.exists", "1: Alternatively, a client funds", _no),
    ("agents.exists", "1: The service also lists agents", _no),
    ("agents.path", "1: The service also lists agents", _query),
    ("llms.exists", "4.5: A plain-text index", _no),
    ("llms.path", "4.5: A plain-text index", _no),
)
"""A key, the sentence that gives its default, and which other values are legal all the same."""


_OF_TWO_STEPS = ("payment_required.", "pay.", "receipt.")
"""Tables of which a service that is paid in one step has nothing."""


def deviations(target: Target) -> dict[str, Deviation]:
    """Return the keys of a target file that depart from a sentence, in the order of the file."""
    found = {}
    for key, name, is_legal in _RULES:
        if target.is_one_step and key.startswith(_OF_TWO_STEPS):
            continue
        value = _value(target, key)
        if value != _value(SPEC, key) and not is_legal(value, target):
            found[key] = Deviation(key, value, sentence(name))
    return found


def _value(target: Target, key: str) -> Any:
    table, name = key.split(".")
    return getattr(getattr(target, table), name)
