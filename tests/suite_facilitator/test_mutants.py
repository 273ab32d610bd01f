"""Each kind of demand on facilitators has a defect that it catches; honest ones are left alone."""

import asyncio
import sys
from pathlib import Path
from typing import Any, ClassVar

import pytest

from tests.campaign import at_length
from tests.evm import find
from tests.suite.cases import names
from tests.suite_facilitator.judging import cases, judged, mutant
from tests.suite_facilitator.mutant import LENIENT, Facilitator, Invalid
from x402sim.chain.base import Call
from x402sim.clock import stopwatch
from x402sim.protocol import abi
from x402sim.protocol.crypto import checksum, parse_address
from x402sim.suite.case import of_id
from x402sim.suite.dialect import Dialect
from x402sim.suite.engine import Played, result
from x402sim.suite.facilitator import play
from x402sim.suite.facilitator.payment import STANDARD, Answer
from x402sim.suite.facilitator.play import Observed
from x402sim.suite.facilitator.room import (
    ChainRoomKind,
    FacilitatorRoom,
    Money,
    facilitator_command,
)
from x402sim.suite.facilitator.subject import SECTIONS, FacilitatorJudge, all_cases
from x402sim.suite.report.causes import causes
from x402sim.suite.report.results import CaseResult, Outcome
from x402sim.suite.started import App
from x402sim.suite.verdict import Violation

