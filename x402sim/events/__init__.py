"""The events: every one that a journal can hold, declared once.

An event's name in the journal is its class name in words: `PaymentSettled` is "payment settled".
All its fields are written, in the order of the declaration, which is part of the journal's format.
Units are in the names: `_base` is base units of the token, `_ms` Unix milliseconds, `_s` and
`seconds` seconds, `_wei` wei. A number that may exceed 63 bits (an amount on the chain, a price in
wei) is a decimal string. `python -m x402sim events` prints the reference that is made from these
files.

To add an event: declare it in the file of its actor (`story`, `chain`, `service`, `exchange`);
import it here as itself (this exports it), and add it to its union; record it where it happens.
mypy names every reader that must handle it then. The format has changed: raise `VERSION` in
journal/entries.py, add the line to FORMAT in tests/house/test_events.py, and renew the golden
journals.
"""

from typing import get_args

from x402sim.events.base import (
    MAX_REASON as MAX_REASON,
    MAX_TEXT as MAX_TEXT,
    MOST_SERVICES as MOST_SERVICES,
    OUTSIDE as OUTSIDE,
    Outcome as Outcome,
    Part as Part,
    Scalar as Scalar,
    Seconds as Seconds,
    ServiceName as ServiceName,
    Skewable as Skewable,
    clipped as clipped,
    name_of as name_of,
    service_name as service_name,
)
from x402sim.events.chain import (
    AuthorizationConsumed as AuthorizationConsumed,
    TransactionMined as TransactionMined,
    TransactionUndone as TransactionUndone,
    Transfer as Transfer,
)
from x402sim.events.exchange import (
    AnswerReceived as AnswerReceived,
    AnswerSent as AnswerSent,
    NoAnswer as NoAnswer,
    RequestSent as RequestSent,
)
from x402sim.events.service import (
    IndexerRan as IndexerRan,
    PaidAgain as PaidAgain,
    PaymentFailed as PaymentFailed,
    PaymentIndexed as PaymentIndexed,
    PaymentRefused as PaymentRefused,
    PaymentSettled as PaymentSettled,
    PaymentUndone as PaymentUndone,
    RefundDelayed as RefundDelayed,
    RefundUndone as RefundUndone,
    SessionDebited as SessionDebited,
    SessionOpened as SessionOpened,
    SessionRefunded as SessionRefunded,
    SessionsExpired as SessionsExpired,
    SettlementAnswerLost as SettlementAnswerLost,
    TransactionReplaced as TransactionReplaced,
)
from x402sim.events.story import (
    Begin as Begin,
    ChainReorganised as ChainReorganised,
    Check as Check,
    ClockSkewed as ClockSkewed,
    End as End,
    ExplorerLagged as ExplorerLagged,
    FaultInjected as FaultInjected,
    MempoolDropped as MempoolDropped,
    MiningSwitched as MiningSwitched,
    Note as Note,
    PayerJoined as PayerJoined,
    RevertsForced as RevertsForced,
    ServiceCrashed as ServiceCrashed,
    ServiceJoined as ServiceJoined,
    StoryRaised as StoryRaised,
    TimeAdvanced as TimeAdvanced,
)

Intervention = (
    TimeAdvanced | FaultInjected | ClockSkewed | ExplorerLagged | ServiceCrashed
    | MiningSwitched | ChainReorganised | MempoolDropped | RevertsForced
)  # fmt: skip
"""Actions of a story on its world."""
StoryEvent = Begin | End | ServiceJoined | PayerJoined | Intervention | Check | StoryRaised | Note
"""Events of a story or its world; the actor is "world"."""
ChainEvent = TransactionMined | Transfer | AuthorizationConsumed | TransactionUndone
"""Events of a chain; the actor is "chain", and of a further network's "chain NAME"."""
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
