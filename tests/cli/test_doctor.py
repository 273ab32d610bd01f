"""`doctor`: who could pay a 402, and what would stop them."""

import base64
import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from tests.cli import runner, test_decode as kinds
from tests.cli.shops import MOON, Asked, Reply, required, serving, wanted
from tests.cli.test_decode import changed
from tests.serve.driver import QUOTE
from x402sim import LocalServer
from x402sim.commands.doctor import COLUMNS
from x402sim.payer import listing
from x402sim.payer.diagnosis import examine
from x402sim.protocol.bazaar import declaration
from x402sim.protocol.crypto import checksum
from x402sim.protocol.networks import BASE_SEPOLIA, NETWORKS, TESTNET
from x402sim.protocol.offers import offers
from x402sim.protocol.permit2 import OLDER_UPTO_PROXY, UPTO_PROXY

WANTED = wanted(BASE_SEPOLIA)
REQUIRED = required(WANTED)
USDC = {"name": "USD Coin", "version": "2"}
MOON_ONLY = {"network": "moon"}
V1 = ("x402 v1, npm", "x402 v1, Python")
V2 = ("x402 v2, npm", "x402 v2, Python")
OURS = "httpx, PaymentAuth"
PAGE = b"<!doctype html><html><head><script>window.x402 = {}</script>" + b"<!-- x -->" * 230_000
HTML = {"content-type": "text/html; charset=utf-8"}
NOBODY = dict.fromkeys(("payer in two steps", *V1, *V2), False)


run = partial(runner.run, "doctor")


def examined(answer: Any, *options: str) -> dict[str, Any]:
    """What `doctor` says of a shop, which gives this answer to any request or makes one of it."""
    with serving(answer if callable(answer) else lambda _: answer) as url:
        done = run(url + "/page", "--json", *options)
    told: dict[str, Any] = json.loads(done.stdout)
    assert done.exit_code == (0 if told["ok"] else 1)
    return told


def payers(told: dict[str, Any]) -> dict[str, bool]:
    return {each["name"]: each["can_pay"] for each in told["payers"]}


def abouts(told: dict[str, Any]) -> list[str]:
    for each in told["findings"]:
        assert each["seen"]
        assert each["wanted"]
        assert each["do"].endswith((".", "/there"))
    return [each["about"] for each in told["findings"]]


def told_in(asked: Asked) -> tuple[dict[str, Any], dict[str, Any]]:
    """A right 402: the body, and what its header holds."""
    told = offers(REQUIRED, BASE_SEPOLIA, url=f"http://{asked.headers['host']}/page")
    return msgspec.to_builtins(told.body), json.loads(base64.b64decode(told.header))


def in_header(said: Any) -> dict[str, str]:
    return {"PAYMENT-REQUIRED": base64.b64encode(json.dumps(said).encode()).decode()}


def right(asked: Asked) -> Reply:
    body, header = told_in(asked)
    return Reply(402, body, in_header(header))


def only_v1(asked: Asked, **changes: Any) -> Reply:
    body, _ = told_in(asked)
    return Reply(402, {"x402Version": 1, "accepts": [body["accepts"][0] | changes]})


def only_v2(asked: Asked, **changes: Any) -> Reply:
    _, header = told_in(asked)
    accepts = [header["accepts"][0] | changes]
    return Reply(402, {}, in_header(header | {"accepts": accepts}))


def only_two_steps(asked: Asked, **changes: Any) -> Reply:
    said = msgspec.to_builtins(REQUIRED)
    said["paymentRequirements"] |= changes.pop("wanted", {})
    return Reply(402, said | changes)


def test_our_own_service_can_be_paid_by_all(server: LocalServer) -> None:
    done = run(server.url + QUOTE, "--method", "POST")
    assert done.exit_code == 0
    lines = done.stdout.splitlines()
    assert lines[0] == f"POST {server.url}{QUOTE} answered 402"
    assert lines[1].split() == " ".join(COLUMNS).split()
    to = server.info.pay_to
    terms = f"exact  cronos-testnet 0xc01e…C0e0 0.01 devUSDC.e {to[:6]}…{to[-4:]} 300 s"
    assert lines[2] == f"1  two steps {terms}"
    assert "wrong" not in done.stdout
    assert "yes payer in two steps  offer 1" in lines
    assert "yes httpx, PaymentAuth  offer 1" in lines
    says = " ".join(done.stdout.split())
    for client in V1:  # the public clients do not know the network, or the token
        assert f"no {client} " in says
    for client, control in zip(
        V2, ("`spendControls: false`", "set_spend_controls(False)"), strict=True
    ):
        assert f"no {client} offer 3: the token is none of its default ones; {control}" in says
    assert max(map(len, lines)) <= 80