DEFECTS = {
    "any payee": "facilitator/fields/payee [v2 permit2 upto]",
    "any amount": "facilitator/fields/amount-less [v1 permit2]",
    "takes more": "facilitator/fields/amount-more [v2]",
    "any network": "facilitator/fields/network-unknown [v2] facilitator/fields/network [v2]",
    "the payer's scheme": "facilitator/fields/scheme-of-payment [v2]",
    "takes nothing": "kit/fields/amount-zero [v2]",
    "offers what it has not": "facilitator/supported/kinds [v2]",
    "one word for all": "kit/answer/refused-words [v2]",
    "any scheme": "facilitator/fields/scheme [v1]",
    "any version": "facilitator/fields/version [v2]",
    "any asset": "facilitator/fields/asset-demanded [v2]",
    "believes the domain + no trial": "facilitator/domain/named-wrongly [v2]",
    "any chain + no trial": "facilitator/domain/chain [v2] facilitator/domain/chain-gas [v2]",
    "any contract + no trial": "facilitator/domain/contract [v1]",
    "no look at signatures + no trial": "facilitator/signature/of-others [v2] facilitator/signature/of-others-gas [v2]",
    "high s + no trial": "facilitator/signature/form [v2]",
    "v of 0 and 1 + no trial": "facilitator/signature/form [v1]",
    "compact signatures + no trial": "facilitator/signature/form [v2]",
    "no validAfter + no trial": "facilitator/window/early [v2]",
    "no validBefore + no trial": "facilitator/window/expired [v1] facilitator/window/expired-gas [v2]",
    "5xx": "facilitator/body/no-json [v2] facilitator/body/no-object [v2]",
    "dies of depth": "kit/body/deep-next [v2]",
    **dict.fromkeys([*LENIENT][:-1], "kit/spelling/value [v2] kit/spelling/amount [v2]"),
    "hides a version": "facilitator/supported/lists [v1]",
    "another signer": "facilitator/supported/signers [v2]",
    "another payer": "facilitator/answer/settled-payer [v2]",
    "another network": "facilitator/answer/settled [v2]",
    "words of its own": "kit/answer/refused-words [v2]",
    "verify sends": "facilitator/answer/verify-only [v2]",
    "another hash": "facilitator/control/settles [v2]",
    "a hash without 0x": "kit/answer/settled-prefix [v2]",
    "takes its own hash for none": "facilitator/control/settles [v2]",
    "used is a success": "facilitator/nonce/used-elsewhere [v2] facilitator/nonce/cancelled-between [v1]",
    "no look at nonces + no trial": "facilitator/nonce/cancelled-verify [v2] facilitator/nonce/cancelled-gas [v2 permit2 upto]",
    "no look at balances + no trial": "facilitator/balance/none-verify [v2] facilitator/balance/none-gas [v1]",
    "wants more than the amount": "facilitator/balance/exact [v2 upto]",
    "no look before sending": "kit/balance/gone-between-gas [v2] kit/nonce/used-between-gas [v1] "
    "kit/token/paused-between-gas [v2] kit/wallet/contract-changes-gas [v2]",
    "replays": "facilitator/again/settled-gas [v2 permit2 upto]",
    "knows nonces alone + remembers success": "facilitator/again/same-nonce [v1 v2]",
    "two at once": "kit/again/at-once-gas [v2 upto] kit/again/under-way-gas [v1]",
    "a new hash each time + answers as before": "facilitator/again/settled [v2]",
    "trusts verify": "facilitator/again/for-another-payee [v2] facilitator/again/for-more [v1]",
    "shares what is under way + waits for the first": "facilitator/again/for-another-payee [v2 permit2]",
    "calls the factory": "kit/wallet/not-deployed-gas [v2]",
    "drops zeros": "facilitator/spelling/zeros [v1 v2]",
    "jams": "facilitator/many/after-refusals [v2]",
    "nonces collide": "facilitator/many/eight-all [v2] kit/many/eight-in-a-block-all [v2]",
    "success when sent": "facilitator/chain/not-mined [v2] facilitator/chain/reverted [v2] "
    "facilitator/balance/gone-in-the-pool [v2]",
    "reverted is a success": "facilitator/chain/reverted [v1 upto] facilitator/nonce/used-in-the-pool [v2]",
    "late is a success": "facilitator/chain/not-mined [v1]",
    "late is a failure": "facilitator/chain/not-mined [v2] kit/chain/not-mined-pending [v2] "
    "facilitator/node/receipt-fails [v2]",
    "late is a failure + answers 400": "facilitator/chain/not-mined [v2] facilitator/node/receipt-lost [v2]",
    "forgets what it sent + no look before sending": "kit/chain/not-mined-gas [v2]",
    "an error of the node is a yes + no look at balances": "facilitator/node/verify-down [v2]",
    "an error of the node is a success": "facilitator/node/send-refused [v2]",
    "an error of the node is a failure": "facilitator/node/send-lost [v2]",
    "remembers success": "kit/chain/undone [v2] facilitator/again/for-more (part) [upto]",
    "asks keys for wallets + no trial": "facilitator/wallet/delegated-elsewhere-verify [v2]",
    "takes undeployed wallets + no trial": "facilitator/wallet/not-deployed-verify [v2]",
    "any asset settles + status only + no trial + no look at balances": "facilitator/token/without-code [v2]",
    "no look at allowances + no trial": "facilitator/balance/none-verify (allowance) [permit2] "
    "facilitator/balance/none-gas (allowance) [upto] facilitator/balance/too-little-gas (allowance) [upto]",
    "no look at allowances + no trial + success when sent": "facilitator/balance/none (allowance) [permit2 upto] "
    "facilitator/balance/gone-between (allowance) [upto] facilitator/balance/gone-in-the-pool (allowance) [permit2]",
    "any maximum": "facilitator/fields/amount-more (verified-alone) [upto]",
    "no trial": "facilitator/balance/none-verify (permit-forged) [upto] facilitator/balance/none-gas (permit-forged) [permit2]",
    "sponsors nothing": "facilitator/balance/sponsored [permit2 upto]",
    "any spender + no trial": "facilitator/domain/contract (spender) [permit2 upto]",
    "any facilitator + no trial": "facilitator/domain/contract (facilitator) [upto]",
    "demands equality": "facilitator/fields/part [upto]",
    "settles the maximum": "facilitator/fields/part [upto]",
    "sends nothing used + no trial": "facilitator/fields/part [upto]",
    "tells no amount": "facilitator/fields/part [upto]",
    "settles above + no trial": "facilitator/fields/amount-less-gas [upto]",
}  # fmt: skip
"""What a facilitator gets wrong, and the ids that catch it; `+` joins what must be wrong, too."""
IN_CI = [
    "any payee",
    "no look at balances + no trial",
    "two at once",
    "nonces collide",
    "reverted is a success",
    "an error of the node is a failure",
    "demands equality",
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
            "ignores extra",
            "first value",
            "numbers for texts",
        }
    ),
]
"""What honest facilitators do differently."""


