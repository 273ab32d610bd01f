"""Declares cases of a facilitator: rows, and the demands on a payment."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from x402sim.spec.ground import BINDING, Sentence
from x402sim.spec.needs import Need
from x402sim.suite import row, texts
from x402sim.suite.dialect import BY_PERMIT2, OF_FACILITATORS, Dialect
from x402sim.suite.drafts import lost
from x402sim.suite.facilitator.payment import Answer, Draft
from x402sim.suite.facilitator.play import Play, Tried
from x402sim.suite.facilitator.room import PLAIN, ChainRoomKind, FacilitatorRoom, Money
from x402sim.suite.report.results import Loss
from x402sim.suite.row import Demand as Demand, demand as demand, only as only, told as told
from x402sim.suite.verdict import Violation


def tokens(room: FacilitatorRoom, base: int, why: str) -> Loss | None:
    """Return a loss in base units of the token; None for 0."""
    return lost(room.network, base, why) if base else None


def gas(wei: int, why: str) -> Loss | None:
    """Return a loss of gas, which the relayer has paid; None for 0."""
    if not wei:
        return None
    return Loss(base=wei, decimals=18, symbol="coins", why=why)


NOT_BY_PERMIT2 = {
    "body": "a body is read before its scheme",
    "spelling": "the spellings are of JSON, and the columns of both versions have them",
    **{
        f"domain/{slug}": "Permit2's message has neither name nor version of the token"
        for slug in ("name", "version", "named-wrongly", "named-otherwise")
    },
    **{
        f"token/{slug}": "the code of such tokens is run by EIP-3009"
        for slug in ("named-by-payer", "burns", "silent", "takes-a-fee", "reverts-when-mined")
    },
    **{
        f"supported/{slug}": "the list is one for all schemes"
        for slug in ("kinds", "signers", "fields", "discovery")
    },
}
"""Why these sections and rows are not played by Permit2; all others are."""
_SENTENCES: dict[Dialect, dict[Sentence, Sentence | None]] = {
    Dialect.V1: texts.IN_V1,
    Dialect.PERMIT2: {
        texts.AMOUNT: texts.P2_AMOUNT,
        texts.AMOUNT_V1: texts.P2_AMOUNT,
        texts.BYTES_65: texts.P2_SIGNATURE,
        texts.CALLS: texts.P2_SETTLES,
        texts.EIP3009_WINDOW: texts.P2_WINDOW,
        texts.RECOVERS: texts.P2_SIGNATURE,
        texts.SIMULATE: None,
        texts.SUFFICIENT: texts.P2_BALANCE,
        texts.TOKEN_AND_NETWORK: texts.P2_TOKEN,
    },
    Dialect.UPTO: {
        texts.ALLOWANCE: texts.UPTO_ALLOWANCE,
        texts.AMOUNT: texts.UPTO_AMOUNT,
        texts.AMOUNT_V1: texts.UPTO_MAXIMUM,
        texts.BALANCE: texts.UPTO_BALANCE,
        texts.BYTES_65: texts.UPTO_SIGNATURE,
        texts.CALLS: texts.UPTO_SETTLES,
        texts.CONSUMED: texts.UPTO_ONCE,
        texts.DIRECT: texts.UPTO_SETTLES,
        texts.EIP3009_WINDOW: texts.UPTO_WINDOW,
        texts.PARAMETER_MATCHING: texts.UPTO_PAYEE,
        texts.RECOVERS: texts.UPTO_SIGNATURE,
        texts.SAFETY: None,
        texts.SIGNATURE: texts.UPTO_SIGNATURE,
        texts.SIMULATE: texts.UPTO_SIMULATE,
        texts.SPONSORED: texts.UPTO_SPONSORED,
        texts.SUFFICIENT: texts.UPTO_BALANCE,
        texts.TOKEN_AND_NETWORK: texts.UPTO_TOKEN,
        texts.TRANSFER_IS_CORRECT: texts.UPTO_TRANSFER,
        texts.WINDOW: texts.UPTO_WINDOW,
    },
}
"""For sentences of version 2, EIP-3009 and `exact`: the dialect's, with the same content."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FacilitatorRow(row.RoomRow):
    """A row of the table of facilitators.

    asks_only
        Whether HTTP alone is enough to judge the demands: the row is then judged without a chain of
        ours, too.
    """

    subject: ClassVar[str] = "facilitator"
    control: ClassVar[str] = "settles"
    dialects: ClassVar[Sequence[Dialect]] = OF_FACILITATORS
    plain: ClassVar[ChainRoomKind] = PLAIN
    not_played: ClassVar[Mapping[Dialect, Mapping[str, str]]] = dict.fromkeys(
        BY_PERMIT2, NOT_BY_PERMIT2
    )
    sentences: ClassVar[Mapping[Dialect, Mapping[Sentence, Sentence | None]]] = _SENTENCES

    asks_only: bool = False
    after: Demand | None = None
    """The demand after a row without a MUST of its own; by default `NEXT`."""

    @property
    def besides(self) -> Sequence[Demand]:
        """A MUST for a row whose own demands have no MUST."""
        musts = [each for each in self.demands if each.ground.kind in BINDING]
        return () if musts else (self.after or NEXT,)

    @property
    def needs(self) -> tuple[Need, ...]:
        """A chain of ours, unless HTTP alone is enough."""
        return () if self.asks_only else (Need.OBSERVE_CHAIN,)


