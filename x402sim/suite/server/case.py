"""The declaration of a server's cases: rows, each with one play for each version.

If a tool is sold, most rows are played over MCP, too; their grounds are then sentences of the MCP
transport in place of the HTTP transport's.

Most plays are a `Trade`: a payment, the answers to the payment and its repetitions, and the
transfers.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from x402sim.spec.ground import Sentence
from x402sim.suite import row, texts
from x402sim.suite.dialect import OF_SERVERS, Dialect
from x402sim.suite.row import Demand as Demand, RoomKind, demand as demand, told as told
from x402sim.suite.server.double import (
    Call,
    Twist,
)
from x402sim.suite.server.observed import Trade, Uses
from x402sim.suite.server.play import Play
from x402sim.suite.server.raw import Answer
from x402sim.suite.server.room import PLAIN
from x402sim.suite.verdict import Found, Untold, Violation
from x402sim.text.words import counted

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


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerRow(row.RoomRow):
    """A row of the table of servers."""

    subject: ClassVar[str] = "server"
    control: ClassVar[str] = "sells"
    dialects: ClassVar[Sequence[Dialect]] = OF_SERVERS
    plain: ClassVar[RoomKind] = PLAIN
    not_played: ClassVar[Mapping[Dialect, Mapping[str, str]]] = {Dialect.MCP: NOT_OF_TOOLS}
    sentences: ClassVar[Mapping[Dialect, Mapping[Sentence, Sentence | None]]] = {
        Dialect.V1: texts.IN_V1,
        Dialect.MCP: _IN_TOOLS,
        Dialect.PERMIT2: {texts.MATCHES: texts.P2_AMOUNT},
        Dialect.UPTO: _IN_UPTO,
    }


case = ServerRow.of
"""Declares cases: `@case("section/slug", *demands)` above a play, or called with a made play."""


# --- a purchase that may go wrong ------------------------------------------------------------


HUNG_UP = Answer(sent="a payment", failure="the client hung up")


def with_facilitator(*twists: Callable[[], Twist]) -> Callable[[Play], Awaitable[Trade]]:
    """Return the play of a purchase with twists, made anew for each play."""

    async def play(it: Play) -> Trade:
        """A payer pays once, and the facilitator does as said. From then on the facilitator answers
        rightly, and the payer sends the same payment again, at most twice, until it is served.
        """
        return await it.trade(*(each() for each in twists))

    return play


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


def served_only_if_settled(play: Play, observed: Trade) -> Found:
    """Find goods that were answered without a transfer, as a success or in a refusal's body."""
    is_given = observed.is_served or any(map(play.has_goods, observed.answers))
    if not is_given or observed.moved or play.used_nothing(observed):
        return None
    return Violation(
        demand="no-success-without-transfer",
        actual=observed.summary,
        loss=play.tokens(observed.payment.auth.value, "served for nothing"),
    )


def charged_only_if_served(play: Play, observed: Trade) -> Found:
    """Find a payment that moved, was sent again, and got neither goods nor an honest answer."""
    if not observed.moved or observed.is_served or play.is_honest(observed.answers[-1]):
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
        receipt = play.receipt(answer)
        if receipt.get("success") is False and play.is_honest(answer) is False:
            return Violation(
                demand="settled-is-not-told-failed",
                actual=observed.summary,
                loss=play.tokens(observed.payment.auth.value, "charged, and told that it is not"),
            )
    return None


def says_what_is_known(play: Play, observed: Trade) -> Found:
    """Find a first answer that claims failure of a payment that moved."""
    first = observed.answers[0]
    if not observed.moved or first.is_2xx or play.is_honest(first):
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
SERVED_ON_A_TEXT = texts.derived(
    texts.SUCCESS,
    texts.SUCCESS_FIELD,
    so="a success without a settlement is none. The text has true or false here, and a facilitator "
    "that writes a text breaks it first: the server is held to a SHOULD",
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
        demand(
            f"{what}: sent again, the payment gets the goods or the payment's state",
            texts.ours(
                texts.BEFORE_VERIFYING,
                because="the text lets a resent payment fail verification, so 402 is no breach; "
                "but the payer has paid, and signs again after a second refusal "
                "(x402-foundation/x402 issues 2603 and 3325)",
            ),
        )(charged_only_if_served),
        demand(
            f"{what}: the first answer does not call the payment failed",
            texts.ours(
                texts.STATUS_FAILED,
                because="an unknown outcome that is answered 402 is signed and paid once more "
                "(x402-foundation/x402 issues 2603 and 3325)",
            ),
            suffix="first",
        )(says_what_is_known),
        demand(
            f"{what}: the same payment, sent again, gets the goods",
            texts.ours(
                texts.INTENT,
                because="the payer has paid, and has nothing but this payment to show for it",
            ),
            suffix="again",
        )(gets_it_again),
    ]


def of_a_lost_answer(what: str) -> list[Demand]:
    """Return the demands for a payer that lost the answer and sends the payment again."""
    return [
        demand(
            f"{what}: no receipt calls a settled payment failed",
            texts.explicit(texts.SUCCESS_FIELD, texts.TRANSACTION),
        )(never_says_failed),
        demand(
            f"{what}: after a charge, the same payment gets the goods or the payment's state",
            texts.ours(
                texts.RESEND,
                because="the payer has paid and holds nothing but this payment; without the "
                "extension no text says what it gets, and a refusal makes it pay twice",
            ),
            suffix="again",
        )(charged_only_if_served),
    ]


def of_no_settlement(what: str, *, is_told: bool = True) -> list[Demand]:
    """Return the demands for a payment that the facilitator has not settled.

    `is_told`: the facilitator keeps to the text. If not, and its answer may be taken for a yes,
    serving is a SHOULD.
    """
    return [
        demand(
            f"{what}: the server serves nothing",
            SERVED_ONLY_IF_SETTLED if is_told else SERVED_ON_A_TEXT,
            level=None if is_told else "SHOULD",
        )(served_only_if_settled),
        demand(f"{what}: no charge without goods", CHARGED_ONLY_IF_SERVED, suffix="charged")(
            charged_only_if_served
        ),
    ]


# --- one payment in several requests ---------------------------------------------------------


def one_release(play: Play, observed: Uses) -> Found:
    """Find a payment that bought more than one item."""
    if not (extra := observed.extra):
        return None
    told = [base for each in observed.successes if (base := play.amount_told(each))]
    each_base = max(told, default=observed.payment.auth.value)
    return Violation(
        demand="one-payment-buys-one",
        actual=observed.summary,
        loss=play.tokens(extra * each_base, f"{extra} more served for nothing"),
    )


def buys_one(title: str) -> Demand:
    """Return the demand that a payment buys one item."""
    return demand(
        title,
        texts.derived(
            texts.UNIQUE,
            texts.NO_VALID_PAYMENT,
            so="a nonce that is used prevents a replay only if the server does not serve on it "
            "again",
        ),
    )(one_release)


def bought_repeated(title: str) -> Demand:
    """Return the observation of what a payment buys if the facilitator always says success."""
    return demand(
        title,
        texts.silent(
            texts.DUPLICATE,
            why="the text has the facilitator refuse a second settlement; no text says what a "
            "server does if its facilitator reports success again",
        ),
    )(_extra_items)


def _extra_items(_: Play, observed: Uses) -> Found:
    if not observed.extra:
        return None
    moved = counted(len(observed.moved), "transfer")
    return f"{observed.sold} items were sold for {moved}, as the facilitator says success each time"
