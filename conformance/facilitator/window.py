"""Windows of time: to the second, by our clock, and on a chain with another clock.

A payment is valid strictly between its two times, by the time of its block.
"""

from collections.abc import Callable

from x402sim.suite import texts
from x402sim.suite.dialect import Dialect
from x402sim.suite.facilitator.case import (
    Change,
    case,
    costs_no_gas,
    demand,
    is_paid,
    left_open,
    pays,
    refuses,
    unsettled,
)
from x402sim.suite.facilitator.payment import BEFORE_S, Draft
from x402sim.suite.facilitator.play import Play, Tried
from x402sim.suite.facilitator.room import ChainRoomKind

AHEAD = ChainRoomKind(name="chain ten minutes ahead", ahead_s=600, is_shared=True)
BEHIND = ChainRoomKind(name="chain ten minutes behind", ahead_s=-600, is_shared=True)
"""No further: a good payment is valid by both clocks, and a facilitator may refuse long windows."""
DAY_S = 86_400
Window = Callable[[int], tuple[int, int]]
"""Returns a window for the present time in Unix seconds."""

_EXPIRED: dict[str, Window] = {
    "ends now": lambda now: (now - 600, now),
    "ended a second ago": lambda now: (now - 600, now - 1),
    "ended a minute ago": lambda now: (now - 600, now - 60),
    "ended a day ago": lambda now: (now - 2 * DAY_S, now - DAY_S),
    "ended in 1970": lambda _: (0, 1),
    "ends at 0": lambda _: (0, 0),
}
_EARLY: dict[str, Window] = {
    "begins in 20 s": lambda now: (now + 20, now + 300),
    "begins in an hour": lambda now: (now + 3600, now + 7200),
    "begins in milliseconds": lambda now: (now * 1000, now * 1000 + 300_000),
    "begins at its end": lambda now: (now + 60, now + 60),
    "ends before it begins": lambda now: (now + 120, now + 60),
    "never begins": lambda _: (2**256 - 2, 2**256 - 1),
}


def _in(window: Window) -> Change:
    """Return the change of a payment's window, by the clock that is behind: ours or the chain's."""

    def change(draft: Draft) -> Draft:
        after_s, before_s = window(draft.auth.valid_after + BEFORE_S)
        return draft.signed(valid_after=after_s, valid_before=before_s)

    return change


def _in_each(windows: dict[str, Window]) -> dict[str, Change]:
    return {about: _in(window) for about, window in windows.items()}


def _ends_in(seconds: int) -> Callable[[Draft], Draft]:
    """Return the change of a window's end to `seconds` from now."""
    return lambda draft: draft.signed(valid_before=draft.auth.valid_after + BEFORE_S + seconds)


_SIMULATED = {Dialect.PERMIT2: "only a simulation shows this, and the text recommends simulations"}
_BY_BLOCK = "what counts is the time of the block, and the chain says it"


@case(
    "window/ends-between",
    demand(
        "A payment expired between verify and settle is not settled",
        texts.explicit(texts.WINDOW, texts.CALLS),
    )(unsettled),
    demand(
        "A payment expired between verify and settle costs no gas",
        texts.ours(texts.SAFETY, because="who does not look again just before sending pays for it"),
        suffix="gas",
    )(costs_no_gas),
    waits_s=9,
)
async def _ends_between(play: Play) -> Tried:
    """Verify a payment shortly before the end of the window, and settle after the end."""
    draft = await play.draft()
    draft = draft.signed(valid_before=play.wall_s + 8)
    since, sent = await play.room.chain.height(), len(play.room.node.sent)
    await play.verify(draft)
    await play.wait(draft.auth.valid_before + 1 - play.wall_s)
    settled = await play.settle(draft)
    money = await play.room.money(since, sent)
    play.saw(money)
    return Tried(draft=draft, verified=settled, settled=settled, money=money)


ROWS = [
    refuses(
        "window/expired",
        "An expired payment is refused, to the second",
        texts.WINDOW,
        texts.EIP3009_WINDOW,
        changes=_in_each(_EXPIRED),
        by_chain=True,
    ),
    refuses(
        "window/early",
        "A payment before validAfter is refused",
        texts.WINDOW,
        texts.EIP3009_WINDOW,
        changes=_in_each(_EARLY),
        by_chain=True,
    ),
    pays(
        "window/ends-in-30",
        demand(
            "A payment with half a minute left is settled",
            texts.ours(
                texts.WINDOW,
                because="it is within its window, and five times the six seconds of the "
                "public facilitators are left",
            ),
        )(is_paid),
        changes=_in(lambda now: (now - 600, now + 30)),
    ),
    pays(
        "window/just-begun",
        demand(
            "A payment valid since five seconds ago is settled",
            texts.ours(
                texts.WINDOW, because="payers sign from now, and some by a clock that is right"
            ),
        )(is_paid),
        changes=_in(lambda now: (now - 5, now + 300)),
    ),
    pays(
        "window/least-left",
        left_open(
            "How many seconds must be left of a payment's window?",
            texts.WINDOW,
            why="a least time is wise, and no text says how much",
        ),
        changes={f"{left} s left": _ends_in(left) for left in (3, 5, 7, 12)},
    ),
    pays(
        "window/endless",
        left_open(
            "Does the facilitator accept practically endless windows?",
            texts.WINDOW,
            why="they are valid now",
        ),
        changes={
            "from 0": lambda draft: draft.signed(valid_after=0),
            "for a year": lambda draft: draft.signed(
                valid_before=draft.auth.valid_before + 365 * DAY_S
            ),
            "for ever": lambda draft: draft.signed(valid_before=2**256 - 1),
        },
    ),
    refuses(
        "window/ended-on-chain",
        "A payment expired by the chain's time is refused, though our clocks differ",
        texts.SIMULATE,
        texts.WINDOW,
        changes=_in_each({"ended on the chain": lambda now: (now - 600, now + 300)}),
        so=_BY_BLOCK,
        by_chain=True,
        only_simulated=True,
        kind=AHEAD,
        absent=_SIMULATED,
    ),
    refuses(
        "window/early-on-chain",
        "A payment before validAfter by the chain's time is refused, though our clocks differ",
        texts.SIMULATE,
        texts.WINDOW,
        changes=_in_each({"not begun on the chain": lambda now: (now + 300, now + 1200)}),
        so=_BY_BLOCK,
        by_chain=True,
        only_simulated=True,
        kind=BEHIND,
        absent=_SIMULATED,
    ),
]
