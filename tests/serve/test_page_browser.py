"""The live page in headless Chromium: what a person does there, and sees."""

import json
import re
import subprocess
import sys
from base64 import b64decode
from datetime import UTC, datetime
from difflib import unified_diff
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import httpx
import pytest

from tests.interop import programs
from tests.serve.browser import AXE, EACH_LANE, Browser, picture, saved_run
from tests.serve.driver import Server, environment, started
from tests.serve.hosted import hosted
from x402sim import BASE_SEPOLIA, PaymentAuth, World
from x402sim.events import (
    AnswerReceived,
    PaymentSettled,
    PaymentUndone,
    RequestSent,
    SettlementAnswerLost,
)
from x402sim.journal import Journal
from x402sim.payer.mistakes import MISTAKES
from x402sim.protocol.networks import TESTNET, Network

pytestmark = [pytest.mark.thorough, pytest.mark.timeout(400)]  # npm installs Chromium, of 65 MB
MARKET = "GET /api/perp/market"
NO_SEARCH = (
    "page.$eval('#search', (it) => { it.value = ''; it.dispatchEvent(new Event('input')); })"
)
HOSTILE = "<script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">"


def copied(browser: Browser, what: str = "a (test|scenario)") -> dict[str, str]:
    """Copy each request of each lane in each form that matches; return the texts."""
    browser.run(f"await {NO_SEARCH}")
    texts: dict[str, str] = browser.run(f"""
        return page.evaluate(async (wanted) => {{
          const found = {{}}, pause = () => new Promise((done) => setTimeout(done, 30));
          const select = (name) => document.querySelector(`#detail select[aria-label=${{name}}]`);
          const set = (name, value) => {{
            select(name).value = value;
            select(name).dispatchEvent(new Event("change"));
          }};
          const values = (name) => [...select(name).options].map((each) => each.value);
          let last = "";
          navigator.clipboard.writeText = async (text) => {{ last = text; }};
          for (const lane of [...document.querySelectorAll(".lane")]) {{
            document.getElementById(lane.id).click();
            await pause();
            for (const request of select("Request") ? values("Request") : []) {{
              set("Request", request);
              for (const form of values("as").filter((each) => new RegExp(wanted).test(each))) {{
                set("as", form);
                document.querySelector("#detail .copying button").click();
                await pause();
                found[`${{lane.id}} ${{request}}: ${{form}}`] = last;
              }}
            }}
          }}
          return found;
        }}, {json.dumps(what)})
    """)
    return texts


@pytest.fixture
def server(shown: Server) -> Server:
    return shown


def test_a_payment_is_seen_at_once_and_explained(browser: Browser, server: Server) -> None:
    began = monotonic()
    payment_id = server.account(1).paid()
    browser.sees(".lane .who", "account 1")
    assert (
        monotonic() - began < 5
    )  # a page that asks now and then takes longer; a busy machine does not
    server.account(1).quote(payment_id)
    browser.sees(".badge.served", "served")
    browser.do("type", "#search", payment_id.lower())
    browser.do("click", ".lane")
    browser.sees(
        "#detail",
        payment_id,
        "10000 = 0.01",
        "transferWithAuthorization",
        "gas",
        "AuthorizationUsed",
    )
    browser.run(f"await {NO_SEARCH}")
    browser.press("#lanes", "Home")
    assert browser.run("return page.$eval('#lanes', (it) => it.ariaActiveDescendantElement?.id)")


def test_paying_wrongly_is_refused_and_explained(browser: Browser, server: Server) -> None:
    browser.view("steering")
    browser.do("select", "[name=account]", "4")
    browser.do("select", "[name=wrong]", "amount")
    browser.do("click", "form[aria-label=Pay] button")
    browser.sees("#said", "Refused, as it should be (400): Invalid signature: Invalid amount")
    browser.sees("#said", "Do: Sign exactly the amount of the 402, in base units")
    browser.sees("#same", "--account 4 --wrong amount")
    browser.view("payments")
    browser.sees(".lane.refused .why", "wanted 10000, got 5000")
    browser.sees(".lane.refused .amount", "0.005, asked 0.01")
    browser.do("click", ".lane.refused")
    browser.sees(
        "#detail .refusal", "5/exact-amount", "7/invalid-signature", "Do:", "nothing was charged"
    )
    browser.sees("#detail tr.odd", "5000 = 0.005")
    browser.do("click", "#detail details summary")
    browser.sees("#detail details", "paymentRequirements")
    assert server.account(4).transfers == 0


