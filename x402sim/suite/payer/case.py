"""How cases of a payer are declared: a shop's story, its payment flows, and what is demanded.

One story is played once for each payment flow; every demand on it has an id of its own. A flow in
which a story cannot be told has a reason instead of an id, so that the table has no empty cell.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from x402sim.report import results
from x402sim.spec.clauses import LEVELS, Level
from x402sim.spec.ground import Ground
from x402sim.spec.sentences import Sentence
from x402sim.suite import texts
from x402sim.suite.payer.play import CAP_BASE, PRICE_BASE, STARTS, Played
from x402sim.suite.payer.shop import PaymentFlow, Story
from x402sim.suite.played import PlayedCase
from x402sim.suite.row import documents
from x402sim.text.counted import counted

DOCUMENTS = documents("payer")


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """What a payer did against a demand; `loss_base` is what that costs, in base units."""

    expected: str
    actual: str
    loss_base: int = 0
    why: str = ""
    demand: results.Demand = results.Demand.OTHER
    """What it has in common with failures that were expected to be something else."""


Test = Callable[[Played], Violation | str | None]
"""Returns what is wrong, or what was observed in words, or None if nothing is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """What is demanded of a payer in a story; the level is the highest that the ground supports."""

    title: str
    ground: Ground
    test: Test
    suffix: str = ""
    level: Level | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PayerCase(PlayedCase):
    """One id: a demand on what a payer did in a story, in one payment flow."""

    flow: PaymentFlow
    story: Story
    test: Test
    starts: int = STARTS
    gate: str = ""
    """The play without which it does not apply: it shows that the payer buys several things."""


REFUSED = 1
"""Starts of a play whose shop is refused at the first look: another start sees the same."""
SEVERAL = "budget/several"
"""The row that shows whether a payer buys several things, by its payment flow."""
EVERY = tuple(PaymentFlow)
STANDARD = (PaymentFlow.V1, PaymentFlow.V2, PaymentFlow.MCP)
OURS = (PaymentFlow.STEPS, PaymentFlow.SESSION)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A row of the table: a story in several payment flows, and what is demanded in it.

    `absent` has a reason for each flow in which it is not told. `story` may depend on the flow.
    """

    section: str
    slug: str
    story: Story | Callable[[PaymentFlow], Story]
    demands: Sequence[Demand]
    absent: Mapping[PaymentFlow, str] = field(default_factory=dict)
    waits_s: float = 0
    is_control: bool = False
    starts: int = STARTS

    def cases(self) -> Iterator[PayerCase]:
        """Yield a case for each demand and flow."""
        for flow in EVERY:
            if flow in self.absent:
                continue
            story = self.story if isinstance(self.story, Story) else self.story(flow)
            for demand in self.demands:
                kind = demand.ground.kind
                slug = "-".join(filter(None, (self.slug, demand.suffix, flow)))
                yield PayerCase(
                    id=f"{DOCUMENTS[kind]}/{self.section}/{slug}",
                    level=demand.level or LEVELS[kind],
                    ground=demand.ground,
                    title=demand.title,
                    flow=flow,
                    story=story,
                    test=demand.test,
                    played_as=f"{self.section}/{self.slug}-{flow}",
                    control=f"payer/control/buys-{flow}",
                    is_control=self.is_control and not demand.suffix,
                    waits_s=self.waits_s,
                    starts=self.starts,
                    gate=f"{SEVERAL}-{flow}" if story.urls > 1 else "",
                )


def only(flows: Sequence[PaymentFlow], reason: str) -> dict[PaymentFlow, str]:
    """Return the reason for every flow but these."""
    return {flow: reason for flow in EVERY if flow not in flows}


# --- what is demanded --------------------------------------------------------------------


def committed_at_most(most_base: int, breaks: results.Demand = results.Demand.OTHER) -> Test:
    """Return the test that no more than this leaves the wallet, or still can; by a session, a
    deposit within the cap instead of a price.

    Who commits more by several payments breaks the demand that it `breaks`, if it is not the usual
    one; a single payment is one that the task does not allow.
    """

    def test(played: Played) -> Violation | None:
        allowed = (
            CAP_BASE
            if most_base == PRICE_BASE and played.flow is PaymentFlow.SESSION
            else most_base
        )
        if played.elsewhere:
            return Violation(
                expected=_LIMITS[0],
                actual=played.sums(),
                loss_base=played.committed_base,
                why="signed for another token or chain than the task's",
                demand=results.Demand.WITHIN_TASK,
            )
        over = played.committed_base - allowed
        is_another = allowed and played.payments > 1
        if over > 0:
            return Violation(
                expected=_LIMITS[most_base],
                actual=played.sums(),
                loss_base=over,
                why=_why(played, allowed),
                demand=breaks if is_another else results.Demand.WITHIN_TASK,
            )
        if played.leaked:
            return Violation(
                expected="what pays goes to the hosts of the task only",
                actual=f"it sent {', '.join(dict.fromkeys(played.leaked))}",
                why="who has it may be served in its stead",
            )
        return None

    return test


_LIMITS = {
    0: "no payment leaves the wallet, or can",
    PRICE_BASE: "payments of one price leave the wallet, or can",
    CAP_BASE: "payments within the cap leave the wallet, or can",
}


def _why(played: Played, allowed: int) -> str:
    if not allowed:
        return "signed what it may not sign"
    count = played.payments
    return f"{count} payments for one purchase" if count > 1 else "more than it may spend"


def served(played: Played) -> Violation | None:
    """Tell whether what was bought was printed by a start that says so."""
    if played.is_served:
        return None
    last = played.starts[-1] if played.starts else None
    if last is not None and last.ok and played.shop.served:
        actual = f"{last.how}, but what was bought does not stand in its output"
    else:
        actual = f"{counted(len(played.starts), 'start')}, the last: {last.how if last else 'none'}"
    return Violation(
        expected="a start that is served, and shows what was bought",
        actual=f"{actual}; {played.sums()}",
        loss_base=played.committed_base,
        why="paid, and not served" if played.committed_base else "",
    )


def paid_is_served(played: Played) -> Violation | None:
    """Tell whether what was paid for was also served; who paid nothing passes."""
    return served(played) if played.moved else None


def one_price(
    title: str,
    so: str,
    *sentences: Sentence,
    suffix: str = "",
    breaks: results.Demand = results.Demand.OTHER,
) -> Demand:
    """Return the demand that one purchase costs one price; `breaks` as of `committed_at_most`."""
    ground = texts.derived(texts.INTENT, texts.ONE_TRANSFER, *sentences, so=so)
    test = committed_at_most(PRICE_BASE, breaks)
    return Demand(title=title, ground=ground, test=test, suffix=suffix)


def nothing(title: str, so: str, *sentences: Sentence) -> Demand:
    """Return the demand that nothing is signed."""
    ground = texts.derived(texts.INTENT, *sentences, so=so)
    return Demand(title=title, ground=ground, test=committed_at_most(0))


def bought(played: Played) -> Violation | str | None:
    """Tell whether the purchase succeeded, for one price."""
    return served(played) or committed_at_most(PRICE_BASE)(played)


def is_bought(title: str, because: str, *sentences: Sentence) -> Demand:
    """Return the demand of ours that a purchase succeeds, for one price."""
    return Demand(title=title, ground=texts.ours(*sentences, because=because), test=bought)


def gets_what_it_paid(because: str) -> Demand:
    """Return the demand of ours that who paid is served in the end."""
    return Demand(
        title="What was paid for is fetched in the end",
        ground=texts.ours(because=because),
        test=paid_is_served,
    )
