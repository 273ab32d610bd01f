"""Declares cases of a payer: a row is the story of a shop, and the demands on a payer there."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from x402sim.spec.ground import Sentence
from x402sim.suite import row, texts
from x402sim.suite.case import Case
from x402sim.suite.dialect import BY_PERMIT2, OF_PAYERS, Dialect
from x402sim.suite.payer.play import (
    CAP_BASE,
    PRICE_BASE,
    STARTS,
    TAKES_NO,
    Bound,
    Purchase,
)
from x402sim.suite.payer.shop import Story
from x402sim.suite.report import results
from x402sim.suite.row import Demand as Demand, demand as demand
from x402sim.suite.verdict import Found, Violation as Violation
from x402sim.text.words import counted

Test = Callable[[Purchase], Found]
"""Returns a violation, an observation in words, or None if nothing is wrong."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PayerCase(Case):
    """A demand on a payer's payments in a story, in one dialect."""

    dialect: Dialect
    story: Story
    test: Test
    starts: int = STARTS
    gate: str = ""
    """The play that shows whether the payer buys several things; without such a payer, the case
    does not apply."""


REFUSED = 1
"""Starts of a play whose shop the payer refuses at once: another start would show the same."""
SEVERAL = "budget/several"
"""The row that shows whether a payer buys several things, by its dialect."""
OURS = (Dialect.STEPS, Dialect.SESSION)
STANDARD = (Dialect.V1, Dialect.V2, Dialect.MCP)
_AS_V2 = dict.fromkeys(("send", "hostile", "extension"), "as in v2, whatever is signed")
"""Why the sections about what is read and sent are not played by Permit2."""


def only(kept: Sequence[Dialect], reason: str) -> dict[Dialect, str]:
    """Return the reason for every dialect but the kept; version 2 keeps payments by Permit2."""
    return row.only([*kept, *(BY_PERMIT2 if Dialect.V2 in kept else ())], reason)


@dataclass(frozen=True, slots=True, kw_only=True)
class PayerRow(row.Row):
    """A row of the table of payers: a story, which may depend on the dialect."""

    subject: ClassVar[str] = "payer"
    control: ClassVar[str] = "buys"
    dialects: ClassVar[Sequence[Dialect]] = OF_PAYERS
    not_played: ClassVar[Mapping[Any, Mapping[str, str]]] = dict.fromkeys(BY_PERMIT2, _AS_V2)

    play: Story | Callable[[Dialect], Story]
    starts: int = STARTS

    def case(self, dialect: Dialect, demand: Demand, common: dict[str, Any]) -> PayerCase:
        """Return the case of a demand in a dialect."""
        story = self.play if isinstance(self.play, Story) else self.play(dialect)
        gate = f"{SEVERAL}-{dialect}" if story.urls > 1 else ""
        return PayerCase(
            dialect=dialect, story=story, test=demand.test, starts=self.starts, gate=gate, **common
        )


case = PayerRow.of
"""Declares cases: `case("section/slug", *demands)(story)`."""


# --- demands -----------------------------------------------------------------------------


def committed_at_most(most_base: int, breaks: results.DemandKey = results.DemandKey.OTHER) -> Test:
    """Return the test that at most `most_base` base units have left the wallet, or still can.

    Signed money can still leave the wallet. In a session, a deposit within the cap takes the place
    of the price. If only the sum of several payments is too much, the demand `breaks` fails; if a
    single payment is too much, the demand on the task's bounds. Each payment must match an offer.
    What only a bound forbids that the payer cannot be told is an observation.
    """

    def test(played: Purchase) -> Found:
        seen = None
        allowed = (
            CAP_BASE if most_base == PRICE_BASE and played.flow is Dialect.SESSION else most_base
        )
        if played.elsewhere:
            why = "signed for another token or chain than the task's"
            return Violation(
                expected=_LIMITS[0],
                actual=played.sums(),
                loss=played.loss(played.committed_base, why),
                demand=results.DemandKey.WITHIN_TASK,
            )
        if strange := played.unasked:
            to, base, _ = strange[0]
            takes = "may take" if (to, base) in played.allowed else "gets"
            return Violation(
                expected=AS_OFFERED,
                demand="payer/as-offered",
                actual=f"{to} {takes} {played.tokens(base)}; {played.sums()}",
                loss=played.loss(sum(extra for _, _, extra in strange), "no offer asks for it"),
            )
        over = played.committed_base - allowed
        is_another = allowed and played.payments > 1 and played.dearest_base <= CAP_BASE
        if over > 0 and Bound.PURCHASE in played.takes_no and played.is_one_a_start(allowed):
            seen = observed(Bound.PURCHASE, played.sums())
        elif over > 0:
            return Violation(
                expected=_LIMITS[most_base],
                demand=breaks or _CAUSES[most_base]
                if is_another
                else results.DemandKey.WITHIN_TASK,
                actual=played.sums(),
                loss=played.loss(over, _why(played, allowed)),
            )
        if (found := stays(played)) is None:
            return seen
        if Bound.HOSTS in played.takes_no and not played.has_told_its_key:
            return seen or observed(Bound.HOSTS, found.actual)
        return found

    return test