def test_a_payment_out_of_time_says_both_times(browser: Browser, server: Server) -> None:
    late_s = 1000
    server.http.post("/_sim/clock/skew", json={"actor": "chain", "seconds": late_s})
    assert server.http.post("/_sim/ui/pay", json={}).status_code == 200
    (refused,) = [each for each in server.journal() if each["event"] == "payment refused"]
    until = int(re.findall(r"validBefore is (\d+)", refused["reason"])[0])
    shown = f"{datetime.fromtimestamp(until, UTC):%Y-%m-%d %H:%M:%S} UTC"
    browser.sees(".lane .step.no", "settled")
    browser.sees(".lane .why", f"validBefore is {shown}, the chain's time")
    browser.do("click", ".lane")
    browser.sees("#detail .refusal", f"{shown} ({until})", "verify does not look at time")
    said = browser.run("return page.$eval('#detail .refusal', (it) => it.innerText)")
    (chain_s,) = re.findall(r"by the chain's, which was [\d :-]+ UTC \((\d+)\)", said)
    assert 0 <= int(chain_s) - (until - 300 + late_s) < 5
    browser.sees("#detail .stages .yes", "not its time")
    browser.sees("#detail tr.odd", shown)
    server.http.post("/_sim/faults/clear", json={})


def test_a_fault_from_the_page_strikes_and_counts(browser: Browser, server: Server) -> None:
    other = {
        "victim": "facilitator",
        "does": "lose answer",
        "path": "/settle",
        "contains": "nobody",
    }
    server.sim("faults", **other)
    browser.view("steering")
    browser.wish("Break")
    browser.do("select", "[name=path]", "/v2/x402/settle")
    browser.do("click", "form[aria-label=Faults] button")
    browser.sees("#same", 'Fault(victim="facilitator", does="lose answer", path="/v2/x402/settle"')
    browser.sees("#faults", "0 of 1")
    _, fault = server.http.get("/_sim/faults").json()
    assert (fault["victim"], fault["does"], fault["times"]) == ("facilitator", "lose answer", 1)
    browser.sees("#said", "Waits for one request to the facilitator, /v2/x402/settle: lose answer.")
    browser.wish("Pay")
    browser.do("click", "form[aria-label=Pay] button")
    browser.sees("#said", "Paid and served (200).")
    browser.sees("#faults", "1 of 1")
    browser.do("click", "#said a")
    browser.sees(".lane[aria-selected=true]", "fault: lose answer")
    browser.sees("#detail .note", "A fault struck it, at the facilitator, /v2/x402/settle")
    browser.view("steering")
    counts = browser.run("return page.$eval('#faults', (it) => it.innerText)")
    assert re.findall(r"\d of \d", counts) == ["1 of 1", "0 of 1"], (
        "the newest first; the other spared it"
    )
    server.sim("faults/clear")
    browser.wish("Break")
    browser.do("select", "[name=does]", "answer")
    browser.do("type", "[name=headers]", "Retry-After: 30\nLocation: http://a/b")
    browser.do("click", "form[aria-label=Faults] button")
    browser.sees("#same", 'status=503, headers={"Retry-After": "30", "Location": "http://a/b"}')
    (fault,) = server.http.get("/_sim/faults").json()
    assert fault["headers"] == {"Retry-After": "30", "Location": "http://a/b"}
    server.sim("faults/clear")
    assert browser.run("return page.$eval('[name=caller]', (it) => !it.offsetParent)")
    browser.do("select", "[name=does]", "refuse")
    browser.do("select", "[name=victim]", "rpc")
    browser.do("select", "[name=caller]", "facilitator")
    browser.do("click", "form[aria-label=Faults] button")
    browser.sees("#same", 'Fault(victim="rpc", does="refuse", caller="facilitator", times=1)')
    (fault,) = server.http.get("/_sim/faults").json()
    assert (fault["victim"], fault["caller"]) == ("rpc", "facilitator")
    browser.wish("Pay")
    browser.do("click", "form[aria-label=Pay] button")
    browser.sees("#said", "502")
    browser.sees("#faults", "1 of 1")
    server.sim("faults/clear")
    assert server.account(0).transfers == 1
    browser.wish("Time")
    browser.do("click", "form[aria-label=Time] p button")
    browser.sees("#alarm", "1 min ahead")
    browser.view("state")
    browser.sees("#state", "999.99")