def caught(defect: str) -> list[str]:
    """Return the ids that should have caught a defect, and did not."""
    wanted = cases(DEFECTS[defect])
    found = judged(mutant(defect.split(" + ")), wanted)
    failed = [of_id([case], {case: found[case.name]}, "") for case in wanted]
    (one,) = causes(failed)  # one defect is one cause
    assert one.repair
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


def test_each_section_has_a_defect_that_it_catches() -> None:
    caught = {each.split("/")[1] for ids in DEFECTS.values() for each in names(ids)}
    assert caught == SECTIONS.keys()


FEW = (
    "facilitator/nonce/used-between [v2] facilitator/again/settled [v2] facilitator/balance/none [v2] "
    "facilitator/many/eight [v2] facilitator/chain/reverted [v2] facilitator/node/send-lost [v2] "
    "facilitator/wallet/delegated [v2] facilitator/token/paused [v2] facilitator/fields/payee [v1] "
    "facilitator/fields/part [upto] facilitator/balance/sponsored [permit2]"
)


@pytest.mark.parametrize("habits", HONEST[:1], ids=lambda habits: ", ".join(sorted(habits)))
def test_an_honest_one_is_left_alone(habits: frozenset[str]) -> None:
    found = judged(mutant(habits=habits), cases(FEW))
    assert {result.outcome for result in found.values()} == {Outcome.PASSED}


def test_who_reads_leniently_or_knows_his_token_is_left_alone() -> None:
    """RFC 8259 lets a parser accept more, and a facilitator with a single token needs no name."""
    ids = "facilitator/body/no-json-refused [v2] facilitator/body/inner-refused [v2]"
    found = judged(mutant(habits=["first value", "ignores extra"]), cases(ids))
    assert {result.outcome for result in found.values()} == {Outcome.PASSED}


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("habit", "ids"),
    [
        ("four a second", "facilitator/fields/network [v2] facilitator/fields/payee [v2]"),
        (
            "no window beyond the timeout",
            "facilitator/window/ended-on-chain [v2] facilitator/window/early-on-chain [v2]",
        ),
        ("bids more", "kit/chain/not-mined-gas [v2] facilitator/chain/not-mined [v2]"),
    ],
)
def test_what_no_text_forbids_is_left_alone(habit: str, ids: str) -> None:
    """A limit of requests, a strict window, another price for the same nonce."""
    found = judged(mutant(habits=[habit]), cases(ids))
    assert {name: result.outcome for name, result in found.items()} == dict.fromkeys(
        names(ids), Outcome.PASSED
    )


@pytest.mark.campaign
@pytest.mark.parametrize("habits", HONEST, ids=lambda habits: ", ".join(sorted(habits)))
@pytest.mark.parametrize("dialect", STANDARD)
def test_an_honest_one_passes_everything(habits: frozenset[str], dialect: Dialect) -> None:
    mine = [case for case in all_cases() if case.dialect is dialect]
    found = judged(mutant(habits=habits), mine, [dialect])
    failed = {name for name, result in found.items() if result.outcome is Outcome.FAILED}
    # the public clients read no refusal that is not a 200: a SHOULD, and legal
    legal = {f"kit/answer/refused-status [{dialect}]"} if "answers 400" in habits else set()
    assert failed - legal == set()
    assert len(found) > 240