@pytest.mark.parametrize(
    ("answer", "who"),
    [
        (only_two_steps, ["payer in two steps"]),
        (only_v1, V1),
        (only_v2, V2),
        (right, NOBODY),
    ],
)
def test_a_dialect_is_paid_by_its_payer_and_by_ours(answer: Any, who: list[str]) -> None:
    told = examined(answer)
    assert payers(told) == NOBODY | dict.fromkeys([*who, "httpx, PaymentAuth"], True)
    assert told["findings"] == []


@pytest.mark.parametrize(
    ("reply", "about", "says"),
    [
        (Reply(200, {"free": 1}), "status", "serves without payment"),
        (Reply(404), "status", "--method, --data"),
        (Reply(405, b"", {"allow": "POST"}), "status", "--method POST"),
        (Reply(401), "status", "--header"),
        (Reply(302, b"", {"location": "/there"}), "status", "/there"),
        (Reply(402, b"<h1>pay</h1>"), "body", "as JSON"),
        (Reply(402, {"price": 1}), "body", "a dialect that payers"),
        (Reply(402, {"x402Version": 1, "accepts": []}), "accepts", "at least one"),
        (Reply(402, {}, {"PAYMENT-REQUIRED": "%"}), "PAYMENT-REQUIRED", "as base64"),
        (Reply(402, {}, in_header({"x402Version": 1})), "PAYMENT-REQUIRED", "of version 2 there"),
        (Reply(402, b"", {"WWW-Authenticate": "L402"}), "WWW-Authenticate", "L402"),
        (Reply(402, {"error": {"message": "top up"}}), "body", "'error'"),
        (Reply(402, {"accepts": []}), "body", "no x402Version"),
        (Reply(402, {"x402Version": "1", "accepts": []}), "body", "x402Version '1'"),
        (Reply(402, PAGE, HTML), "body", "the page that the x402 SDK sends to browsers"),
    ],
)
def test_an_answer_that_nobody_can_pay(reply: Reply, about: str, says: str) -> None:
    told = examined(reply)
    assert not told["ok"]
    first = told["findings"][0]
    assert (abouts(told)[0], first["stops"]) == (about, True)
    assert says in first["do"] + first["seen"]


@pytest.mark.parametrize(
    ("shop", "changes", "about", "can_be_paid"),
    [
        (only_v1, {"network": "moon", "extra": None}, "network of offer 1", False),
        (only_v1, {"asset": WANTED.pay_to}, "asset of offer 1", False),
        (only_v1, {"extra": {"name": "USDC", "version": "1"}}, "extra.version of offer 1", False),
        (only_v1, {"extra": {"version": "2"}}, "extra.name of offer 1", True),
        (only_v1, {"resource": "https://HOST/page"}, "resource of offer 1", True),
        (only_v1, {"maxAmountRequired": "0"}, "maxAmountRequired of offer 1", True),
        (only_v1, {"network": "optimism", "extra": USDC}, "network of offer 1", False),
        (only_two_steps, {"wanted": {"resource": "/other"}}, "resource of offer 1", False),
        (only_two_steps, {"wanted": MOON_ONLY, **MOON_ONLY}, "network of offer 1", False),
        (only_two_steps, {"paymentId": 7}, "paymentId", False),
        (only_two_steps, {"message": None}, "body", False),
    ],
)
def test_what_is_odd_in_an_offer_is_told_and_may_stop_all(
    shop: Any, changes: dict[str, Any], about: str, can_be_paid: bool
) -> None:
    """What can be wrong in requirements is decode's, too, which has a test of each."""

    def answer(asked: Asked) -> Reply:
        said = json.loads(json.dumps(changes).replace("HOST", asked.headers["host"]))
        return shop(asked, **said)  # type: ignore[no-any-return]

    told = examined(answer)
    assert told["ok"] is can_be_paid
    assert about in abouts(told)
    reasons = {each["name"]: each["why"] for each in told["payers"]}
    if can_be_paid:
        assert len(told["findings"]) == 1
    elif shop is only_v1:
        assert any(about.removesuffix(" of offer 1") in reasons[client] for client in V1)


