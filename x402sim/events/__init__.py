"""The events: every one that a journal can hold, declared once.

An event's name in the journal is its class name in words: `PaymentSettled` is "payment settled".
All its fields are written, in the order of the declaration, which is part of the journal's format.
Units are in the names: `_base` is base units of the token, `_ms` Unix milliseconds, `_s` and
`seconds` seconds, `_wei` wei. A number that may exceed 63 bits (an amount on the chain, a price in
wei) is a decimal string. `python -m x402sim events` prints the reference that is made from these
files.

To add an event: declare it in the file of its actor (`story`, `chain`, `service`, `exchange`); add
it here to its union and to `__all__`; record it where it happens. mypy then names every reader that
must handle it. The format has changed: raise `VERSION` in journal/entries.py, add the line to
FORMAT in tests/house/test_events.py, and renew the golden journals.
"""

from typing import get_args

from x402sim.events.base import (
    MAX_REASON,
    MAX_TEXT,
    MOST_SERVICES,
    OUTSIDE,
    Outcome,
    Part,
    Scalar,
    Seconds,
    ServiceName,
    Skewable,
    clipped,
    name_of,
    service_name,
)
from x402sim.events.chain import (
    AuthorizationConsumed,
    TransactionMined,
    TransactionUndone,
    Transfer,
)
from x402sim.events.exchange import (
    AnswerReceived,
    AnswerSent,
    NoAnswer,
    RequestSent,
)
from x402sim.events.service import (
    IndexerRan,
    PaidAgain,
    PaymentFailed,
    PaymentIndexed,
    PaymentRefused,
    PaymentSettled,
    PaymentUndone,
    RefundDelayed,
    RefundUndone,
    SessionDebited,
    SessionOpened,
    SessionRefunded,
    SessionsExpired,
    SettlementAnswerLost,
    TransactionReplaced,
)
from x402sim.events.story import (
    Begin,
    ChainReorganised,
    Check,
    ClockSkewed,
    End,
    ExplorerLagged,
    FaultInjected,
    MempoolDropped,
    MiningSwitched,
    Note,
    PayerJoined,
    RevertsForced,
    ServiceCrashed,
    ServiceJoined,
    StoryRaised,
    TimeAdvanced,
)

__all__ = [
    "KINDS",
    "MAX_REASON",
    "MAX_TEXT",
    "MOST_SERVICES",
    "OUTSIDE",
    "AnswerReceived",
    "AnswerSent",
    "AuthorizationConsumed",
    "Begin",
    "ChainEvent",
    "ChainReorganised",
    "Check",
    "ClockSkewed",
    "End",
    "Event",
    "ExchangeEvent",
    "ExplorerLagged",
    "FaultInjected",
    "IndexerRan",
    "Intervention",
    "MempoolDropped",
    "MiningSwitched",
    "NoAnswer",
    "Note",
    "Outcome",
    "PaidAgain",
    "Part",
    "PayerJoined",
    "PaymentFailed",
    "PaymentIndexed",
    "PaymentRefused",
    "PaymentSettled",
    "PaymentUndone",
    "RefundDelayed",
    "RefundUndone",
    "RequestSent",
    "RevertsForced",
    "Scalar",
    "Seconds",
    "ServiceCrashed",
    "ServiceEvent",
    "ServiceJoined",
    "ServiceName",
    "SessionDebited",
    "SessionOpened",
    "SessionRefunded",
    "SessionsExpired",
    "SettlementAnswerLost",
    "Skewable",
    "StoryEvent",
    "StoryRaised",
    "TimeAdvanced",
    "TransactionMined",
    "TransactionReplaced",
    "TransactionUndone",
    "Transfer",
    "clipped",
    "name_of",
    "service_name",
]

Intervention = (
    TimeAdvanced | FaultInjected | ClockSkewed | ExplorerLagged | ServiceCrashed
    | MiningSwitched | ChainReorganised | MempoolDropped | RevertsForced
)  # fmt: skip
"""Actions of a story on its world."""
StoryEvent = Begin | End | ServiceJoined | PayerJoined | Intervention | Check | StoryRaised | Note
"""Events of a story or its world; the actor is "world"."""
ChainEvent = TransactionMined | Transfer | AuthorizationConsumed | TransactionUndone
"""Events of the chain; the actor is "chain"."""
ServiceEvent = (
    PaymentSettled | PaymentRefused | PaymentFailed | PaymentUndone | PaidAgain
    | TransactionReplaced | PaymentIndexed | SettlementAnswerLost | SessionOpened
    | SessionDebited | SessionsExpired | SessionRefunded | RefundDelayed | RefundUndone | IndexerRan
)  # fmt: skip
"""Events of a service; the actor is its name."""
ExchangeEvent = RequestSent | AnswerReceived | NoAnswer
"""Events of an exchange, as seen by the caller, who is the actor."""
Event = StoryEvent | ChainEvent | ServiceEvent | ExchangeEvent | AnswerSent
"""Any event."""
KINDS: tuple[type[Event], ...] = get_args(Event)
"""The class of every event."""
