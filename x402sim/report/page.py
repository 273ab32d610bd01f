"""Payments as lanes, in a browser: the files of the page, the words that explain a journal, and one
page of HTML that shows a run without a server.

A server streams what the page shows (`world/feed`). Here it stands in the page, whose policy runs
nothing but its own script, so that a frame in a notebook can show it.
"""

import json
from base64 import b64encode
from collections.abc import Iterable
from hashlib import sha256
from html import escape
from importlib.resources import files
from typing import Any

from msgspec.structs import astuple

from x402sim import events
from x402sim.journal import Journal, line
from x402sim.protocol import x402_reasons
from x402sim.protocol.advice import advice_for
from x402sim.protocol.cronos import invalid_reason
from x402sim.protocol.messages import PaymentRequirements
from x402sim.protocol.refusals import Refusal
from x402sim.protocol.rules import SETTLEMENT, VERIFICATION, InvalidReason, Presented
from x402sim.protocol.x402 import VERSIONS
from x402sim.report.newest import Newest, newest
from x402sim.report.summary import Summary, held_of, raised_in, why_failed
from x402sim.spec.clauses import CLAUSES
from x402sim.version import VERSION

SCRIPTS = (
    "dom.js", "model.js", "copies.js", "detail.js", "list.js", "state.js", "steer.js", "tape.js",
    "app.js",
)  # fmt: skip
"""The modules of the page; each imports only from those before it."""
FILES = (*SCRIPTS, "style.css", "icon.svg")
_FRAME_PX = 640


def read(name: str) -> str:
    """Return the text of a file of the page."""
    return (files("x402sim.report") / "static" / name).read_text("utf-8")


def _without(text: str, *begins: str) -> str:
    """Return a text without the lines that begin so."""
    lines = text.splitlines(keepends=True)
    return "".join(line for line in lines if not line.lstrip(" ").startswith(begins))


def alone(words: dict[str, Any], messages: Iterable[tuple[str, Iterable[bytes]]]) -> str:
    """Return one page of HTML with its scripts, its styles and what a server would stream.

    `messages` are their names and lines as JSON: "journal" and "exchanges".
    """
    code = "".join(_without(read(name), "import ") for name in SCRIPTS)
    code = code.replace("\nexport ", "\n")
    style = read("style.css")
    policy = f"default-src 'none'; script-src {_hash(code)}; style-src {_hash(style)}; "
    policy += "base-uri 'none'; form-action 'none'"
    lines = ",".join(
        f"[{json.dumps(name)},[{b','.join(each).decode()}]]" for name, each in messages
    ).replace("<", "\\u003c")
    known = json.dumps(words).replace("<", "\\u003c")
    head = (
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n<style>{style}</style>\n'
    )
    tape = '<script type="application/json" id="tape">'
    tape += f'{{"words":{known},"messages":[{lines}]}}</script>'
    html = _without(read("index.html"), "<link ", "<script ").replace("</head>", head + "</head>")
    return html.replace("</body>", f'{tape}\n<script type="module">{code}</script>\n</body>')


def of_run(journal: Journal, title: str, last: int | None = None) -> str:
    """Return the page of a run; above the payments, it says what the run came to, and why.

    With `last`, it has the newest payments only, and says how many are left out. Raises
    `ValueError` if that is not above 0.
    """
    words = of_journal(journal, title)
    entries, older = Newest(journal, 0) if last is None else newest(journal, last)
    if older:
        there = {str(each).lower() for it in entries for each in astuple(it.event)}
        words["names"] = {who: name for who, name in words["names"].items() if who in there}
    page = alone(words, [("journal", map(line, entries))])
    return page.replace("  <main>\n", f"  <main>\n{_came_to(journal, older)}", 1)


