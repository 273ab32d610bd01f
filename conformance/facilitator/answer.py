"""The form of answers: fields, names, reasons; and that verify has no effect."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from x402sim.chain import contract
from x402sim.protocol import x402
from x402sim.protocol.networks import is_hash
from x402sim.suite import texts
from x402sim.suite.dialect import BY_PERMIT2, Dialect
from x402sim.suite.facilitator.case import case, demand, is_paid, is_settled, only, pays
from x402sim.suite.facilitator.payment import STANDARD, Answer
from x402sim.suite.facilitator.play import Play, Tried
from x402sim.suite.facilitator.room import Money
from x402sim.suite.verdict import Violation

_ONLY_STANDARD = "its answers have another form"


@demand(
    "A settlement names the network, in the version's words, and the transaction",
    texts.explicit(texts.SETTLED_NETWORK, texts.SETTLED_NETWORK_V1, texts.TRANSACTION),
)
def _settled_form(play: Play, observed: Tried) -> Violation | None:
    fields = observed.settled.fields
    wanted = x402.network_name(play.dialect.version, play.room.network)
    if fields.get("network") != wanted:
        return Violation(demand="names-network", actual=f"not {wanted}: {observed.settled.how}")
    if not is_hash(observed.settled.transaction, wanted):
        return Violation(expected="transaction, a hash", actual=observed.settled.how)
    return None


@demand(
    "The hash of the transaction begins with 0x",
    texts.ours(
        texts.TRANSACTION,
        because="the texts have it in every example, and a node takes no hash without it",
    ),
    suffix="prefix",
)
def _has_prefix(_: Play, observed: Tried) -> Violation | None:
    named = observed.settled.fields.get("transaction")
    if not observed.settled.succeeded or not named or str(named).startswith("0x"):
        return None
    return Violation(demand="hash-has-prefix", actual=observed.settled.how)


def _payer(answer: Answer, observed: Tried, *, is_required: bool) -> Violation | None:
    payer = answer.fields.get("payer")
    mine = observed.draft.wallet.address
    if payer is None and not is_required:
        return None
    if isinstance(payer, str) and payer.lower() == mine.lower():
        return None
    return Violation(demand="names-payer", actual=f"not {mine}: {answer.how}")


@demand(
    "The answer names the right payer, in version 1 at every settlement",
    texts.explicit(texts.PAYER_V1),
    suffix="payer",
)
def _names_payer(play: Play, observed: Tried) -> Violation | None:
    return _payer(observed.verified, observed, is_required=False) or _payer(
        observed.settled, observed, is_required=play.dialect is Dialect.V1
    )


_EVM = "invalid_exact_evm_payload_"
_SIGNATURE = f"{_EVM}signature"
_VALUE = f"{_EVM}authorization_value"
_STATE = "invalid_transaction_state"
_OFFER = "invalid_payment_requirements"
WORDS: dict[str, Sequence[str]] = {
    "another signer": (_SIGNATURE,),
    "too little": (_VALUE, f"{_VALUE}_mismatch"),
    "another payee": (f"{_EVM}recipient_mismatch",),
    "expired": (f"{_EVM}authorization_valid_before",),
    "early": (f"{_EVM}authorization_valid_after",),
    "another scheme": ("unsupported_scheme", "invalid_scheme"),
    "no signature": (_SIGNATURE,),
    "another network": ("invalid_network",),
    "another name of the token": (_OFFER, _SIGNATURE, "invalid_exact_evm_token_name_mismatch"),
    "a used nonce": (_STATE, "invalid_exact_evm_nonce_already_used"),
    "a wallet that is not deployed": (_SIGNATURE, f"{_EVM}undeployed_smart_wallet"),
    "no money": ("insufficient_funds",),
}
_PERMIT2 = "invalid_permit2_"
BY_PERMIT2_WORDS: dict[str, Sequence[str]] = {
    "another signer": (f"{_PERMIT2}signature",),
    "too little": (
        "permit2_amount_mismatch",
        "invalid_upto_evm_payload_settlement_exceeds_amount",
    ),
    "another payee": (f"{_PERMIT2}recipient_mismatch",),
    "expired": ("permit2_deadline_expired",),
    "early": ("permit2_not_yet_valid",),
    "another scheme": ("unsupported_scheme", "invalid_scheme", f"{_PERMIT2}spender"),
    "no signature": (f"{_PERMIT2}signature",),
    "another network": ("invalid_network",),
    "a used nonce": ("permit2_invalid_nonce",),
    "a wallet that is not deployed": (f"{_PERMIT2}signature", "permit2_allowance_required"),
    "no money": ("permit2_insufficient_balance", "insufficient_funds"),
    "another spender": (f"{_PERMIT2}spender",),
    "another token": ("permit2_token_mismatch",),
    "no allowance": ("permit2_allowance_required",),
    "another facilitator": ("upto_facilitator_mismatch",),
}
"""The words of section 9 for each fault, or else the word shared by the public libraries. `GENERAL`
words are true of every fault. By Permit2 the words are those of the public libraries.
"""
GENERAL = ("invalid_payload", _STATE, "unexpected_verify_error", "unexpected_settle_error")


@demand("A refusal of verify says isValid false", texts.explicit(texts.IS_VALID))
def _invalid_form(_: Play, observed: Sequence[Tried]) -> Violation | None:
    for each in observed:
        answer = each.verified
        if answer.status // 100 == 2 and not isinstance(answer.fields.get("isValid"), bool):
            return Violation(
                expected="isValid, true or false", actual=f"{each.about}: verify: {answer.how}"
            )
    return None


@demand(
    "A refusal of settle has success, transaction and network",
    texts.explicit(texts.SUCCESS_FIELD, texts.TRANSACTION, texts.SETTLED_NETWORK),
    suffix="settle",
)
def _failed_form(play: Play, observed: Sequence[Tried]) -> Violation | None:
    for each in observed:
        answer, fields = each.settled, each.settled.fields
        if answer.status // 100 != 2 or answer.succeeded:
            continue
        is_whole = fields.get("success") is False and isinstance(fields.get("transaction"), str)
        if not is_whole or not isinstance(fields.get("network"), str):
            return Violation(
                expected="success, transaction (empty without one) and network",
                actual=f"{each.about}: settle: {answer.how}",
            )
    return None


@demand(
    "A refusal has a reason",
    texts.ours(
        texts.INVALID_REASON,
        texts.ERROR_REASON,
        because="without one, a payer signs again, and pays twice (F#3325)",
    ),
    suffix="reason",
)
def _has_reasons(_: Play, observed: Sequence[Tried]) -> Violation | None:
    for each in observed:
        for name, answer in (("verify", each.verified), ("settle", each.settled)):
            if not (answer.reason or answer.is_valid or answer.succeeded):
                return Violation(
                    demand="refusal-has-a-reason", actual=f"{each.about}: {name}: {answer.how}"
                )
    return None


@demand(
    "Reasons are words of section 9, with the meaning of section 9",
    texts.ours(
        texts.CODES, because="they help clients understand why a payment failed, if they know them"
    ),
    suffix="words",
)
def _words(play: Play, observed: Sequence[Tried]) -> Violation | None:
    own: dict[str, None] = {}
    known = BY_PERMIT2_WORDS if play.dialect in BY_PERMIT2 else WORDS
    for each in observed:
        for answer in (each.verified, each.settled):
            if answer.reason and answer.reason not in (*known[each.about], *GENERAL):
                own[f"{each.about}: {answer.reason}"] = None
    if not own:
        return None
    return Violation(demand="standard-reasons", actual="; ".join(own))


@demand(
    "The HTTP status of a refusal",
    texts.silent(
        why="no text says it; the public Python client takes any but 200 for a failure "
        "of the facilitator, and loses the reason"
    ),
    suffix="status",
)
def _status(_: Play, observed: Sequence[Tried]) -> str:
    found = {
        f"{name} {answer.status}"
        for each in observed
        for name, answer in (("verify", each.verified), ("settle", each.settled))
    }
    return ", ".join(sorted(found))


@dataclass(frozen=True, slots=True)
class Verified:
    """The answers to several verifications of one payment, and the money."""

    answers: Sequence[Answer]
    money: Money
    settled: Tried


@demand(
    "Verifying has no effect, however often, and the payment settles afterwards",
    texts.explicit(texts.VERIFIES_ONLY),
)
def _without_effect(_: Play, observed: Verified) -> Violation | None:
    if observed.money.moved or observed.money.sent:
        return Violation(
            demand="verify-moves-nothing",
            actual=f"{observed.answers[-1].how}; {observed.money.summary}",
        )
    if not all(each.is_valid for each in observed.answers):
        return Violation(
            demand="valid-again",
            actual="; ".join(each.how for each in observed.answers),
        )
    return is_settled(observed.settled.money, observed.settled.draft, observed.settled.settled)


@case(
    "answer/refused",
    _invalid_form,
    _failed_form,
    _has_reasons,
    _words,
    _status,
    absent=only(STANDARD, _ONLY_STANDARD),
)
async def _wrong(play: Play) -> list[Tried]:
    """Verify and settle several wrong payments."""
    payer, other = await play.room.payer(), await play.room.payer()
    poor = await play.room.payer(balance_base=0)
    good, used = await play.draft(payer), await play.draft(payer)
    named = {"name": "Another Coin", "version": good.network.domain.version}
    domain = msgspec.structs.replace(good.network.domain, name=named["name"])
    absent = contract.wallet_address(payer.address_bytes)
    await play.room.chain.fund(absent, good.auth.value)
    if play.dialect is not Dialect.UPTO:  # only the named facilitator can settle it
        await play.used_by_another(used)
    wrong = {
        "another signer": good.signed(by=other),
        "too little": good.signed(value=1),
        "another payee": good.signed(to=play.payee()),
        "expired": good.signed(valid_before=play.wall_s - 100),
        "early": good.signed(valid_after=play.wall_s + 100),
        "another scheme": good.demanding(
            "scheme", "exact" if play.dialect is Dialect.UPTO else "upto"
        ),
        "no signature": good.without("signature"),
        "another network": good.demanding("network", "eip155:1"),
        "another name of the token": good.signed(domain=domain).demanding("extra", named),
        "a used nonce": used,
        "a wallet that is not deployed": good.signed(from_=absent),
        "no money": await play.draft(poor),
    }
    if play.dialect in BY_PERMIT2:
        del wrong["another name of the token"]
        elsewhere = msgspec.structs.replace(domain, verifying_contract=play.payee())
        wrong |= {
            "another spender": good.signed(permit={"spender": play.payee()}),
            "another token": good.signed(domain=elsewhere),
            "no allowance": await play.draft(allowed_base=0),
        }
    if play.dialect is Dialect.UPTO:
        wrong["another facilitator"] = good.signed(permit={"facilitator": play.payee()})
        del wrong["a used nonce"]
    return [await play.tried(draft, about) for about, draft in wrong.items()]


@case("answer/verify-only", _without_effect)
async def _verified(play: Play) -> Verified:
    draft = await play.draft()
    answers = [await play.verify(draft) for _ in range(3)]
    money = await play.money()
    return Verified(answers, money, await play.tried(draft))


@case(
    "answer/json",
    demand(
        "JSON in another order, with spaces and escapes, is the same payment",
        texts.derived(
            texts.EXECUTES, so="it is the same JSON (RFC 8259), and every field of it is right"
        ),
    )(is_paid),
)
async def _written_otherwise(play: Play) -> Tried:
    """Settle a payment whose JSON has another order of keys, spaces and escapes."""
    draft = await play.draft()

    def turned(value: object) -> object:
        if isinstance(value, dict):
            return {key: turned(value[key]) for key in reversed(list(value))}
        return value

    body = json.dumps(turned(json.loads(draft.content)), indent=3)
    content = body.replace('"exact"', '"\\u0065xact"').encode()
    since, sent_before = await play.room.chain.height(), len(play.room.node.sent)
    verified = await play.post(play.dialect.verify_path, content)
    done = await play.post(play.dialect.settle_path, content)
    money = await play.room.money(since, sent_before)
    return Tried(draft=draft, verified=verified, settled=done, money=money)


ROWS = [
    pays(
        "answer/settled",
        _settled_form,
        _names_payer,
        _has_prefix,
        changes=lambda draft: draft,
        absent=only(STANDARD, _ONLY_STANDARD),
    ),
]
