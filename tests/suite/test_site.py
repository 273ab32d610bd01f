"""A site of verdicts on published versions; versions installed by recipes; known failures with reasons."""

import json
import re
import subprocess
from collections.abc import Mapping
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from zipfile import ZipFile

import msgspec
import pytest

from tests import npm
from tests.cli.runner import run
from tests.suite.deployment import refused
from x402sim.spec.ground import folder
from x402sim.suite import baseline, published, sdk, texts
from x402sim.suite.case import by_id
from x402sim.suite.published import Verdicts, Withdrawn, record_of
from x402sim.suite.report.conformance import About
from x402sim.suite.report.exchange import Exchange, Exchanges, Message, Movement
from x402sim.suite.report.results import CaseResult, Loss, Outcome, Result, by_dialect
from x402sim.suite.site import SUBJECTS, Site, column, lowered, slug
from x402sim.suite.subject import subject
from x402sim.suite.vectors.differing import differences
from x402sim.suite.vectors.vector import files

LOST = "kit/order/settled-lost"
OF_BOTH = {
    texts.FIELDS_V1,
    texts.AMOUNT_V1,
    texts.REQUIRED_AMOUNT_V1,
    texts.SUPPORTED_V1,
    texts.SETTLED_NETWORK_V1,
}
"""Sentences of version 1 that a demand of both versions cites beside version 2's."""


