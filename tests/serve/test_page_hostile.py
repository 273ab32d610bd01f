"""The page and what others send: whatever a message holds, it is text, and what comes later is drawn."""

import json
import random
from base64 import b64encode
from typing import Any

import httpx
import pytest

from tests.serve.browser import EACH_LANE, Browser
from tests.serve.driver import PAY, QUOTE, Server

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
    drawn = browser.run(EACH_LANE)
    assert len(drawn) > 200
    assert [each for each in drawn if "cannot be shown" in "".join(each)] == []
    assert any("account 1" in lane for lane, _ in drawn[:3])
    assert browser.said == []
