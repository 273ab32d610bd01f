"""Each kind of demand on facilitators has a defect that it catches; honest ones are left alone."""

import pytest

from tests.campaign import at_length
from tests.evm import find
from tests.suite_facilitator.judging import cases, judged, mutant
from tests.suite_facilitator.mutant import LENIENT
from x402sim.report.causes import causes
from x402sim.report.results import Outcome
from x402sim.suite.case import of_id
from x402sim.suite.facilitator.payment import Dialect
from x402sim.suite.facilitator.subject import SECTIONS, all_cases

DEFECTS = {
    "any payee": "facilitator/fields/payee-v2",
    "any amount": "facilitator/fields/amount-less-v1",
    "takes more": "facilitator/fields/amount-more-v2",
    "any network": "facilitator/fields/network-unknown-v2",
    "any scheme": "facilitator/fields/scheme-v1",
    "any version": "facilitator/fields/version-v2",
    "any asset": "facilitator/fields/asset-demanded-v2",
    "believes the domain + no trial": "facilitator/domain/named-wrongly-v2",
    "any chain + no trial": "facilitator/domain/chain-v2 kit/domain/chain-gas-v2",
    "any contract + no trial": "facilitator/domain/contract-v1",
    "no look at signatures + no trial": "facilitator/signature/of-others-v2 kit/signature/of-others-gas-v2",
    "high s + no trial": "facilitator/signature/form-v2",
    "v of 0 and 1 + no trial": "facilitator/signature/form-v1",
    "compact signatures + no trial": "facilitator/signature/form-v2",
    "no validAfter + no trial": "facilitator/window/early-v2",
    "no validBefore + no trial": "facilitator/window/expired-v1",
    "5xx": "facilitator/body/no-json-v2 facilitator/body/no-object-v2",
    "dies of depth": "facilitator/body/deep-v2",
    **dict.fromkeys([*LENIENT][:-1], "kit/spelling/value-v2 kit/spelling/amount-v2"),
    "hides a version": "facilitator/supported/lists-v1",
    "another signer": "facilitator/supported/signers-v2",
    "another payer": "facilitator/answer/settled-payer-v2",
    "another network": "facilitator/answer/settled-v2",
    "words of its own": "kit/answer/refused-words-v2",
    "verify sends": "facilitator/answer/verify-only-v2",
    "another hash": "facilitator/control/settles-v2",
    "used is a success": "facilitator/nonce/used-elsewhere-v2 facilitator/nonce/cancelled-between-v1",
    "no look at nonces + no trial": "facilitator/nonce/cancelled-verify-v2 kit/nonce/cancelled-gas-v2",
    "no look at balances + no trial": "facilitator/balance/none-verify-v2 facilitator/balance/too-little-verify-v1",
    "no look before sending": "kit/balance/gone-between-gas-v2 kit/nonce/used-between-gas-v1 "
    "kit/token/paused-between-gas-v2 kit/wallet/contract-changes-gas-v2",
    "replays": "kit/again/settled-gas-v2",
    "two at once": "kit/again/at-once-gas-v2 kit/again/under-way-gas-v1",
    "a new hash each time + answers as before": "facilitator/again/settled-v2",
    "jams": "facilitator/many/after-refusals-v2",
    "nonces collide": "facilitator/many/eight-all-v2 kit/many/eight-in-a-block-all-v2",
    "success when sent": "facilitator/chain/not-mined-v2 facilitator/chain/reverted-v2 "
    "facilitator/balance/gone-in-the-pool-v2",
    "reverted is a success": "facilitator/chain/reverted-v1 facilitator/nonce/used-in-the-pool-v2",
    "late is a success": "facilitator/chain/not-mined-v1",
    "late is a failure": "facilitator/chain/not-mined-v2 kit/chain/not-mined-pending-v2 "
    "facilitator/node/receipt-fails-v2",
    "forgets what it sent + no look before sending": "kit/chain/not-mined-gas-v2",
    "an error of the node is a yes + no look at balances": "facilitator/node/verify-down-v2",
    "an error of the node is a success": "facilitator/node/send-refused-v2",
    "an error of the node is a failure": "facilitator/node/send-lost-v2",
    "remembers success": "kit/chain/undone-v2",
    "asks keys for wallets + no trial": "facilitator/wallet/delegated-elsewhere-verify-v2",
    "takes undeployed wallets + no trial": "facilitator/wallet/not-deployed-verify-v2",
    "any asset settles + status only + no trial + no look at balances": "facilitator/token/without-code-v2",
}  # fmt: skip
"""What a facilitator gets wrong, and the ids that catch it; `+` joins what must be wrong, too."""
IN_CI = [
    "any payee",
    "no look at balances + no trial",
    "two at once",
    "nonces collide",
    "reverted is a success",
    "an error of the node is a failure",
]
"""The defects of every run; the others are thorough."""
SAMPLED = ["exponents", "no validBefore + no trial", "an error of the node is a success"]
"""Of the others, those that CI looks at."""
HONEST: list[frozenset[str]] = [
    frozenset({"takes more in version 1", "answers 400"}),
    frozenset(),
    frozenset(
        {
            "answers as before",
            "waits for the first",
            "malformed is 200",
            "zeros in front",
            "numbers for texts",
        }
    ),
]
"""What honest facilitators do differently."""