class Page(HTMLParser):
    """The links and the elements of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links, self.tags = set[str](), set[str]()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.links |= {value for name, value in attrs if name in ("href", "src") and value}


@pytest.fixture(scope="module")
def site() -> dict[str, str]:
    return Site(published.read(published.shipped())).made()


@pytest.mark.thorough
def test_every_link_of_the_site_leads_to_a_page_and_no_page_has_a_script(
    site: dict[str, str],
) -> None:
    addresses = {texts.url_of(each) for each in texts.SENTENCES.values()}
    addresses |= {each.partition("#")[0] for each in addresses}
    for path, text in site.items():
        if not path.endswith(".html"):
            continue
        page = Page(text)
        assert "script" not in page.tags
        for link in page.links - {"data:,"} - addresses:
            if link.startswith("#"):
                assert f'id="{link[1:]}"' in text
                continue
            target = (Path("/") / path).parent.joinpath(link).as_posix()
            assert str(Path(target).resolve()).lstrip("/") in site, (path, link)
    verdicts = published.read(published.shipped())
    for kind in ("version", "badge"):
        assert sum(path.startswith(f"{kind}/") for path in site) == len(verdicts.records)
    ids = {each.id for name in SUBJECTS for each in subject(name).cases()}
    assert {path for path in site if path.startswith("case/")} == {
        f"case/{slug(each)}.html" for each in ids
    }


def test_the_page_of_a_case_has_the_sentence_the_loss_and_the_command_that_repeats_it(
    site: dict[str, str],
) -> None:
    page = site[f"case/{slug(LOST)}.html"]
    for sentence in by_id(subject("server").cases())[LOST][0].ground.sentences:
        assert sentence.section in page
        assert f'<a href="{texts.url_of(sentence)}">{sentence.section}</a>' in page
    assert "(payment_identifier.md, " in page
    assert "at most twice, until it is served" in page, "what payer and facilitator do"
    assert "0.01 USDC" in page
    assert re.search(
        rf"x402sim conformance server --sdk .{{1,5}}x402\[fastapi\]==2\.25\.0.{{1,5}} --only {LOST}",
        page,
    )
    assert "10000 base units from 0x" in page, "the transfer that bought nothing"
    assert "503 with Retry-After" in page, "what repairs it"
    assert re.search(r"MUST fail, \d cause", site["badge/server-x402-fastapi-2.25.0.svg"])
    assert LOST not in site["drift.html"], "a SHOULD"
    assert "server/header/version-answer" in site["drift.html"]
    assert "scheme_upto_evm.md" not in site["drift.html"], (
        "no version with a failure was judged by it"
    )
    assert "started by <code>conformance/recipes/server.py fastapi</code>" in page
    shown = site["version/server-x402-fastapi-2.25.0.html"]
    assert "PAYMENT-SIGNATURE: as before" in shown
    assert "10000 base units from 0x" in shown
    express = site["version/server-at-x402-express-2.18.0.html"]
    assert "\n\npaying 0x" in express, "an empty line before an exchange"
    assert "Observed: no text decides: " in shown
    assert "server-replicas-lost.html" in shown.partition("Not judged")[2]


def test_each_text_has_the_address_of_its_revision() -> None:
    for each in texts.SENTENCES.values():
        url, revision = texts.url_of(each), re.search(r" ([0-9a-f]{8})\)$", each.section)
        assert url.startswith("https://")
        assert "{" not in url
        assert revision is None or f"/{revision[1]}/" in url, (each.section, url)


@pytest.mark.parametrize("name", ["payer", "server", "facilitator"])
def test_version_1_is_judged_by_its_own_text(name: str) -> None:
    for case in subject(name).cases():
        if case.dialect == "v1":
            assert not any("version 2" in each.section for each in case.ground.sentences), case.name
        elif case.dialect == "v2":
            assert not {*texts.IN_V1.values()} & {*case.ground.sentences} - OF_BOTH, case.name


def test_the_page_of_vectors_has_who_confirms_them_and_where_implementations_differ(
    site: dict[str, str],
) -> None:
    page = unescape(site["vectors.html"])
    for file in files():
        assert file.about in page
    first = differences(files())[0]
    assert first.id in page
    assert first.implementation in page


def test_a_withdrawn_failure_leaves_the_pages_and_stands_on_the_page_of_objections(
    site: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("x402sim.suite.site.SUBJECTS", {"server": SUBJECTS["server"]})
    verdicts = published.read(published.shipped())
    record = next(it for it in verdicts.of("server") if (LOST, "v2") in it.failures)
    why = "the recipe was wrong"
    other = next(each for each, _ in record.failures if each != LOST)
    gone = tuple(Withdrawn(each, record.name, "2026-12-01", why) for each in (LOST, other))
    changed = msgspec.structs.replace(verdicts, withdrawn=gone)
    pages = Site(changed).made()
    link = f"case/{slug(LOST)}.html"
    version = f"version/{slug(f'server {record.name}')}.html"
    assert link in site[version]
    assert link not in pages[version]
    assert pages["object.html"].count(why) == 1, "a reason stands above all that it withdraws"
    assert f"{other}</code>" in pages["object.html"]
    assert "Withdrawn" in pages[link]
    assert record.name in pages[link].partition("Withdrawn")[2]
    lower = Withdrawn(
        LOST.replace("kit", "server"), record.name, "2026-12-01", "no text demands it"
    )
    lowered_since = Site(msgspec.structs.replace(verdicts, withdrawn=(lower,))).made()
    assert f"{lower.id}</code>" in lowered_since["object.html"]
    misspelt = Withdrawn(LOST + "s", record.name, "2026-12-01", why)
    with pytest.raises(ValueError, match="is no failure"):
        Site(msgspec.structs.replace(verdicts, withdrawn=(misspelt,))).made()


def test_what_is_a_should_today_is_no_must_of_an_older_verdict() -> None:
    """A verdict keeps the level of its day; a page that accuses goes by the demand of today."""
    verdicts = published.read(published.shipped())
    record = next(it for it in verdicts.of("server") if (LOST, "v2") in it.failures)
    should = record.failures[LOST, "v2"]
    must = msgspec.structs.replace(should, level="MUST")
    assert lowered((must,), {LOST: "SHOULD"}) == (should,)
    assert lowered((must,), {LOST: "MUST"}) == (must,)
    assert lowered((must,), {}) == (must,), "an id of no case today keeps its level"


def test_a_control_that_is_withdrawn_accuses_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    only = {"facilitator": SUBJECTS["facilitator"]}
    monkeypatch.setattr("x402sim.suite.site.SUBJECTS", only)
    verdicts = published.read(published.shipped())
    control, name = "facilitator/control/settles", "x402 2.20.0"
    gone = Withdrawn(control, name, "2026-12-01", "the recipe was wrong")
    pages = Site(msgspec.structs.replace(verdicts, withdrawn=(gone,))).made()
    page, badge = f"version/{slug(f'facilitator {name}')}.html", "badge/facilitator-x402-2.20.0.svg"
    row = pages["index.html"].partition(page)[2].partition("</tr>")[0]
    assert "not judged" in row
    assert "fail" not in row.partition("</td>")[2].replace("MUST failed", "")
    assert "not judged</text>" in pages[badge]
    assert "Nothing.</p>" in pages[page].partition("What failed")[2]


def test_a_page_alone_says_how_to_repeat_it_and_which_sentence_is_of_which_version(
    site: dict[str, str],
) -> None:
    page = site["case/server-header-version-answer.html"]
    sentence, version = page.partition("In v1:")[2].partition("In v2, permit2, upto:")[::2]
    assert "transports-v1/http.md" in sentence
    assert "transports-v2/http.md" not in sentence
    assert "transports-v2/http.md" in version.partition("In mcp:")[0]
    for path in ("case/server-path-head.html", "version/facilitator-x402-2.20.0.html"):
        assert "pip install" in site[path], path
        known = run("conformance", "server", "--help", env={"COLUMNS": "200"}).stdout
        shown = re.sub(r"<pre class.*?</pre>", "", site[path], flags=re.DOTALL)
        assert {*re.findall(r"(?<![\w-])--[a-z]+", shown)} <= {*re.findall(r"--[a-z]+", known)}, (
            path
        )
    assert "a refusal of it proves nothing" in site["version/facilitator-x402-2.20.0.html"]


def test_a_version_whose_control_fails_is_not_judged(site: dict[str, str]) -> None:
    assert "not judged: its good payments fail the control" in site["index.html"]
    assert "not judged, its control fails" in site["badge/facilitator-x402-2.20.0.svg"]
    page = site["version/facilitator-x402-2.25.0.html"]
    assert re.search(r"Installed: .*\bx402 2\.25\.0; today.s installation may have newer", page)
    assert "conformance/recipes/facilitator.py" in page
    assert "signs `accepts[0]` as it stands" in site["version/payer-x402-client-0.1.0.html"]
    assert (
        "conformance/recipes/payer.py httpx-v1"
        in site["version/payer-x402-httpx-version-1-1.0.0.html"]
    )


def test_an_exchange_is_kept_in_lines_without_what_is_there_before() -> None:
    sent = Message("GET /weather", ("PAYMENT-SIGNATURE: " + "a" * 200,), "b" * 200)
    paid = Exchange("paying", sent, Message("402"), transfers=(Movement(7, "0x" + "ab" * 20),))
    seen = published.evidence(result("server/a/b", "failed", exchanges=(paid, paid, Exchange("it logged no line"))))["shown"]  # fmt: skip
    end = ("-> 402", "  7 base units to 0xabababab…")
    begin, again = ("paying:", "GET /weather"), ("PAYMENT-SIGNATURE: as before", "  the body: as before")  # fmt: skip
    assert seen == (*begin, *sent.headers, "  " + sent.body, *end, "", *begin, *again, *end)


def result(check_id: str, outcome: str, dialect: str = "v2", loss: int = 0, exchanges: Exchanges = ()) -> Result:  # fmt: skip
    lost = Loss(base=loss, symbol="USDC") if loss else None
    case = CaseResult(
        title="t", dialect=dialect, outcome=Outcome(outcome), actual="0x" + "ab" * 32, loss=lost
    )
    level = "MUST" if check_id.startswith("facilitator/") else "SHOULD"
    return Result(id=check_id, level=level, section="fields", title="t", outcome=case.outcome, actual=case.actual, cases=(case,), loss=lost, exchanges=exchanges)  # fmt: skip


def test_a_verdict_is_kept_in_place_of_the_older_one_of_the_version(tmp_path: Path) -> None:
    cases, file = subject("facilitator").cases(), tmp_path / "verdicts.json"
    about = About("facilitator", "x402==2.10.0", "2026-11-29T10:00:00+00:00", {})
    ids = ("facilitator/fields/network", "facilitator/fields/payee", "facilitator/fields/scheme")
    failed = [result(each, "failed", loss=10_000) for each in ids[:2]]
    passed = result(ids[2], "passed")
    for version, found in (
        ("2.10.0", [passed]),
        ("2.9.0", [passed]),
        ("2.10.0", [*failed, passed]),
    ):
        record = published.record_of(about, found, cases, "x402", version, "again")
        published.keep(file, record, cases)
    newest, older = published.read(file).records
    assert (newest.version, older.version) == ("2.10.0", "2.9.0")
    assert {*newest.failures} == {(each, "v2") for each in ids[:2]}
    assert {(each.lost, each.actual) for each in newest.failed} == {("0.01 USDC", "0x…")}
    assert newest.lost == ("0.02 USDC",)
    battery = published.read(file).batteries[newest.battery]
    outcomes = column(newest, battery, ()).outcomes
    assert [outcomes[each] for each in ids] == ["failed", "failed", "passed"]
    assert outcomes["facilitator/fields/version"] == "skipped", "what was not judged has not passed"
    assert file.read_text().count("\n") > 6, "a line for each record and failure"


def test_a_long_line_that_many_failures_show_is_kept_once(tmp_path: Path) -> None:
    file, line = tmp_path / "verdicts.json", "a request, and what was answered, " * 3
    failures = tuple(
        published.Failure("MUST", "c", "v2", each, shown=(line, "-> 200", f"{line} of {each}"))
        for each in ("a/b/c", "a/b/d")
    )
    record = published.Record("facilitator", "x402", "1", "", "", "", {}, failures)
    published.keep(file, record, subject("facilitator").cases())
    (kept,) = published.read(file).records
    assert kept.failed == failures
    text = file.read_text()
    assert text.count(line) == 3
    assert text.count("-> 200") == 2


def test_failures_of_one_cause_are_shown_each_with_its_own_evidence() -> None:
    cases = subject("facilitator").cases()
    about = About("facilitator", "x402==2.10.0", "2026-11-29T10:00:00+00:00", {})
    sent = {f"facilitator/fields/{name}": f"POST /{name}" for name in ("network", "payee")}
    failed = [
        result(check_id, "failed", exchanges=(Exchange("it", Message(line), Message("200")),))
        for check_id, line in sent.items()
    ]
    record = record_of(about, failed, cases, "x402", "2.10.0", "again")
    verdicts = published.Verdicts({record.battery: published.battery_of(cases)[1]}, (record,))
    pages = Site(verdicts).made()
    for check_id, line in sent.items():
        assert [each for each in sent.values() if each in pages[f"case/{slug(check_id)}.html"]] == [line]  # fmt: skip
        assert slug(check_id) in pages["version/facilitator-x402-2.10.0.html"]


def test_what_a_client_cannot_be_told_is_observed_with_what_was_seen() -> None:
    cases = subject("payer").cases()
    about = About("payer", "a==1.0", "2026-11-29T10:00:00+00:00", {})
    held, seen = "payer/lost/slow", "payer/lost/cut"
    found = [result(held, "passed"), result(seen, "observed")]
    record = record_of(about, found, cases, "a", "1.0", "again")
    assert record.observed == {"v2": {seen: "0x…"}}
    batteries = {record.battery: published.battery_of(cases)[1]}
    verdicts = published.Verdicts(batteries, (record,))
    (one,) = Site(verdicts)._columns("payer")
    assert (one.outcomes[held], one.outcomes[seen]) == ("passed", "observed")
    assert (one.musts, one.failed("MUST")) == (1, 0)
    pages = Site(verdicts).made()
    for page in ("version/payer-a-1.0.html", "case/payer-lost-cut.html"):
        assert ": 0x…</li>" in pages[page]
        assert "one call of the client" in pages[page]
    assert "one call of the client" not in pages["case/payer-lost-slow.html"]


def test_the_command_writes_a_site_and_says_where(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("x402sim.suite.site.SUBJECTS", {})
    out, contact = tmp_path / "site", "mailto:a@b.example"
    done = run("conformance", "site", "--out", str(out), "--contact", contact)
    assert "open" in done.stdout
    assert (out / "index.html").is_file()
    assert contact in (out / "object.html").read_text()
    zips = [tmp_path / name / "site.zip" for name in ("one", "two")]
    for each in zips:
        each.parent.mkdir()
        run("conformance", "site", "--out", str(each), "--contact", contact)
    assert zips[0].read_bytes() == zips[1].read_bytes()
    with ZipFile(zips[0]) as archive:
        assert archive.read("site/index.html") == (out / "index.html").read_bytes()
    empty = tmp_path / "none.json"
    assert "--keep" in refused("site", "--out", str(tmp_path), "--verdicts", str(empty))


@pytest.mark.thorough
def test_a_campaign_leaves_out_what_is_judged_and_tells_what_cannot_be_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    recipe = next(each for each in sdk.recipes("payer") if each.package == "x402-client")
    (version,), cases = recipe.versions, subject("payer").cases()
    about = About("payer", "x402-client==0.1.0", "2026-12-01T00:00:00+00:00", {})
    done, kept = tmp_path / "done.json", tmp_path / "kept.json"
    published.keep(done, record_of(about, [], cases, recipe.name, version, ""), cases)
    assert run("conformance", "campaign", "--keep", done, "--only", "x402-client").exit_code == 0
    found = run("conformance", "campaign", "--keep", kept, "--only", "x402-client")
    assert found.exit_code == 2
    assert "1 version to judge, 2 at once" in found.stderr
    assert re.search(r"1 of 1: payer x402-client 0\.1\.0 \(\d+ s\), about 0 min left", found.stderr)
    assert "no verdict: x402sim: --sdk: x402-client==0.1.0 cannot be installed" in found.stderr
    assert not kept.exists()
    assert "@x402/fetch" in refused("campaign", "--keep", str(kept), "--only", "@x402/fetsch")


def test_a_version_names_the_recipe_of_its_first_number() -> None:
    names = [sdk.named("server", f"x402[flask]=={each}")[0].name for each in ("0.2.0", "2.9.0")]
    assert names == ["x402[flask] (version 1)", "x402[flask]"]


def test_a_verdict_tells_what_was_installed_with_the_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The failure of a wrapper may be the wrapped package's, and mended in a later version."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("x402sim.suite.site.SUBJECTS", {"server": SUBJECTS["server"]})
    flask = next(each for each in sdk.recipes("server") if each.name == "billmyagent[flask]")
    hono = next(each for each in sdk.recipes("server") if each.name == "@x402/hono")
    site_packages = sdk.home(flask, "4.0.0") / "lib" / "python3.11" / "site-packages"
    for name in ("billmyagent-4.0.0", "x402-2.25.0", "flask-3.1.3", "eth_utils-6.0.0"):
        (site_packages / f"{name}.dist-info").mkdir(parents=True)
    packages = sdk.home(hono, "2.27.0") / "node_modules"
    for name, its in (("@x402/hono", "2.27.0"), ("hono", "4.9.1"), ("other", "1.0.0")):
        (packages / name).mkdir(parents=True)
        (packages / name / "package.json").write_text(json.dumps({"name": name, "version": its}))
    assert sdk.installed(hono, "2.27.0") == ("@x402/hono 2.27.0", "hono 4.9.1")
    its = sdk.installed(flask, "4.0.0")
    assert its == ("billmyagent 4.0.0", "flask 3.1.3", "x402 2.25.0")
    verdicts = published.read(published.shipped())
    record = next(each for each in verdicts.records if each.name == "billmyagent[flask] 4.0.0")
    kept = msgspec.structs.replace(record, installed=its)
    pages = Site(msgspec.structs.replace(verdicts, records=(kept,), withdrawn=())).made()
    assert (
        "billmyagent 4.0.0, flask 3.1.3, x402 2.25.0"
        in pages[f"version/{slug(f'server {kept.name}')}.html"]
    )


STUBS = {
    "hono": "export class Hono { use() {} }",
    "@hono/node-server": "export const serve = null;",
    "express": "export default () => ({ use() {} });",
    "@x402/core": "export class HTTPFacilitatorClient {}",
    "@x402/evm": "export class ExactEvmScheme {}",
}
PRINTS = """
export class x402ResourceServer { register() {} }
export const paymentMiddleware = (...given) => {
  console.log(JSON.stringify(Object.keys(given[0].split ? given[1] : given[0])));
  process.exit(0);
};
"""


def _ran(
    folder_: Path, packages: Mapping[str, str], program: str, *words: str
) -> subprocess.CompletedProcess[str]:
    """Run a program of the recipes with packages of these texts."""
    for name, code in packages.items():
        home = folder_ / "node_modules" / name
        home.mkdir(parents=True)
        (home / "index.js").write_text(code)
        exports = {".": "./index.js", "./*": "./index.js"}
        (home / "package.json").write_text(json.dumps({"type": "module", "exports": exports}))
    copy = folder_ / program
    copy.write_bytes((folder("recipes") / program).read_bytes())
    env = {"PORT": "1", "FACILITATOR_URL": "", "X402SIM_PAY_TO": "0x1", "X402SIM_NETWORK": "a:1"}
    command = [str(npm.node()), str(copy), *words]
    return subprocess.run(command, capture_output=True, text=True, env=env, timeout=30)


THROWS = {
    "express": """
