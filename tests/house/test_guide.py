"""The guide is true: its programs run, its commands exist, its links lead somewhere, its tables are current."""

import base64
import io
import json
import math
import os
import re
import shlex
import subprocess
import sys
from contextlib import redirect_stdout
from pathlib import Path
from types import ModuleType
from typing import Any

import httpx
import pytest

from tests.cli.runner import run
from tests.house import ROOT, blocks, picture
from tests.house.reference import FILES, GUIDE, OF_DOCSTRINGS, PAGES
from x402sim import BASE_SEPOLIA, LocalServer, PaymentAuth, Settings
from x402sim.cli import COMMANDS, load
from x402sim.commands.conformance import CAMPAIGN, SITE
from x402sim.suite.subject import SUBJECTS

WRITTEN = sorted(page.stem for page in GUIDE.glob("*.md") if page.stem not in PAGES)
LINKING = [
    ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md", ROOT / "CHANGELOG.md",
    ROOT / "conformance" / "README.md", ROOT / "conformance" / "service" / "README.md", ROOT / "notebooks" / "README.md", *sorted(GUIDE.glob("*.md")),
]  # fmt: skip


def text(page: str, ending: str = ".md") -> str:
    return (GUIDE / f"{page}{ending}").read_text(encoding="utf-8")


def program(page: str, section: str) -> str:
    """Return the first program in Python of a section."""
    return blocks(text(page).partition(f"\n## {section}\n")[2], "python")[0]


TESTED_ELSEWHERE = {
    "add-a-check": ["tests/mutants/test_guide.py"] * 2 + ["tests/suite_server/test_guide.py"] * 2,
    "payers": ["tests/test_pytest_plugin.py"],
    "judging-payers": ["tests/suite_payer/test_judging.py", "tests/suite/test_verdict.py"],
    "judging-facilitators": ["tests/suite_facilitator/test_judging.py"],
    "judging-servers": ["tests/suite_server/test_recipes.py"] * 3,
    "watch": ["tests/watch/test_watch.py"],
    "facilitator": ["tests/interop/test_guide.py"] * 3,
    "scenarios": ["below"] * 2,
    "experiments": ["below"] * 7,
    "own-parts": ["below"] * 8,
}
"""Of the programs in Python of a page, those that do not run as they stand."""
PROGRAMS = [
    (page, program)
    for page in WRITTEN
    for program in blocks(text(page), "python")
    if page not in TESTED_ELSEWHERE
]
SHOWS = {
    "index": "entryPrice",
    "x402": '"signature"|200\n200\n200',
    "metered": "the sky is blue\nsigned 20000, settled 1500|200 12300 of 50000",
    "selling": "{'sky': 'grey'}\n{'city': 'Oslo', 'sky': 'blue'}",
    "faults": "^200 1$|^not paid\n30$|^200\n1$|explorer +delay answer +600.0 +660.0",
}