@pytest.mark.thorough
def test_tokens_that_are_none_are_seen_on_anvil(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their code does what they are named for: a facilitator that looks at the status believes it."""
    monkeypatch.setenv(find.VARIABLE, str(find.anvil()))
    hostile = cases(
        "facilitator/token/silent [v2] facilitator/token/takes-a-fee [v2] "
        "facilitator/token/named-by-payer [v2]"
    )
    defects = ["any asset settles", "status only", "the payer's token"]
    believes = judged(mutant(defects), hostile)
    looks = judged(mutant(["any asset settles"]), hostile)
    assert {each.outcome for each in believes.values()} == {Outcome.FAILED}
    assert {each.outcome for each in looks.values()} == {Outcome.PASSED}


@pytest.mark.thorough
@pytest.mark.parametrize("habit", ["", "asks keys for wallets", "any asset settles"])
def test_a_settlement_without_a_limit_of_gas_is_seen_on_anvil(
    habit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wallet burns the gas, or a token if any is settled; a facilitator with a limit passes."""
    monkeypatch.setenv(find.VARIABLE, str(find.anvil()))
    burns, flags = cases("facilitator/token/burns [v2]"), [habit] if habit else []
    (without,) = judged(mutant([*flags, "no bound of gas"]), burns).values()
    (bounded,) = judged(mutant(flags), burns).values()
    assert (without.outcome, bounded.outcome) == (Outcome.FAILED, Outcome.PASSED), without.reason
    assert int(str(without.actual).split()[0]) > 15_000_000


def test_a_hash_without_0x_is_the_hash() -> None:
    """It names the transaction, as version 2.16.0 of PyPI's x402 does: the rest is judged."""
    ids = "facilitator/control/settles [v2] facilitator/answer/settled [v2] facilitator/again/settled [v2]"
    found = judged(mutant(["a hash without 0x"]), cases(ids))
    assert {result.outcome for result in found.values()} == {Outcome.PASSED}


def test_who_moves_and_says_failure_is_told_so() -> None:
    """Version 2.20.0 of PyPI's x402 takes its own hash for none: it calls no failure settled."""
    (case,) = cases("facilitator/control/settles [v2]")
    (found,) = judged(mutant(["takes its own hash for none"]), [case]).values()
    (one,) = causes([of_id([case], {case: found}, "")])
    assert one.cause == "it says failure of a payment that it has sent, without the hash"
    assert "1 transfer" in str(found.actual)


class Opens(FacilitatorJudge):
    """Keeps its rooms in a list."""

    rooms_opened: ClassVar[list[FacilitatorRoom]] = []

    async def open(self, kind: ChainRoomKind, name: str) -> FacilitatorRoom:
        self.rooms_opened.append(await FacilitatorJudge.open(self, kind, name))
        return self.rooms_opened[-1]


def test_what_comes_in_turn_is_advised_no_lock() -> None:
    (case,) = cases("facilitator/many/after-refusals [v2]")
    no = Answer(dialect=Dialect.V2, path="/settle", status=200, json={"success": False})
    wrong = case.test(None, Observed(pairs=((Any, no),), money=Money(moved=(), sent=())))
    (one,) = causes([of_id([case], {case: result(case, wrong)}, "")])
    assert one.cause == "it settles no payment any more after something was asked"


def test_a_jam_within_a_play_is_not_charged_to_what_came_after() -> None:
    """If a payment of a play jams the facilitator, the next payments are not to blame."""

    class Jams(Facilitator):
        async def settle(self, sent: Any) -> dict[str, Any]:
            to = sent["paymentPayload"]["payload"]["authorization"]["to"]
            self.is_jammed = getattr(self, "is_jammed", False) or to != checksum(parse_address(to))
            if self.is_jammed:
                raise Invalid("unexpected_settle_error")
            return await super().settle(sent)

    jams = App(lambda given: Jams(given.rpc_url, given.private_key, given.network))
    found = judged(jams, cases("facilitator/spelling/capital-letters-agrees [v2]"))
    (result,) = found.values()
    wanted = "a good payment that settles afterwards"
    assert (result.outcome, result.expected) == (Outcome.FAILED, wanted)
    assert "capitals" not in str(result.actual)


def test_what_moves_past_the_node_is_a_failure_wherever_it_is_seen() -> None:
    """A facilitator on the chain's own port can send for anybody there."""
    ids = "facilitator/supported/lists [v2] facilitator/spelling/no-nonce [v2]"

    class Steals(Facilitator):
        def supported(self) -> dict[str, Any]:
            room = Opens.rooms_opened[-1]
            theft, payer = abi.transfer(self.key.address, 10**6), room.payers[0]
            call = Call(payer.address_bytes, self.network.asset, theft)
            with pytest.raises(StopIteration):  # sent before the answer: the ledger never waits
                room.chain.send(call).send(None)
            return super().supported()

    async def main() -> dict[str, CaseResult]:
        steals: App = App(lambda given: Steals(given.rpc_url, given.private_key, given.network))
        judge = Opens(subject=steals, dialects=(Dialect.V2,), jobs=1)
        return {case.name: result for case, result in await judge.every(cases(ids))}

    found = asyncio.run(main())
    lists, nonce = (found[each] for each in names(ids))
    assert (lists.outcome, nonce.outcome) == (Outcome.FAILED, Outcome.PASSED)
    assert "1 transfer of 1000000 base units" in str(lists.actual)


def test_a_theft_is_told_though_the_facilitator_ends_afterwards() -> None:
    class Ended:
        was_killed = False
        has_ended = "it ended by itself, exit code 3"
        ending = str

    stolen, silent = Violation(actual="a transfer"), Violation(actual="no answer")
    judge = FacilitatorJudge(subject=mutant(""), thefts={"a": stolen})
    first, second = cases("facilitator/supported/lists [v2] facilitator/control/settles [v2]")
    played = Played(play=None, found={first: stolen, second: silent})
    ended = judge.with_end(played, Ended())  # type: ignore[arg-type]
    assert (ended.found, ended.ended) == ({first: stolen}, Ended.has_ended)
    Ended.has_ended = ""
    assert judge.with_end(played, Ended()) is played  # type: ignore[arg-type]


def test_a_facilitator_that_stays_busy_is_waited_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A judgement sends a thousand requests, and would wait a minute for each."""
    monkeypatch.setattr(play, "BUSY_S", 1.5)
    asked = []

    async def main() -> None:
        judge = Opens(subject=mutant((), ["busy for ever"]), dialects=(Dialect.V2,), jobs=1)
        room = await judge.room()
        try:
            its = await judge.begun(room, Dialect.V2, "busy")
            for _ in range(3):
                elapsed = stopwatch()
                asked.append(((await its.get("/supported")).status, elapsed() > 0.9))
        finally:
            await judge.close()

    asyncio.run(main())
    assert asked == [(429, True), (429, False), (429, False)]


def test_what_the_chain_has_before_the_node_has_answered_is_no_theft() -> None:
    """A transaction in a block whose hash the node has not told yet went through the node."""
    (case,) = cases("facilitator/control/settles [v2]")

    async def main() -> None:
        judge = Opens(subject=mutant(), dialects=(Dialect.V2,), jobs=1)
        room = await judge.room()
        try:
            await judge.played([case], room)
            room.node.sent.clear()
            room.node.raw.append("0xnone")
            assert await room.strays(0) == ()
            room.node.raw.clear()
            assert len(await room.strays(0)) == 1
        finally:
            await judge.close()

    asyncio.run(main())


RAW = """
import asyncio, json, os
from tests.suite_facilitator.mutant import BASE_SEPOLIA, Facilitator
it = Facilitator(os.environ["RPC_URL"], os.environ["PRIVATE_KEY"], BASE_SEPOLIA)
async def serve(read, write):
    head = (await read.readuntil(b"\\r\\n\\r\\n")).decode().lower()
    size = int(head.partition("content-length: ")[2].split("\\r")[0] or 0)
    method, path, _ = head.split(maxsplit=2)
    status, said = await it.answer(method.upper(), path, await read.readexactly(size))
    body = json.dumps(said).encode()
    write.write(b"HTTP/1.1 %d it\\r\\nContent-Length: %d\\r\\n\\r\\n%b" % (status, len(body), body))
    await asyncio.sleep(0.003)
    write.close()
async def main():
    await (await asyncio.start_server(serve, "127.0.0.1", int(os.environ["PORT"]))).serve_forever()
asyncio.run(main())
"""


@pytest.mark.thorough
def test_a_connection_may_end_after_any_answer(tmp_path: Path) -> None:
    """RFC 9112, 9.5: a server may close it without a word, while the next request is on its way."""
    file, ids = tmp_path / "raw.py", "facilitator/fields/payee [v2] facilitator/again/at-once [v2]"
    file.write_text(f"import sys; sys.path.insert(0, {str(Path(__file__).parents[2])!r})\n{RAW}")
    found = judged(facilitator_command([sys.executable, str(file)]), cases(ids))
    assert {result.outcome for result in found.values()} == {Outcome.PASSED}
