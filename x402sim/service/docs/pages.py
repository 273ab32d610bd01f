"""The documentation pages: the plain-text index, and five pages of Markdown.

Their words are the files of `texts`. What a table of the product knows (refusals,
decisions, clauses) is written from that table, under the decisions in force, so a page
cannot fall behind the service.
Clauses: 4.5/llms-txt.
"""

from collections.abc import Callable

from x402sim.protocol.networks import NETWORKS
from x402sim.protocol.refusals import Refusal, status_of
from x402sim.service.docs.texts import text
from x402sim.spec.clauses import CLAUSES
from x402sim.spec.decisions import Decision, Decisions, decisions
from x402sim.spec.markdown import table

_ABOUT = {
    "payment-flow": ("Payment flow", "one paid request from the 402 to the quote, with curl"),
    "sessions": ("Sessions", "fund a budget once, then spend it without a 402 round trip"),
    "errors": ("Errors", "every error text with its status, cause and resolution"),
    "decisions": ("Decisions", "what this service does where the specification is silent"),
    "clauses": ("Clauses", "every clause of the specification and what keeps it"),
}
PAGES = tuple(_ABOUT)
"""The names of the Markdown pages, in reading order; each is served at /docs/{name}.md."""


def llms_txt(base: str) -> str:
    """Return the plain-text index of all documentation pages (4.5/llms-txt).

    Its form is that of llmstxt.org: a title, a summary, lists of links. The links are
    absolute, below `base`.
    """
    base = base.rstrip("/")
    guides = [
        f"- [{title}]({base}/docs/{name}.md): {about}" for name, (title, about) in _ABOUT.items()
    ]
    return text("llms.txt", base=base, guides="\n".join(guides))


def page(name: str, decisions: Decisions) -> str | None:
    """Return the Markdown page of that name, or None where there is none (4.5/llms-txt).

    The name is as the index links it ("errors.md"), or without its ending.
    """
    slug = name.removesuffix(".md")
    write = _WRITERS.get(slug)
    return None if write is None else f"# {_ABOUT[slug][0]}\n\n{write(decisions)}"


def decision_named(slug: str) -> Decision:
    """Return the decision of that id; raises `KeyError`."""
    try:
        return next(decision for decision in decisions() if decision.id == slug)
    except StopIteration:
        raise KeyError(slug) from None


def in_force(decision: Decision, decisions: Decisions) -> str:
    """Return the answer to a decision's question that holds under these decisions."""
    if decision.field is None:
        return decision.choice
    value = getattr(decisions, decision.field)
    if value == decision.default:
        return decision.choice
    return decision.alternatives if value == decision.alternative else f"`{value}`"


# --- the five pages ------------------------------------------------------------------

_AGAIN = "send the same payment header again; never sign another one before the first has expired."
_ADVICE = {
    Refusal.INSUFFICIENT_BALANCE: ("Payer wallet lacks the token amount.", "Fund the wallet."),
    Refusal.INVALID_SIGNATURE: (
        "Signature verification failed.",
        "Generate a new payment header.",
    ),
    Refusal.NONCE_USED: (
        "Replay or stale nonce.",
        "Get a fresh nonce from the token contract.",
    ),
    Refusal.EXPIRED: ("validBefore has passed.", "Generate a new authorization."),
    Refusal.ALREADY_SETTLED: ("The payment id was already used.", "Use a new payment id."),
    Refusal.MISMATCH: (
        "The requirements are not those issued for this payment id, or the id was never issued.",
        "Send the requirements of the 402 back unchanged, or ask for a new 402.",
    ),
    Refusal.PENDING: (
        "A payment header sent for this payment id may still be paid: no outcome is known yet.",
        _AGAIN.capitalize(),
    ),
    Refusal.UNREACHABLE: (
        "The facilitator could not be reached, or its answer makes no sense.",
        f"`reason` says whether money may have moved. Either way, {_AGAIN}",
    ),
    Refusal.FAILED: (
        "The transfer was refused or reverted for another reason, which `reason` gives.",
        f'If it says "it may still be paid", {_AGAIN} '
        "Otherwise resolve that reason; then ask for a new 402.",
    ),
}
"""Cause and resolution: section 7's own words for its five texts, ours for the others."""

_OTHER_ERRORS = (
    ("400", "Invalid request body", "`reason` says what is wrong, and where."),
    ("404", "Not found", "There is no such path."),
    ("404", "Unknown session", "No session has this id."),
    ("404", "Unknown payment", "No settlement of this id is stored."),
    ("405", "Method not allowed", "The header `Allow` names the methods that are."),
    ("413", "Request body too large", "A body has at most 1 MiB."),
    ("500", "Internal server error", "A defect of the service, never of the request."),
)


def _payment_flow(decisions: Decisions) -> str:
    networks = [
        f"| `{n.name}` | {n.chain_id} | `{n.token_name}` | `{n.token_version}` | the `asset` |"
        for n in NETWORKS.values()
    ]
    return text(
        "payment-flow.md",
        side=decisions.sides[0],
        networks="\n".join(networks),
        sign=sign_script().rstrip(),
    )


def sign_script() -> str:
    """Return the payment flow's Python script: the body of a 402 in, that of /api/pay out."""
    rows = [
        f'    "{n.name}": ("{n.token_name}", "{n.token_version}", {n.chain_id}),'
        for n in NETWORKS.values()
    ]
    return text("sign.py.txt", domains="\n".join(["{", *rows, "}"]))


def _sessions(decisions: Decisions) -> str:
    unit = {1: "seconds", 60: "minutes"}.get(
        decisions.duration_unit_s, f"units of {decisions.duration_unit_s} seconds"
    )
    return text(
        "sessions.md",
        duration=str(3600 // decisions.duration_unit_s),
        unit=f"`duration` is in {unit}.",
        created=str(decisions.session_created_status),
        side=decisions.sides[0],
        short=in_force(decision_named("5/short-session"), decisions),
        precedence=in_force(decision_named("5/precedence"), decisions),
    )


def _errors(decisions: Decisions) -> str:
    refusals = [
        (f"`{refusal.value}`", str(status_of(refusal, decisions)), *_ADVICE[refusal])
        for refusal in Refusal
    ]
    others = [(f"`{error}`", status, about) for status, error, about in _OTHER_ERRORS]
    return text(
        "errors.md",
        refusals=table(("Error text", "Status", "Cause", "Resolution"), refusals).rstrip(),
        others=table(("Error text", "Status", "Meaning"), others).rstrip(),
    )


def _decisions_page(in_use: Decisions) -> str:
    rows = [
        (f"`{d.id}`", d.question, d.choice, d.alternatives, d.reason, _standing(d, in_use))
        for d in decisions()
    ]
    titles = ("Decision", "Question", "Choice", "Alternatives", "Reason", "In force here")
    return text("decisions.md", decisions=table(titles, rows).rstrip())


def _standing(decision: Decision, in_use: Decisions) -> str:
    answer = in_force(decision, in_use)
    known = {decision.choice: "the choice", decision.alternatives: "the alternative"}
    return known.get(answer, answer)


def _clauses(_: Decisions) -> str:
    rows = [(f"`{c.id}`", c.level, c.section, c.text, f"`{c.kept_by}`") for c in CLAUSES]
    titles = ("Clause", "Level", "Section", "Text", "Kept by")
    return text("clauses.md", clauses=table(titles, rows).rstrip())


_WRITERS: dict[str, Callable[[Decisions], str]] = {
    "payment-flow": _payment_flow,
    "sessions": _sessions,
    "errors": _errors,
    "decisions": _decisions_page,
    "clauses": _clauses,
}