@pytest.mark.parametrize(
    ("page", "program"),
    [
        pytest.param(*each, id=each[0], marks=[pytest.mark.thorough] * (each[0] == "faults"))
        for each in PROGRAMS
    ],
)
def test_a_program_runs_and_shows_what_it_should(
    page: str, program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found = io.StringIO()
    with redirect_stdout(found):
        exec(program, {"__name__": "__main__"})
    assert re.search(SHOWS[page], found.getvalue()), found.getvalue()


def test_each_program_is_tested() -> None:
    assert {page for page, _ in PROGRAMS} == SHOWS.keys()
    assert len(PROGRAMS) == 10
    for page, tests in TESTED_ELSEWHERE.items():
        assert len(blocks(text(page), "python")) == len(tests), page


def test_the_test_of_a_payer_is_that_of_the_readme() -> None:
    """`tests/test_pytest_plugin.py` runs it."""
    assert blocks(text("payers"), "python")[0] == blocks(LINKING[0].read_text("utf-8"), "python")[1]


def test_the_scenario_shown_is_the_file_and_its_plot_is_current() -> None:
    file = ROOT / "scenarios" / "replay.py"
    assert blocks(text("scenarios"), "python")[0] == file.read_text("utf-8")
    assert picture.drawn_from() == picture.journal_hash(), "python -m tests.renew --only picture"


def test_the_story_plays() -> None:
    story: dict[str, Any] = {}
    exec(blocks(text("scenarios"), "python")[1], story)
    assert story["run"].outcome == "passed"
    assert len(story["run"].latency) > 5


def test_the_page_of_experiments_begins_with_one_and_what_it_prints(
    capsys: pytest.CaptureFixture[str],
) -> None:
    exec(blocks(text("experiments"), "python")[0], {})
    assert capsys.readouterr().out == blocks(text("experiments"), "text")[0]


def test_the_study_shows_what_it_says() -> None:
    study: dict[str, Any] = {"__name__": "study"}
    exec(blocks(text("experiments"), "python")[1], study)
    assert study["unserved"](lost=0.3, policy="reconcile", seed=0) == 0
    assert 0.1 < study["unserved"](lost=0.3, policy="forget", seed=0) < 0.5


@pytest.mark.thorough
def test_the_policies_of_the_study_are_compared_in_pairs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    study = ModuleType("study")
    exec(program("experiments", "Many seeds: a sweep"), vars(study))
    monkeypatch.setitem(sys.modules, "study", study)
    compared = program("experiments", "Compare two policies")
    exec(compared.replace("seeds=20", "seeds=3, workers=0, progress=False"), {})
    _, *rows = capsys.readouterr().out.splitlines()
    assert [row.split()[1:3] for row in rows] == [["0.1", "forget"], ["0.3", "forget"]]
    assert float(rows[1].split()[4]) > 0, "more are charged and not served"


def test_the_study_of_many_requests_agrees_with_theory_in_forty_lines() -> None:
    study: dict[str, Any] = {"__name__": "study"}
    exec(written := program("experiments", "Many requests at once"), study)
    assert len(written.splitlines()) < 40
    for name, policy in study["POLICIES"].items():
        for services, n in (1, 10), (4, 3), (4, 10):
            granted = n if name == "naive" else min(n, services)
            found = study["grants"](policy=policy, services=services, n=n, seed=0)
            assert found == {"grants": granted, "transfers": 1}
    exec(written.replace("another_service()", "another_service(shares_database=True)"), study)
    shared = study["grants"](policy=study["POLICIES"]["correct"], services=4, n=10, seed=0)
    assert shared == {"grants": 1, "transfers": 1}


def study_of(title: str) -> dict[str, Any]:
    """Return what a study of fewer than 35 lines defines."""
    written = program("experiments", title)
    assert len(written.splitlines()) < 35
    study: dict[str, Any] = {"__name__": "study"}
    exec(written, study)
    return study


@pytest.mark.thorough
def test_the_study_of_outages_agrees_with_theory() -> None:
    study = study_of("Outages and retries")
    found = {name: study["outages"](retry=name, mttr_s=90, seed=1) for name in study["RETRIES"]}
    availability = 300 / (300 + 90)
    assert abs(found["give up"]["served"] - availability) < 0.1
    assert found["at once"]["served"] == found["give up"]["served"] < found["backoff"]["served"]
    assert found["give up"]["tries"] == 1
    lost = 1 - found["at once"]["served"]
    assert found["at once"]["tries"] == pytest.approx(1 + 5 * lost), (
        "whoever fails, fails five more"
    )


@pytest.mark.thorough
def test_the_study_of_front_running_agrees_with_theory() -> None:
    study = study_of("Front-running")
    for probability, window_s in (0.3, 0.8), (1.0, 0.2):
        shares = [
            study["preempted"](probability=probability, window_s=window_s, seed=seed)
            for seed in range(3)
        ]
        theory = probability * (1 - math.exp(-window_s / study["THIEF_S"]))
        error = math.sqrt(theory * (1 - theory) / 300)
        assert abs(sum(shares) / 3 - theory) < 4 * error
    study["LATE"] = Settings()
    assert study["preempted"](probability=1.0, window_s=0.2, seed=0) == 0, "it looks its claim up"


def test_what_is_written_of_your_own_runs_and_prints_what_it_says() -> None:
    written, shown = (blocks(text("own-parts"), language) for language in ("python", "text"))
    for each, wanted in zip(written, shown, strict=True):
        found = io.StringIO()
        with redirect_stdout(found):
            exec(each, {})
        assert found.getvalue() == wanted, each


@pytest.mark.thorough
def test_the_study_of_queues_runs_in_fewer_than_35_lines_and_is_near_erlang(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    written = program("experiments", "Queues")
    assert len(written.splitlines()) < 35
    for whole, part in {
        "seeds=10": "seeds=1, workers=0, progress=False",
        "[0.5, 0.7, 0.8, 0.9]": "[0.5, 0.8]",
        "1000": "300",
        "200": "50",
    }.items():
        assert whole in written
        written = written.replace(whole, part)
    monkeypatch.chdir(tmp_path)
    study: dict[str, Any] = {"__name__": "__main__"}
    exec(written, study)
    assert (tmp_path / "waiting.png").stat().st_size > 5000
    means = study["means"].set_index(["servers", "load"])["mean"]
    for (servers, at), mean_s in means.items():
        assert 1 / 3 < mean_s / study["erlang_c"](at, servers) < 3, "they are few"
    assert means[2, 0.5] < means[1, 0.5] < means[1, 0.8]


def test_a_shop_by_hand_has_the_messages_that_are_shown() -> None:
    shown = blocks(text("facilitator"), "json")
    required, payment, body, verified, settled = map(json.loads, shown)
    sent: list[Any] = []

    def shop(request: httpx.Request) -> httpx.Response:
        if header := request.headers.get("PAYMENT-SIGNATURE"):
            sent.append(json.loads(base64.b64decode(header)))
            return httpx.Response(200)
        offer = base64.b64encode(json.dumps(required).encode()).decode()
        return httpx.Response(402, headers={"PAYMENT-REQUIRED": offer})

    with LocalServer(network=BASE_SEPOLIA) as server:
        payer = PaymentAuth(server.wallets[0], network=BASE_SEPOLIA)
        with httpx.Client(transport=httpx.MockTransport(shop), auth=payer) as http:
            http.get(required["resource"]["url"])
        said = {"PAYMENT": sent[0], "REQUIREMENTS": sent[0]["accepted"]}
        asked = {name: said.get(value, value) for name, value in body.items()}
        urls = (f"{server.facilitator_url}/{what}" for what in ("verify", "settle"))
        answers = [httpx.post(url, json=asked).json() for url in urls]
    assert sent[0]["accepted"] == payment["accepted"] == required["accepts"][0]
    changing = re.compile(r"0x[0-9a-f]{64,}|\b1[0-9]{9}\b")  # signature, nonce, hash, times
    for shown, found in zip((payment, verified, settled), (*sent, *answers), strict=True):
        both = [changing.sub("", json.dumps(each, sort_keys=True)) for each in (shown, found)]
        assert both[0] == both[1]


def test_the_lines_that_steer_a_server_do() -> None:
    shell = [*blocks(text("server"), "sh"), *blocks(text("faults"), "sh")]
    lines = [line for block in shell for line in block.splitlines() if "/_sim/" in line]
    assert len(lines) == 6
    with LocalServer() as server:
        for line in lines:
            shell_at(server, line.replace("curl", "curl -f", 1))


def shell_at(server: LocalServer, line: str) -> str:
    here = line.replace("http://127.0.0.1:4020", server.url)
    done = subprocess.run(["bash", "-c", here], capture_output=True, text=True, check=False)
    assert done.returncode == 0, (line, done.stdout, done.stderr)
    return done.stdout


def test_the_lines_that_pay_and_look_do() -> None:
    """Each ends with exit code 0: what is to be served is served, and what is wrong is refused."""
    shell = [each for page in ("index", "payers", "server") for each in blocks(text(page), "sh")]
    shell += blocks(LINKING[0].read_text(), "sh")
    calls = re.compile(r"x402sim (?:pay|doctor|decode) ")
    found = (line for each in shell for line in each.splitlines() if calls.search(line))
    lines = {re.sub(r" +#.*|\.venv/bin/", "", line) for line in found}
    assert len(lines) == 7
    with LocalServer() as server:
        for line in sorted(lines):
            before, _, words = line.rpartition("x402sim ")
            given = shell_at(server, before.rstrip(" |")) if before else None
            here = words.replace("http://127.0.0.1:4020", server.url)
            done = run(*shlex.split(here), stdin=given)
            assert done.exit_code == 0, (line, done.output)
        assert len(server.transfers(server.wallets[0].address)) == 2


def options_of(words: list[str]) -> set[str] | None:
    """Return the options of the command that these words begin with; None if there is none."""
    if words[0] not in COMMANDS:
        return None
    command = load(words[0])
    if (
        words[0] == "conformance" and words[1:2] and words[1] in {*SUBJECTS, CAMPAIGN, SITE}
    ):  # made when it is asked for
        context = command.make_context("conformance", [words[1], "--help"], resilient_parsing=True)
        command = context.command
    for word in words[1:]:
        if not hasattr(command, "commands"):
            break
        if word not in command.commands:
            return None
        command = command.commands[word]
    return {name for each in command.params for name in [*each.opts, *each.secondary_opts]}


def commands_in(page: Path) -> list[list[str]]:
    """Return the words after `x402sim` of each command line in a shell block or in backquotes.

    Text in single quotes is another program's command.
    """
    written = page.read_text(encoding="utf-8")
    shell = "\n".join(blocks(written, "sh")).replace("\\\n", " ")
    lines = shell.splitlines() + re.findall(
        r"`([^`\n]+)`", re.sub(r"```.*?```", "", written, flags=re.DOTALL)
    )
    calls = re.compile(r"(?:^|[ /])x402sim ([a-z][^#&|]*)")
    found = [call for line in lines for call in calls.findall(line)]
    return [re.sub("'[^']*'", "''", call).split() for call in found]


@pytest.mark.parametrize("page", LINKING, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_commands_links_and_files_of_a_page_exist(page: Path) -> None:
    told = page.read_text(encoding="utf-8")
    ours = r"`((?:x402sim|tests|conformance|notebooks|scenarios)/(?:[\w./-]+\.\w+|[\w/]+/))`"
    assert [path for path in re.findall(ours, told) if not (ROOT / path).exists()] == []
    # the changelog tells of options that are gone
    for words in commands_in(page) if page.name != "CHANGELOG.md" else []:
        if "--" in words:  # what follows is another's command
            words = words[: words.index("--")]
        known = options_of(words)
        assert known is not None, f"no command: {' '.join(words)}"
        used = {word.split("=")[0] for word in words if word.startswith("--")}
        assert used <= known | {"--help"}, f"{' '.join(words)}: {used - known}"
    for link in re.findall(r"\]\(([^)\s]+)\)", told):
        if link.startswith(("http://", "https://")):
            continue
        name, _, anchor = link.partition("#")
        target = page.parent / name if name else page
        assert target.exists(), link
        if page.parent == GUIDE:
            assert target.parent == GUIDE, f"{link}: it is not in the wheel's guide"
        if anchor:
            titles = re.findall(r"^#+ (.+)$", target.read_text(encoding="utf-8"), re.MULTILINE)
            anchors = [re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles]
            assert anchor in anchors, link


def test_each_name_of_the_walks_is_defined_in_a_file_of_its_row() -> None:
    """A row of a walk is `| stop | files | names |`; a file without a folder is in the one before."""
    text = (ROOT / "x402sim/guide/contributing.md").read_text("utf-8")
    missing = []
    for row in re.findall(r"^\|(?: .*? \|){3}$", text, re.MULTILINE):
        _, files, names = (cell.strip() for cell in row.strip("|").split(" | "))
        found, folder = [], ROOT / "x402sim"
        for name in re.findall(r"`([\w/]+\.(?:py|sql))`", files + names):
            path = next(
                p for p in (folder / name, ROOT / "x402sim" / name, ROOT / name) if p.exists()
            )
            folder = path.parent
            found.append(path.read_text("utf-8"))
        for name in re.findall(r"`([\w.]+)`", names) if found else []:
            last = name.split(".")[-1]
            defined = rf"(?:def|class|INDEX)(?: IF NOT EXISTS)? {last}\b|^    {last}\b"
            if last != "py" and not re.search(defined, "\n".join(found), re.M):
                missing.append((files, name))
    assert not missing, missing


def test_the_start_leads_to_every_page() -> None:
    linked = set(re.findall(r"\]\(([\w-]+)\.md", text("index")))
    assert linked == {page.stem for page in GUIDE.glob("*.md")} - {"index"}


def test_a_service_shows_every_page() -> None:
    with LocalServer() as server, httpx.Client(base_url=server.url) as http:
        for page in GUIDE.glob("*.md"):
            shown = http.get(f"/docs/guide/{page.name}")
            assert shown.text == page.read_text(encoding="utf-8")
            assert shown.headers["content-type"].startswith("text/markdown")
        for name, kind in zip(
            FILES, ("application/json", "text/plain; charset=utf-8"), strict=True
        ):
            file = http.get(f"/docs/guide/{name}")
            assert file.headers["content-type"] == kind
            assert file.text == text(name, "")
        for folder in "/docs/guide", "/docs/guide/":
            assert http.get(folder, follow_redirects=True).text == text("index")
        browsers = http.get("/docs/guide/index.md", headers={"Accept": "text/html, */*"})
        assert browsers.headers["content-type"].startswith("text/html")
        assert http.get("/docs/guide/pages.py").status_code == 404


@pytest.mark.parametrize("page", PAGES)
def test_a_reference_page_is_current(page: str) -> None:
    if page == OF_DOCSTRINGS and sys.flags.optimize > 1:
        pytest.skip("-OO leaves docstrings out")
    written = PAGES[page]()
    assert len(written) > 2000
    assert text(page) == written, "python -m tests.renew --only guide"


@pytest.mark.skipif(sys.flags.optimize > 1, reason="-OO leaves docstrings out")
@pytest.mark.parametrize("name", FILES)
def test_a_generated_file_is_current(name: str) -> None:
    assert text(name, "") == FILES[name](), "python -m tests.renew --only guide"


@pytest.mark.thorough
def test_the_site_is_built_without_a_warning(tmp_path: Path) -> None:
    """In strict mode a page outside the contents, a dead link or a dead anchor is an error."""
    config = ROOT / ".mkdocs.yml"
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-f", str(config)]
    env = os.environ | {"NO_MKDOCS_2_WARNING": "1"}  # of the theme, about itself
    where = {"cwd": ROOT, "env": env, "capture_output": True, "text": True}
    done = subprocess.run([*command, "-d", str(tmp_path / "site")], check=False, **where)
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    python = (tmp_path / "site" / "python" / "index.html").read_text(encoding="utf-8")
    assert "max_total" in python, "the docstring of PaymentAuth"