case = FacilitatorRow.of
"""Declares cases: `@case("section/slug", *demands)` above a play, or called with a made play."""

NEXT = demand(
    "After the payments of this play, the good payment of another payer settles",
    texts.derived(
        texts.EXECUTES, so="what others have asked before is no reason not to settle a payment"
    ),
    suffix="next",
)(lambda *_: None)
"""Fails if the judge's good payment after a play fails."""


# --- the demands on a payment ----------------------------------------------------------------


def transfers_of(money: Money, draft: Draft) -> int:
    """Return how often this payment moved: with payer, payee, amount and token as signed."""
    auth = draft.auth
    return sum(
        (each.sender, each.to, each.amount_base, each.token)
        == (auth.from_, auth.to, auth.value, draft.network.asset)
        for each in money.moved
    )


def is_settled(money: Money, draft: Draft, answer: Answer) -> Violation | None:
    """Tell whether an answer says success, and this payment moved once, by the named hash."""
    actual = f"{answer.how}; {money.summary}"
    moved = transfers_of(money, draft)
    if not answer.succeeded:
        is_hidden = moved and not answer.transaction
        return Violation(demand="settled-is-no-failure" if is_hidden else "settles", actual=actual)
    # an earlier pending payment may be mined just now: only this payer's transfers count
    hashes = {each.tx_hash for each in money.moved if each.sender == draft.auth.from_}
    if moved != 1 or len(hashes) != 1 or answer.transaction not in hashes:
        return Violation(demand="settles", actual=actual)
    return None


Change = Callable[[Draft], Draft]
Changes = Change | Mapping[str, Change]
"""A change of a good payment; or several by name, each of a payment of its own."""


def put(name: str, value: Any) -> Change:
    """Return the change of a value of the JSON, under the old signature."""
    return lambda draft: draft.with_value(name, value)


def wants(field: str, value: Any) -> Change:
    """Return the change of a field of the requirements; nothing is signed anew."""
    return lambda draft: draft.demanding(field, value)


def tries(changes: Changes = lambda draft: draft) -> Callable[[Play], Awaitable[Any]]:
    """Return the play of a good payment with a change, or of several payments of one payer.

    The play ends where no good payment settles any more: an earlier change has jammed the
    facilitator, and the last change is not to blame.
    """

    async def play(it: Play) -> Tried | list[Tried]:
        """A payment is verified, and then settled; where several are wrong, one after the other."""
        if callable(changes):
            return await it.tried(changes(await it.draft()))
        payer, found = await it.room.payer(), list[Tried]()
        for about, change in changes.items():
            last = await it.tried(change(await it.draft(payer)), about)
            is_silent = it.is_silent
            if is_silent or (last.verified.is_valid and not last.settled.succeeded):
                it.say("a good payment:")
                if is_paid(it, await it.tried(await it.draft())):
                    break
            found.append(last)
            if is_silent:  # the rest would wait, too
                break
        return found

    return play


