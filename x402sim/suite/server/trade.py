"""A purchase that may go wrong: what was answered to a payment, again and again, and what moved."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from x402sim.suite import texts
from x402sim.suite.played import Found, Violation
from x402sim.suite.server.case import Demand
from x402sim.suite.server.double import SETTLE, VERIFY, Twist, is_answered
from x402sim.suite.server.payment import Payment, reason_in, receipt_in
from x402sim.suite.server.play import Item, Play
from x402sim.suite.server.raw import Answer
from x402sim.suite.server.room import Moved
from x402sim.text.words import counted, often

BEGINS_S = 1.5
"""How long a server may take to settle what it has served already."""
AGAIN, PAUSE_S = 2, 0.3
"""How often the same payment is sent again, and the pause before each."""
MOST_STEP = 4
"""How often one payment may make what is sold; what grows by more counts something else."""
REFUSED = {
    "success": False,
    "errorReason": "insufficient_funds",
    "transaction": "",
    "network": "eip155:84532",
}
"""How a facilitator refuses to settle."""
HUNG_UP = Answer(sent="a payment", failure="the client hung up")
UNKNOWN = (202, 409, 423, 425, 429)
"""Statuses that say that nothing is certain yet, beside every 5xx."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trade:
    """A payment, the answers to it, and what moved in the end."""

    payment: Payment
    answers: Sequence[Answer]
    moved: Sequence[Moved]
    verified: int
    settled: int
    """How often the facilitator was called."""

    @property
    def is_served(self) -> bool:
        """Whether any answer was a success."""
        return any(each.is_2xx and each.status != 202 for each in self.answers)

    @property
    def summary(self) -> str:
        """What was answered, and what moved."""
        first, *again = self.answers
        later = [f"the same payment again: {each.how}" for each in again[-1:]]
        moved = (
            f"{counted(len(self.moved), 'transfer')} of "
            f"{sum(m.amount_base for m in self.moved)} base units"
        )
        requested = f"settle was requested {often(self.settled)}"
        return "; ".join([first.how, *later, moved, requested])


async def trade(play: Play, *twists: Twist, again: int = AGAIN) -> Trade:
    """Pay while the facilitator is twisted, and send the same payment again when it is not."""
    payment = await play.draft()
    with play.double.twisted(*twists):
        answers = [await play.pay(payment)]
        if answers[0].is_2xx:
            # some servers settle after they have answered
            await play.double.until(SETTLE, payment.nonce, BEGINS_S, is_answered)
    return await sent_again(play, payment, answers, again)


async def sent_again(
    play: Play,
    payment: Payment,
    answers: Sequence[Answer],
    again: int = AGAIN,
    item: Item | None = None,
    **how: Any,
) -> Trade:
    """Send a payment again until it is served; `answers` are those that it has got already."""
    got = list(answers)
    for _ in range(again):
        if got[-1].is_2xx:
            break
        await play.wait(PAUSE_S)
        got.append(await play.pay(payment, item, **how))
    return Trade(
        payment=payment,
        answers=got,
        moved=await play.moved(payment),
        verified=play.double.count(VERIFY, payment.nonce),
        settled=play.double.count(SETTLE, payment.nonce),
    )


def with_facilitator(*twists: Callable[[], Twist]) -> Callable[[Play], Awaitable[Trade]]:
    """Return the play of a purchase with twists, which are made anew for each play."""

    async def play(it: Play) -> Trade:
        return await trade(it, *(each() for each in twists))

    return play


async def times_made(play: Play, do: Callable[[], Awaitable[object]]) -> int | None:
    """Return how often what is sold was made while something was done.

    A number in it that goes up as evenly from one payment to the next counts it, if by at most
    `MOST_STEP`; None without one.
    """
    await play.goods()  # paid for once in a room, and not in between
    bought = [(await play.pay(await play.draft())).sold for _ in range(3)]
    for name in bought[0] if isinstance(bought[0], dict) else ():
        one, two, three = (each.get(name) if isinstance(each, dict) else None for each in bought)
        if type(one) is not int or type(two) is not int or three != 2 * two - one:
            continue
        if 0 < two - one <= MOST_STEP:
            await do()
            after = (await play.pay(await play.draft())).sold
            last = after.get(name) if isinstance(after, dict) else None
            return last - (three + two - one) if type(last) is int else None
    return None


def is_honest(play: Play, answer: Answer) -> bool:
    """Tell whether an answer without goods does not say that a payment that moved has failed.

    It says so with a 402 or another 4xx that names neither the transaction nor that it is pending.
    """
    if not answer.status or answer.is_server_error or answer.status in UNKNOWN:
        return True
    is_named = bool(receipt_in(play.dialect, answer).get("transaction"))
    return is_named or "pending" in reason_in(play.dialect, answer)


