"""Policies of a service and of a payer, one object each.

Each is an object with one method, and an object of your own with that
method can replace it: the guide's page own-parts.md shows how. The first of
a line is the default, and * costs somebody money.
help(x402sim.policies.Backoff) and so on explain each.

ServicePolicy, for Settings(policy=...):
  lost_answer  Reconcile: asks the chain until it says yes or never
               Forget*: charged and not served
  verify       VerifyFirst: each payment
  claim        ClaimFirst, ClaimAfterSettle*: after a crash, charged and not
               served
               NoClaim*: one payment, many grants
  serve        ServeSettled, ServeBeforeSettle*: served and never paid
               FailToServe*: charged and not served, by chance
  cache        NoStore: no cache stores what is paid
PayerPolicy, for world.payer(policy=...) and world.population(policy=...):
  retry        GiveUp, SameAuthorization: sends the same one again
               SameThenNew: another one, once that never pays
               NewAuthorization*, StartOver*: naive, may be charged twice
  wait_s       of a retry: seconds, or Backoff: exponential, with jitter
  sessions     PayEach, PayAndWait: until it is served
  budget       NoLimit, AtMost: what may be spent
  numbers      steps, timeout_s, within_s: see help(PayerPolicy)
Settings(reputation=...): MatchedPayments
payer.choose(rule): cheapest, best_reputation, or a function of yours

What an object of yours is given: PendingPayment, Proof, Track, Order,
Shopper, Bill, ListedService; what it returns: ChainFinding.
"""

from x402sim.payer.policies import (
    AtMost as AtMost,
    Backoff as Backoff,
    Bill as Bill,
    GiveUp as GiveUp,
    ListedService as ListedService,
    NewAuthorization as NewAuthorization,
    NoLimit as NoLimit,
    Order as Order,
    PayAndWait as PayAndWait,
    PayEach as PayEach,
    PayerPolicy as PayerPolicy,
    SameAuthorization as SameAuthorization,
    SameThenNew as SameThenNew,
    Shopper as Shopper,
    StartOver as StartOver,
    best_reputation as best_reputation,
    cheapest as cheapest,
)
from x402sim.protocol.refusals import ChainFinding as ChainFinding
from x402sim.service.policies import (
    ClaimAfterSettle as ClaimAfterSettle,
    ClaimFirst as ClaimFirst,
    FailToServe as FailToServe,
    Forget as Forget,
    MatchedPayments as MatchedPayments,
    NoClaim as NoClaim,
    NoStore as NoStore,
    PendingPayment as PendingPayment,
    Proof as Proof,
    Reconcile as Reconcile,
    ServeBeforeSettle as ServeBeforeSettle,
    ServeSettled as ServeSettled,
    ServicePolicy as ServicePolicy,
    Track as Track,
    VerifyFirst as VerifyFirst,
)

# There is no `__all__`: `help` of this module would be that of each class, two thousand lines.
