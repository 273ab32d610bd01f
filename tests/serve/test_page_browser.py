"""The live page in headless Chromium: what a person does there, and sees.

`PAGE_SHOTS=FOLDER pytest -m thorough FILE` keeps the pictures: look at them as a user would.
"""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from time import monotonic
from typing import Any

import httpx
import pytest

from tests.interop import node
from tests.serve.driver import Server
from tests.serve.hosted import hosted

pytestmark = [pytest.mark.thorough, pytest.mark.timeout(400)]  # npm installs Chromium, of 65 MB
HOSTILE = "<script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">"


class Browser:
    """One page of a browser; `said` is what it complained of."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            node.command("npm_page/drive.mjs"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.said: list[str] = []

    def run(self, body: str) -> Any:
        """Run JavaScript in the driver, with `page`; return its result."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(body) + "\n")
        self._process.stdin.flush()
        told = json.loads(self._process.stdout.readline())
        self.said += told["said"]
        assert "failed" not in told, (body, told)
        return told.get("returned")

    def open(self, url: str) -> None:
        self.run(f"await page.goto('about:blank'); await page.goto({json.dumps(url)})")
        self.sees("#link", "live")

    def sees(self, where: str, text: str) -> None:
        """Wait until an element that matches shows a text."""
        found = "(where, text) => [...document.querySelectorAll(where)].some("
        found += "(each) => each.innerText.includes(text))"
        asked = json.dumps([where, text])[1:-1]
        self.run(f"await page.waitForFunction({found}, {{}}, {asked})")

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(20)
        self._process.stdout.close()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    browser = Browser()
    yield browser
    browser.close()
    assert browser.said == []


@pytest.fixture
def server(browser: Browser) -> Iterator[Server]:
    with hosted() as running:
        browser.run("await page.setViewport({ width: 1400, height: 900 })")
        browser.open(f"{running.ready['control']}/ui")
        yield running
        browser.run("await page.goto('about:blank')")


def test_a_payment_is_seen_within_a_second_and_explained_by_a_click(
    browser: Browser, server: Server
) -> None:
    began = monotonic()
    payment_id = server.account(1).paid()
    browser.sees(".lane .who", "account 1")
    assert monotonic() - began < 1
    server.account(1).quote(payment_id)
    browser.sees(".badge.served", "served")
    browser.run(f"await page.type('#search', '{payment_id.lower()}'); await page.click('.lane')")
    for text in (
        payment_id,
        "10000 = 0.01",
        "transferWithAuthorization",
        "gas",
        "AuthorizationUsed",
    ):
        browser.sees("#detail", text)
    browser.run(
        "await page.$eval('#search', (it) => { it.value = ''; it.dispatchEvent(new Event('input')); })"
    )
    browser.run("await page.focus('#lanes'); await page.keyboard.press('Home')")
    assert browser.run("return page.$eval('#lanes', (it) => it.ariaActiveDescendantElement?.id)")


def test_paying_wrongly_from_the_page_is_refused_and_explained(
    browser: Browser, server: Server
) -> None:
    browser.run(
        "await page.click('a[href=\"#steering\"]'); await page.select('[name=account]', '4')"
    )
    browser.run("await page.select('[name=wrong]', 'amount')")
    browser.run("await page.click('form[aria-label=Pay] button')")
    browser.sees("#said", "400")
    browser.sees("#same", "--account 4 --wrong amount")
    browser.run("await page.click('a[href=\"#payments\"]')")
    browser.sees(".lane.refused .why", "wanted 10000, got 5000")
    browser.run("await page.click('.lane.refused')")
    for text in ("5/exact-amount", "7/invalid-signature", "Do:", "nothing was charged"):
        browser.sees("#detail .refusal", text)
    browser.sees("#detail tr.odd", "5000 = 0.005")
    browser.run("await page.click('#detail details summary')")
    browser.sees("#detail details", "paymentRequirements")
    assert server.account(4).transfers == 0


