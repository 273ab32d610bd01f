"""Headless Chromium for the tests of pages: what a person does there, and sees.

`PAGE_SHOTS=FOLDER pytest -m thorough FILE` keeps the pictures: look at them as a user would.
"""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.interop import programs
from tests.serve.driver import Running

AXE = """
const { readFile } = await import('node:fs/promises');
const { createRequire } = await import('node:module');
const axe = createRequire(process.argv[1]).resolve('axe-core/axe.min.js');
await page.evaluate(await readFile(axe, 'utf8'));
const { violations } = await page.evaluate(() => axe.run());
return violations.map(({ id, nodes }) => [id, nodes.map(({ html }) => html)]);
"""
EACH_LANE = """
return page.evaluate(() => {
  const box = document.getElementById("lanes"), told = [];
  box.focus();
  let last = null;
  for (;;) {
    box.dispatchEvent(new KeyboardEvent("keydown", { key: "ArrowDown" }));
    const chosen = document.querySelector('.lane[aria-selected="true"]');
    if (!chosen || chosen.id === last) return told;
    last = chosen.id;
    told.push([chosen.innerText, document.getElementById("detail").innerText]);
  }
})
"""
"""The text of each lane, and its details."""


class Browser:
    """One page of a browser; `said` is what it complained of."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            programs.command("npm_page/drive.mjs"),
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

    def do(self, method: str, *arguments: Any) -> None:
        """Call a method of `page`."""
        self.run(f"await page.{method}(...{json.dumps(arguments)})")

    def view(self, name: str) -> None:
        """Go to a view, and wait until it is shown: what is hidden takes no keys."""
        self.do("click", f'a[href="#{name}"]')
        self.do("waitForSelector", f"#{name}", {"visible": True})

    def wish(self, name: str) -> None:
        """Open a part of Steering, which closes the others."""
        self.do("click", f"::-p-xpath(//summary[h2='{name}'])")

    def press(self, where: str, *keys: str) -> None:
        self.do("focus", where)
        for key in keys:
            self.do("keyboard.press", key)

    def open(self, url: str, state: str = "live") -> None:
        self.do("goto", "about:blank")
        self.do("goto", url)
        self.sees("#link", state)

    def sees(self, where: str, *texts: str) -> None:
        """Wait until elements that match show these texts."""
        found = "(where, text) => [...document.querySelectorAll(where)].some("
        found += "(each) => each.innerText.includes(text))"
        for text in texts:
            asked = json.dumps([where, text])[1:-1]
            shown = f"await page.$$eval({json.dumps(where)}, (all) => all.map((each) => each.innerText))"
            self.run(
                f"try {{ await page.waitForFunction({found}, {{}}, {asked}) }}"
                f" catch (error) {{ throw new Error(`${{error}}; shown: ${{JSON.stringify({shown})}}`) }}"
            )

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(20)
        self._process.stdout.close()


def picture(browser: Browser, tmp_path: Path, name: str) -> Path:
    file = Path(os.environ.get("PAGE_SHOTS", tmp_path)) / f"{name}.png"
    browser.do("screenshot", {"path": str(file)})
    return file


@contextmanager
def saved_run(browser: Browser, folder: Path, anchor: str = "") -> Iterator[None]:
    """Show a saved run, which `open` serves, as far as `anchor`."""
    with Running("open", str(folder)) as running:
        browser.do("setViewport", {"width": 1400, "height": 900})
        browser.open(running.line().split()[-1] + anchor, "saved run")
        yield
        browser.do("goto", "about:blank")  # an open page asks a server that is gone
        running.end(signal.SIGINT)