const act = (_, does) => does({ body: {} }, { status: () => ({ json() {} }) });
export default Object.assign(() => ({ use() {}, get() {}, listen() {}, post: act }), { json() {} });
""",
    "viem": """
export const [http, privateKeyToAccount, publicActions, baseSepolia] = [() => 0, () => 0, () => ({}), 0];
const writeContract = async (name) => {
  console.error("sends", name);
  await new Promise((later) => setTimeout(later, 20));
  console.error("has sent", name);
  if (name === "a") throw new Error(name);
};
export const createWalletClient = () => ({ writeContract, extend(its) { return { ...this, ...its(this) }; } });
""",
    "x402": """
const parse = () => "asked";
export const [PaymentPayloadSchema, PaymentRequirementsSchema] = [{ parse }, { parse }];
export const verify = () => { throw new Error("no\\n  money") };
export const settle = async (client, ...asked) => {
  await Promise.allSettled(["a", "b", "c"].map((name) => client.writeContract(name)));
  throw new TypeError(asked);
};
""",
}


def test_a_facilitator_of_npm_logs_what_its_package_throws_in_a_line_and_sends_in_turn(
    tmp_path: Path,
) -> None:
    done = _ran(tmp_path, THROWS, "facilitator_v1.mjs")
    sent = [f"{word} {name}" for name in "abc" for word in ("sends", "has sent")]
    thrown = ["verify: Error: no money"], ["settle: TypeError: asked,asked"]
    assert done.stderr.splitlines() == [*thrown[0], *sent, *thrown[1]]


@pytest.mark.parametrize("package", ["x402-express", "x402-hono", "@x402/hono"])
def test_a_shop_of_npm_guards_its_paths_as_the_guide_of_the_package_does(
    package: str, tmp_path: Path
) -> None:
    """The guides of version 1 name paths, which guards HEAD, too; those of version 2 name methods."""
    done = _ran(tmp_path, {**STUBS, package: PRINTS}, "server.mjs", package)
    routes = ["GET /weather", "GET /forecast", "POST /report"]
    if not package.startswith("@"):
        routes = [each.split()[1] for each in routes]
    assert (done.stderr, json.loads(done.stdout)) == ("", routes)


def test_a_recipe_names_a_program_that_ships_and_options_of_its_judge() -> None:
    for name in SUBJECTS:
        for recipe in sdk.recipes(name):
            assert (folder("recipes") / recipe.program.split()[0]).is_file()
            given = {**recipe.flags, "start": "a"} if name != "payer" else recipe.flags
            words = ["program"] if name == "payer" else recipe.sells[:1]
            assert subject(name).read(words, given).dialects == (recipe.flags["dialects"],)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (("--sdk", "x402"), "x402==VERSION, @x402/evm@VERSION"),
        (("--sdk", "express@5.0.0"), "x402==VERSION, @x402/evm@VERSION"),
        (("--sdk", "x402==2.25.0", "--start", "a"), "give no URL, item or command"),
        (("--start", "a", "--keep", "f.json"), "--sdk"),
        (("--sdk", "x402==2.25.0", "--keep", "f.json", "--only", "kit"), "leave out --only"),
        (("--sdk", "x402==2.25.0", "--sdk", "x402==2.7.0", "--report", "v.html"), "give one --sdk"),
    ],
)
def test_what_sdk_cannot_do_is_refused_before_anything_is_installed(
    given: tuple[str, ...], why: str
) -> None:
    assert why in " ".join(refused("facilitator", *given).split())


def test_a_known_failure_has_a_reason_and_one_that_holds_is_stale(tmp_path: Path) -> None:
    file = tmp_path / "known.toml"
    ids = {"facilitator/fields/network", "facilitator/fields/payee"}
    file.write_text(
        '"facilitator/fields/network [v2]" = "repaired in 3.0"\n"facilitator/fields/payee" = "old"\n'
    )
    reasons = baseline.load(file, "facilitator", ids)
    found = [
        result("facilitator/fields/network", "failed"),
        result("facilitator/fields/payee", "passed"),
    ]
    known = baseline.known(found, reasons)
    assert [(each.is_known, each.known_because) for each in known] == [
        (True, "repaired in 3.0"),
        (False, ""),
    ]
    assert baseline.mended(known, reasons) == ["facilitator/fields/payee"]
    assert not baseline.known([result("facilitator/fields/network", "failed", "v1")], reasons)[
        0
    ].is_known
    assert by_dialect(known[0])
    for text, why in (
        ('"a/b/c" = "x"', "unknown id"),
        ('"facilitator/fields/payee" = ""', "no reason"),
    ):
        file.write_text(text)
        with pytest.raises(ValueError, match=why):
            baseline.load(file, "facilitator", ids)


def test_the_shipped_verdicts_are_small_and_of_known_batteries() -> None:
    verdicts: Verdicts = published.read(published.shipped())
    assert {each.battery for each in verdicts.records} == {*verdicts.batteries}
    assert published.shipped().stat().st_size < 60_000 * len(verdicts.records)
