"""`python -m tests.suite_facilitator.page`: writes conformance/facilitators.md.

It is the table of all cases of facilitators, the problems of the field with what catches them, and
the verdicts on the published ones that `published.json` keeps.
"""

import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.published import cell, page as markdown, plays, problems, verdicts
from tests.suite_facilitator.published import KEPT
from x402sim.suite.facilitator.payment import Dialect
from x402sim.suite.facilitator.subject import SECTIONS, all_cases, rows

FILE = Path(__file__).parents[2] / "conformance" / "facilitators.md"
PAINS = [
    ("3", "a receipt that does not come is told as a failure, without the hash: paid twice", "facilitator/chain/not-mined, kit/chain/not-mined-pending, facilitator/node/receipt-fails, facilitator/node/send-lost"),
    ("10", "verify says yes and settle says no for contract wallets: EIP-1271, 6492, 7702", "facilitator/wallet/contract, facilitator/wallet/contract-wrapped, facilitator/wallet/delegated-elsewhere-verify, facilitator/wallet/not-deployed-verify, kit/wallet/contract-changes-gas"),
    ("11", "settle succeeds and nothing moved: no code at the asset, a token that does not revert", "facilitator/token/without-code, facilitator/token/silent, facilitator/token/takes-a-fee"),
    ("12", "a wrong EIP-712 name, such as USD Coin for USDC", "facilitator/domain/named-wrongly, silent/domain/named-otherwise"),
    ("13", "the relayer's own nonces collide in settlements at once", "facilitator/many/eight-all, kit/many/eight-in-a-block-all, kit/many/sixty-all, facilitator/many/after-refusals"),
    ("18", "a malformed body is a 500", "facilitator/body/no-json, facilitator/body/parts, facilitator/body/odd, facilitator/body/deep"),
    ("24", "descriptions of more than 500 characters are refused", "kit/fields/description-long"),
]  # fmt: skip
"""Rows of the list of pains: what people report of facilitators, and what catches it."""
NONE = [
    ("many processes behind one address", "the judge starts one; two with one key are two facilitators, of which one must lose its nonces"),
    ("keys in hardware, private pools, tips", "nothing of it is seen from outside but the transaction"),
    ("a wallet that is deployed by its first payment (EIP-6492)", "whose factory a facilitator trusts is its own list; a wrapper that deploys nothing is judged"),
    ("Permit2, ERC-7710, upto, batch-settlement", "another transfer than EIP-3009's; that it is refused by its name, or settled rightly, is `silent/fields/method`"),
    ("a node of yours", "its clock cannot be turned, its blocks not undone, its answers not twisted"),
]  # fmt: skip
"""What no case is about, and why."""
RIGHT = {
    "facilitator/body": "the text: a request that is wrong has an answer of its own; the example passes on what its library raises, or ends",
    "facilitator/many/eight": "the text: each payment is valid by itself. A library cannot serialise what several processes send, but this is one",
    "facilitator/many/after-refusals": "the text: a good payment is executed. The nonce that was reserved for a refusal is not given back",
    "facilitator/many/one-reverts": "the text: a good payment is executed",
    "facilitator/spelling": "the text: an amount is in atomic units; which digits it leaves open is observed elsewhere",
    "facilitator/fields": "the text",
    "facilitator/supported": "the text",
    "facilitator/answer": "the text",
    "facilitator/window": "the text: EIP-3009 takes a window by the chain's time",
    "facilitator/node": "the text: what is on the chain has not failed",
    "facilitator/chain": "the text: what is on the chain has not failed, and what is not is no success",
    "facilitator/wallet": "the text: what verify calls valid would succeed",
    "facilitator/token": "the text: a settlement is one transfer of the amount",
    "facilitator/nonce": "the text: a consumed primitive is a failure, never a success",
    "facilitator/again": "the text: a success is this transfer",
    "facilitator/balance": "the text: the balance is confirmed",
    "facilitator/signature": "the text: what verify calls valid would succeed",
    "facilitator/domain": "the text: what verify calls valid would succeed",
    "kit": "open: no text demands it; the harm is named in the judge's report",
}  # fmt: skip
"""Who is right in a difference, by the beginning of its ids; the longest that fits counts."""


JAM = (
    "the text: a good payment is executed. What came before keeps the relayer's nonce, and nothing "
    "that is sent later is mined"
)
NO_ANSWER = (
    "the text: a request that is wrong has an answer of its own; the example passes on what its "
    "library raises"
)


CASES = {case.id: case for case in all_cases()}


def _right(each: dict[str, Any]) -> str:
    if "not mined" in each["actual"] and "no answer" in each["actual"]:
        return JAM
    if each["id"].rpartition("-")[0].endswith("-answer"):
        return NO_ANSWER
    fits = [name for name in RIGHT if each["id"].startswith(name)]
    return RIGHT[max(fits, key=len)]


def _verdicts() -> Iterator[str]:
    yield from ("", "## The published ones", "")
    yield from textwrap.wrap(
        "Judged by `python -m tests.suite_facilitator.published`, each as the example of its "
        "repository serves it (the programs are in `tests/interop`), in the dialects in which its good "
        "payment settles. A difference is a failed MUST, or a failed SHOULD in short. x402-rs is no "
        "package of PyPI, npm or Debian, and is not judged.",
        100,
    )
    yield ""
    kept = KEPT.all()
    yield from verdicts("facilitator", kept.values())
    for it in kept.values():
        if it["failed"]:
            yield from _differences(it)


def _differences(it: dict[str, Any]) -> Iterator[str]:
    yield from ("", f"### {it['version']}: {it['about']}", "")
    musts = [each for each in it["failed"] if each["level"] == "MUST"]
    if musts:
        yield "| id | what it did | the sentence | who is right |"
        yield "| --- | --- | --- | --- |"
    for each in musts:
        sentence = CASES[each["id"]].ground.sentences[0]
        said = f"“{sentence.text}” ({sentence.section})"
        did = cell(f"{each['actual']}")
        yield f"| {each['id']} | {did} | {cell(said, 400)} | {_right(each)} |"
    shoulds = [each for each in it["failed"] if each["level"] != "MUST"]
    if shoulds:
        yield from ("", f"SHOULD, {RIGHT['kit']}:", "")
        yield from (f"- {each['id']}: {CASES[each['id']].title}" for each in shoulds)


def page() -> str:
    """Return the page, as Markdown."""
    return markdown(
        [
            "# What facilitators are judged by",
            "",
            "Made by `python -m tests.suite_facilitator.page`. How to judge one is in the guide, *Judge your",
            "facilitator*. A cell is a play in one dialect: its demands, by the document of their ids",
            "(`facilitator`: a public text says it or it follows; `kit`: ours; `silent`: observed), each",
            "`DOCUMENT/SECTION/ROW-DIALECT`.",
            "",
            f"{len(all_cases())} ids in {len({case.played_as for case in all_cases()})} plays.",
            *plays(SECTIONS, rows(), all_cases(), Dialect),
            *problems(PAINS, NONE, all_cases()),
            *_verdicts(),
        ]
    )


if __name__ == "__main__":
    FILE.write_text(page(), encoding="utf-8")