def pays(path: str, *demands: Demand, changes: Changes, **more: Any) -> FacilitatorRow:
    """Return the row of good payments with these changes; `more` is for `case`."""
    return case(path, *demands, **more)(tries(changes))


def _of_each(
    test: Callable[[Play, Tried], Violation | None],
) -> Callable[[Play, Tried | Sequence[Tried]], Violation | None]:
    """Return the test of every payment of a play, with the first failure."""

    def of_each(play: Play, observed: Tried | Sequence[Tried]) -> Violation | None:
        for each in [observed] if isinstance(observed, Tried) else observed:
            if (fault := test(play, each)) is not None:
                about = f"{each.about}: " if each.about else ""
                return replace(fault, actual=about + fault.actual)
        return None

    return of_each


def _refused(play: Play, observed: Tried) -> Violation | None:
    if observed.money.moved:
        base = sum(each.amount_base for each in observed.money.moved)
        return Violation(
            expected="no transfer",
            actual=f"settle: {observed.settled.how}; {observed.money.summary}",
            loss=tokens(play.room, base, "moved against the payment's or the shop's will"),
            demand=observed.verified.demand_on_settle or "refused-is-not-moved",
        )
    if observed.settled.succeeded:
        return Violation(
            expected="no success of settle",
            actual=f"settle: {observed.settled.how}; {observed.money.summary}",
            loss=tokens(play.room, observed.draft.auth.value, "served for nothing: nothing moved"),
            demand=observed.verified.demand_on_settle or "refused-is-no-success",
        )
    if observed.verified.is_valid:
        return Violation(demand="refused-is-not-valid", actual=f"verify: {observed.verified.how}")
    return None


def _unsettled(play: Play, observed: Tried) -> Violation | None:
    if play.dialect is not Dialect.CRONOS:
        return _refused(play, observed)
    return _refused(play, replace(observed, verified=observed.settled))


refused = _of_each(_refused)
"""Tests that no answer says valid or success, and that nothing moved."""
unsettled = _of_each(_unsettled)
"""Tests the same; in the dialect of Cronos, of settle only, since its verify is documented to look
neither at the chain nor at the time.
"""


@_of_each
def costs_no_gas(_: Play, observed: Tried) -> Violation | None:
    """Tell whether the relayer sent a transaction."""
    if not observed.money.sent or observed.money.moved:  # a transfer is worse than a waste
        return None
    wei = observed.money.gas_wei
    return Violation(
        expected="no transaction for a payment that cannot settle",
        actual=f"settle: {observed.settled.how}; {observed.money.summary}",
        loss=gas(wei, "the relayer's gas for a payment that cannot settle"),
        demand=observed.verified.demand_on_settle or "no-gas-for-refused",
    )


@_of_each
def answered(_: Play, observed: Tried) -> Violation | None:
    """Tell whether both requests were answered: no 5xx, and no silence."""
    for name, answer in (("verify", observed.verified), ("settle", observed.settled)):
        if fault := no_server_error(answer, name):
            return fault
    return None


def no_server_error(answer: Answer, name: str = "") -> Violation | None:
    """Tell whether an answer came, and is no 5xx."""
    if answer.status and not answer.is_server_error:
        return None
    before = f"{name}: " if name else ""
    return Violation(demand="wrong-is-answered", actual=f"{before}{answer.how}")


