"""The page of payments: files, words that explain a journal, and an HTML file that shows a run
without a server.

A server streams the data to the page (`serving/page.py`). Here the data are in the file. The
content security policy allows the file's own script only, as a frame in a notebook requires.

The page may be limited to the newest payments, with all their events. A payment is a payment id in
a 402; further events are found by shared exchanges, authorizations, transactions and
sessions.
"""

import json
from base64 import b64encode
from collections.abc import Iterable, Mapping
from hashlib import sha256
from html import escape
from importlib.resources import files
from typing import Any, NamedTuple

from msgspec import UNSET
from msgspec.structs import astuple

from x402sim import events
from x402sim.journal import Entry, Journal, line
from x402sim.protocol import x402_reasons
from x402sim.protocol.advice import advice_for
from x402sim.protocol.cronos import invalid_reason
from x402sim.protocol.messages import PaymentRequirements
from x402sim.protocol.networks import NETWORKS, Network
from x402sim.protocol.refusals import Refusal
from x402sim.protocol.rules import SETTLEMENT, VERIFICATION, InvalidReason, Presented
from x402sim.protocol.x402 import VERSIONS
from x402sim.report.reading import Summary, held_of, raised_in, reading_of, why_failed
from x402sim.spec.clauses import CLAUSES
from x402sim.text.words import as_given
from x402sim.version import VERSION

_OLDER = ""  # stands for all omitted payments
_NAMES = ("exchange", "authorization", "tx_hash", "session_id")
"""Fields that name the payment of an event without a payment id."""
_LINKS = (events.RequestSent, events.AuthorizationConsumed, events.SessionRefunded)
"""Events that may link two of these names without the payment id."""


class Newest(NamedTuple):
    """The events of the newest payments and of no payment; and how many payments are older."""

    entries: Iterable[Entry]
    older: int


def newest(journal: Journal, last: int) -> Newest:
    """Return the newest `last` payments of a journal; little more of a file is decoded.

    A journal without payment ids is returned whole. Raises `ValueError` unless `last` is above 0.
    """
    if last < 1:
        raise ValueError(
            f"last: expected a number of payments above 0, or None, got {as_given(last)}"
        )
    began: dict[str, int] = {}
    for entry in journal.of(events.AnswerReceived, holding=b'"status":402'):
        match entry.event:
            case events.AnswerReceived(status=402, payment_id=str(payment_id), exchange=exchange):
                began.setdefault(payment_id, exchange)
            case _:
                pass
    older = len(began) - last
    if older <= 0:
        return Newest(journal, 0)
    kept = dict(list(began.items())[older:])
    since = reading_of(journal).seq_of(min(kept.values()))
    entries = list(journal.between(since, journal.length))
    about = Payments(entries)
    begin = [entry for entry in journal.of(events.Begin, events.ServiceJoined) if entry.seq < since]
    wanted = {None, *kept}
    shown = [entry for entry in entries if about.payment_of(entry.event) in wanted]
    return Newest(begin + shown, older)


class Payments:
    """Finds the payment of each event among these entries."""

    def __init__(self, entries: Iterable[Entry]) -> None:
        self._of: dict[str | int, str | None] = {}
        """The payment id by each other name of a payment; the first noted id counts."""
        self._first: dict[str, str] = {}
        """The id in the 402, by the id in the answer to a one-step payment."""
        links = list[list[str | int]]()
        for event in (entry.event for entry in entries):
            names = _names(event)
            if payment_id := getattr(event, "payment_id", None):
                self._note(names, payment_id)
                if isinstance(event, events.AnswerReceived) and event.status != 402:
                    self._first.setdefault(payment_id, self._of[event.exchange] or payment_id)
            elif isinstance(event, _LINKS):
                links.append(names)
        for _ in range(2):  # exchange to authorization, then authorization to transaction
            for names in links:
                if found := [self._of[name] for name in names if name in self._of]:
                    self._note(names, found[0])
        for names in links:
            self._note(names, _OLDER if len(names) > 1 else None)

    def _note(self, names: Iterable[str | int], payment_id: str | None) -> None:
        for name in names:
            self._of.setdefault(name, payment_id)

    def payment_of(self, event: events.BaseEvent) -> str | None:
        """Return the payment id of an event; None for an event without a payment."""
        found = getattr(event, "payment_id", None)
        if not found:
            is_part = isinstance(event, events.ExchangeEvent) or getattr(event, "session_id", None)
            known = (self._of[name] for name in _names(event) if name in self._of)
            found = next(known, _OLDER if is_part else None)
        return self._first.get(found, found) if found else found


def _names(event: events.BaseEvent) -> list[str | int]:
    names = (getattr(event, name, None) for name in _NAMES)
    return [name for name in names if name not in (None, "", "unreadable")]


