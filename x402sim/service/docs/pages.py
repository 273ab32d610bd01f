"""The documentation pages.

The plain-text index, four pages of Markdown, the interactive page, and x402sim's guide. The
words are in the files of templates/ and guide/; refusals and decisions are written from the
product's tables, under the decisions in force.
Clauses: 4.5/llms-txt.
"""

from collections.abc import Callable, Sequence
from importlib.resources import files
from typing import NamedTuple

from x402sim.protocol.networks import Network
from x402sim.protocol.refusals import Finality, Refusal, RequestError, status_of
from x402sim.service.goods import Good
from x402sim.spec.decisions import Decision, Decisions, decisions
from x402sim.text.templates import markdown_table, render

_GUIDE = files("x402sim") / "guide"


class Page(NamedTuple):
    """One page of Markdown: the title, the subject in a line, and the words for the template."""

    title: str
    about: str
    words: Callable[[Decisions], dict[str, object]]


def llms_txt(base: str, goods: Sequence[Good] = ()) -> str:
    """Return the plain-text index of all documentation pages (4.5/llms-txt), and a user's goods.

    Its form is that of llmstxt.org: a title, a summary, lists of links. The links are
    absolute, below `base`.
    """
    return render(__package__, "llms.txt", base=base.rstrip("/"), pages=PAGES, goods=goods)


def page(name: str, decisions: Decisions, network: Network, base: str) -> str | None:
    """Return the Markdown page of a name, or None for an unknown name (4.5/llms-txt).

    The name is a link of the index ("errors.md", "guide/index.md"), with or without the ending. The
    guide has a JSON schema and a TypeScript file, too.
    `network` and `base`, the address of the service, are for the commands.
    """
    slug = name.removesuffix(".md")
    if slug.startswith("guide/"):
        file = slug.removeprefix("guide/")
        wanted = file if "." in file else file + ".md"
        return next(
            (entry.read_text("utf-8") for entry in _GUIDE.iterdir() if entry.name == wanted), None
        )
    if (found := PAGES.get(slug)) is None:
        return None
    text = render(__package__, f"{slug}.md", base=base, network=network, **found.words(decisions))
    return f"# {found.title}\n\n{text}"


def decision_named(slug: str) -> Decision:
    """Return the decision of an id; raises `KeyError`."""
    return {decision.id: decision for decision in decisions()}[slug]


def in_force(decision: Decision, decisions: Decisions) -> str:
    """Return the answer to a decision's question under these decisions."""
    if decision.field is None:
        return decision.choice
    value = getattr(decisions, decision.field)
    if value == decision.default:
        return decision.choice
    return decision.alternatives if value == decision.alternative else f"`{value}`"


# --- the words of each page ----------------------------------------------------------


def _payment_flow(decisions: Decisions) -> dict[str, object]:
    return {
        "side": decisions.sides[0],
        "pending": Refusal.PENDING.text,
        "unreachable": Refusal.UNREACHABLE.text,
        "already_settled": Refusal.ALREADY_SETTLED.text,
    }


def _sessions(decisions: Decisions) -> dict[str, object]:
    unit = {1: "seconds", 60: "minutes"}.get(
        decisions.duration_unit_s, f"units of {decisions.duration_unit_s} seconds"
    )
    return {
        "duration": 3600 // decisions.duration_unit_s,
        "unit": unit,
        "created": decisions.session_created_status,
        "side": decisions.sides[0],
        "short": in_force(decision_named("5/short-session"), decisions),
        "precedence": in_force(decision_named("5/precedence"), decisions),
    }


_FINAL = {Finality.FINAL: "true", Finality.OPEN: "false", Finality.STATED: "true or false"}


def _errors(decisions: Decisions) -> dict[str, object]:
    refusals = [
        (
            f"`{refusal.text}`",
            str(status_of(refusal, decisions)),
            # without a transaction, the header may still be usable: `unsettled.recover`
            _FINAL[refusal.row.final]
            if refusal.row.may_have_been_sent
            else _FINAL[Finality.STATED],
            refusal.row.cause,
            refusal.row.remedy,
        )
        for refusal in Refusal
    ]
    others = [
        (f"`{error.text}`", str(status_of(error, decisions)), error.meaning)
        for error in RequestError
        if error is not RequestError.SESSION_CANNOT_PAY or decisions.short_session_status != 402
    ]
    titles = ("Error text", "Status", "`final`", "Cause", "Resolution")
    return {
        "refusals": markdown_table(titles, refusals).rstrip(),
        "others": markdown_table(("Error text", "Status", "Meaning"), others).rstrip(),
    }


def _decisions(in_use: Decisions) -> dict[str, object]:
    rows = []
    for d in decisions():
        answer = in_force(d, in_use)
        standing = {d.choice: "the choice", d.alternatives: "the alternative"}.get(answer, answer)
        rows.append((f"`{d.id}`", d.question, d.choice, d.alternatives, d.reason, standing))
    titles = ("Decision", "Question", "Choice", "Alternatives", "Reason", "In force here")
    return {"decisions": markdown_table(titles, rows).rstrip()}


PAGES = {
    "payment-flow": Page(
        "Payment flow", "one paid request from the 402 to the quote, with curl", _payment_flow
    ),
    "sessions": Page(
        "Sessions", "deposit a budget once, then spend it without a 402 round trip", _sessions
    ),
    "errors": Page("Errors", "every error text with its status, cause and resolution", _errors),
    "decisions": Page(
        "Decisions", "what this service does where the specification is silent", _decisions
    ),
}
"""The Markdown pages, in reading order; each is served at /docs/{name}.md."""