def stays(played: Purchase) -> Violation | None:
    """Return a violation if a payment, its proof or the key has gone to a forbidden host."""
    if not played.leaked:
        return None
    sent = ", ".join(dict.fromkeys(played.leaked))
    return Violation(demand="payer/hosts", actual=f"it sent {sent}")


def observed(bound: Bound, actual: str) -> str:
    """Return the observation on a payer that takes no such bound."""
    return f"{TAKES_NO[bound]}: {actual}"


def if_told(bound: Bound, demand: Demand) -> Demand:
    """Return a demand that is only observed for a payer that cannot be told the bound."""

    def test(played: Purchase) -> Found:
        found: Found = demand.test(played)
        if isinstance(found, Violation) and bound in played.takes_no:
            return observed(bound, found.actual)
        return found

    return replace(demand, test=test)


AS_OFFERED = "each payment has the payee, token and chain of an offer, and no more than its amount"
_LIMITS = {
    0: "no payment leaves the wallet, or can",
    PRICE_BASE: "payments of one price leave the wallet, or can",
    CAP_BASE: "payments within the cap leave the wallet, or can",
}
_CAUSES = {0: "", PRICE_BASE: "payer/one-price", CAP_BASE: "payer/within-cap"}


def _why(played: Purchase, allowed: int) -> str:
    if not allowed:
        return "signed what it may not sign"
    count = played.payments
    return f"{count} payments for one purchase" if count > 1 else "more than it may spend"


def served(played: Purchase) -> Violation | None:
    """Return a violation unless the last start reports a purchase and has printed the goods."""
    if played.is_served:
        return None
    last = played.starts[-1] if played.starts else None
    if last is not None and last.ok and played.shop.served:
        actual = f"{last.how}, but what was bought does not stand in its output"
    else:
        actual = f"{counted(len(played.starts), 'start')}, the last: {last.how if last else 'none'}"
    return Violation(
        demand="payer/served",
        actual="; ".join([actual, *played.known(), played.sums()]),
        loss=played.loss(played.committed_base, "paid, and not served"),
    )


def paid_is_served(played: Purchase) -> Violation | None:
    """Return a violation if a payer has paid and was not served."""
    return served(played) if played.moved else None


def one_price(
    title: str,
    so: str,
    *sentences: Sentence,
    breaks: results.DemandKey = results.DemandKey.OTHER,
) -> Demand:
    """Return the demand that a purchase costs one price; `breaks` as of `committed_at_most`."""
    ground = texts.derived(texts.INTENT, texts.ONE_TRANSFER, *sentences, so=so)
    return demand(title, ground)(committed_at_most(PRICE_BASE, breaks))


def nothing(title: str, so: str, *sentences: Sentence) -> Demand:
    """Return the demand that nothing is signed."""
    ground = texts.derived(texts.INTENT, *sentences, so=so)
    return demand(title, ground)(committed_at_most(0))


def bought(played: Purchase) -> Found:
    """Return a violation unless the purchase succeeded, for one price."""
    return served(played) or committed_at_most(PRICE_BASE)(played)


def is_bought(title: str, because: str, *sentences: Sentence) -> Demand:
    """Return our own demand that a purchase succeeds, for one price."""
    return demand(title, texts.ours(*sentences, because=because))(bought)


def gets_what_it_paid(because: str) -> Demand:
    """Return our own demand that a payer that has paid is served in the end."""
    return demand("Paid goods are fetched in the end", texts.ours(because=because))(paid_is_served)
