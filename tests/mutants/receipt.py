"""Defects of the receipt: what a settlement answers."""

from collections.abc import Callable
from typing import Any

from tests.mutants.change import Change
from tests.mutants.middleware import answers, statuses
from tests.mutants.mutant import Kind
from tests.mutants.paying import PAY

receipt = Kind("receipt")


def body(change: Callable[[Any], Any]) -> Change:
    """Change the body of every receipt."""
    return answers(200, PAY, lambda it: change(it) if "txHash" in it else None)


def row(name: str, does: str, change: Change) -> None:
    """Add a row of this class."""
    receipt(name, "4.1/receipt", does, change)


# --- the defects ---

row("time-in-seconds", "The timestamp is in seconds.",
    body(lambda it: it.update(timestamp=it["timestamp"] // 1000)))  # fmt: skip
row("time-as-text", "The timestamp is a string of ISO 8601.",
    body(lambda it: it.update(timestamp="2027-01-15T08:00:00Z")))  # fmt: skip
row("hash-without-0x", "The transaction hash is written without 0x.",
    body(lambda it: it.update(txHash=it["txHash"][2:])))  # fmt: skip
row("hash-of-nothing", "The transaction hash is of no transaction on the chain.",
    body(lambda it: it.update(txHash="0x" + it["txHash"][:1:-1])))  # fmt: skip
row("hash-is-missing", "The transaction hash is null.", body(lambda it: it.update(txHash=None)))
row("success-as-text", 'success is the string "true".', body(lambda it: it.update(success="true")))
row("success-is-missing", "There is no success in the receipt.",
    body(lambda it: it.pop("success") and None))  # fmt: skip
row("id-is-missing", "There is no payment id in the receipt.",
    body(lambda it: it.pop("paymentId") and None))  # fmt: skip
row("settled-is-201", "A settlement is answered 201.", statuses(PAY, 200, 201))
