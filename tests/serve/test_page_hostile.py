"""The page and what others send: whatever a message holds, it is text, and what comes later is drawn."""

import fcntl
import json
import os
import pty
import random
import re
import subprocess
import sys
import termios
from base64 import b64encode
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests import npm
from tests.serve.browser import EACH_LANE, Browser
from tests.serve.driver import PAY, QUOTE, Server, exchange
from tests.serve.test_page_browser import copied

pytestmark = [pytest.mark.thorough, pytest.mark.timeout(400)]  # npm installs Chromium, of 65 MB

ODD: tuple[Any, ...] = (
    {"toString": 1},
    {"toString": None, "valueOf": {}},
    {"__proto__": None, "constructor": {"prototype": 1}},
    {"toJSON": "x", "then": 1},
    [],
    [[{"toString": []}]],
    None,
    True,
    0,
    -1,
    1.5,
    -1e300,
    10**40,
    "",
    "abc",
    "-1",
    "0x10",
    "1e5",
    "__proto__",
    "constructor",
    "\ud800",
    "\u202e<b>\x00\x1b[31m\x9b",
    "9" * 4000,
    "x" * 5000,
    json.loads("[" * 900 + "]" * 900),
)
FIELDS = ("from", "to", "value", "validAfter", "validBefore", "nonce")
WANTED = (
    "payTo",
    "asset",
    "network",
    "scheme",
    "maxAmountRequired",
    "maxTimeoutSeconds",
    "resource",
)


NAMES = """
return page.evaluate(async () => {
  const found = [];
  navigator.clipboard.writeText = async (text) => { found.push(text); };
  document.querySelector(".lane").click();
  for (const button of document.querySelectorAll("#detail dl button")) button.click();
  await new Promise((done) => setTimeout(done, 100));
  return found;
})
"""
"""The ids of the first lane, as they are copied."""


def sent_to(server: Server, body: Any, path: str = "/facilitator/verify") -> httpx.Response:
    """Send JSON as a foreign web page can: without a preflight, in ASCII."""
    headers = {"Content-Type": "text/plain"}
    return server.http.post(path, content=json.dumps(body), headers=headers)


def payment(fields: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"x402Version": 1, "scheme": "exact", "payload": {"authorization": fields}, **more}


@pytest.mark.parametrize(
    "hostile",
    [
        {"paymentPayload": payment({"from": {"toString": 1}, "nonce": "0x01"})},
        {
            "paymentPayload": payment({"nonce": "0x02"}),
            "paymentRequirements": {"resource": {"toString": 1}},
        },
        {
            "paymentPayload": payment({"nonce": "0x03", "value": {"toString": 1}}),
            "paymentRequirements": {"maxAmountRequired": {"toString": 1}, "amount": 1},
        },
    ],
)
def test_one_hostile_payment_is_text_and_later_ones_are_drawn(
    browser: Browser, shown: Server, hostile: Any
) -> None:
    sent_to(shown, hostile)
    browser.sees("#count", "1 of 1")
    shown.account(1).paid()
    browser.sees(".lane .who", "account 1")
    browser.do("reload")
    browser.sees(".lane .who", "account 1")
    drawn = browser.run(EACH_LANE)
    assert len(drawn) == 2
    assert '{"toString":1}' in "".join(drawn[1]), "what was sent is shown as it is"
    assert browser.said == []


@pytest.mark.parametrize(
    ("field", "value", "told"),
    [
        ("value", "abc", "abc (no whole number)"),
        ("value", 1.5, "1.5 (a number) (no whole number)"),
        ("value", "", " (no whole number)"),
        ("validBefore", -1e300, "-1e+300 (a number) (no time)"),
        ("validBefore", "1e5", "1e5 (no time)"),
        ("validAfter", "-5", "-5 (no time)"),
        ("validAfter", str(10**40), "after the year 9999"),
    ],
)
def test_what_is_no_amount_or_no_time_is_shown_as_wrong(
    browser: Browser, shown: Server, field: str, value: Any, told: str
) -> None:
    fields = {"value": "10000", "validAfter": "0", "validBefore": "1900000000", "nonce": "0x05"}
    terms = {"maxAmountRequired": "10000", "maxTimeoutSeconds": 300}
    asked: dict[str, Any] = {
        "paymentPayload": payment(fields | {field: value}),
        "paymentRequirements": terms,
    }
    sent_to(shown, asked)
    browser.sees("#count", "1 of 1")
    browser.run("await page.$eval('.lane', (it) => it.click())")
    browser.sees("#detail tr.odd", told.strip())
    assert browser.said == []


