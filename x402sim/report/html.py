"""Runs as HTML: one run in a notebook cell, and many runs as one self-contained page.

The markup is in `templates/run_*.html.j2`; this module collects the values.
"""

import json
import re
from base64 import b64encode
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from struct import unpack
from typing import Any

from x402sim.events import RequestSent
from x402sim.journal import Journal
from x402sim.report import plots
from x402sim.report.plots.figure import DPI, transparent
from x402sim.report.plots.matrix import held_clauses
from x402sim.report.reading import Summary, checks_of, held_of, raised_in
from x402sim.report.trace import failed_checks
from x402sim.spec.clauses import CLAUSES
from x402sim.text.templates import render
from x402sim.version import VERSION

_GLYPHS = {"passed": "✓", "failed": "✗", "skipped": "\N{EN DASH}"}
_TEXTS = {clause.id: clause.text for clause in CLAUSES}
_CAPTIONS = {each.name: each.caption for each in plots.PLOTS}
_CSS_DPI = 120


def fragment(run: Summary) -> str:
    """Return a run for Jupyter's `_repr_html_`: outcome, checks, sequence diagram, hash."""
    view = _view(run, run.name, plots.draw_all(run.journal, ["sequence"]))
    return render(__package__, "run_fragment.html.j2", view=view)


def page(
    runs: Sequence[Summary],
    *,
    stories: Mapping[str, str] | None = None,
    drawn: Mapping[str, Mapping[str, bytes]] | None = None,
    pages: Sequence[str] = (),
) -> str:
    """Return one HTML page about many runs, with its styles and images inside.

    `stories` are the scenarios' descriptions by name. `drawn` has plots that were drawn before (PNG
    by the plot's name), by the hash of the run's journal. `pages` are links to pages of payments.
    """
    views = []
    for run, name, link in zip(runs, anchors(runs), pages or [""] * len(runs), strict=True):
        images = (drawn or {}).get(run.sha256)
        if images is None:
            images = plots.draw_all(run.journal)
        views.append(_view(run, name, images, (stories or {}).get(run.name, ""), link))
    outcomes = [run.outcome for run in runs]
    return render(
        __package__,
        "run_page.html.j2",
        views=views,
        counts=[(name, _GLYPHS[name], outcomes.count(name)) for name in _GLYPHS],
        held=sum(check.ok for run in runs for check in checks_of(run.journal)),
        checks=sum(len(checks_of(run.journal)) for run in runs),
        clauses=plots.clauses_of(runs),
        matrix_caption=plots.OUTCOMES_CAPTION,
        diagrams=sorted(
            {each["width_px"] for view in views for each in view["images"] if each["is_diagram"]}
        ),
        version=VERSION,
    )


def anchors(runs: Sequence[Summary]) -> list[str]:
    """Return a unique name for each run, usable as an anchor and as a folder.

    The name is the scenario's, with a number if several runs share it.
    """
    names = [re.sub(r"[^\w-]", "_", run.name) or "run" for run in runs]
    return [
        name if names.count(name) == 1 else f"{name}-{names[: n + 1].count(name)}"
        for n, name in enumerate(names)
    ]


def _view(
    run: Summary, name: str, images: Mapping[str, bytes], story: str = "", page: str = ""
) -> dict[str, Any]:
    """Return the values of one run for the templates; `name` is its anchor in the page.

    `held` has for each clause whether all its checks held; `held_of` has the number of held checks.
    `page` is the file beside the report with the run's payments; the link opens it at the
    payment of the first failed check.
    """
    traces = {
        check.exchange: "\n".join(trace)
        for check, trace in failed_checks(run.journal)
        if check.exchange is not None
    }
    return {
        "run": run,
        "name": name,
        "glyph": _GLYPHS.get(run.outcome, "?"),
        "story": story,
        "raised": "\n".join(raised_in(run.journal)),
        "checks": _checks(run),
        "held": held_clauses(run),
        "held_of": held_of(run.journal),
        "traces": {exchange: trace for exchange, trace in traces.items() if trace},
        "images": [_image(plot, image) for plot, image in images.items()],
        "page": page and page + _failed_payment(run.journal, traces),
    }


def _failed_payment(journal: Journal, failed: Collection[int]) -> str:
    """Return the end of a link to the payment of the first failed check: "#payment=pay_…"."""
    for request in journal.events(RequestSent):
        if request.exchange in failed:
            return f"#payment={request.payment_id}" if request.payment_id else ""
    return ""


def _checks(run: Summary) -> list[dict[str, Any]]:
    failed = [check for check in checks_of(run.journal) if not check.ok]
    held = Counter(check.clause for check in checks_of(run.journal) if check.ok)
    return [
        *(
            _row("failed", each.clause, expected=_json(each.expected), actual=_json(each.actual))
            for each in failed
        ),
        *(_row("passed", clause, times=times) for clause, times in held.items()),
    ]


def _row(outcome: str, clause: str, **more: Any) -> dict[str, Any]:
    text = _TEXTS.get(clause, "")
    return {"outcome": outcome, "glyph": _GLYPHS[outcome], "clause": clause, "text": text} | more


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _image(plot: str, image: bytes) -> dict[str, Any]:
    """Return a plot as a data URL, as wide as on paper.

    A sequence diagram keeps its size on a narrow page, and scrolls. White is transparent, so that a
    dark page can invert the image.
    """
    (width_px,) = unpack(">I", image[16:20])
    return {
        "caption": _CAPTIONS[plot],
        "width_px": round(width_px * _CSS_DPI / DPI),
        "is_diagram": plot == "sequence",
        "data": b64encode(transparent(image)).decode(),
    }
