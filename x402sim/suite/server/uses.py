"""One payment in several requests: what was answered, and what moved."""

from collections.abc import Sequence
from dataclasses import dataclass

from x402sim.suite import texts
from x402sim.suite.played import Found, Violation
from x402sim.suite.server.case import Demand
from x402sim.suite.server.payment import Payment
from x402sim.suite.server.play import Play
from x402sim.suite.server.raw import Answer
from x402sim.suite.server.room import Moved
from x402sim.suite.verdict import NotApplicable
from x402sim.text.words import counted

ALIKE = (
    "what it sells is the same for every payment, so an answer that is kept is not told from one "
    "that is served anew: let a number or the time stand in it"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Uses:
    """One payment, in several requests: what was answered, and what moved."""

    payment: Payment
    answers: Sequence[Answer]
    moved: Sequence[Moved]

    @property
    def successes(self) -> list[Answer]:
        """The answers that are goods, again or anew."""
        return [each for each in self.answers if each.is_2xx and each.status != 202]

    @property
    def served(self) -> list[Answer]:
        """The answers that are different goods."""
        return list({each.body: each for each in self.successes}.values())

    @property
    def summary(self) -> str:
        """What was answered, and what moved."""
        hows = "; ".join(f"{n}: {each.how}" for n, each in enumerate(self.answers, 1))
        return f"{hows}; {counted(len(self.moved), 'transfer')}"


async def used(play: Play, payment: Payment, answers: Sequence[Answer], *more: Payment) -> Uses:
    """Return what came of a payment that was sent several times, or of several."""
    moved = [each for one in (payment, *more) for each in await play.moved(one)]
    return Uses(payment=payment, answers=answers, moved=moved)


async def needs_numbers(play: Play) -> None:
    """Buy twice; raises `NotApplicable` if the goods are alike."""
    bodies = {(await play.pay(await play.draft())).body for _ in range(2)}
    if len(bodies) < 2:
        raise NotApplicable(ALIKE)


async def distinguished(play: Play, payment: Payment, answers: Sequence[Answer]) -> Uses:
    """Return the uses of one payment for one request; raises `NotApplicable` if goods are alike."""
    uses, other = await used(play, payment, answers), await play.goods()
    if len(uses.successes) > 1 and other.body in [each.body for each in uses.served]:
        raise NotApplicable(ALIKE)
    return uses


def one_release(play: Play, observed: Uses) -> Found:
    """Tell whether one payment has bought more than one thing."""
    extra = len(observed.served) - max(1, len(observed.moved))
    if extra <= 0:
        return None
    return Violation(
        expected="one payment buys one thing: the same answer again, or a refusal",
        actual=observed.summary,
        loss=play.tokens(extra * observed.payment.auth.value, f"{extra} more served for nothing"),
    )


def buys_one(title: str) -> Demand:
    """Return the demand that a payment buys one thing."""
    return Demand(
        title=title,
        ground=texts.derived(
            texts.UNIQUE,
            texts.NO_VALID_PAYMENT,
            so="a nonce that is used prevents a replay only if the server does not serve on it "
            "again",
        ),
        test=one_release,
    )


def buys_one_repeated(title: str) -> Demand:
    """Return the same, behind a facilitator that says success to each settlement of a payment."""
    return Demand(
        title=title,
        ground=texts.ours(
            texts.DUPLICATE,
            because="the text has the facilitator refuse it; behind one that answers again what it "
            "did, so that a lost answer can be asked for, several successes with one transaction "
            "are one settlement, and the others were served for nothing",
        ),
        test=one_release,
    )