def test_text_of_others_stays_text(browser: Browser, server: Server) -> None:
    account = server.account(5)
    asked = account.ask()
    http = httpx.Client(base_url=server.ready["service"], headers={"User-Agent": HOSTILE})
    answer = http.post("/api/pay", json={**account.settlement(asked), HOSTILE: HOSTILE})
    http.post(f"/api/{HOSTILE}", headers={"X-Payment-Id": HOSTILE}, json={"pair": HOSTILE})
    payload = {"payload": {"from": HOSTILE, "nonce": HOSTILE}}
    http.post("/facilitator/verify", json={"paymentPayload": payload})
    server.http.post("/_sim/reset")
    http.close()
    assert answer.status_code in (200, 400)
    browser.sees(".lane", "<script>")
    browser.sees("#count", "2 of 2")  # one is of requests only, which come after the journal
    count = browser.run("return page.$$eval('.lane', (all) => all.length)")
    for n in range(count):
        browser.run(f"await page.$eval('.lane:nth-child({n + 1})', (lane) => lane.click())")
        browser.run(
            "await page.$$eval('#detail details', (all) => all.forEach((it) => { it.open = true; }))"
        )
    browser.sees("#detail details", HOSTILE)  # the User-Agent among the headers
    assert browser.run("return page.title()") == "x402sim, cronos-testnet"
    assert browser.run("return page.$$eval('main script, main img', (all) => all.length)") == 0


