"""How cases of a facilitator are declared: what is played, and what is demanded of it.

One row is played once for each way of asking; every demand on it has an id of its own. A way in
which it cannot be played has a reason instead of an id, so that the table has no empty cell.
"""

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from x402sim.protocol.crypto import to_hex
from x402sim.protocol.money import to_decimal
from x402sim.report.results import Loss
from x402sim.spec.clauses import LEVELS, Level
from x402sim.spec.ground import BINDING, Ground, GroundKind
from x402sim.spec.needs import Need
from x402sim.suite.facilitator import texts
from x402sim.suite.facilitator.answers import Answer
from x402sim.suite.facilitator.payment import Draft, Way
from x402sim.suite.facilitator.play import Play
from x402sim.suite.facilitator.room import PLAIN, Floor, Money

DOCUMENTS = {
    **dict.fromkeys(BINDING, "facilitator"),
    GroundKind.OURS: "kit",
    GroundKind.SILENT: "silent",
}
"""The document that an id begins with, for each kind of ground."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """What a facilitator did against a demand, and what that costs."""

    expected: str
    actual: str
    loss: Loss | None = None
    why: str = ""


Found = Fault | str | None
"""What is wrong; or what was observed, in words; or nothing is wrong."""


def tokens(play: Play, base: int, why: str) -> Loss:
    """Return a loss of so many base units of the token."""
    network = play.room.network
    return Loss(base=base, decimals=network.decimals, symbol=network.token_symbol, why=why)


def gas(wei: int, why: str) -> Loss:
    """Return a loss of gas, which the relayer has paid."""
    return Loss(base=wei, decimals=18, symbol="coins", why=why)


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """What is demanded; the level is the highest that the ground supports.

    `test` gets the play and what it returned, and tells what is wrong. Without one, what the play
    returned is a `Found` itself.
    """

    title: str
    ground: Ground
    test: Callable[[Play, Any], Found] = lambda _, seen: seen
    suffix: str = ""
    level: Level | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FacilitatorCase:
    """One id: a demand on what a facilitator did in a play, in one way of asking."""

    id: str
    level: Level
    ground: Ground
    title: str
    way: Way
    play: Callable[[Play], Awaitable[Any]]
    test: Callable[[Play, Any], Found]
    played_as: str
    """The name of the play: cases with the same name look at one and the same."""
    floor: Floor
    is_control: bool = False
    waits_s: float = 0
    """How long it waits, at least, while it does nothing."""
    needs: tuple[Need, ...] = ()
    decides: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The id, which is unique."""
        return self.id

    @property
    def section(self) -> str:
        """The section of the id."""
        return self.id.split("/")[1]

    @property
    def controls(self) -> tuple[str, ...]:
        """The control without which its pass proves nothing."""
        return () if self.is_control else (control_of(self.way),)


def control_of(way: Way) -> str:
    """Return the id of the control of a way of asking."""
    return f"facilitator/control/settles-{way}"


