"""`python -m tests.suite_payer.page`: writes conformance/payers.md, the table of all cases of payers."""

from tests.published import ROOT, page as markdown, words
from tests.suite_payer.published import DOCUMENTS, KEPT
from x402sim.suite.payer.shop import PaymentFlow
from x402sim.suite.payer.subject import SECTIONS, all_cases, rows

FILE = ROOT / "conformance" / "payers.md"
ABOUT = words(__file__)


def published() -> list[str]:
    """Return what came of payers that others have published: a table, then each in words."""
    told = KEPT.all()
    failed = {
        name: [each for each, it in payer["ids"].items() if it["outcome"] == "failed"]
        for name, payer in told.items()
    }
    lines = [
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
    return markdown(ABOUT, SECTIONS, rows(), all_cases(), PaymentFlow, published())


if __name__ == "__main__":
    FILE.write_text(page(), encoding="utf-8")