def must_refuse(
    title: str,
    *sentences: Any,
    so: str = "",
    by_chain: bool = False,
    only_simulated: bool = False,
) -> list[Demand]:
    """Return the demands on a payment that must be refused: without gas, and without a 5xx.

    For a play that returns a `Tried`, or several. `by_chain`: only the chain or the time makes the
    payment wrong, and Cronos' verify looks at neither. `only_simulated`: only a simulation shows
    the failure; verify simulates, and no text asks settle to repeat the simulation.
    """
    ground = texts.derived(*sentences, so=so) if so else texts.explicit(*sentences)
    drains = "anybody can sign what must fail, and the relayer pays for each"
    gas_ground = (
        texts.ours(texts.SIMULATE, because=drains)
        if only_simulated
        else texts.derived(texts.EXECUTES, texts.SAFETY, so=f"it is no verified payment; {drains}")
    )
    return [
        demand(title, ground)(unsettled if by_chain else refused),
        demand(f"{title}: the relayer pays no gas", gas_ground, suffix="gas", level="SHOULD")(
            costs_no_gas
        ),
        demand(
            f"{title}: the answer is no 5xx",
            texts.derived(
                texts.INVALID_REQUEST,
                texts.INVALID_PAYLOAD,
                so="the text has an answer for a payment that is wrong, and a server's error is "
                "another",
            ),
            suffix="answer",
        )(answered),
    ]


def refuses(
    path: str,
    title: str,
    *sentences: Sentence,
    changes: Changes,
    so: str = "",
    by_chain: bool = False,
    only_simulated: bool = False,
    **more: Any,
) -> FacilitatorRow:
    """Return the row of payments that must be refused, as `must_refuse` demands."""
    demands = must_refuse(
        title, *sentences, so=so, by_chain=by_chain, only_simulated=only_simulated
    )
    return pays(path, *demands, changes=changes, **more)


@_of_each
def is_paid(_: Play, observed: Tried) -> Violation | None:
    """Tell whether verify said valid, and the payment settled once."""
    if not observed.verified.is_valid:
        return Violation(demand="good-is-valid", actual=f"verify: {observed.verified.how}")
    return is_settled(observed.money, observed.draft, observed.settled)


@_of_each
def agrees(_: Play, observed: Tried) -> Violation | None:
    """Tell whether verify, settle and the chain agree; both valid and invalid are legal."""
    if observed.verified.is_valid:
        if fault := is_settled(observed.money, observed.draft, observed.settled):
            return Violation(
                demand="valid-settles",
                actual=f"verify: {observed.verified.how}; settle: {fault.actual}",
            )
        return None
    if observed.settled.succeeded or observed.money.moved:
        return Violation(
            expected="a payment that is called invalid does not settle",
            actual=f"verify: {observed.verified.how}; settle: {observed.settled.how}; "
            f"{observed.money.summary}",
            demand=observed.verified.demand_on_settle or "invalid-does-not-settle",
        )
    return None


def as_observed(_: Play, observed: Tried | Sequence[Tried]) -> str:
    """Return the outcome of a payment on which the texts are silent."""
    if isinstance(observed, Tried):
        return _taken(observed)
    return "; ".join(f"{each.about}: {_taken(each)}" for each in observed)


def _taken(observed: Tried) -> str:
    verified, done = observed.verified, observed.settled
    no = verified.reason or str(verified.status), done.reason or str(done.status)
    match verified.is_valid, done.succeeded:
        case True, True:
            return "settled"
        case True, False:
            return f"valid, and not settled ({no[1]})"
        case False, True:
            return f"invalid ({no[0]}), and settled"
        case _:
            return f"refused ({' and '.join(dict.fromkeys(no))})"


def left_open(title: str, *sentences: Sentence, why: str) -> Demand:
    """Return the observation of payments on which the texts are silent, with the reason."""
    return demand(title, texts.silent(*sentences, why=why))(as_observed)


def agreed(title: str, *sentences: Sentence) -> Demand:
    """Return the demand that verify, settle and the chain agree."""
    ground = texts.valid_settles(*sentences)
    return demand(title, ground, suffix="agrees")(agrees)