def _came_to(journal: Journal, older: int) -> str:
    """Return the outcome of a run as HTML, as its summary in a notebook tells it."""
    begin, end = next(journal.events(events.Begin), None), next(journal.events(events.End), None)
    if begin is None:
        return ""
    run = Summary(journal)
    outcome = end.outcome if end else "interrupted"
    why = (
        why_failed(run) if end and end.reason else "" if end else "it has no end, so this is a part"
    )
    looks = {"passed": "served", "skipped": "pending"}.get(outcome, "refused")
    facts = f"{begin.scenario}, seed {begin.seed}: {held_of(journal)}"
    trace = "\n".join(raised_in(journal))
    parts = [f'<p><span class="badge {looks}">{outcome}</span> {escape(begin.title)} ']
    parts.append(f'<span class="quiet">{escape(facts)}</span></p>')
    if why:
        parts.append(f'<p class="{"bad" if looks == "refused" else "quiet"}">{escape(why)}</p>')
    if trace:
        parts.append(f"<pre>{escape(trace)}</pre>")
    if older:
        left_out = f"{older:,} older payments are left out; run.show(last=None) has all, "
        left_out += "as has `x402sim open --all`."
        parts.append(f'<p class="quiet">{left_out}</p>')
    return f'    <div id="came-to" role="status">{"".join(parts)}</div>\n'


class Shown:
    """A page in a notebook: a frame without an origin, which can reach nothing."""

    def __init__(self, page: str, above: str = "") -> None:
        self.page, self._above = page, above

    def _repr_html_(self) -> str:
        page = escape(self.page).encode("ascii", "xmlcharrefreplace").decode()
        return (
            f'{self._above}<iframe sandbox="allow-scripts allow-downloads" '
            f'style="width:100%;height:{_FRAME_PX}px;border:0" title="Payments" '
            f'srcdoc="{page}"></iframe>'
        )


def _hash(text: str) -> str:
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"


# --- the words that explain a journal ----------------------------------------------------


def of_journal(journal: Journal, title: str) -> dict[str, Any]:
    """Return the words for a run that was saved."""
    begin = next(journal.events(events.Begin), None)
    names = {begin.merchant.lower(): "merchant"} if begin and begin.merchant else {}
    names |= {each.address.lower(): each.name for each in journal.events(events.PayerJoined)}
    return tables() | {
        "live": False,
        "version": VERSION,
        "title": title,
        "service": True,
        "symbol": begin.symbol if begin else "tokens",
        "decimals": begin.decimals if begin else 6,
        "names": names,
    }


def tables() -> dict[str, Any]:
    """Return what explains any journal: clauses, refusals, and the rules by their reasons.

    `standard` are the clauses by the words of the x402 standard, and `advice` says what to do, by
    the beginning of an error or a reason.
    """
    clauses = {each.id: each.text for each in CLAUSES}
    refusals = {}
    for each in Refusal:
        clause = "7/" + each.text.lower().replace(" usdc", "").replace(" ", "-")
        known = clause if clause in clauses else ""
        refusals[each.text] = {"cause": each.row.cause, "do": each.row.remedy, "clause": known}
    return {
        "clauses": clauses,
        "refusals": refusals,
        "reasons": _reasons(),
        "standard": _standard(),
        "advice": advice_for(),
    }


def _reasons() -> dict[str, str]:
    """Return the clause of the rule that refused, by the beginning of the reason it gives."""
    same = PaymentRequirements(
        scheme="",
        network="",
        pay_to="",
        asset="",
        max_amount_required="",
        max_timeout_seconds=0,
        resource="",
    )
    case = Presented(requirements=same, issued=same, expires_s=0, now_s=0)
    found = {rule.reason(case).partition(" issued")[0]: rule.clause for rule in SETTLEMENT}
    verified = {invalid_reason(rule.refusal): rule.clause for rule in VERIFICATION}
    return found | verified


def _standard() -> dict[str, str]:
    """Return the clause of the rule that refused, by the standard's word, if it has one meaning."""
    found = {
        x402_reasons.FUNDS: "7/insufficient-balance",
        x402_reasons.VALID_BEFORE: "7/authorization-expired",
        x402_reasons.VALID_AFTER: "5/window",
        x402_reasons.NONCE_USED[2]: "7/nonce-already-used",
    }
    for version in VERSIONS:
        words = [x402_reasons.invalid_reason(version, why) for why in InvalidReason]
        for rule in VERIFICATION:
            word = x402_reasons.invalid_reason(version, rule.refusal)
            if words.count(word) == 1:
                found[word] = rule.clause
    return found