def offering(*accepts: Any) -> Any:
    """A shop that offers these in version 2, or in version 1 if they are of that."""
    said: dict[str, Any] = {"x402Version": 1, "accepts": accepts}
    if "amount" not in accepts[0]:
        return lambda asked: Reply(402, said)
    about = {"url": "http://shop.example/page"}
    return lambda asked: Reply(402, {}, in_header(said | {"x402Version": 2, "resource": about}))


USDC_V1, USDC_V2 = map(msgspec.to_builtins, (kinds.USDC_V1, kinds.USDC_V2))
AT_137 = USDC_V1 | {"network": "eip155:137"}
UPTO = {"scheme": "upto"}
BY_PERMIT2 = USDC_V2 | {"extra": {"assetTransferMethod": "permit2"}}
SETTLES = {"facilitatorAddress": "0x7E5F4552091A69125d5DfCb7b8C2659029395Bdf"}
TOLD = "the same, permit2=True"


@pytest.mark.parametrize(
    ("accepts", "who", "why"),
    [
        # caps: SDK clients of version 2 pay a dollar at most, those of version 1 and ours 0.10
        ([USDC_V2 | {"amount": "100000"}], {*V2, OURS}, {}),
        ([USDC_V2 | {"amount": "2000000"}], set(), {V2[0]: "2.00, more than 1.00", OURS: "0.10"}),
        (
            [USDC_V2 | {"amount": "1000000"}],
            {*V2},
            {OURS: "max_amount allows 0.10 USDC for one payment"},
        ),
        ([USDC_V1 | {"maxAmountRequired": "100001"}], {V1[1]}, {V1[0]: "0.100001, more than 0.10"}),
        ([USDC_V2 | {"amount": "2000000"}, USDC_V2], {*V2, OURS}, {V2[1]: "offer 2"}),
        # clients that refuse all offers for one that they cannot read
        ([AT_137, USDC_V1], {V1[1], OURS}, {V1[0]: "it refuses all for offer 1: network"}),
        ([USDC_V1 | UPTO, USDC_V1], {V1[1], OURS}, {V1[0]: "it refuses all for offer 1: scheme"}),
        ([USDC_V1 | {"mimeType": None}, USDC_V1], {V1[1], OURS}, {V1[0]: "mimeType is no text"}),
        ([USDC_V1 | {"resource": "http://["}], {V1[1], OURS}, {V1[0]: "resource is no URL"}),
        ([USDC_V1 | {"resource": "/page"}], {V1[1], OURS}, {V1[0]: "resource is no URL"}),
        ([USDC_V2 | {"amount": 10000}, USDC_V2], {OURS}, {V2[1]: "amount is no text"}),
        ([USDC_V2 | {"extra": 7}, USDC_V2], {OURS}, {V2[1]: "extra is no object"}),
        # clients that take the first offer, and fail if it is wrong
        ([USDC_V2 | {"payTo": "me"}, USDC_V2], {OURS}, {V2[0]: "it takes offer 1: payTo"}),
        # other chains, schemes, tokens
        ([kinds.SOLANA, USDC_V2], {*V2, OURS}, {V2[0]: "offer 2", OURS: "offer 2"}),
        ([USDC_V2 | UPTO, USDC_V2], {*V2, OURS, TOLD}, {V2[0]: "offer 2", TOLD: "offer 2"}),
        ([BY_PERMIT2], {*V2, TOLD}, {OURS: "only if told to: permit2=True"}),
        ([USDC_V2 | UPTO | {"extra": SETTLES}], {TOLD}, {V2[0]: "'upto' is not registered"}),
        ([kinds.YEN, USDC_V2], {*V2, OURS}, {V2[1]: "offer 2", OURS: "offer 2"}),
        ([kinds.YEN], set(), {V2[0]: "none of its default", OURS: "network is 'eip155:137', this"}),
        ([kinds.SOLANA], set(), {V2[1]: "is not registered", OURS: "network is 'solana:"}),
    ],
)
def test_who_would_pay_is_what_real_clients_do(
    accepts: list[Any], who: set[str], why: dict[str, str]
) -> None:
    """As npm's x402 1.2, @x402/core 2.27 and PyPI's x402 2.25 did with the same 402s."""
    told = examined(offering(*accepts))
    assert {name for name, can_pay in payers(told).items() if can_pay} == who
    reasons = {each["name"]: each["why"] for each in told["payers"]}
    for name, reason in why.items():
        assert reason in reasons[name]


