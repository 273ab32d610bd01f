"""The page and the fragment: whole, escaped, on their own, and with what a failure needs."""

import re
from base64 import b64decode
from html.parser import HTMLParser

import pytest

from tests.report.stories import NASTY, run, skipped
from x402sim.journal import Journal
from x402sim.report import html
from x402sim.report.summary import Summary

VOID = {"meta", "img", "br", "hr"}


class Reader(HTMLParser):
    """Reads a page: which elements, with which attributes, and whether all are closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.words = ""
        self.feed(text)
        self.close()
        assert self.open == [], "every element is closed"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.words += data

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]


@pytest.fixture(scope="module")
def page() -> Reader:
    runs = [run("replayed"), run("failing"), run("sessions"), skipped()]
    return Reader(html.page([r.summary for r in runs], stories={"replayed": "Alice pays <once>."}))


@pytest.mark.parametrize("name", ["replayed", "failing"])
def test_a_fragment_shows_outcome_checks_diagram_hash_and_command(name: str) -> None:
    found = run(name)
    fragment = Reader(found._repr_html_())
    for words in (
        found.outcome,
        found.sha256,
        found.command,
        *{c["clause"] for c in found.checked},
    ):
        assert words in fragment.words
    (image,) = fragment.all("img")
    assert b64decode(str(image["src"]).removeprefix("data:image/png;base64,")).startswith(
        b"\x89PNG"
    )
    assert image["alt"]


def test_a_run_that_was_skipped_says_why() -> None:
    fragment = Reader(skipped()._repr_html_())
    assert "no <clock> there" in fragment.words
    assert fragment.all("img") == []


def test_nothing_a_run_contains_becomes_markup(page: Reader) -> None:
    for reader in (page, Reader(html.fragment(run("failing").summary))):
        assert not {"script", "b", "i", "clock"} & {name for name, _ in reader.elements}
        assert "<script>alert(1)</script>" in reader.words
        assert "the <i>story</i> broke" in reader.words
        assert NASTY in reader.words


def test_even_a_name_is_escaped() -> None:
    journal = Journal()
    for event in skipped().journal:
        data = {"scenario": '"><script>', "title": "<script>", "outcome": '"><script>'}
        journal.record(event.at_ms, event.actor, event.event, **{**event.data, **data})
    assert Reader(html.page([Summary(journal)])).all("script") == []
    assert Reader(html.fragment(Summary(journal))).all("script") == []


def test_the_page_needs_nothing_but_itself(page: Reader) -> None:
    for name, attributes in page.elements:
        assert name not in ("link", "script", "iframe", "object")
        for attribute in ("src", "href"):
            address = attributes.get(attribute) or "#"
            assert address.startswith(("#", "data:image/png;base64,"))
    css = re.search(r"<style>.*</style>", html.page([]), re.DOTALL)
    assert css is not None
    assert "url(" not in css[0]
    assert "@import" not in css[0]


def test_the_page_is_for_light_and_dark_and_says_so() -> None:
    text = html.page([])
    assert "color-scheme: light dark" in text
    assert "prefers-color-scheme: dark" in text
    assert 'name="viewport"' in text


def test_the_overview_counts(page: Reader) -> None:
    assert "✓ 2 passed, ✗ 1 failed, \N{EN DASH} 1 skipped; 5 of 7 checks held." in page.words
    assert len(page.all("details")) == 4
    links = [str(link["href"]) for link in page.all("a")]
    assert links == ["#replayed", "#failing", "#sessions", "#elsewhere"]
    assert {link[1:] for link in links} <= {each.get("id") for _, each in page.elements}


def test_only_what_failed_is_open(page: Reader) -> None:
    assert ["open" in details for details in page.all("details")] == [False, True, False, False]


def test_a_failed_check_comes_with_what_was_expected_and_what_happened(page: Reader) -> None:
    (failed,) = {
        check["exchange"]
        for check in run("failing").checked
        if check["exchange"] and not check["ok"]
    }
    assert f"Trace of exchange {failed}" in page.words
    assert "refused: Insufficient USDC balance" in page.words
    assert page.words.count("Trace of exchange") == 1, "two checks, one request, one trace"
    assert run("failing").command in page.words


def test_a_clause_says_what_it_demands(page: Reader) -> None:
    assert 'Replay or stale nonce: "Nonce already used".' in page.words


def test_the_story_is_told(page: Reader) -> None:
    assert "Alice pays <once>." in page.words


def test_a_run_is_shown_through_the_plots_that_have_something_to_show(page: Reader) -> None:
    captions = [str(image["alt"]).split(":")[0].split(".")[0] for image in page.all("img")]
    assert sum(c.startswith("Remaining budget of each session") for c in captions) == 1
    assert sum(c.startswith("Requests and answers in order") for c in captions) == 3
    assert sum(c.startswith("Checks that held") for c in captions) == 1


def test_two_runs_of_a_scenario_have_two_names() -> None:
    runs = [run(name).summary for name in ("replayed", "replayed", "lost")]
    assert html.anchors(runs) == ["replayed-1", "replayed-2", "lost"]
    Reader(html.page(runs))
