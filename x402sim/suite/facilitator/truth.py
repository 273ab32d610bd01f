"""Compares a facilitator's answers with the chain, in plays where the chain, its node or other
payments interfere.
"""

from x402sim.suite import texts
from x402sim.suite.dialect import Dialect
from x402sim.suite.facilitator.case import Demand, demand, gas, no_server_error, tokens
from x402sim.suite.facilitator.payment import Answer
from x402sim.suite.facilitator.play import Observed, Play
from x402sim.suite.verdict import Violation

ASK_AGAIN = (408, 409, 425, 429)
"""Statuses of repeatable requests, without a word on the payment."""


def is_final_no(answer: Answer) -> bool:
    """Tell whether an answer reports a failed payment: in the body, or by a 4xx."""
    if answer.is_pending:
        return False
    if answer.status // 100 == 4:
        return answer.status not in ASK_AGAIN
    if answer.status // 100 != 2:
        return False
    if answer.dialect is Dialect.CRONOS:
        return answer.fields.get("event") == "payment.failed"
    return answer.fields.get("success") is False


# --- demands ---------------------------------------------------------------------------------


def truthful(play: Play, observed: Observed) -> Violation | None:
    """Find an answer that is not true of the chain.

    After a success, the chain must have this payment's transfer, in the transaction that the answer
    names, and already in the `early` state, if given. After a failure, the chain must not have the
    transfer.
    """
    sent = {each.tx_hash for each in observed.money.sent}
    for draft in observed.drafts:
        moved, answers = observed.moved(draft), observed.answers(draft)
        hashes = {each.tx_hash for each in moved}
        for answer in answers:
            if not answer.succeeded:
                continue
            then = (
                observed.early
                if observed.early and answer is observed.pairs[0][1]
                else observed.money
            )
            if not moved or not observed.moved(draft, then):
                return Violation(
                    demand="success-is-on-chain",
                    actual=f"settle: {answer.how}; {then.summary}",
                    loss=tokens(
                        play.room, draft.auth.value, "served for nothing: nothing had moved"
                    ),
                )
            if answer.transaction not in hashes:
                return Violation(
                    expected=f"success by the hash of this transfer, {', '.join(sorted(hashes))}",
                    actual=f"settle: {answer.how}; {observed.money.summary}",
                    demand="its-hash",
                )
        is_told = any(each.succeeded or each.transaction in hashes for each in answers)
        if hashes & sent and not is_told and any(map(is_final_no, answers)):
            return Violation(
                demand="settled-is-no-failure",
                actual=observed.summary,
                loss=tokens(play.room, draft.auth.value, "paid, and told that it failed"),
            )
    return None


def success_is_this_transfer(title: str) -> Demand:
    """Return the demand that a success is this transfer, once, and a failure is no transfer."""
    return demand(
        title,
        texts.derived(
            texts.SUCCESS_FIELD,
            texts.TRANSACTION,
            texts.TRANSFER_IS_CORRECT,
            so="whether a settlement was successful is what the chain says of this transfer; one "
            "that has succeeded, or still can, has not failed, and has a hash",
        ),
    )(truthful)


def names_the_hash(_: Play, observed: Observed) -> Violation | None:
    """Find a transaction that moved a payment, and whose hash no answer named."""
    sent = {each.tx_hash for each in observed.money.sent}
    for draft in observed.drafts:
        hashes = {each.tx_hash for each in observed.moved(draft)} & sent
        named = {each.transaction for each in observed.answers(draft)}
        if hashes and not hashes & named:
            return Violation(demand="names-what-it-sent", actual=observed.summary)
    return None


def hash_is_named(title: str) -> Demand:
    """Return the demand that a sent transaction is named."""
    return demand(
        title,
        texts.ours(
            texts.TRANSACTION,
            because="without the hash a server that asks again cannot tell it from a failure, and "
            "the payer signs another (x402-foundation/x402#1062, #3083)",
        ),
        suffix="hash",
    )(names_the_hash)


def wastes_nothing(_: Play, observed: Observed) -> Violation | None:
    """Find more transactions of the relayer than payments, or one without a payment."""
    money = observed.money
    if money.reverted:
        return Violation(
            expected="no transaction of the relayer that reverts",
            actual=observed.summary,
            loss=gas(money.burnt_wei, "gas for what could not succeed"),
            demand=observed.demand_on_settle or "no-reverts",
        )
    moving = {each.tx_hash for each in money.moved}
    if any(each.ok and each.tx_hash not in moving for each in money.sent):
        return Violation(
            expected="no transaction that moves nothing",
            actual=observed.summary,
            loss=gas(money.gas_wei, "gas for a call that the payer has chosen"),
            demand=observed.demand_on_settle or "no-gas-for-refused",
        )
    # what took the place of another, at a higher price, costs no gas a second time
    if sum(each.ok is not None for each in money.sent) > len(observed.drafts):
        return Violation(demand="one-transaction", actual=observed.summary)
    return None


def wastes_no_gas(title: str, because: str) -> Demand:
    """Return the demand: no gas for a hopeless transaction, nor for a second one."""
    return demand(title, texts.ours(texts.SIMULATE, texts.SAFETY, because=because), suffix="gas")(
        wastes_nothing
    )


def sends_nothing(title: str, so: str) -> Demand:
    """Return the demand that settle sends no transaction for a visibly unpayable payment."""
    ground = texts.derived(texts.EXECUTES, texts.SAFETY, so=so)
    return demand(title, ground, suffix="gas", level="SHOULD")(wastes_nothing)


def everything_settles(play: Play, observed: Observed) -> Violation | None:
    """Find a payment with neither a success nor a pending answer with a hash."""
    bad = [
        (draft, answer)
        for draft, answer in observed.pairs
        if answer.status not in (429, 503)  # too busy is no verdict
        and not (answer.succeeded or (answer.is_pending and answer.transaction))
    ]
    if not bad:
        return None
    _, answer = bad[0]
    return Violation(
        expected=f"{len(observed.pairs)} good payments settle",
        actual=f"{len(bad)} of {len(observed.pairs)} do not, such as: {answer.how}; "
        f"{observed.money.summary}",
        demand="many-settle",
    )


def must_not_settle(play: Play, observed: Observed) -> Violation | None:
    """Find a success for a hopeless payment."""
    for draft, answer in observed.pairs:
        if answer.succeeded:
            return Violation(
                demand="refused-is-no-success",
                actual=observed.summary,
                loss=None
                if observed.moved(draft)
                else tokens(play.room, draft.auth.value, "served for nothing: nothing moved"),
                why="one payment buys twice" if observed.moved(draft) else "",
            )
    return None


def is_not_valid(_: Play, observed: Observed) -> Violation | None:
    """Find a verification that answered valid; in the dialect of Cronos any answer passes."""
    answer = observed.verified
    if answer is None or answer.dialect is Dialect.CRONOS or not answer.is_valid:
        return None
    return Violation(demand="refused-is-not-valid", actual=f"verify: {answer.how}")


def no_server_errors(_: Play, observed: Observed) -> Violation | None:
    """Find an answer that is missing, or a 5xx."""
    for answer in [*observed.all_answers, *([observed.verified] if observed.verified else [])]:
        if fault := no_server_error(answer):
            return fault
    return None