def caught(defect: str) -> list[str]:
    """Return the ids that should have caught a defect, and did not."""
    wanted = cases(DEFECTS[defect])
    found = judged(mutant(defect.split(" + ")), wanted)
    failed = [of_id([case], {case: found[case.id]}, "") for case in wanted]
    assert len(causes(failed)) == 1, "one defect is one cause"
    return [name for name, result in found.items() if result.outcome is not Outcome.FAILED]


@pytest.mark.parametrize("defect", IN_CI)
def test_a_defect_is_caught(defect: str) -> None:
    assert caught(defect) == []


@pytest.mark.thorough
@pytest.mark.parametrize(
    "defect", at_length(SAMPLED, [each for each in DEFECTS if each not in IN_CI])
)
def test_any_defect_is_caught(defect: str) -> None:
    assert caught(defect) == []


def test_a_settle_without_checks_is_one_cause() -> None:
    wanted = cases(
        "facilitator/fields/payee-v2 facilitator/wallet/contract-wrapped-v2 kit/domain/name-gas-v2 "
        "kit/nonce/used-between-gas-v2"
    )
    found = judged(mutant(["settle checks nothing"]), wanted)
    (one,) = causes([of_id([case], {case: found[case.id]}, "") for case in wanted])
    assert one.cause == "settle does not check what verify checks"
    assert (one.id, len(one.follows)) == ("facilitator/fields/payee-v2", 3)


def test_each_section_has_a_defect_that_it_catches() -> None:
    caught = {each.split("/")[1] for ids in DEFECTS.values() for each in ids.split()}
    assert caught == SECTIONS.keys()


FEW = (
    "facilitator/nonce/used-between-v2 facilitator/again/settled-v2 facilitator/balance/none-v2 "
    "facilitator/many/eight-v2 facilitator/chain/reverted-v2 facilitator/node/send-lost-v2 "
    "facilitator/wallet/delegated-v2 facilitator/token/paused-v2 facilitator/fields/payee-v1"
)


@pytest.mark.parametrize("habits", HONEST[:1], ids=lambda habits: ", ".join(sorted(habits)))
def test_an_honest_one_is_left_alone(habits: frozenset[str]) -> None:
    found = judged(mutant(habits=habits), cases(FEW))
    assert {result.outcome for result in found.values()} == {Outcome.PASSED}


@pytest.mark.campaign
@pytest.mark.parametrize("habits", HONEST, ids=lambda habits: ", ".join(sorted(habits)))
@pytest.mark.parametrize("dialect", [Dialect.V1, Dialect.V2])
def test_an_honest_one_passes_everything(habits: frozenset[str], dialect: Dialect) -> None:
    mine = [case for case in all_cases() if case.dialect is dialect]
    found = judged(mutant(habits=habits), mine, [dialect])
    failed = {name for name, result in found.items() if result.outcome is Outcome.FAILED}
    # the public clients read no refusal that is not a 200: a SHOULD, and legal
    legal = {f"kit/answer/refused-status-{dialect}"} if "answers 400" in habits else set()
    assert failed - legal == set()
    assert len(found) > 250


@pytest.mark.thorough
def test_tokens_that_are_none_are_seen_on_anvil(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their code does what they are named for: a facilitator that looks at the status believes it."""
    monkeypatch.setenv(find.VARIABLE, str(find.anvil()))
    hostile = cases("facilitator/token/silent-v2 facilitator/token/takes-a-fee-v2")
    believes = judged(mutant(["any asset settles", "status only"]), hostile)
    looks = judged(mutant(["any asset settles"]), hostile)
    assert {each.outcome for each in believes.values()} == {Outcome.FAILED}
    assert {each.outcome for each in looks.values()} == {Outcome.PASSED}