# --- the page ---------------------------------------------------------------------------

SCRIPTS = (
    "dom.js", "model.js", "copies.js", "detail.js", "list.js", "state.js", "steer.js", "tape.js",
    "app.js",
)  # fmt: skip
"""The modules of the page; a module imports earlier modules only, so `alone` can join all."""
FILES = (*SCRIPTS, "style.css", "icon.svg")
_FRAME_PX = 640


def read(name: str) -> str:
    """Return the text of a file of the page."""
    return (files("x402sim.report") / "static" / name).read_text("utf-8")


def _without(text: str, *begins: str) -> str:
    lines = text.splitlines(keepends=True)
    return "".join(line for line in lines if not line.lstrip(" ").startswith(begins))


def alone(words: dict[str, Any], messages: Iterable[tuple[str, Iterable[bytes]]]) -> str:
    """Return one HTML file with scripts, styles, and the messages that a server would stream.

    `messages` are pairs of a name, "journal" or "exchanges", and lines of JSON.
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
    """Return the page of a run, with its outcome and the reason above the payments.

    With `last`, the page has the newest payments only, and the number of the omitted ones. Raises
    `ValueError` unless `last` is above 0.
    """
    words = of_journal(journal, title)
    entries, older = Newest(journal, 0) if last is None else newest(journal, last)
    if older:
        there = {str(each).lower() for it in entries for each in astuple(it.event)}
        words["names"] = {who: name for who, name in words["names"].items() if who in there}
    page = alone(words, [("journal", map(line, entries))])
    return page.replace("  <main>\n", f"  <main>\n{_came_to(journal, older)}", 1)


def _came_to(journal: Journal, older: int) -> str:
    begin, end = next(journal.events(events.Begin), None), next(journal.events(events.End), None)
    if begin is None:
        return ""
    run = Summary(journal)
    outcome = end.outcome if end else "interrupted"
    why = (
        why_failed(run)
        if end and end.reason
        else ""
        if end
        else "the journal has no end: this is a part of the run"
    )
    looks = {"passed": "served", "skipped": "pending"}.get(outcome, "refused")
    facts = f"{begin.scenario}, seed {begin.seed}: {held_of(journal)}"
    if run.is_recording:
        facts = run.reason or "no errors found"
    trace = "\n".join(raised_in(journal))
    parts = [f'<p><span class="badge {looks}">{outcome}</span> {escape(begin.title)} ']
    parts.append(f'<span class="quiet">{escape(facts)}</span></p>')
    if why:
        parts.append(f'<p class="{"bad" if looks == "refused" else "quiet"}">{escape(why)}</p>')
    if trace:
        parts.append(f"<pre>{escape(trace)}</pre>")
    if older:
        left_out = f"{older:,} older payments are left out; run.show(last=None) shows all, "
        left_out += "and so does `x402sim open --all`."
        parts.append(f'<p class="quiet">{left_out}</p>')
    return f'    <div id="came-to" role="status">{"".join(parts)}</div>\n'


class Shown:
    """A page in a notebook cell: a frame without an origin and without network access."""

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
    """Return the words for the page of a saved run."""
    begin = next(journal.events(events.Begin), None)
    names = {begin.merchant.lower(): "merchant"} if begin and begin.merchant else {}
    names |= {each.address.lower(): each.name for each in journal.events(events.PayerJoined)}
    recorded = {} if begin is None or begin.upstream is UNSET else of_recording(begin, NETWORKS)
    return (
        tables()
        | recorded
        | {
            "live": False,
            "version": VERSION,
            "title": title,
            "service": True,
            "symbol": begin.symbol if begin else "tokens",
            "decimals": begin.decimals if begin else 6,
            "names": names,
        }
    )


def of_recording(begin: events.Begin, known: Mapping[str, Network]) -> dict[str, Any]:
    """Return the words of a recording: the watched URL, and the tokens by their addresses.

    A token names its network if a copied test may pay there: a built-in test network.
    """
    tokens = {}
    for each in known.values():
        network = each.name if each.is_test and each.name in NETWORKS else ""
        facts = {"symbol": each.token_symbol, "decimals": each.decimals, "network": network}
        tokens[f"0x{each.asset.hex()}"] = facts
    urls = {"upstream": begin.upstream, "origin": begin.upstream}
    return {**urls, "network": begin.network, "tokens": tokens}


def tables() -> dict[str, Any]:
    """Return the tables that explain any journal: clauses, refusals, and rules by their reasons.

    `standard` has the clauses by error words of the x402 standard, and `advice` the remedies, by
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
    """Return the clause of each rule, by an error word of the standard that only this rule uses."""
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
