"""The HTML page and the notebook fragment: well-formed, escaped, self-contained, complete."""

import re
import subprocess
import sys
from base64 import b64decode
from functools import cache
from html import unescape
from html.parser import HTMLParser

import pytest
from jinja2 import UndefinedError

from tests.report.stories import NASTY, run, skipped
from x402sim import LiveWorld, World
from x402sim.journal import Journal
from x402sim.report import html
from x402sim.report.page import of_run
from x402sim.report.reading import checks_of, held_of
from x402sim.text.templates import render

VOID = {"meta", "img", "br", "hr"}


class Reader(HTMLParser):
    """Collects the elements and attributes of a page, and checks that all are closed."""

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
    runs = [run("replayed"), run("failing"), skipped()]
    return Reader(html.page(runs, stories={"replayed": "Alice pays <once>."}))


@cache
def read_fragment(name: str) -> Reader:
    return Reader(run(name)._repr_html_())


@pytest.mark.parametrize("name", ["replayed", "failing"])
def test_a_fragment_shows_outcome_checks_diagram_hash_and_command(name: str) -> None:
    found = run(name)
    fragment = read_fragment(name)
    clauses = {check.clause for check in checks_of(found.journal)}
    for words in (found.outcome, found.sha256, found.command, *clauses):
        assert words in fragment.words
    (image,) = fragment.all("img")
    kind, _, data = str(image["src"]).partition(",")
    assert (kind, b64decode(data)[:4]) == ("data:image/png;base64", b"\x89PNG")
    assert image["alt"]


def test_hostile_text_is_escaped(page: Reader) -> None:
    for reader in (page, read_fragment("failing")):
        assert not {"script", "b", "i", "clock"} & {name for name, _ in reader.elements}
        assert "<script>alert(1)</script>" in reader.words
        assert "the <i>story</i> broke" in reader.words
        assert 'in failing: raise RuntimeError("the <i>story</i> broke")' in reader.words
        assert NASTY in reader.words


def test_hostile_names_and_outcomes_are_escaped() -> None:
    hostile = skipped('"><script>', outcome='"><script>')
    shown = Reader(html.page([hostile]))
    assert shown.all("script") == []
    assert "Checks by scenario and clause" not in shown.words, "there are none"
    fragment = Reader(hostile._repr_html_())
    assert fragment.all("script") == fragment.all("img") == []
    assert "no <clock> there" in fragment.words, "why it was skipped"


def test_the_page_makes_no_external_requests(page: Reader) -> None:
    for name, attributes in page.elements:
        assert name not in ("link", "script", "iframe", "object")
        for attribute in ("src", "href"):
            address = attributes.get(attribute) or "#"
            assert address.startswith(("#", "data:image/png;base64,"))
    (css,) = re.findall(r"<style>.*</style>", html.page([]), re.DOTALL)
    assert not re.search(r"url\(|@import", css)


def test_the_overview_counts_outcomes_and_checks(page: Reader) -> None:
    assert "✓ 1 passed, ✗ 1 failed, \N{EN DASH} 1 skipped; 4 of 6 checks held." in page.words
    opened = ["open" in details for details in page.all("details")]
    assert opened == [False, True, False], "only what failed"
    (alone,) = Reader(html.page([run("replayed")])).all("details")
    assert "open" in alone, "of one run, there is nothing to choose"
    links = [str(link["href"]) for link in page.all("a")]
    assert links == 2 * ["#replayed", "#failing", "#elsewhere"]
    assert {link[1:] for link in links} <= {each.get("id") for _, each in page.elements}


def test_a_failed_check_shows_its_trace_once(page: Reader) -> None:
    failed = next(check.exchange for check in checks_of(run("failing").journal) if not check.ok)
    assert f"Trace of exchange {failed}" in page.words
    assert "refused: Insufficient USDC balance" in page.words
    assert page.words.count("Trace of exchange") == 1, "two checks, one request, one trace"
    assert run("failing").command in page.words
    assert page.words.count("held: 1") == 1, "beside it, what held has no expected value"


def test_the_matrix_has_a_cell_for_each_checked_clause(page: Reader) -> None:
    checks = {name: checks_of(run(name).journal) for name in ("replayed", "failing")}
    checked = {(name, each.clause) for name in checks for each in checks[name]}
    cells = [each for each in page.all("td") if each.get("title")]
    assert len(cells) == len(checked)
    clauses = {clause for _, clause in checked}
    heads = page.words.split("failed (cross), by scenario and clause.")[1].split()
    assert set(heads[1 : 1 + len(clauses)]) == clauses
    failed = {str(cell["title"]) for cell in cells if cell["class"] == "failed"}
    assert failed == {each.clause for each in checks["failing"] if not each.ok}


def test_a_value_that_a_template_lacks_is_an_error() -> None:
    with pytest.raises(UndefinedError, match="target"):
        render("x402sim.suite.report", "conformance.html.j2")


@pytest.mark.thorough
def test_plots_are_drawn_without_pyplot() -> None:
    code = "import sys; from x402sim import Journal; from x402sim.report import plots; "
    code += "plots.balances(Journal()); print('matplotlib.pyplot' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_the_page_of_a_run_says_what_it_came_to_as_its_summary_does() -> None:
    """A run that broke off looked healthy: the lanes end, and nothing said that they do."""

    async def breaks(world: LiveWorld) -> None:
        alice = await world.payer("alice", balance="1.00")
        world.expect(await alice.buy(), 200, clause="4.1/receipt")
        {}["<missing>"]

    async def unchecked(world: LiveWorld) -> None:
        await world.payer("alice", balance="1.00")

    broken, empty = World().play(breaks), World().play(unchecked)
    for found in (broken, run("failing"), empty):
        head = found.show().page.partition('<div id="came-to"')[2].partition("</div>")[0]
        fragment = unescape(found._repr_html_())
        for told in (found.outcome, found.title, found.reason, held_of(found.journal)):
            assert told in unescape(head)
            assert told in fragment
        assert ("badge refused" in head) == (found.outcome == "failed")
    head = broken.show().page.partition('<div id="came-to"')[2].partition("</div>")[0]
    assert "1 of 1 checks held" in head
    assert "&lt;missing&gt;" in head
    assert "test_html.py:" in head, "where it broke off"
    assert "no checks" in empty.show().page
    part = Journal.load(b"".join(run("replayed").journal.ndjson().splitlines(keepends=True)[:-1]))
    assert "the journal has no end: this is a part of the run" in of_run(part, "part")