def test_whatever_a_message_holds_its_lane_is_drawn(browser: Browser, shown: Server) -> None:
    """Three hundred messages with fields of any kind, in each place that the page reads."""
    draw = random.Random(37)

    def odd(**right: Any) -> dict[str, Any]:
        return {
            name: draw.choice(ODD) if draw.random() < 0.6 else each for name, each in right.items()
        }

    terms = dict.fromkeys(WANTED, "1")
    for n in range(300):
        nonce = f"{n:064x}"
        said = payment({**odd(**dict.fromkeys(FIELDS, "1")), "nonce": f"0x{nonce}"})
        said |= odd(scheme="exact", network="cronos-testnet")
        if n % 3 == 0:
            said |= {"accepted": odd(**terms, extra={"paymentId": draw.choice(ODD)})}
            said |= {"resource": draw.choice([{"url": draw.choice(ODD)}, draw.choice(ODD)])}
        header = b64encode(json.dumps(said).encode()).decode()
        wanted = draw.choice([odd(**terms), draw.choice(ODD)])
        match n % 4:
            case 0:
                sent_to(shown, {"paymentPayload": said, "paymentRequirements": wanted})
            case 1:
                asked = {"paymentId": draw.choice(ODD), "paymentHeader": header}
                sent_to(shown, asked | {"paymentRequirements": wanted}, PAY)
            case 2:
                shown.http.post(QUOTE, headers={"X-PAYMENT": header}, content=json.dumps(wanted))
            case _:
                sent_to(shown, draw.choice(ODD), PAY)
                proof = {"X-Payment-Id": draw.choice(["__proto__", "constructor", f"pay_{n}"])}
                shown.http.get("/api/perp/market", headers=proof)
    shown.account(1).paid()
    browser.sees(".lane .who", "account 1")
    browser.do("reload")
    browser.sees(".lane .who", "account 1")
    more = "() => parseInt(document.getElementById('count').innerText) > 200"  # requests come last
    browser.do("waitForFunction", more)
    drawn = browser.run(EACH_LANE)
    assert len(drawn) > 200
    assert [each for each in drawn if "cannot be shown" in "".join(each)] == []
    assert any("account 1" in lane for lane, _ in drawn[:3])
    assert browser.said == []


REQUESTS: dict[str, tuple[str, dict[str, bytes], bytes]] = {
    "control characters": (PAY, {}, b'{"paymentId": "a\x03\ntouch owned\n\x1b[31m\t\x7f"}'),
    "all of a shell": (PAY, {}, b"-n 100%% '\\' \\x41 $HOME `id` !! \"\"\n"),
    "a dash in printf": (PAY, {}, b"-v\x07x"),
    "no UTF-8": (PAY, {}, bytes(range(256))),
    "unseen characters": (
        PAY,
        {},
        "\u00fc \u202e \u2028 \u200b \U000e0041 \U0001f600 \x9b".encode(),
    ),
    "a file": (PAY, {}, b"@/etc/hostname"),
    "JSON with more digits": (QUOTE, {}, b'{"n": 1.0, "m": 12345678901234567890, "s": "\\ud800"}'),
    "a path and a query": ("/api/a%20b%0a'c%3Fd%23/..%2f?x=[1-3]&y={a,b}'", {}, b""),
    "headers": (
        PAY,
        {"X-Odd": b"caf\xe9 '\x9b$(id)", "X-None": b"", "Content-Type": b"a/b"},
        b"{}",
    ),
}
UNSEEN = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b\u2028\u202e\U000e0041]")