def test_a_fault_injected_from_the_page_strikes_and_is_counted(
    browser: Browser, server: Server
) -> None:
    browser.run("await page.click('a[href=\"#steering\"]')")
    browser.run("await page.select('[name=path]', '/v2/x402/settle')")
    browser.run("await page.click('form[aria-label=Faults] button')")
    browser.sees("#same", 'Fault(victim="facilitator", does="lose answer", path="/v2/x402/settle"')
    browser.sees("#faults", "0 of 1")
    (fault,) = server.http.get("/_sim/faults").json()
    assert (fault["victim"], fault["does"], fault["times"]) == ("facilitator", "lose answer", 1)
    browser.run("await page.click('form[aria-label=Pay] button')")
    browser.sees("#said", "200")
    browser.sees("#faults", "1 of 1")
    assert server.account(0).transfers == 1
    browser.run("await page.click('form[aria-label=Time] p button')")
    browser.sees("#alarm", "1 min ahead")
    browser.run("await page.click('a[href=\"#state\"]')")
    browser.sees("#state", "999.99")


def test_text_of_others_stays_text(browser: Browser, server: Server) -> None:
    account = server.account(5)
    asked = account.ask()
    http = httpx.Client(base_url=server.ready["service"], headers={"User-Agent": HOSTILE})
    answer = http.post("/api/pay", json={**account.settlement(asked), HOSTILE: HOSTILE})
    http.post(f"/api/{HOSTILE}", headers={"X-Payment-Id": HOSTILE}, json={"pair": HOSTILE})
    http.post(
        "/facilitator/verify",
        json={"paymentPayload": {"payload": {"from": HOSTILE, "nonce": HOSTILE}}},
    )
    server.http.post("/_sim/reset")
    http.close()
    assert answer.status_code in (200, 400)
    browser.sees(".lane", "<script>")
    count = browser.run("return page.$$eval('.lane', (all) => all.length)")
    for n in range(count):
        browser.run(f"await page.$eval('.lane:nth-child({n + 1})', (lane) => lane.click())")
        browser.run(
            "await page.$$eval('#detail details', (all) => all.forEach((it) => { it.open = true; }))"
        )
    assert browser.run("return page.title()") == "x402sim, cronos-testnet"
    assert browser.run("return page.$$eval('main script, main img', (all) => all.length)") == 0


@pytest.mark.parametrize("width", [400, 1400])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_view_is_wider_than_the_window_and_all_text_has_contrast(
    browser: Browser, server: Server, tmp_path: Path, width: int, scheme: str
) -> None:
    feature = json.dumps([{"name": "prefers-color-scheme", "value": scheme}])
    browser.run(f"await page.emulateMediaFeatures({feature})")
    browser.run(f"await page.setViewport({{ width: {width}, height: 900 }})")
    for body in ({}, {"account": 1, "wrong": "amount"}, {"account": 2, "buys": "session"}):
        assert server.http.post("/_sim/ui/pay", json=body).status_code == 200
    server.advance(90)
    browser.sees(".badge.refused", "refused")
    folder = Path(os.environ.get("PAGE_SHOTS", tmp_path))
    for view in ("payments", "refused", "state", "steering"):
        if view == "refused":
            browser.run("await page.$eval('.lane.refused', (lane) => lane.click())")
        else:
            browser.run(f"await page.click('a[href=\"#{view}\"]')")
        browser.sees(
            *{"state": ("#state", "Accounts"), "refused": ("#detail", "Do:")}.get(
                view, ("h1", "x402sim")
            )
        )
        file = folder / f"{view}-{width}-{scheme}.png"
        browser.run(f"await page.screenshot({{ path: {json.dumps(str(file))} }})")
        assert file.stat().st_size > 10_000
        assert (
            browser.run("return page.evaluate(() => document.documentElement.scrollWidth)") <= width
        )
        assert browser.run(f"return page.evaluate({CONTRAST})") == []


CONTRAST = r"""() => {
  const rgb = (text) => (text.match(/[\d.]+/g) ?? []).map(Number);
  const light = ([r, g, b]) => [r, g, b].map((c) => c / 255)
    .map((c) => (c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4))
    .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = (node) => {
    for (let at = node; at; at = at.parentElement) {
      const [r, g, b, a = 1] = rgb(getComputedStyle(at).backgroundColor);
      if (a === 1) return [r, g, b];
    }
    return [255, 255, 255];
  };
  const bad = [];
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const node = texts.currentNode.parentElement, style = getComputedStyle(node);
    const isShown = node.checkVisibility() && texts.currentNode.data.trim();
    if (!isShown || node.tagName === "OPTION" || style.fontSize === "0px") continue;
    const [a, b] = [light(rgb(style.color)), light(behind(node))].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    if (ratio < 4.5) bad.push([texts.currentNode.data.slice(0, 40), ratio.toFixed(2)]);
  }
  return bad;
}"""