EVERY = tuple(Way)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A row of the table: what is played in several ways of asking, and what is demanded of it.

    section, slug
        They make the id: DOCUMENT/section/slug[-suffix]-way.
    play
        What is done: asks the facilitator, turns the chain, and returns what the demands look at.
        An `Inconclusive` that it raises says why nothing can be told.
    floor
        The kind of room that it is played in.
    absent
        A reason for each way in which it is not played.
    waits_s
        Seconds in which it does nothing but wait; such plays run beside the others.
    asks_only
        Whether HTTP alone shows what is demanded: then it is judged without a chain of ours, too.
    """

    section: str
    slug: str
    play: Callable[[Play], Awaitable[Any]]
    demands: Sequence[Demand]
    floor: Floor = PLAIN
    absent: Mapping[Way, str] = field(default_factory=dict)
    waits_s: float = 0
    is_control: bool = False
    asks_only: bool = False

    def cases(self) -> Iterator[FacilitatorCase]:
        """Yield a case for each demand and way."""
        for way in EVERY:
            if way in self.absent:
                continue
            for demand in self.demands:
                kind = demand.ground.kind
                slug = "-".join(filter(None, (self.slug, demand.suffix, way)))
                yield FacilitatorCase(
                    id=f"{DOCUMENTS[kind]}/{self.section}/{slug}",
                    level=demand.level or LEVELS[kind],
                    ground=demand.ground,
                    title=demand.title,
                    way=way,
                    play=self.play,
                    test=demand.test,
                    played_as=f"{self.section}/{self.slug}-{way}",
                    floor=self.floor,
                    is_control=self.is_control and not demand.suffix,
                    waits_s=self.waits_s,
                    needs=() if self.asks_only else (Need.OBSERVE_CHAIN,),
                )


def only(ways: Sequence[Way], reason: str) -> dict[Way, str]:
    """Return the reason for every way but these."""
    return {way: reason for way in EVERY if way not in ways}


def table(rows: Sequence[Row]) -> list[FacilitatorCase]:
    """Return the cases of rows; raises `ValueError` for an id that is there twice."""
    cases = [case for row in rows for case in row.cases()]
    ids = [case.id for case in cases]
    if twice := sorted({each for each in ids if ids.count(each) > 1}):
        raise ValueError(f"declared twice: {', '.join(twice)}")
    return cases


# --- what is true of a payment ---------------------------------------------------------------


def transfers_of(money: Money, draft: Draft) -> int:
    """Return how often this payment moved: payer, payee, amount and token as it was signed."""
    auth = draft.auth
    return sum(
        (each.sender, each.to, each.amount_base, each.token)
        == (auth.from_, auth.to, auth.value, draft.network.asset)
        for each in money.moved
    )


def is_settled(money: Money, draft: Draft, answer: Answer) -> Fault | None:
    """Tell whether an answer says success, and this payment moved once, by the hash it names."""
    wanted = "success, and this transfer on the chain, once, by the hash that is named"
    actual = f"{answer.how}; {money.told}"
    moved = transfers_of(money, draft)
    if not answer.succeeded:
        return Fault(expected=wanted, actual=actual)
    hashes = {each.tx_hash for each in money.moved}
    if moved != 1 or len(money.moved) != 1 or answer.transaction not in hashes:
        return Fault(expected=wanted, actual=actual)
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """What came of a payment that must be refused: verify, then settle, then the chain."""

    draft: Draft
    verified: Answer
    settled: Answer
    money: Money


async def refusal(play: Play, draft: Draft) -> Refusal:
    """Let a payment be verified, and settled all the same; return what came of it."""
    verified, settled = await play.verify(draft), await play.settle(draft)
    money = await play.money()
    play.say(money.told)
    return Refusal(draft=draft, verified=verified, settled=settled, money=money)


def refused(play: Play, seen: Refusal) -> Fault | None:
    """Tell whether nobody called it valid or settled, and nothing moved."""
    if seen.money.moved:
        base = sum(each.amount_base for each in seen.money.moved)
        return Fault(
            expected="no transfer",
            actual=f"settle: {seen.settled.how}; {seen.money.told}",
            loss=tokens(play, base, "moved against the payment's or the shop's will"),
        )
    if seen.settled.succeeded:
        return Fault(
            expected="no success of settle",
            actual=f"settle: {seen.settled.how}; {seen.money.told}",
            loss=tokens(play, seen.draft.auth.value, "served for nothing: nothing moved"),
        )
    if seen.verified.is_valid:
        return Fault(
            expected="isValid false",
            actual=f"verify: {seen.verified.how}",
            why="a shop serves on it before it settles, and is not paid",
        )
    return None


def costs_no_gas(_: Play, seen: Refusal) -> Fault | None:
    """Tell whether the relayer sent nothing for it."""
    if not seen.money.sent:
        return None
    wei = seen.money.gas_wei
    return Fault(
        expected="no transaction for a payment that cannot settle",
        actual=f"settle: {seen.settled.how}; {seen.money.told}",
        loss=gas(wei, "the relayer's gas for a payment that cannot settle") if wei else None,
    )


def answered(_: Play, seen: Refusal) -> Fault | None:
    """Tell whether both answers are answers: no 5xx, no silence, and a reason."""
    for name, answer in (("verify", seen.verified), ("settle", seen.settled)):
        if fault := no_server_error(answer, name):
            return fault
    return None


def no_server_error(answer: Answer, name: str = "") -> Fault | None:
    """Tell whether an answer came, and is no 5xx."""
    if answer.status and not answer.is_server_error:
        return None
    before = f"{name}: " if name else ""
    return Fault(
        expected="a 4xx, or a verdict with a reason, never a 5xx or silence",
        actual=f"{before}{answer.how}",
        why="a shop takes it for an outage, repeats the request, or serves unpaid",
    )


WRONG = "the payment is wrong, so no transfer may follow, and no shop may serve on it"


def must_refuse(title: str, *sentences: Any, so: str = "") -> list[Demand]:
    """Return the demands on a payment that must be refused: by a text, for no gas, in order.

    For a play that returns a `Refusal`.
    """
    ground = texts.derived(*sentences, so=so) if so else texts.explicit(*sentences)
    return [
        Demand(title=title, ground=ground, test=refused),
        Demand(
            title=f"{title}: it costs no gas",
            ground=texts.ours(
                texts.SIMULATE,
                because="anybody can sign what must fail, and the relayer pays for each (SR6)",
            ),
            test=costs_no_gas,
            suffix="gas",
        ),
        Demand(
            title=f"{title}: the answer is no 5xx",
            ground=texts.derived(
                texts.INVALID_REQUEST,
                texts.INVALID_PAYLOAD,
                so="the text has an answer for a payment that is wrong, and a server's error is "
                "another",
            ),
            test=answered,
            suffix="answer",
        ),
    ]


def refuses(change: Callable[[Draft], Draft]) -> Callable[[Play], Awaitable[Refusal]]:
    """Return the play of a good payment with a change, which must be refused."""

    async def play(it: Play) -> Refusal:
        return await refusal(it, change(await it.draft()))

    return play


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """What came of a payment that should be settled."""

    draft: Draft
    verified: Answer
    settled: Answer
    money: Money


async def settlement(play: Play, draft: Draft) -> Settled:
    """Let a payment be verified and settled; return what came of it."""
    verified, done = await play.verify(draft), await play.settle(draft)
    money = await play.money()
    play.say(money.told)
    return Settled(draft=draft, verified=verified, settled=done, money=money)


def settles(change: Callable[[Draft], Draft] = lambda draft: draft) -> Callable[[Play], Any]:
    """Return the play of a good payment with a change that changes nothing of its meaning."""

    async def play(it: Play) -> Settled:
        return await settlement(it, change(await it.draft()))

    return play


def is_paid(_: Play, seen: Settled) -> Fault | None:
    """Tell whether it was called valid, and settled, once."""
    if not seen.verified.is_valid:
        return Fault(expected="isValid true", actual=f"verify: {seen.verified.how}")
    return is_settled(seen.money, seen.draft, seen.settled)


def in_tokens(play: Play, base: int) -> str:
    """Return an amount in tokens."""
    network = play.room.network
    return f"{to_decimal(base, network.decimals)} {network.token_symbol}"


def account(address: bytes) -> str:
    """Return an account in hex."""
    return to_hex(address)