def requests_seen(server: Server) -> list[dict[str, Any]]:
    """Return what the page is told; a line ends with a line feed only, also after U+2028."""
    read = b""
    with server.http.stream("GET", "/_sim/ui/events?since=999999") as answer:
        parts = answer.iter_raw()
        while read.count(b"\n\n") < 2:
            read += next(parts)
    name, *lines = read.split(b"\n\n")[1].split(b"\n")
    assert name == b"event: exchanges"
    return [json.loads(line.removeprefix(b"data: ")) for line in lines]


def as_it_was_sent(seen: dict[str, Any]) -> Any:
    """Return what a copied program must send again."""
    names = ("x-payment-id", "x-odd", "x-none", "content-type")
    headers = sorted(each for each in seen["sent"]["headers"] if each[0] in names)
    body = seen["sent"].get("base64") or seen["sent"]["body"]
    return seen["method"], seen["target"], headers, body


@pytest.mark.parametrize("what", REQUESTS)
def test_what_is_copied_sends_the_same_and_is_safe_to_paste(
    browser: Browser, shown: Server, tmp_path: Path, what: str
) -> None:
    """It has run in bash, dash and Python, and was pasted in a terminal, where ^C would end a line."""
    target, headers, body = REQUESTS[what]
    fields = {"X-Payment-Id": b"pay_1", **headers}
    head = b"".join(b"%b: %b\r\n" % (name.encode(), value) for name, value in fields.items())
    begin = f"{'POST' if body else 'GET'} {target} HTTP/1.1\r\nHost: 127.0.0.1\r\n".encode()
    length = b"Content-Length: %d\r\nConnection: close\r\n\r\n" % len(body)
    exchange(shown.address, begin + head + length + body)
    browser.sees("#count", "1 of 1")
    texts = [*browser.run(NAMES), *copied(browser, ".").values()]
    assert len(texts) >= 5
    for text in texts:
        assert not UNSEEN.search(text), text
    (curl,) = [each for each in texts if "curl -g" in each]
    (python,) = [each for each in texts if each.startswith("import httpx\n")]
    assert "\n" not in curl
    for each in texts:
        if each.startswith(("#", '"""', "import")):
            compile(each, what, "exec")
        if each.startswith("//"):
            checked = [str(npm.node()), "--input-type=module", "--check", "-"]
            subprocess.run(checked, input=each, text=True, check=True)
    assert any(each.startswith("//") for each in texts) is (target == QUOTE), "for node"
    programs = [["bash", "-c", curl], ["dash", "-c", curl], [sys.executable, "-c", python]]
    for program in programs:
        subprocess.run(program, check=True, capture_output=True, timeout=30, cwd=tmp_path)
    pasted(curl, tmp_path)
    first, *again = map(as_it_was_sent, requests_seen(shown))
    assert again == [first] * 4
    assert list(tmp_path.iterdir()) == []
    assert browser.said == []


def pasted(text: str, folder: Path) -> None:
    """Paste a text in an interactive shell, in a terminal, and press Enter."""
    ours, theirs = pty.openpty()
    shell = subprocess.Popen(
        ["bash", "--norc", "--noprofile", "-i"],
        stdin=theirs, stdout=theirs, stderr=theirs, cwd=folder, start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        env={**os.environ, "HISTFILE": "", "PS1": "", "TERM": "dumb"},
    )  # fmt: skip
    os.close(theirs)
    os.write(ours, text.encode() + b"\nexit\n")
    with suppress(OSError):  # the terminal ends with its shell
        while os.read(ours, 65536):
            pass
    assert shell.wait(30) in (0, 1, 130)
    os.close(ours)


def test_what_was_cut_is_not_copied(browser: Browser, shown: Server) -> None:
    shown.http.post(PAY, headers={"X-Payment-Id": "pay_1"}, content=b"x" * 20_000)
    browser.sees("#count", "1 of 1")
    assert copied(browser, ".") == {}
    assert browser.run(NAMES) == ["pay_1", f"{shown.ready['control']}/ui#payment=pay_1"]
    browser.run("await page.$eval('#detail summary', (it) => it.click())")
    browser.sees("#detail details", "It was longer than what is kept")