@pytest.mark.parametrize("width", [400, 768, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_view_fits_its_window_and_is_accessible(
    browser: Browser, server: Server, tmp_path: Path, width: int, scheme: str
) -> None:
    feature = {"name": "prefers-color-scheme", "value": scheme}
    browser.do("emulateMediaFeatures", [feature])
    browser.do("setViewport", {"width": width, "height": 900})
    for body in ({}, {"account": 1, "wrong": "amount"}, {"account": 2, "session": True}):
        assert server.http.post("/_sim/ui/pay", json=body).status_code == 200
    server.advance(90)
    browser.sees(".badge.refused", "refused")
    for view in ("payments", "refused", "state", "steering"):
        if view == "refused":
            browser.run("await page.$eval('.lane.refused', (lane) => lane.click())")
        else:
            browser.view(view)
        shown = {"state": ("#state", "Accounts"), "refused": ("#detail", "Do:")}
        browser.sees(*shown.get(view, ("h1", "x402sim")))
        shot = picture(browser, tmp_path, f"{view}-{width}-{scheme}")
        assert shot.stat().st_size > 10_000
        wide = browser.run("return page.evaluate(() => document.documentElement.scrollWidth)")
        assert wide <= width
        assert browser.run(AXE) == []
        assert len(browser.run(f"return page.evaluate(() => {{ {EQUAL} }})")) <= 2, view
        assert not any(browser.run(f"return page.$$eval('[aria-label^=Accounts]', {CUT})"))
    mains = browser.run(f"return page.$$eval('details.card', (all) => all.map({MAINS}))")
    assert mains == [["Pay", "Pay"], ["Break", "Inject"], ["Time", "Advance"], ["Chain", "Mine"]]


EQUAL = """
const shown = (what) => [...document.querySelectorAll(what)].filter((each) => each.offsetParent);
const styles = shown("h2, h3, caption").map((each) => getComputedStyle(each).fontSize);
return [...new Set([...styles, ...shown(".lane").map((each) => each.offsetHeight)])];
"""
"""The sizes of headings, and the heights of lanes: one of each."""
CUT = "(all) => all.map((it) => it.scrollWidth > it.clientWidth)"
MAINS = """(it) => [it.querySelector("h2"), ...it.querySelectorAll("form button:not([type])")]
  .map((each) => each.textContent)"""


def test_an_account_that_fails_is_paid_with_and_refused(browser: Browser, server: Server) -> None:
    browser.view("steering")
    browser.do("select", "[name=account]", "blacklisted")
    browser.do("click", "form[aria-label=Pay] button")
    browser.sees("#said", "Refused, as it should be (502): Settlement failed")
    browser.sees("#same", "x402sim accounts --failing")
    browser.do("click", "#said a")
    browser.sees(".lane[aria-selected=true] .step.no", "settled")
    browser.sees(".lane[aria-selected=true] .who", "blacklisted")
    browser.view("state")
    accounts = server.http.get("/_sim/accounts/failing").json()
    assert len(accounts) == 4
    for each in accounts:
        browser.sees("#state table", each["fails"], each["why"], each["address"][:6])
    server.sim("reset")
    assert server.http.get("/_sim/accounts/failing").json() == []
    browser.sees("#state button", "Make them")
    press = (
        "all.find((it) => it.textContent === 'Make them').click()"  # it is drawn anew at any time
    )
    browser.run(f"await page.$$eval('#state button', (all) => {press})")
    browser.sees("#state table", "blacklisted: ")


def test_the_goods_of_a_user_are_bought_from_the_page(browser: Browser, tmp_path: Path) -> None:
    """The goods are served. A copied test asks this server: a new world has no such goods."""
    sells = {"GET /weather 0.01": {"sky": "grey"}, "GET /users/{id} 0.05": {"name": "Ann"}}
    with hosted(sells=sells) as server:
        browser.open(f"{server.ready['control']}/ui")
        browser.sees("#empty", f"x402sim pay {server.ready['service']}/weather")
        browser.view("steering")
        browser.do("select", "[name=buys]", "GET /users/{id}")
        browser.run("await page.$eval('[name=route]', (it) => { it.value = '/users/7'; })")
        browser.do("click", "form[aria-label=Pay] button")
        browser.sees("#said", "Paid and served (200).")
        browser.sees("#same", f"x402sim pay {server.ready['service']}/users/7")
        browser.view("payments")
        browser.sees(".lane .badge.served", "served")
        browser.sees(".lane .what", "/users/7")
        texts = {*copied(browser).values()}
        assert len(texts) == 2, "an offer, and a purchase"
        for number, text in enumerate(texts):
            (tmp_path / f"test_{number}.py").write_text(text)
        command = [sys.executable, "-m", "pytest", "-q", "--rootdir", str(tmp_path), str(tmp_path)]
        key = server.ready["accounts"][4]["privateKey"]
        tested = subprocess.run(
            command, capture_output=True, text=True, check=False, cwd=tmp_path,
            env={**environment(), "X402SIM_PRIVATE_KEY": key},
        )  # fmt: skip
        assert "2 passed" in tested.stdout, tested.stdout
        assert server.account(4).transfers == 1
        browser.do("goto", server.ready["service"])
        browser.sees("main", "GET /users/{id}", "0.05 devUSDC.e", "cronos-testnet")
        assert browser.run(AXE) == []
        browser.do("goto", "about:blank")


def test_behind_a_control_token_the_page_asks_for_it(browser: Browser) -> None:
    with started("--host", "0.0.0.0", "--control-token", "secret", "--quiet") as server:
        url = f"{server.ready['control']}/ui"
        browser.open(url, "needs the control token")
        browser.do("type", "[name=token]", "secret")
        browser.do("keyboard.press", "Enter")
        browser.sees("#link", "live")
        server.http.headers["Authorization"] = "Bearer secret"
        server.account(1).paid()
        browser.sees(".lane .who", "account 1")
        browser.do("goto", "about:blank")
    browser.said = [each for each in browser.said if "401" not in each]


def test_copied_tests_and_scenarios_run_unchanged(
    browser: Browser, server: Server, tmp_path: Path
) -> None:
    for wrong in ("", "amount", "signature", "expired", "replay", "funds"):
        assert server.http.post("/_sim/ui/pay", json={"wrong": wrong}).status_code == 200
    lost = {"victim": "facilitator", "does": "lose answer", "path": "/v2/x402/verify"}
    server.http.post("/_sim/faults", json=lost)
    server.http.post("/_sim/ui/pay", json={"buys": MARKET, "account": 2})
    server.http.post("/_sim/ui/pay", json={"session": True, "account": 2})
    browser.do("setViewport", {"width": 1400, "height": 4000})
    browser.sees(".lane .what", "/api/sessions/create")
    texts = copied(browser)
    scenarios = {what: text for what, text in texts.items() if what.endswith("scenario")}
    assert len(scenarios) == len(texts) / 2 > 15
    for number, (what, text) in enumerate(texts.items()):
        file = tmp_path / f"{'play' if what in scenarios else 'test'}_{number}.py"
        file.write_text(text)
        if what in scenarios:
            assert World().play(str(file)).outcome == "passed", text
    command = [sys.executable, "-m", "pytest", "-q", "--rootdir", str(tmp_path), str(tmp_path)]
    tested = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert f"{len(scenarios)} passed" in tested.stdout, tested.stdout
    (half,) = [text for text in scenarios.values() if "price_base - 5000" in text]
    (tmp_path / "half.py").write_text(half)
    deaf = World(without=(("verification", "5/exact-amount"),))
    assert deaf.play(str(tmp_path / "half.py")).outcome == "failed", "it would notice"


BUYS = ({}, {"wrong": "amount"}, {"buys": MARKET}, {"session": True, "account": 3})


@pytest.mark.parametrize("network", [TESTNET, BASE_SEPOLIA], ids=lambda it: it.name)
def test_what_is_copied_with_viem_buys_the_same(
    browser: Browser, network: Network, tmp_path: Path
) -> None:
    """From the account that paid, once, rightly, with published packages; a deposit cannot be paid so."""
    with hosted(network=network) as server:
        browser.open(f"{server.ready['control']}/ui")
        for what in BUYS:
            server.http.post("/_sim/ui/pay", json={"account": 2} | what)
        browser.sees(".lane .what", "/api/sessions/create")
        texts = {*copied(browser, "fetch with viem").values()}
        assert len(texts) == 3, "a quote, the market, and a quote that nobody paid for"
        before = [server.account(n).transfers for n in range(4)]
        for number, text in enumerate(texts):
            (folder := tmp_path / str(number)).mkdir()
            program = programs.in_node(text, folder)
            done = subprocess.run(program, capture_output=True, text=True, timeout=60)
            assert done.stdout.startswith("200 {"), (text, done.stdout, done.stderr)
        more = [server.account(n).transfers - paid for n, paid in enumerate(before)]
        assert more == [1, 0, 2, 0]
        browser.do("goto", "about:blank")


def test_a_reload_changes_nothing(browser: Browser, server: Server) -> None:
    """Not one lane, nor its details, after all that can happen; what is seen comes bit by bit."""

    def pay(**how: Any) -> None:
        server.http.post("/_sim/ui/pay", json=how)

    def seen() -> list[tuple[str, str]]:
        browser.sees("#count", "25 of 25")
        sleep(1)
        found = [(lane, detail) for lane, detail in browser.run(EACH_LANE)]
        browser.do("click", "#detail button")
        return sorted(found)

    for name in MISTAKES:
        pay(wrong=name, account=2)
    pay(account=3, session=True)
    server.http.get("/api/perp/market")
    one_step = PaymentAuth(server.account(5).wallet, max_amount="1.00", version=2)
    httpx.get(f"{server.ready['service']}/api/perp/market", auth=one_step)
    for victim, path in (("facilitator", "/settle"), ("service", "/api/pay")):
        server.sim("faults", victim=victim, does="lose answer", path=path)
        pay(account=5)
    sleep(0.5)
    server.sim("indexer/run")
    number = server.sim("snapshot")["snapshot"]
    pay(account=6)
    sleep(0.5)
    server.sim("revert", snapshot=number)
    pay(account=6)
    server.sim("reset")
    payer = server.account(7)
    payer.quote(payer.paid())
    pay(wrong="replay")
    server.sim("indexer/run")
    server.sim("reorg", depth=1)
    before = seen()
    browser.do("reload")
    browser.sees("#link", "live")
    after = seen()
    assert len(before) == 25
    for one, other in zip(before, after, strict=True):
        assert one == other, list(
            unified_diff("\n".join(one).splitlines(), "\n".join(other).splitlines(), n=1)
        )


OF_A_SESSION = """
const { Model, left } = await import(new URL("ui/model.js", location.href));
const model = new Model(), session_id = "s", found = [];
const happened = [
  ["session opened", { payment_id: "p", deposited_base: 100 }], ["session debited", { released_base: 30 }],
  ["session refunded", { amount_base: 70, tx_hash: "1" }], ["session refunded", { amount_base: 70, tx_hash: "1" }],
  ["debit undone", { released_base: 20 }], ["session refunded", { amount_base: 10, tx_hash: "2" }],
  ["refund undone", { amount_base: 10, tx_hash: "2" }], ["session refunded", { amount_base: 10, tx_hash: "3" }],
  ["refund undone", {}],
];
for (const [seq, [event, more]] of happened.entries()) {
  model.event({ event, seq, at_ms: seq, session_id, ...more });
  found.push(left(model.sessions.get(session_id)));
}
return found;
"""


def test_each_refund_of_a_session_is_added_and_taken_back_alone(
    browser: Browser, server: Server
) -> None:
    """One may be recorded by two services; an old journal does not name what was undone."""
    found = browser.run(f"return page.evaluate(async () => {{{OF_A_SESSION}}})")
    assert found == [100, 70, 0, 0, 10, 0, 10, 0, 80]


OF_AN_OUTCOME = """
const { Model, status } = await import(new URL("ui/model.js", location.href));
const { advice } = await import(new URL("ui/detail.js", location.href));
return ["settle_exact_node_failure", "insufficient_funds"].map((errorReason) => {
  const authorization = { from: "0x1", to: "0x2", value: "1", nonce: "0x" + "a".repeat(64) };
  const payment = { x402Version: 2, accepted: {}, payload: { signature: "0x", authorization } };
  const sent = { headers: [], body: JSON.stringify({ paymentPayload: payment }) };
  const answered = { headers: [], body: JSON.stringify({ success: false, errorReason }) };
  const seen = { path: "/facilitator/settle", status: 200, at_ms: 1, ms: 1, seen: [], sent, answered };
  const model = new Model();
  model.take("exchanges", seen);
  return [status(model.lanes[0]), advice(model.lanes[0])];
});
"""


def test_after_an_unknown_word_of_settle_a_payment_is_open(
    browser: Browser, server: Server
) -> None:
    (open_, do), (over, fund) = browser.run(
        f"return page.evaluate(async () => {{{OF_AN_OUTCOME}}})"
    )
    assert (open_, over) == ("pending", "refused")
    assert "Sign no other" in do
    assert "Fund" in fund


def test_what_was_served_and_is_forgotten_says_so(
    browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("x402sim.serving.page.MOST_SERVED", 2)
    monkeypatch.setattr("x402sim.serving.page.MAX_EXCHANGES", 1)
    with hosted() as server:
        payer = server.account(1)
        for _ in range(4):
            payer.quote(payer.paid())
        payer.paid()
        browser.open(f"{server.ready['control']}/ui")
        browser.sees("#count", "5 of 5")
        steps = browser.run(
            "return page.$$eval('.lane .step:nth-child(7)', (all) => all.map((it) => it.className))"
        )
        assert sorted(steps) == ["step not", *["step unknown"] * 2, *["step yes"] * 2]
        browser.run("await page.$eval('.lane:has(.step.unknown)', (it) => it.click())")
        browser.sees("#detail .stages", "no longer known")
        browser.do("goto", "about:blank")


def test_a_served_payment_that_the_chain_undoes_was_served(
    browser: Browser, tmp_path: Path
) -> None:
    journal, quote = Journal(), {"to": "service", "method": "POST", "path": "/api/perp/quote"}
    shown = RequestSent(actor="alice", exchange=1, payment_id="pay_1", **quote)
    paid = {"payer": "0x01", "amount_base": 10_000, "resource": quote["path"], "tx_hash": "0x02"}
    for at_ms, event in enumerate(
        (
            PaymentSettled(payment_id="pay_1", **paid),
            shown,
            AnswerReceived(actor="alice", exchange=1, to="service", status=200),
            PaymentUndone(payment_id="pay_1"),
        )
    ):
        journal.record(1_800_000_000_000 + at_ms, event)
    journal.save(tmp_path / "journal.ndjson")
    with saved_run(browser, tmp_path, "#payment=pay_1"):
        browser.sees(".badge.pending", "pending")
        browser.sees("#detail .note", "The chain has undone its transfer")
        steps = browser.run(
            "return page.$$eval('#detail .stages li', (all) => all.map((it) => it.className))"
        )
        assert steps == [*["yes"] * 4, "not", "not", "yes", "not"]
        browser.do("goto", "about:blank")


def test_after_a_restart_the_lanes_say_what_the_database_knows(
    browser: Browser, tmp_path: Path
) -> None:
    options = ("--quiet", "--db", str(tmp_path / "world.db"))
    with started(*options) as server:
        paid = server.account(1).paid()
        server.account(1).quote(paid)
        server.account(2).open()
        server.sim("indexer/run")
    with started(*options) as server:
        browser.open(f"{server.ready['control']}/ui#payment={paid}")
        browser.sees("#count", "2 of 2")
        browser.sees(".lane .who", "account 1", "account 2")
        browser.sees("#detail", "/api/perp/quote", "0.01", "no longer known", "in the database")
        server.account(1).quote(paid)
        browser.sees(".badge.served", "served")
        browser.view("state")
        browser.sees("#state", "0.03 devUSDC.e left of 0.03")
        browser.do("goto", "about:blank")


def test_what_was_seen_is_saved_as_har(browser: Browser, server: Server) -> None:
    """Its schema is the published one of HAR 1.2."""
    from jsonschema import Draft6Validator
    from referencing import Registry
    from referencing.jsonschema import DRAFT6

    browser.run("""
      await page.evaluate(() => {
        URL.createObjectURL = (blob) => { window.saved = blob; return "#payments"; };
      })
    """)
    server.account(1).paid()
    server.http.get("/api/perp/market?x=1", headers={"Authorization": "Bearer s3cret"})
    odd = "\x9b\u202e\x03\n".encode() + b"\xff"
    server.http.post("/api/pay", headers={"X-Payment-Id": "pay_x"}, content=odd)
    browser.sees(".lane .what", "?x=1")
    browser.sees("#count", "3 of 3")
    browser.do("click", "#har")
    text: str = browser.run("return page.evaluate(() => window.saved.text())")
    assert re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", text) is None, "safe to paste"
    har = json.loads(text)
    folder = programs.FOLDER / "npm_page" / "node_modules" / "har-schema" / "lib"
    schemas = [json.loads(file.read_text()) for file in folder.glob("*.json")]
    known = Registry().with_resources(
        (each["$id"], DRAFT6.create_resource(each)) for each in schemas
    )
    (whole,) = [each for each in schemas if each["$id"] == "har.json#"]
    Draft6Validator(whole, registry=known).validate(har)
    asked, paid, market, strange = har["log"]["entries"]
    assert [each["response"]["status"] for each in (asked, paid, market)] == [402, 200, 402]
    assert b64decode(strange["request"]["postData"]["comment"].split()[-1]) == odd
    assert json.loads(paid["request"]["postData"]["text"])["paymentId"]
    assert market["request"]["queryString"] == [{"name": "x", "value": "1"}]
    assert "s3cret" not in json.dumps(har)


def test_a_refusal_that_was_before_the_page_is_explained_by_its_link(browser: Browser) -> None:
    with hosted() as server:
        server.http.post("/_sim/ui/pay", json={"wrong": "payee"})
        (refused,) = [each for each in server.journal() if each["event"] == "payment refused"]
        browser.open(f"{server.ready['control']}/ui#payment={refused['payment_id']}")
        browser.sees("#detail", "5/exact-recipient", "POST /api/pay")
        forms = (
            "return page.$$eval('select[aria-label=as] option', (all) => all.map((it) => it.value))"
        )
        assert browser.run(forms)[:4] == ["curl", "Python", "a test", "a scenario"]
        browser.do("goto", "about:blank")


def test_a_scenario_is_played_from_the_page(browser: Browser, server: Server) -> None:
    browser.view("steering")
    browser.sees("form[aria-label='Play a scenario']", "Play it here")
    browser.do("select", "[name=scenario]", "session_exhaustion")
    browser.sees("form[aria-label='Play a scenario']", "until you give the time back")
    browser.do("click", "form[aria-label='Play a scenario'] button")
    done = "() => /passed; 17 of 17/.test(document.getElementById('said').innerText)"
    browser.run(f"await page.waitForFunction({done}, {{ timeout: 60000 }})")
    browser.sees("#alarm", "2 h ahead")
    browser.view("payments")
    browser.sees(".badge.served", "served")
    browser.do("click", "#back")
    browser.run("await page.waitForFunction(() => document.getElementById('alarm').hidden)")
    browser.sees(".lane .past", "before the reset")
    server.account(0).paid()
    browser.sees(".lane:not(.over) .who", "account 0")


def test_a_saved_run_is_played_back_and_forth(browser: Browser, tmp_path: Path) -> None:
    """Served by `open`, and in the frame of a notebook, which reaches nothing."""
    run = World().play("lost_answer")
    run.journal.save(tmp_path / "journal.ndjson")
    (lost, *_) = [each.event for each in run.journal.of(SettlementAnswerLost)]
    assert isinstance(lost, SettlementAnswerLost)
    (tmp_path / "cell.html").write_text(f"<!doctype html>{run.show()._repr_html_()}")
    with saved_run(browser, tmp_path, f"#payment={lost.payment_id}"):
        browser.sees("#detail", lost.payment_id)
        browser.sees("#detail .note", "answer did not arrive")
        browser.press("#moment", "Home")
        browser.sees("#at", "0 of")
        browser.sees("#count", "0 of 0")
        browser.do("keyboard.press", "ArrowRight")
        browser.do("keyboard.press", "Space")
        browser.sees("#play", "Pause")
        browser.sees("#detail", lost.payment_id)
        browser.do("keyboard.press", "Space")
        browser.sees("#play", "Play")
        assert browser.run(AXE) == []
        browser.press("#moment", "End")
        browser.sees("#at", "end")
        browser.run(
            "await new Promise((done) => setTimeout(done, 1500))"
        )  # drawn anew, by any machine
        # The click on the chosen lane draws the details anew before the browser's event `toggle`.
        click = "const click = (what) => document.querySelector(what).click();"
        both = "click('#detail summary'); click('.lane[aria-selected=\"true\"]');"
        is_open = "return document.querySelector('#detail details').open;"
        for expected in (True, False, True):
            found = browser.run(f"return page.evaluate(() => {{ {click} {both} {is_open} }})")
            assert found is expected
        browser.do("focus", "#moment")
        browser.run("for (let n = 0; n < 3; n++) await page.keyboard.press('ArrowLeft')")
        size = run.journal.length
        browser.sees("#at", f"{size - 3} of {size}")
        assert browser.run("return page.$eval('#detail details', (it) => it.open)"), "it stays open"
        # A click between a move of the slider and the next drawing chooses the lane of the new moment.
        back = "const it = document.querySelector('#moment'); it.value = +it.value - 1;"
        back += "it.dispatchEvent(new Event('input')); await new Promise(requestAnimationFrame);"
        chosen = browser.run(
            f"return page.evaluate(async () => {{ {click} {back} click('.lane[aria-selected]');"
            "return document.querySelector('#detail').innerText; })"
        )
        assert "In the journal: " in chosen
        drag = "const { x, y, width } = await (await page.$('#moment')).boundingBox();"
        drag += "await page.mouse.move(x + width - 9, y + 9); await page.mouse.down();"
        drag += "await page.mouse.move(x + width / 2, y + 9, { steps: 5 }); await page.mouse.up();"
        browser.run(drag)
        browser.sees("#at", f"{size // 2} of")
        browser.do("select", "#status", "asked")
        browser.sees("#count", "0 of")
        overlap = "const [a, b] = ['#empty', '#detail'].map((it) => document.querySelector(it)"
        overlap += ".getBoundingClientRect()); return a.right <= b.left || a.bottom <= b.top;"
        assert browser.run(f"return page.evaluate(() => {{ {overlap} }})"), "side by side"
    browser.do("goto", (tmp_path / "cell.html").as_uri())
    inside = "const frame = await (await page.waitForSelector('iframe')).contentFrame();"
    count = (
        "await frame.waitForSelector('.lane'); return frame.$eval('#count', (it) => it.innerText)"
    )
    assert browser.run(inside + count).startswith("4 of 4")
    state = "await frame.click('a[href=\"#state\"]'); await frame.waitForSelector('#state table');"
    assert browser.run(f"{inside}{state} return frame.url()") == "about:srcdoc"
    (tmp_path / "page.html").write_text(run.show().page)
    browser.do("goto", (tmp_path / "page.html").as_uri())
    browser.sees("#count", "4 of 4")
    browser.run("await page.$eval('.lane', (it) => it.click())")
    assert "page.html#payment=" in browser.run("return page.url()")
    browser.do("reload")
    browser.sees("#detail", "status")
    browser.do("goto", "about:blank")
