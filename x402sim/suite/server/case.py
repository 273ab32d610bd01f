"""The declaration of a server's cases: rows, each with one play for each version.

If a tool is sold, most rows are played over MCP, too; their grounds are then sentences of the MCP
transport in place of the HTTP transport's.

Most plays are a `Trade`: a payment, the answers to the payment and its repetitions, and the
transfers.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from x402sim.clock import stopwatch
from x402sim.spec.ground import Ground, Sentence
from x402sim.suite import row, texts
from x402sim.suite.money import Transfer
from x402sim.suite.row import Demand as Demand, RoomCase, RoomKind
from x402sim.suite.server.double import (
    LOOK_S,
    SETTLE,
    VERIFY,
    Call,
    Twist,
    is_answered,
    is_worked_on,
    on,
    waits,
)
from x402sim.suite.server.payment import Dialect, Payment, reason_in, receipt_in
from x402sim.suite.server.play import Item, Play
from x402sim.suite.server.raw import Answer
from x402sim.suite.server.room import PLAIN
from x402sim.suite.verdict import Found, NotApplicable, Untold, Violation
from x402sim.suite.wire import CLOCK
from x402sim.text.words import counted, often

ONE_PATH = "all tools of a server have one path, and one method"
IN_RESULTS = "a tool's answers are results, and no answers of HTTP to browsers, proxies or caches"
NOT_OF_TOOLS = {
    "path": ONE_PATH,
    "binding/query": ONE_PATH,
    **{
        f"offer/{slug}": IN_RESULTS
        for slug in ("cache", "cache-forbidden", "browser", "cors", "preflight", "proxy")
    },
    "header/other": "a payment of either version has one place in a call",
    **{
        f"handler/{slug}": "a tool returns its result as a whole"
        for slug in ("redirects", "stream", "stream-refused", "stream-left")
    },
    "identifier": "what the text says of it are statuses of HTTP",
    "sign-in": "a sign-in is a header of HTTP",
    "discovery": "a catalogue is looked for at a path",
}
"""Why these sections and rows are not played over MCP; all others are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerRow(row.RoomRow):
    """A row of the table of servers."""

    subject: ClassVar[str] = "server"
    control: ClassVar[str] = "sells"
    dialects: ClassVar[type[Dialect]] = Dialect
    plain: ClassVar[RoomKind] = PLAIN

    def __post_init__(self) -> None:
        names = (self.section, f"{self.section}/{self.slug}")
        if why := next((NOT_OF_TOOLS[name] for name in names if name in NOT_OF_TOOLS), ""):
            object.__setattr__(self, "absent", {**self.absent, Dialect.MCP: why})

    def cases(self) -> Iterator[RoomCase]:
        """Yield a case for each demand and dialect, with grounds of the dialect's text."""
        for case in row.RoomRow.cases(self):
            if (ground := in_words_of(case.dialect, case.ground)) is not None:
                yield replace(case, ground=ground)


case = ServerRow.of
"""Declares cases: `@case("section/slug", *demands)` above a play, or called with a made play."""

_IN_TOOLS = {
    texts.SIGNAL: texts.MCP_SIGNAL,
    texts.REQUIRED: texts.MCP_BOTH,
    texts.RESPONSE: texts.MCP_RESPONSE,
    texts.STATUS_SUCCESS: texts.MCP_SERVES,
    texts.STATUS_INVALID: texts.MCP_INVALID,
    texts.STATUS_FAILED: texts.MCP_FAILED,
    texts.STATUS_SERVER: None,
    texts.FIELDS_V1: None,
    texts.ERROR_V1: None,
    texts.HEAD: None,
}
"""For sentences of HTTP and of version 1: the MCP transport's sentence with the same content; None
without one.
"""
_IN_UPTO = {
    texts.FLOW: texts.USED,
    texts.FAILED_HANDLER: texts.USED,
    texts.MATCHES: texts.UPTO_AMOUNT,
    texts.ONE_TRANSFER: texts.UPTO_TRANSFER,
    texts.DUPLICATE: texts.UPTO_ONCE,
}
"""For sentences of `exact`: the sentence of `upto` with the same content."""
_IN_PERMIT2 = {texts.MATCHES: texts.P2_AMOUNT}
_IN: Mapping[str, Mapping[Sentence, Sentence | None]] = {
    Dialect.MCP: _IN_TOOLS,
    Dialect.PERMIT2: _IN_PERMIT2,
    Dialect.UPTO: _IN_UPTO,
}