def test_what_is_for_other_payers_is_not_called_wrong() -> None:
    with serving(offering(kinds.SOLANA, USDC_V2 | {"scheme": "batch"}, USDC_V2)) as url:
        done = run(url + "/page")
    assert done.exit_code == 0
    assert "not looked at: network of offer 1\n" in done.stdout
    assert "not looked at: scheme of offer 2\n" in done.stdout
    assert "wrong" not in done.stdout


@pytest.mark.parametrize(
    ("extra", "about", "seen"),
    [
        ({}, "extra.facilitatorAddress", "nothing"),
        ({"facilitatorAddress": checksum(UPTO_PROXY)}, "extra.facilitatorAddress", "upto proxy"),
        (SETTLES | {"proxy": checksum(OLDER_UPTO_PROXY)}, "extra.proxy", "older upto proxy"),
        (SETTLES | {"assetTransferMethod": "eip3009"}, "extra.assetTransferMethod", "'eip3009'"),
        (SETTLES, "allowance", "no sponsoring of gas is offered"),
    ],
)
def test_an_offer_by_permit2_is_looked_at(extra: dict[str, str], about: str, seen: str) -> None:
    told = examined(offering(USDC_V2 | UPTO | {"extra": extra}))
    found = {each["about"]: each for each in told["findings"]}[f"{about} of offer 1"]
    assert seen in found["seen"]
    assert payers(told)[TOLD] == (not found["stops"])


def test_no_place_to_pay_stops_two_steps_only() -> None:
    asked_for: list[tuple[str, bytes]] = []

    def answer(asked: Asked) -> Reply:
        asked_for.append((f"{asked.method} {asked.path}", asked.body))
        return Reply(404) if asked.path == "/api/pay" else right(asked)

    told = examined(answer)
    assert payers(told)["payer in two steps"] is False
    assert payers(told)["x402 v2, npm"]
    assert abouts(told) == ["POST /api/pay of offer 1"]
    assert ("POST /api/pay", b"{}") in asked_for  # and nothing that could pay


def test_the_public_cronos_paywall_is_paid_by_cronos_clients() -> None:
    offer = msgspec.to_builtins(wanted()) | {"extra": {"paymentId": "pay_1"}}

    def answer(asked: Asked) -> Reply:
        if asked.path == "/api/pay":
            return Reply(400, {"error": "missing payment fields"})
        accepts = [offer | {"resource": f"http://{asked.headers['host']}/page"}]
        return Reply(402, {"x402Version": 1, "error": "payment_required", "accepts": accepts})

    told = examined(answer)
    assert payers(told) == NOBODY | {"payer in two steps": True, "httpx, PaymentAuth": False}
    assert abouts(told) == ["extra of offer 1"]
    with serving(answer) as url:
        done = runner.run("pay", url + "/page")
    assert done.exit_code == 2
    assert "as the public Cronos paywall does" in done.stderr


def test_python_reads_seconds_that_are_a_text() -> None:
    for shop, (npm, python) in ((only_v1, V1), (only_v2, V2)):
        can_pay = payers(examined(partial(shop, maxTimeoutSeconds="300")))
        assert (can_pay[npm], can_pay[python]) == (False, True)


def test_version_2_in_the_body_lacks_its_header() -> None:
    told = examined(lambda asked: Reply(402, told_in(asked)[1]))
    assert not told["ok"]
    assert "header PAYMENT-REQUIRED" in abouts(told)
    reasons = {each["name"]: each["why"] for each in told["payers"]}
    assert all("in the body, and it reads the header" in reasons[client] for client in V2)


