"""`python -m tests.suite_payer.page`: writes conformance/payers.md, the table of all cases of payers."""

from pathlib import Path

from tests.published import page as markdown, plays, problems
from tests.suite_payer.published import DOCUMENTS, KEPT
from x402sim.suite.payer.shop import PaymentFlow
from x402sim.suite.payer.subject import SECTIONS, all_cases, rows

FILE = Path(__file__).parents[2] / "conformance" / "payers.md"
PAINS = [
    ("1", "a retry signs a new nonce and pays twice", "payer/lost/no-answer-after-settling, payer/lost/for-good"),
    ("8", "an idempotency key for another payment: 409", "payer/extension/identifier, payer/extension/identifier-same"),
    ("9", "any price, payee, asset, network is signed", "payer/sign/price-over-cap, payer/sign/asset, payer/sign/network, payer/lost/again-other-payee; of the payee of a first offer there is no bound in the task"),
    ("12", "a wrong EIP-712 name", "payer/control/buys: who signs for another name than the offer's buys nothing; of a shop's own wrong name, silent/sign/name-of-domain observes: nothing usable is signed, so nothing is lost"),
    ("14", "a rejected payment looks like an unpaid request: a storm", "payer/lost/refused-for-good, kit/budget/paid-and-asked-for-ever"),
    ("17", "behind a proxy the resource says http, or https", "kit/accept/https-behind-proxy"),
    ("19", "decimals, floats, ×10^6", "payer/sign/decimals, payer/sign/whole-tokens, payer/sign/fraction"),
    ("20", "versions mixed, a page instead of JSON", "payer/hostile/page, kit/accept/both-versions, silent/hostile/mixed-versions"),
    ("21", "MCP: the retry drops the payment", "payer/control/buys, payer/lost/asked-again, in the flow `mcp`"),
    ("23", "sign-in-with-x signs an attacker's challenge, or pays again", "payer/extension/sign-in-elsewhere, silent/extension/sign-in-instead"),
]  # fmt: skip
"""Rows of the list of pains: what people report of payers, and what catches it."""
NONE = [
    ("a redirect from https to http", "a certificate that every payer trusts would have to be installed"),
    ("two starts of one purchase at the same time", "a supervisor starts the next when the last has ended; `budget/parallel` asks at once within one start"),
    ("what a session's shop keeps", "the payer has no say in it: `budget/session-…` look at what it can do, which is to open no other"),
    ("a payee that was never seen", "no bound of the task names the payee"),
    ("the work of a language model", "prompts and prose are in the cases, but a case is judged by the money alone"),
]  # fmt: skip
"""What no case is about, and why."""


def published() -> list[str]:
    """Return what came of payers that others have published: a table, then each in words."""
    told = KEPT.all()
    if not told:
        return []
    failed = {
        name: [each for each, it in payer["ids"].items() if it["outcome"] == "failed"]
        for name, payer in told.items()
    }
    lines = [
        "## Published payers",
        "",
        "The programs around `PaymentAuth`, `@x402/axios`, `x402-fetch`, `x402-axios`, `@faremeter/fetch` and",
        "`@dexterai/x402` were changed after a first look at verdicts (a deadline, a policy or a chooser was set, as the",
        "packages offer it); the rows are of the last programs.",
        "",
        "Judged by `python -m tests.suite_payer.published`, as programs of `tests/interop` that use each package as its",
        "guide says, with the caps and choices that it offers; between the starts of a purchase its client object is kept,",
        "so that what a package remembers is remembered. Each failure happened twice. Whoever calls a client that pays has",
        "to repeat a call that failed: the failures of `lost` are what a second call of the same client does.",
        "",
        "| payer | package | flows | failed, of a public text | failed, of ours | lost |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for name, payer in told.items():
        cells = [name, f"{payer['package']} {payer['version']}", payer["flows"].replace(",", ", ")]
        for document in DOCUMENTS:
            of = [each for each in payer["ids"] if each.startswith(f"{document}/")]
            cells.append(f"{len({*of} & {*failed[name]})} of {len(of)}")
        lines.append(f"| {' | '.join([*cells, ', '.join(payer['lost']) or 'nothing'])} |")
    for name, payer in told.items():
        lines += ["", f"### {name}", ""]
        if not failed[name]:
            lines.append("Nothing failed.")
            continue
        by_end: dict[str, list[str]] = {}
        for each in failed[name]:
            by_end.setdefault(payer["ids"][each].get("actual", ""), []).append(f"`{each}`")
        lines += [f"- {end}: {', '.join(ids)}" for end, ids in by_end.items()]
        if payer["command"]:
            first = failed[name][0]
            repeats = f"x402sim conformance payer --flows {payer['flows']} --only {first}"
            lines += ["", f"`{repeats} -- {payer['command']}`"]
    return lines


def page() -> str:
    return markdown(
        [
            "# What payers are judged by",
            "",
            "Made by `python -m tests.suite_payer.page`. How to judge one is in the guide, *Judge your payer or",
            "agent*. A cell is a play in one payment flow: its demands, by the document of their ids (`payer`: a",
            "public text says it or it follows; `kit`: ours; `silent`: observed), each `DOCUMENT/SECTION/ROW-WAY`.",
            "",
            f"{len(all_cases())} ids in {len({case.played_as for case in all_cases()})} plays.",
            *plays(SECTIONS, rows(), all_cases(), PaymentFlow),
            *problems(PAINS, NONE, all_cases()),
            "",
            *published(),
        ]
    )


if __name__ == "__main__":
    FILE.write_text(page(), encoding="utf-8")
