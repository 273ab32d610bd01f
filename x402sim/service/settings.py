"""The settings of one service: every number that the specification gives or leaves open.

What connects a service (keys, URLs, network) is its `Environment`.
Clauses: 8/quote-price, 8/timeout, 8/cache-lifetime, 8/cache-sweep, 8/indexer-interval,
8/indexer-batch.
"""

from dataclasses import dataclass, field

from x402sim.durations import ServiceTime, require_servers
from x402sim.protocol.money import to_base
from x402sim.protocol.x402 import PaymentFlow
from x402sim.service.goods import Good
from x402sim.service.policies import MatchedPayments, Reputation, ServicePolicy
from x402sim.spec.decisions import Decisions
from x402sim.text.arguments import (
    AboveZero,
    FromZero,
    WholeAboveZero,
    WholeFromZero,
    explained,
    require_kind,
)
from x402sim.text.words import as_given

MOST_DECIMALS = 77
"""The fraction digits that a price may have here; the network's decimals limit it further."""


@explained
@dataclass(frozen=True, kw_only=True)
class Settings:
    """The settings of one service; durations in seconds, money in tokens, as text.

    The defaults are the numbers of the specification, whose clause is named, and where it gives
    none, ours. Raises `ValueError` for an impossible value.

    quote_price
        The price of a quote in tokens; default "0.01" (8/quote-price).
    sells
        Goods of your own, a tuple of `Good`; default (). `LocalServer(sells=...)` makes it.
    one_step
        Whether protected endpoints take a payment in the request itself, as the x402 standard sends
        it, in X-PAYMENT or PAYMENT-SIGNATURE; default True (5/one-step).
    payment_flow
        When a payment in one step is settled. "authorization": the facilitator verifies it, the
        endpoint works, the payment is settled, the answer goes out. "upfront": the payment is
        settled, and then the endpoint works. The 402 then has this word of the standard in
        `extra.paymentFlow`. The default None is like "authorization", but verifies only when it
        settles (5/payment-flow).
    max_timeout_s
        Whole seconds for which a 402 can be paid; default 300 (8/timeout). After a restart with
        another value, a 402 that was issued before cannot be paid any more.
    longest_window_s
        The most seconds from now until an authorization's validBefore; default 86400, and never
        less than twice `max_timeout_s` (4.1/longest-window).
    entitlement_lifetime_s
        Seconds that an entitlement stays in the cache; default 86400 (8/cache-lifetime).
    entitlement_sweep_s
        Seconds between sweeps that discard expired entitlements; default 3600 (8/cache-sweep).
    indexer_interval_s
        Seconds between runs of the payment indexer; default 300 (8/indexer-interval).
    indexer_batch
        The most payment records that one run of the indexer takes, the newest first, so that older
        ones wait for ever if more come; default 100 (8/indexer-batch).
    final_depth
        Blocks on top of a transfer's block until it is not looked at again; default 12
        (8/final-depth).
    reconcile_interval_s
        Seconds between looks at pending payments; default 15.
    pending_wait_s
        Seconds until an unresolved payment is looked at again, the first wait and the longest;
        default (15, 60).
    session_sweep_s
        Seconds between sweeps that end and refund expired sessions; default 10.
    verify_timeout_s, settle_timeout_s, explorer_timeout_s
        Seconds until a call of the facilitator, or of the explorer or the node, is given up;
        default 30, 60 and 10.
    servers, service_time_s, queue_length
        How many requests it serves at a time, how long each takes, and how many can wait, as in
        `FacilitatorSettings`; default None, no limit. A server is busy while the service waits for
        its facilitator, too.
    reputation
        What the reputations in the list of agents are: `MatchedPayments()` of `x402sim.policies`
        (the default), or one of your own (6/reputation).
    facilitator
        The name of the facilitator that it uses; default None, the world's first.
    network
        The name of the network that it accepts; default None, the world's first. The first service
        of a world is on the first.
    phase
        Seconds from the beginning of a world to the first turn of periodic work, modulo its
        interval. The default None draws a phase for each kind of work from the seed, so that
        nothing ticks in step; 0 starts all intervals with the world.
    decisions
        The choices where the specification is silent, a `Decisions` object.
    policy
        What it does about lost answers, verification, its claim and requests, a
        `ServicePolicy` of `x402sim.policies`.

    >>> from x402sim import Settings, World
    >>> world = World(service=Settings(quote_price="0.05", session_sweep_s=60))
    """

    quote_price: str = "0.01"
    sells: tuple[Good, ...] = ()
    one_step: bool = True
    payment_flow: PaymentFlow | None = None
    max_timeout_s: WholeAboveZero = 300
    longest_window_s: AboveZero = 24 * 3600
    entitlement_lifetime_s: AboveZero = 24 * 3600
    entitlement_sweep_s: AboveZero = 3600
    indexer_interval_s: AboveZero = 300
    indexer_batch: WholeAboveZero = 100
    final_depth: WholeFromZero = 12

    reconcile_interval_s: AboveZero = 15
    pending_wait_s: tuple[float, float] = (15, 60)
    session_sweep_s: AboveZero = 10

    verify_timeout_s: AboveZero = 30
    settle_timeout_s: AboveZero = 60
    explorer_timeout_s: AboveZero = 10

    servers: WholeAboveZero | None = None
    service_time_s: ServiceTime | None = None
    queue_length: WholeFromZero | None = None

    reputation: Reputation = MatchedPayments()  # noqa: RUF009 - frozen, without state
    facilitator: str | None = None
    network: str | None = None
    phase: FromZero | None = None
    decisions: Decisions = field(default_factory=Decisions)
    policy: ServicePolicy = field(default_factory=ServicePolicy)

    def __post_init__(self) -> None:
        try:
            price = to_base(self.quote_price, MOST_DECIMALS)
        except (TypeError, ValueError) as wrong:
            raise ValueError(f"quote_price: {wrong}") from None
        if price == 0:
            raise ValueError(
                f"quote_price: expected more than 0 tokens, got {as_given(self.quote_price)}"
            )
        if self.payment_flow is None and any(good.works for good in self.sells):
            raise ValueError(
                "payment_flow: 'authorization' or 'upfront' is wanted: an answer of `sells` costs "
                "work, which payments that nobody has verified would cause"
            )
        if self.payment_flow == "upfront" and self.policy.serves_first:
            raise ValueError("payment_flow: 'upfront' settles first, and the policy serve does not")
        require_servers(self.servers, self.service_time_s, self.queue_length)
        waits: object = self.pending_wait_s
        if not isinstance(waits, tuple) or len(waits) != 2:
            raise ValueError(
                f"pending_wait_s: expected (first, longest) in seconds, got {as_given(waits)}"
            )
        for seconds in waits:
            require_kind("pending_wait_s", seconds, AboveZero)
        if waits[0] > waits[1]:
            raise ValueError(
                f"pending_wait_s: the first wait is longer than the longest, {as_given(waits)}"
            )