def test_an_offer_in_the_body_and_in_the_header_is_listed_once() -> None:
    def both(asked: Asked) -> Reply:
        said = told_in(asked)[1]
        return Reply(402, said, in_header(said))

    assert len(examined(both)["offers"]) == 1


def test_the_users_networks_are_known(tmp_path: Path) -> None:
    file = tmp_path / "networks.toml"
    file.write_text(MOON)
    there = {"network": "moon", "asset": checksum(TESTNET.asset)}

    def answer(asked: Asked) -> Reply:
        return only_two_steps(asked, wanted=there, network="moon")

    assert not examined(answer)["ok"]
    assert examined(answer, "--network-file", str(file))["ok"]
    with serving(answer) as url:
        assert "100.00 CHZ" in run(url + "/page", "--network-file", str(file)).stdout


def test_text_of_a_hostile_shop_acts_on_no_terminal() -> None:
    hostile = {"scheme": "\x1b[2J" * 40, "network": "a" * 500, "payTo": "\u202e" * 30}
    with serving(lambda asked: only_v1(asked, **hostile)) as url:
        done = run(url + "/page")
    assert done.exit_code == 1
    assert "\x1b" not in done.stdout
    assert "\u202e" not in done.stdout


def test_no_odd_value_stops_the_examination() -> None:
    url = "http://127.0.0.1/page"
    told, request = offers(REQUIRED, BASE_SEPOLIA, url=url), httpx.Request("GET", url)
    body, header = msgspec.to_builtins(told.body), json.loads(base64.b64decode(told.header))
    answers = [(each, header) for each in changed(body)] + [(body, h) for h in changed(header)]
    answers = answers[::3]  # of each field, a third of the odd values; decode reads them all
    paid = 0
    for said, sent in answers:
        answer = httpx.Response(402, json=said, headers=in_header(sent))
        found = examine(request, answer, NETWORKS, now_s=1_800_000_000)
        assert all(each.seen and each.wanted and each.do for each in found.findings)
        paid += found.can_be_paid
    assert len(answers) > 170
    assert paid > 130, "one offer is wrong, another is right"


# --- what shops of other people answer --------------------------------------------------


def paywall(asked: Asked) -> Reply:
    """A shop that sends browsers the SDK's page, 2.3 MB."""
    if "text/html" in asked.headers.get("accept", ""):
        return Reply(402, PAGE, HTML | in_header(told_in(asked)[1]))
    return right(asked)


def test_the_page_for_browsers_beside_the_header_is_left() -> None:
    told = examined(paywall, "-H", "Accept: text/html")
    assert payers(told)["x402 v2, npm"]
    assert payers(told)[OURS]
    (page,) = [each for each in told["findings"] if each["about"] == "body"]
    assert "the page that the x402 SDK sends to browsers" in page["seen"]
    assert "Accept: application/json" in page["do"]
    assert not page["stops"]
    assert "body" not in abouts(examined(paywall))


@pytest.mark.parametrize(
    ("told", "who"),
    [
        (lambda offer: Reply(402, offer), []),
        (lambda offer: Reply(402, {"accepts": [offer]}), ["x402 v1, npm"]),
        (lambda offer: Reply(402, {}, in_header({"x402Version": 1, "accepts": [offer]})), []),
    ],
    ids=["bare", "unversioned", "version 1 in the header"],
)
def test_offers_in_another_place_are_read_by_whom_they_are(told: Any, who: list[str]) -> None:
    found = examined(lambda asked: told(told_in(asked)[0]["accepts"][0]))
    assert [name for name, can_pay in payers(found).items() if can_pay] == who


def test_of_a_network_that_only_the_offer_describes_doctor_and_pay_say_the_same() -> None:
    for shop in (
        partial(only_v1, network="optimism-sepolia"),
        partial(only_v2, network="eip155:421614"),
    ):
        with serving(shop) as url:
            told = json.loads(run(url + "/page", "--json").stdout)
            paid = runner.run("pay", url + "/page", "--key", "0x" + "11" * 32)
        assert not payers(told)[OURS]
        assert paid.exit_code == 2


# --- the Bazaar --------------------------------------------------------------------------

GET = declaration("GET", {"page": 1})
OLD = {"outputSchema": {"input": {"type": "http", "method": "GET"}}}


