"""What a service and a payer do where they have a choice: for `Settings(policy=...)` and payers.

`ServicePolicy` says what a service does about a lost answer (`lost_answer`), whether it verifies
(`verify`), when it writes its claim (`claim`), what it pays back (`refund`) and what it serves
(`serve`), and what it tells caches (`cache`); `PayerPolicy` what a payer does about a payment that
fails (`retry`), how it pays for many requests (`sessions`) and what it may spend (`budget`). Each
is an object with one method; an own object with that method does as well. A payer's `steps` and
`timeout_s` are numbers.

    lost_answer  Reconcile, AskOnce, SettleAgain, Forget
    verify       VerifyFirst, SkipVerify
    claim        ClaimFirst, ClaimAfterVerify, ClaimAfterSettle, NoClaim
    refund       RefundAtExpiry, NeverRefund
    serve        ServeSettled, ServeConfirmed, ServeBeforeSettle, FailToServe
    cache        NoStore, CacheControl

    retry        GiveUp, SameAuthorization, SameThenNew, NewAuthorization, StartOver
    sessions     PayEach, PayAndWait, OpenSessions
    budget       NoLimit, AtMost

The first of each line is the default. What a service can do wrong, and what breaks (`run.summary`
and `run.orders` tell):

    lost_answer=Forget()           charged and not served, if the answer is lost
    lost_answer=AskOnce()          the same, if the node does not answer either
    claim=ClaimAfterSettle()       charged and not served, after a crash or a lost answer
    serve=ServeBeforeSettle()      served and never paid: served-only-if-transferred
    claim=NoClaim()                one payment, many grants in one step: one-order-per-authorization
    NoClaim, ServeBeforeSettle     the same, in one step and in two
    serve=ServeSettled()           served after a reorganisation, until the indexer looks:
                                   served-only-if-transferred
    serve=FailToServe(p)           charged and not served
    refund=NeverRefund()           a session's unspent balance is kept
    cache=CacheControl()           a shared cache serves it to everybody: served-only-if-transferred
    verify=SkipVerify()            nothing is lost: a bad signature is refused later

`Settings(reputation=...)` is `MatchedPayments` (the default), `ServedShare`, or one of your own
that reads a `Track`. A rule for `payer.choose(rule)` takes the
services, each a `ListedService`, and returns the name of one: `cheapest`, `best_reputation`,
`mixed(share)`, or one of your own.
"""

from x402sim.payer.policies import (
    AtMost as AtMost,
    GiveUp as GiveUp,
    ListedService as ListedService,
    NewAuthorization as NewAuthorization,
    NoLimit as NoLimit,
    OpenSessions as OpenSessions,
    PayAndWait as PayAndWait,
    PayEach as PayEach,
    PayerPolicy as PayerPolicy,
    SameAuthorization as SameAuthorization,
    SameThenNew as SameThenNew,
    StartOver as StartOver,
    best_reputation as best_reputation,
    cheapest as cheapest,
    mixed as mixed,
)
from x402sim.service.policies import (
    AskOnce as AskOnce,
    CacheControl as CacheControl,
    ClaimAfterSettle as ClaimAfterSettle,
    ClaimAfterVerify as ClaimAfterVerify,
    ClaimFirst as ClaimFirst,
    EndedSession as EndedSession,
    FailToServe as FailToServe,
    Forget as Forget,
    MatchedPayments as MatchedPayments,
    NeverRefund as NeverRefund,
    NoClaim as NoClaim,
    NoStore as NoStore,
    PayBack as PayBack,
    Reconcile as Reconcile,
    RefundAtExpiry as RefundAtExpiry,
    ServeBeforeSettle as ServeBeforeSettle,
    ServeConfirmed as ServeConfirmed,
    ServedShare as ServedShare,
    ServeSettled as ServeSettled,
    ServicePolicy as ServicePolicy,
    SettleAgain as SettleAgain,
    SkipVerify as SkipVerify,
    Track as Track,
    VerifyFirst as VerifyFirst,
)

__all__ = [name for name in dir() if name[0] != "_"]