def in_words_of(dialect: Dialect, ground: Ground) -> Ground | None:
    """Return a ground in sentences of a dialect's text; None if none is left."""
    sentences = _IN.get(dialect, {})
    found = [sentences.get(each, each) for each in ground.sentences]
    kept = tuple(dict.fromkeys(each for each in found if each is not None))
    if ground.sentences and not kept:
        return None
    return replace(ground, sentences=kept)


# --- a purchase that may go wrong ------------------------------------------------------------


NOTHING = Item("GET", "/x402sim-nothing")
"""An item no server has."""
BEGINS_S = 1.5
"""The most seconds from an answer to the end of its settlement, for a server that serves first."""
AGAIN, PAUSE_S = 2, 0.3
"""How often a payment is sent again, and the seconds before each repetition."""
MOST_STEP = 4
"""The most runs of the handler for one payment; a number with larger steps counts another event."""
REFUSED = {
    "success": False,
    "errorReason": "insufficient_funds",
    "transaction": "",
    "network": "eip155:84532",
}
"""A facilitator's refusal to settle."""
HUNG_UP = Answer(sent="a payment", failure="the client hung up")
UNKNOWN = (202, 409, 423, 425, 429)
"""Statuses of an unknown outcome, like every 5xx."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trade:
    """A payment, its answers, and its transfers in the end."""

    payment: Payment
    answers: Sequence[Answer]
    moved: Sequence[Transfer]
    verified: int
    settled: int
    """How often verify, and settle, was called."""

    @property
    def is_served(self) -> bool:
        """Whether an answer was a success."""
        return any(each.is_sale for each in self.answers)

    @property
    def summary(self) -> str:
        """The answers, and the transfers."""
        first, *again = self.answers
        later = [f"the same payment again: {each.how}" for each in again[-1:]]
        moved = (
            f"{counted(len(self.moved), 'transfer')} of "
            f"{sum(m.amount_base for m in self.moved)} base units"
        )
        requested = f"settle was requested {often(self.settled)}"
        return "; ".join([first.how, *later, moved, requested])


async def trade(play: Play, *twists: Twist, again: int = AGAIN, item: Item | None = None) -> Trade:
    """Pay with a twisted facilitator; then send the same payment again, untwisted."""
    payment = await play.draft(item)
    with play.double.twisted(*twists):
        answers = [await play.pay(payment, item)]
        if answers[0].is_2xx:
            # some servers answer first and settle then
            await play.double.until(SETTLE, payment.nonce, BEGINS_S, is_answered)
    return await sent_again(play, payment, answers, again, item)


async def until_held(play: Play, path: str, payment: Payment, *, after: bool = False) -> None:
    """Wait until the facilitator holds a call for a payment, `after` the call's work or before.

    Raises `NotApplicable` if the server does not make the call.
    """
    is_there = is_worked_on if after else bool
    if not await play.double.until(path, payment.nonce, play.patience_s, is_there):
        raise NotApplicable(f"it does not ask {path}")


HELD_S = 0.6
"""Seconds without another call of the facilitator until no more are expected."""


async def held(play: Play, path: str, asked: Sequence[Awaitable[Answer]]) -> list[Answer]:
    """Send requests at once, while the facilitator holds the calls of a path.

    The facilitator answers when each request has led to a call, or no other came for `HELD_S`: a
    server may work off requests one after the other, and a busy machine is slow, not in order.
    """
    gate, before = asyncio.Event(), play.double.count(path)
    with play.double.twisted(on(path, waits(gate))):
        answers = asyncio.gather(*asked)
        seen, since = 0, stopwatch()
        while seen < len(asked) and since() < HELD_S:
            if (now := play.double.count(path) - before) > seen:
                seen, since = now, stopwatch()
            await CLOCK.sleep(LOOK_S)
        gate.set()
        return list(await answers)


async def sent_again(
    play: Play,
    payment: Payment,
    answers: Sequence[Answer],
    again: int = AGAIN,
    item: Item | None = None,
    **how: Any,
) -> Trade:
    """Send a payment again until it is served; `answers` are the earlier answers to it."""
    got = list(answers)
    for _ in range(again):
        if got[-1].is_sale:
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
    """Return the play of a purchase with twists, made anew for each play."""

    async def play(it: Play) -> Trade:
        """A payer pays once, and the facilitator does as said. From then on the facilitator answers
        rightly, and the payer sends the same payment again, at most twice, until it is served.
        """
        return await trade(it, *(each() for each in twists))

    return play


async def times_made(play: Play, do: Callable[[], Awaitable[object]]) -> int | None:
    """Return how often the paid handler ran during `do`, by --counter's number.

    Without --counter, a number in goods or headers counts if each payment raises the number by the
    same step, at most `MOST_STEP`, and other requests do not. None without such a number.
    """
    if (before := await play.count()) is not None:
        await do()
        return (await play.count() or 0) - before
    await play.goods()  # one purchase for the room, before the count

    async def bought() -> Mapping[str, int]:
        return (await play.pay(await play.draft())).numbers

    one, two, three = [await bought() for _ in range(3)]
    steps = {name: two[name] - one[name] for name in one if name in two}
    steps = {
        n: by for n, by in steps.items() if 0 < by <= MOST_STEP and three.get(n) == two[n] + by
    }
    if steps:
        for _ in range(2):
            await play.ask(NOTHING if not play.item.tool else replace(play.item, tool="nothing"))
        four = await bought()
        steps = {name: by for name, by in steps.items() if four.get(name) == three[name] + by}
    for name, by in steps.items():
        await do()
        last = (await bought()).get(name)
        return None if last is None else last - (four[name] + by)
    return None


def uncounted() -> Untold:
    """Return the exception for unknown runs of the paid handler."""
    return Untold(
        "nothing shows how often the handler runs: put a counter into the goods, or name a path "
        "that counts (--counter)"
    )


def is_blamed(answer: Answer, calls: Sequence[Call]) -> bool:
    """Tell whether an answer is a gateway's 5xx, while the facilitator answered no 2xx to a call.

    Facilitators refuse unreadable payments with 400, and a server may take a 400 for a failure.
    """
    refused = any(each.reply is not None and each.reply.status // 100 != 2 for each in calls)
    return answer.status in (502, 503, 504) and refused


def is_honest(play: Play, answer: Answer) -> bool:
    """Tell whether an answer without goods is honest about a payment that has moved.

    Dishonest is a refusal, 402 or another 4xx outside `UNKNOWN`, with neither the transaction nor a
    reason with "pending".
    """
    if not answer.status or answer.is_server_error or answer.status in UNKNOWN:
        return True
    is_named = bool(receipt_in(play.dialect, answer).get("transaction"))
    return is_named or "pending" in reason_in(play.dialect, answer)


def amount_told(dialect: Dialect, answer: Answer) -> int | None:
    """Return the settled amount in a receipt of `upto`, in base units; None without one."""
    receipt = receipt_in(dialect, answer)
    told = receipt.get("amount") if dialect is Dialect.UPTO else None
    if receipt.get("success") is not True or not (isinstance(told, str) and told.isdecimal()):
        return None
    return int(told)


def used_nothing(play: Play, observed: Trade) -> bool:
    """Tell whether a receipt of `upto` says that nothing was used: then nothing need move."""
    return any(amount_told(play.dialect, each) == 0 for each in observed.answers if each.is_sale)


def served_only_if_settled(play: Play, observed: Trade) -> Found:
    """Find a success that was answered without a transfer."""
    if not observed.is_served or observed.moved or used_nothing(play, observed):
        return None
    return Violation(
        demand="no-success-without-transfer",
        actual=observed.summary,
        loss=play.tokens(observed.payment.auth.value, "served for nothing"),
    )


def charged_only_if_served(play: Play, observed: Trade) -> Found:
    """Find a payment that moved, was sent again, and got neither goods nor an honest answer."""
    if not observed.moved or observed.is_served or is_honest(play, observed.answers[-1]):
        return None
    return Violation(
        demand="charged-is-served-or-told",
        actual=observed.summary,
        loss=play.tokens(
            sum(each.amount_base for each in observed.moved),
            "charged and not served; the next payment is the second charge",
        ),
    )


def never_says_failed(play: Play, observed: Trade) -> Found:
    """Find a receipt with success=false for a payment that moved."""
    for answer in observed.answers if observed.moved else ():
        receipt = receipt_in(play.dialect, answer)
        if receipt.get("success") is False and is_honest(play, answer) is False:
            return Violation(
                demand="settled-is-not-told-failed",
                actual=observed.summary,
                loss=play.tokens(observed.payment.auth.value, "charged, and told that it is not"),
            )
    return None


def says_what_is_known(play: Play, observed: Trade) -> Found:
    """Find a first answer that claims failure of a payment that moved."""
    first = observed.answers[0]
    if not observed.moved or first.is_2xx or is_honest(play, first):
        return None
    return Violation(
        demand="unknown-is-no-refusal",
        actual=f"{first.how}; {counted(len(observed.moved), 'transfer')}",
        loss=play.tokens(
            observed.payment.auth.value, "a payer signs a new payment for what it has paid already"
        ),
    )


def gets_it_again(play: Play, observed: Trade) -> Found:
    """Find a payment that moved and was never served."""
    if not observed.moved or observed.is_served:
        return None
    return Violation(
        demand="charged-is-served-at-last",
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
    """Return the demands for a settled payment whose settle answer the server could not read."""
    return [
        Demand(
            title=f"{what}: sent again, the payment gets the goods or the payment's state",
            ground=texts.ours(
                texts.BEFORE_VERIFYING,
                because="the text lets a resent payment fail verification, so 402 is no breach; "
                "but the payer has paid, and signs again after a second refusal "
                "(x402-foundation/x402 issues 2603 and 3325)",
            ),
            test=charged_only_if_served,
        ),
        Demand(
            title=f"{what}: the first answer does not call the payment failed",
            ground=texts.ours(
                texts.STATUS_FAILED,
                because="an unknown outcome that is answered 402 is signed and paid once more "
                "(x402-foundation/x402 issues 2603 and 3325)",
            ),
            test=says_what_is_known,
            suffix="first",
        ),
        Demand(
            title=f"{what}: the same payment, sent again, gets the goods",
            ground=texts.ours(
                texts.INTENT,
                because="the payer has paid, and has nothing but this payment to show for it",
            ),
            test=gets_it_again,
            suffix="again",
        ),
    ]


def of_a_lost_answer(what: str) -> list[Demand]:
    """Return the demands for a payer that lost the answer and sends the payment again."""
    return [
        Demand(
            title=f"{what}: no receipt calls a settled payment failed",
            ground=texts.explicit(texts.SUCCESS_FIELD, texts.TRANSACTION),
            test=never_says_failed,
        ),
        Demand(
            title=f"{what}: after a charge, the same payment gets the goods or the payment's state",
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
    """Return the demands for a payment that the facilitator has not settled."""
    return [
        Demand(
            title=f"{what}: the server serves nothing",
            ground=SERVED_ONLY_IF_SETTLED,
            test=served_only_if_settled,
        ),
        Demand(
            title=f"{what}: no charge without goods",
            ground=CHARGED_ONLY_IF_SERVED,
            test=charged_only_if_served,
            suffix="charged",
        ),
    ]


# --- one payment in several requests ---------------------------------------------------------


ALIKE = (
    "the goods are the same for every payment, so a stored answer looks like a new answer: put a "
    "counter into the goods, or name a path that counts (--counter)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Uses:
    """One payment in several requests: the answers, and the transfers."""

    payment: Payment
    answers: Sequence[Answer]
    moved: Sequence[Transfer]
    runs: int | None = None
    """How often handlers ran, by --counter; None if unknown."""
    unused: Sequence[Answer] = ()
    """The answers that have used nothing, sold `upto`: they buy nothing."""

    @property
    def successes(self) -> list[Answer]:
        """The answers with goods, repeated or new, without the unused."""
        return [each for each in self.answers if each.is_sale and each not in self.unused]

    @property
    def served(self) -> list[Answer]:
        """The answers with different goods."""
        return list({each.goods: each for each in self.successes}.values())

    @property
    def sold(self) -> int:
        """The number of items sold: runs of the handler, or else different goods."""
        if not self.runs:
            return len(self.served)
        return min(len(self.successes), max(1, self.runs - len(self.unused)))

    @property
    def summary(self) -> str:
        """The answers, the transfers, and the runs of handlers."""
        hows = "; ".join(f"{n}: {each.how}" for n, each in enumerate(self.answers, 1))
        ran = "" if self.runs is None else f"; handlers ran {often(self.runs)}"
        return f"{hows}; {counted(len(self.moved), 'transfer')}{ran}"


UNUSED = "its receipts say that every sale used nothing: name a request that uses something"


async def used(play: Play, payment: Payment, answers: Sequence[Answer], *more: Payment) -> Uses:
    """Return the uses of a payment sent several times, with the transfers of `more` payments.

    Raises `Untold` if every sale has used nothing.
    """
    moved = [each for one in (payment, *more) for each in await play.moved(one)]
    unused = [each for each in answers if each.is_sale and amount_told(play.dialect, each) == 0]
    uses = Uses(payment=payment, answers=answers, moved=moved, runs=await play.ran(), unused=unused)
    if unused and not (moved or uses.successes):
        raise Untold(UNUSED)
    return uses


async def needs_numbers(play: Play, other: int = 0) -> None:
    """Buy twice, unless a path counts; raises `Untold` if the goods are alike.

    Two servers may each number their own goods. A purchase from the server at port `other`, and one
    more from the first server if the numbers are equal, keep the numbers of later goods apart.
    """
    if await play.count() is not None:
        return
    first, second = [(await play.pay(await play.draft())).goods for _ in range(2)]
    if first == second:
        raise Untold(ALIKE)
    if other and (await play.pay(await play.draft(), port=other)).goods == second:
        await play.pay(await play.draft())


async def distinguished(
    play: Play, payment: Payment, answers: Sequence[Answer], other: Item | None = None
) -> Uses:
    """Return the uses of one payment.

    Raises `Untold` if several successes have the same goods as another payment, for `other` if
    given.
    """
    uses = await used(play, payment, answers)
    goods = [each.goods for each in uses.successes]
    if uses.runs is None and len(set(goods)) < len(goods):
        now = await play.pay(await play.draft(other), other)  # goods may hold the time in seconds
        if now.goods in goods:
            raise Untold(ALIKE)
    return uses


def one_release(play: Play, observed: Uses) -> Found:
    """Find a payment that bought more than one item."""
    extra = observed.sold - max(1, len(observed.moved))
    if extra <= 0:
        return None
    told = [base for each in observed.successes if (base := amount_told(play.dialect, each))]
    each_base = max(told, default=observed.payment.auth.value)
    return Violation(
        demand="one-payment-buys-one",
        actual=observed.summary,
        loss=play.tokens(extra * each_base, f"{extra} more served for nothing"),
    )


def buys_one(title: str) -> Demand:
    """Return the demand that a payment buys one item."""
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
    """Return the same demand, behind a facilitator that answers success to every settlement."""
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