def declared(asked: Asked, extensions: Any = GET, **changes: Any) -> Reply:
    """A shop of version 2 whose 402 declares its page."""
    header = told_in(asked)[1]
    offer = header["accepts"][0] | changes
    return Reply(402, {}, in_header(header | {"accepts": [offer], "extensions": extensions}))


def indexing(*urls: str, ends: bool = True) -> Any:
    """A facilitator whose list has these resources."""

    def answer(asked: Asked) -> Reply:
        assert asked.path.startswith("/f/discovery/resources?limit=100&offset=")
        is_over = ends and not asked.path.endswith("offset=0")
        return Reply(200, {"items": [] if is_over else [{"resource": url} for url in urls]})

    return answer


@pytest.mark.parametrize(
    ("shop", "about"),
    [
        (partial(declared, extensions={"bazaar": GET}), "extensions.bazaar"),
        (partial(declared, **OLD), "accepts[0]"),
        (partial(only_v2, **OLD), "accepts[0]"),
    ],
)
def test_why_no_index_would_list_it_is_a_note(shop: Any, about: str) -> None:
    told = examined(shop)
    assert told["ok"]
    assert about in abouts(told)
    assert not any(each["stops"] for each in told["findings"])
    assert told["listing"] is None, "no index was named"
    assert examined(declared)["findings"] == []


@pytest.mark.parametrize(
    ("shop", "index", "is_listed", "do"),
    [
        (declared, indexing("HERE"), True, ""),
        (partial(declared, extensions={"bazaar": GET["bazaar"] | {"routeTemplate": "/:id"}}),
         indexing("http://HOST/:id"), True, ""),
        (declared, indexing("http://elsewhere/"), False, "Settle a payment there"),
        (declared, indexing("http://elsewhere/", ends=False), None, "is unknown: look for it"),
        (declared, lambda _: Reply(404), None, "is unknown: give the URL"),
        (declared, lambda _: Reply(200, b"{"), None, "is unknown: give the URL"),
        (partial(declared, extensions={"bazaar": 1}), indexing(), False, "Mend the declaration"),
        (right, indexing(), False, "Declare it: extensions.bazaar"),
        (only_v1, indexing(), False, "Declare it: extensions.bazaar"),
        (partial(only_v1, **OLD), indexing(), False, "Settle a payment there"),
    ],
)  # fmt: skip
def test_whether_an_index_lists_it_and_what_to_do_if_not(
    shop: Any, index: Any, is_listed: bool | None, do: str
) -> None:
    with serving(shop) as url:

        def here(asked: Asked) -> Reply:
            reply: Reply = index(asked)
            listed = json.dumps(reply.body) if isinstance(reply.body, dict) else ""
            listed = listed.replace("HERE", url + "/page").replace("http://HOST", url)
            return replace(reply, body=json.loads(listed)) if listed else reply

        with serving(here) as facilitator:
            chosen = (url + "/page?q=1", "--index", facilitator + "/f/")
            done = run(*chosen)
            told, text = json.loads(run(*chosen, "--json").stdout), done.stdout
    assert done.exit_code == (1 if is_listed is False or not told["ok"] else 0)
    assert told["listing"]["is_listed"] is is_listed
    told_of = [each for each in told["findings"] if each["about"].startswith("index of")]
    if is_listed:
        assert told_of == []
        assert f"is listed by {facilitator}" in " ".join(text.split())
    else:
        assert do in told_of[0]["do"]
        assert "note: index of" in text


def test_an_index_that_takes_long_is_not_read_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "LOOK_UP_S", 0)
    asked: list[httpx.Request] = []

    def ask(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        return httpx.Response(200, json={"items": [{"resource": "http://elsewhere/"}]})

    answer = httpx.Response(402, request=httpx.Request("GET", "http://shop/"))
    found, (note,) = listing.look_up(answer, [], "http://index", ask)
    assert (found.is_listed, found.why) == (None, "")
    assert len(asked) <= 1
    assert "unknown" in note.do


def test_an_index_lists_the_resources_of_serve(server: LocalServer) -> None:
    chosen = (server.url + "/api/perp/market", "--json", "--index", server.url + "/facilitator")
    assert json.loads(run(*chosen).stdout)["listing"]["is_listed"]