def served_only_if_settled(play: Play, observed: Trade) -> Found:
    """Tell whether a success was answered without a transfer."""
    if not observed.is_served or observed.moved:
        return None
    return Violation(
        expected="no success without a transfer",
        actual=observed.summary,
        loss=play.tokens(observed.payment.auth.value, "served for nothing"),
    )


def charged_only_if_served(play: Play, observed: Trade) -> Found:
    """Tell whether a payment that moved, sent again, is at last served or answered honestly."""
    if not observed.moved or observed.is_served or is_honest(play, observed.answers[-1]):
        return None
    return Violation(
        expected="the same payment, sent again, gets what it paid for, or an answer that says what "
        "is known: pending, the transaction, or an error of the server",
        actual=observed.summary,
        loss=play.tokens(
            sum(each.amount_base for each in observed.moved),
            "charged and not served; the next payment is the second charge",
        ),
    )


def never_says_failed(play: Play, observed: Trade) -> Found:
    """Tell whether an answer's receipt says of a payment that moved that it has failed."""
    for answer in observed.answers if observed.moved else ():
        receipt = receipt_in(play.dialect, answer)
        if receipt.get("success") is False and is_honest(play, answer) is False:
            return Violation(
                expected="no receipt that says failed of a payment that has settled",
                actual=observed.summary,
                loss=play.tokens(observed.payment.auth.value, "charged, and told that it is not"),
            )
    return None


def says_what_is_known(play: Play, observed: Trade) -> Found:
    """Tell whether the first answer to a payment that moved claims that it has failed."""
    first = observed.answers[0]
    if not observed.moved or first.is_2xx or is_honest(play, first):
        return None
    return Violation(
        expected="no refusal while nobody knows whether it is settled",
        actual=f"{first.how}; {counted(len(observed.moved), 'transfer')}",
        loss=play.tokens(
            observed.payment.auth.value, "a payer signs a new payment for what it has paid already"
        ),
    )


def gets_it_again(play: Play, observed: Trade) -> Found:
    """Tell whether a payment that moved is served at last."""
    if not observed.moved or observed.is_served:
        return None
    return Violation(
        expected="the same payment, sent again, gets what it paid for",
        actual=observed.summary,
        loss=play.tokens(observed.payment.auth.value, "charged and never served"),
    )


SERVED_ONLY_IF_SETTLED = texts.derived(
    texts.SUCCESS, texts.STATUS_SUCCESS, so="a success without a settlement is none"
)
CHARGED_ONLY_IF_SERVED = texts.derived(
    texts.STATUS_FAILED,
    texts.TRANSACTION,
    so="a settlement that has happened has not failed: a refusal without its transaction is false, "
    "and the payer signs again",
)


def of_a_lost_settlement(what: str) -> list[Demand]:
    """Return what is demanded if the payment was settled, and the facilitator's answer not read."""
    return [
        Demand(
            title=f"{what}: charged, it is served, or told what is known",
            ground=CHARGED_ONLY_IF_SERVED,
            test=charged_only_if_served,
        ),
        Demand(
            title=f"{what}: the first answer does not say that it has failed",
            ground=texts.ours(
                texts.STATUS_FAILED,
                because="an unknown outcome that is answered 402 is signed and paid once more "
                "(x402-foundation/x402 issues 2603 and 3325)",
            ),
            test=says_what_is_known,
            suffix="first",
        ),
        Demand(
            title=f"{what}: the same payment, sent again, gets what it paid for",
            ground=texts.ours(
                texts.INTENT,
                because="the payer has paid, and has nothing but this payment to show for it",
            ),
            test=gets_it_again,
            suffix="again",
        ),
    ]


def of_a_lost_answer(what: str) -> list[Demand]:
    """Return what is demanded if a payer has lost the answer, and sends the payment again."""
    return [
        Demand(
            title=f"{what}: no receipt says failed of a payment that has settled",
            ground=texts.explicit(texts.SUCCESS_FIELD, texts.TRANSACTION),
            test=never_says_failed,
        ),
        Demand(
            title=f"{what}: charged, the same payment is served, or told what is known",
            ground=texts.ours(
                texts.RESEND,
                because="the payer has paid and holds nothing but this payment; without the "
                "extension no text says what it gets, and a refusal makes it pay twice",
            ),
            test=charged_only_if_served,
            suffix="again",
        ),
    ]


def of_no_settlement(what: str) -> list[Demand]:
    """Return what is demanded if the facilitator has not settled."""
    return [
        Demand(
            title=f"{what}: nothing is served",
            ground=SERVED_ONLY_IF_SETTLED,
            test=served_only_if_settled,
        ),
        Demand(
            title=f"{what}: charged only if served",
            ground=CHARGED_ONLY_IF_SERVED,
            test=charged_only_if_served,
            suffix="charged",
        ),
    ]
