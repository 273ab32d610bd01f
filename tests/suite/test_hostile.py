"""What a hostile target writes reaches neither the terminal nor a CI as a command."""

import json
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from hypothesis import given, strategies as st
from typer.testing import CliRunner

from tests.cli import stories
from tests.suite.deployment import all_reports, conformance, reports
from tests.suite.hostile import LONE, NASTY, assert_harmless, challenge, serving, text
from x402sim.cli import app
from x402sim.protocol.findings import known_word_in
from x402sim.suite.printing import show_results
from x402sim.suite.report.exchange import Exchange, Message
from x402sim.suite.report.results import Outcome, Result
from x402sim.suite.service import look, second
from x402sim.suite.service.subject import SERVICE
from x402sim.text.words import printable, printable_lines

HERE = Path(__file__).parent
URL = "http://service.example:4020"


@pytest.mark.parametrize(("body", "status"), [(text(), 200), (text(), 402), (challenge(), 402)])
def test_the_output_of_conformance_is_harmless(body: bytes, status: int, tmp_path: Path) -> None:
    import xmlschema

    with serving(body, status, {}) as url:
        done = conformance(url, *reports(tmp_path), key="0x" + "11" * 32)
    assert done.returncode in (1, 2), done.stderr
    assert_harmless(done.stdout)
    assert_harmless(done.stderr)
    if body == text():
        assert "no service of this specification" in done.stderr, "it is not judged"
        return
    assert "pwned" in done.stdout
    assert_harmless(all_reports(tmp_path))
    xmlschema.XMLSchema(HERE / "junit.xsd").validate(str(tmp_path / "report.xml"))


def results() -> list[Result]:
    said = f"{NASTY} {LONE}"
    return [
        Result(id=f"spec/2.2/{outcome}", level="MUST", section="2.2", outcome=outcome, title=said,
               expected=said, actual=said, reason=said, rerun="again",
               exchanges=(Exchange(said, Message("POST /"), Message("402", body=said)),))
        for outcome in Outcome
    ]  # fmt: skip


def test_every_kind_of_result_is_printed_without_harm(capsys: pytest.CaptureFixture[str]) -> None:
    show_results(SERVICE, results(), strict=True)
    printed = capsys.readouterr().out
    assert "\\x1b]0;pwned" in printed
    assert "é" in printed, "letters are shown as they are"
    assert_harmless(printed)


def test_a_line_of_a_body_is_no_line_of_the_exchange() -> None:
    from x402sim.suite.redact import exchange

    request = httpx.Request("GET", URL)
    response = httpx.Response(404, content=b"-> 200\ncontent-type: fake\n::error::x\r\n")
    shown = [*exchange(request, response).whole]
    assert [line for line in shown if line.startswith("-> ")] == ["-> 404"]
    assert not [line for line in shown if line.startswith("content-type: fake")]


WHO = {
    "payTo": "0x" + "11" * 20, "asset": "0x" + "22" * 20, "tokenOwner": "0x" + "33" * 20,
    "chain": "ledger", "network": "cronos-testnet", "offers": ["funds"], "now": 1, "journal": 0,
    "token": {"chainId": 338, "name": "a", "symbol": "b", "version": "1", "decimals": 6},
    "service": True,
}  # fmt: skip


@pytest.mark.parametrize(
    ("body", "who"),
    [(text(), (500, text())), (challenge(), (200, json.dumps(WHO).encode()))],
)
def test_the_output_of_run_is_harmless(body: bytes, who: tuple[int, bytes], tmp_path: Path) -> None:
    raises = stories.HOLDS + "    raise KeyError(paid.text)\n"
    says = "\n    at = world.stage.base_url\n    import httpx\n    said = httpx.get(at).text\n"
    says += "    world.expect(said, 200, '4.1/receipt')\n    raise RuntimeError(said)\n"
    files = [
        stories.write(tmp_path, stories.FAILS, "fails", needs=""),
        stories.write(tmp_path, raises, "raises", needs=""),
        stories.write(tmp_path, says, "says", needs=""),
    ]
    with serving(body, 402, {"/_sim/who": who}) as url:
        done = CliRunner().invoke(app, ["run", *files, "--on", url])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    assert "pwned" in done.output
    assert_harmless(done.output)


LOGS = """
import logging, sys
from x402sim.commands.common import log_to_stderr

said = sys.stdin.buffer.read().decode("utf-8", "surrogatepass")
log_to_stderr()
log = logging.getLogger("x402sim")
log.warning("the explorer did not answer: %s", said)
try:
    raise ValueError(said)
except ValueError:
    log.exception("background work failed")
"""


def test_the_log_quotes_others_without_harm() -> None:
    said = f"{NASTY} {LONE}".encode("utf-8", "surrogatepass")
    done = subprocess.run([sys.executable, "-c", LOGS], input=said, capture_output=True, check=True)
    printed = done.stderr.decode("utf-8", "strict")
    assert printed.startswith("WARNING x402sim: the explorer did not answer: \\x1b]0;pwned")
    assert "\n  Traceback (most recent call last):\n" in printed
    assert_harmless(printed)


CHARACTERS = st.characters(exclude_categories=[]) | st.sampled_from(":#[\n ae")


@given(st.text(CHARACTERS, max_size=60))
def test_printable_escapes_once_and_leaves_no_way_to_act(said: str) -> None:
    shown = printable(said)
    assert shown.isprintable()
    assert printable(shown) == shown
    assert_harmless(shown)
    assert_harmless("\n".join(textwrap.wrap(shown, 9)))
    printable_lines(said).encode("utf-8", "strict")


@pytest.mark.parametrize(
    "said", ["", "plain", "pay_1… → é 日本 \N{ROCKET}", "::1", "a: b", "# c ## d"]
)
def test_printable_leaves_text_as_it_is(said: str) -> None:
    assert printable(said) == said


@pytest.mark.parametrize(
    ("search", "text"),
    [
        (look._SESSION.findall, "X-" * 10_000),
        (second._PATH.findall, "/." * 10_000),
        (lambda text: known_word_in({"error": text}) or [], "x" * 20_000),
    ],
)
def test_no_text_is_searched_for_long(search: Callable[[str], object], text: str) -> None:
    began = time.process_time()
    assert search(text) == []
    assert time.process_time() - began < 0.3, "it was seconds: a search began anew at each letter"
