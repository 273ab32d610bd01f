"""No claim of a paid server widens the signatures of `pay` and `PaymentAuth`.

Each row is a host that lies in a single fact. A payment to the host is within the user's cap, for
minutes from now, on the chain and for the token of our table, to the payee of the offer, and signed
once.
"""

import json
import shlex
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from click.testing import Result

from tests.bounded import hostile_peer
from tests.cli import runner
from tests.cli.shops import MOON, SHOP, Asked, Reply, serving
from x402sim import LiveWorld, LocalServer, PaymentAuth, PaymentFailed, SessionAuth, Wallet, World
from x402sim.backends import Deployment
from x402sim.clock import real_now, stopwatch
from x402sim.commands import pay, purchase
from x402sim.journal import HEADER
from x402sim.protocol import x402
from x402sim.protocol.crypto import checksum, parse_address, recover
from x402sim.protocol.eip3009 import transfer_digest
from x402sim.protocol.header import read_header
from x402sim.protocol.messages import MAX_BRACKETS
from x402sim.protocol.networks import BASE, BASE_SEPOLIA, TESTNET, Network

KEY = "0x" + "11" * 32
PAYER = Wallet(KEY)
YEARS_S = 10 * 365 * 86_400
HUGE = str(10**17)  # 0.1 of a token of 18 decimals; of USDC a hundred billion
run = partial(runner.run, "pay")


def offer(on: Network = BASE_SEPOLIA, amount: Any = "10000", **changes: Any) -> dict[str, Any]:
    return {
        "scheme": "exact",
        "network": on.caip2,
        "amount": amount,
        "maxAmountRequired": amount,
        "resource": "http://127.0.0.1/page",
        "asset": checksum(on.asset),
        "payTo": SHOP,
        "maxTimeoutSeconds": 60,
        "extra": {"name": on.token_name, "version": on.token_version},
    } | changes


def in_two_steps(resource: str = "/page", **changes: Any) -> Reply:
    """A 402 in two steps, on base-sepolia."""
    wanted = offer(network="base-sepolia", resource=resource, description="x", **changes)
    said = {"error": "pay", "message": "pay", "network": "base-sepolia", "paymentId": "pay_a"}
    return Reply(402, said | {"paymentRequirements": wanted})


def world(network: Network = BASE_SEPOLIA, ahead_s: float = 0, **changes: Any) -> dict[str, Any]:
    """The host's answer at /_sim/who."""
    token = {
        "chainId": network.chain_id,
        "name": network.token_name,
        "symbol": network.token_symbol,
        "version": network.token_version,
        "decimals": network.decimals,
    }
    return {
        "payTo": SHOP,
        "asset": checksum(network.asset),
        "tokenOwner": SHOP,
        "chain": "ledger",
        "network": changes.pop("named", network.name),
        "token": token | changes,
        "offers": [],
        "now": int((real_now() + ahead_s) * 1000),
        "journal": 0,
        "service": True,
    }


@dataclass
class Host:
    """A host that takes every payment, in version 1 or 2, and lies."""

    accepts: list[list[dict[str, Any]]]
    """The offers of the first 402, and of later ones."""
    who: dict[str, Any] = field(default_factory=world)
    headers: dict[str, str] = field(default_factory=dict)
    is_greedy: bool = False
    """Whether the host answers a payment with another 402."""
    unpaid: int = 0
    got: list[tuple[Any, bytes]] = field(default_factory=list)
    """The authorizations and signatures received."""

    def __call__(self, asked: Asked) -> Reply:
        if asked.path == "/_sim/who":
            return Reply(200, self.who)
        if asked.path == "/_sim/accounts":
            balance = {"balance": "1", "balanceDecimal": "1.00"}
            return Reply(200, [{"address": PAYER.address, "privateKey": KEY, **balance}])
        for version, name in x402.PAYMENT_HEADERS.items():
            if (text := asked.headers.get(name.lower())) is not None:
                signed = x402.read_payment(version, text).signed
                self.got.append((signed.authorization, signed.signature))
                if not self.is_greedy:
                    return Reply(200, {"page": 1}, self.headers)
        accepts = self.accepts[min(self.unpaid, len(self.accepts) - 1)]
        self.unpaid += 1
        said = {"x402Version": 2, "resource": {"url": "http://127.0.0.1/page"}, "accepts": accepts}
        header = {"PAYMENT-REQUIRED": x402.to_base64(said)}
        return Reply(402, said | {"x402Version": 1}, header | self.headers)

    def assert_harmless(self, purchases: int = 1) -> None:
        now_s = real_now()
        assert len({auth.nonce for auth, _ in self.got}) <= purchases
        for auth, signature in self.got:
            assert 0 <= auth.value <= 100_000
            assert now_s - 700 <= auth.valid_after <= now_s
            assert auth.valid_before <= now_s + 301
            assert auth.to == parse_address(SHOP)
            digest = transfer_digest(auth, BASE_SEPOLIA.domain)
            assert recover(digest, signature) == PAYER.address_bytes


DATE = {"Date": "Fri, 01 Jan 2100 00:00:00 GMT"}
NAMED = {"extra": {"name": "Mine", "version": "1"}}
DEEP = {"extra": offer()["extra"] | {"decimals": 18}}
NEVER = {
    "a main network": Host([[offer(BASE)]]),
    "a main network that its world is on": Host([[offer(BASE)]], world(BASE)),
    "decimals of a main network": Host([[offer(BASE, HUGE)]], world(BASE, decimals=18)),
    "decimals, under a name of its own": Host(
        [[offer(BASE, HUGE, network="mine")]], world(BASE, named="mine", decimals=18)
    ),
    "decimals, under its chain's name": Host(
        [[offer(BASE_SEPOLIA, HUGE)]], world(BASE_SEPOLIA, named="mine", decimals=18)
    ),
    "a chain of its own": Host(
        [[offer(BASE_SEPOLIA, network="eip155:9")]], world(BASE_SEPOLIA, named="mine", chainId=9)
    ),
    "decimals in extra": Host([[offer(amount=HUGE, **DEEP)]]),
    "the token's domain": Host([[offer(**NAMED)]], world(BASE_SEPOLIA, name="Mine", version="1")),
    "an amount above the cap": Host([[offer(amount="100001")]]),
    **{
        f"the amount {amount!r}"[:40]: Host([[offer(amount=amount)]])
        for amount in ("-1", "1e9", "0x10", " 1", "9" * 90, "٣", "1.0", 10000, -1, None, [], True)
    },
    **{f"{s!r} seconds": Host([[offer(maxTimeoutSeconds=s)]]) for s in (-1, 0, 2**40, "60", 1.5)},
    "a payee that is none": Host([[offer(payTo="me")]]),
}
"""Hosts that get nothing."""
WITHIN = {
    "no lie": Host([[offer()]]),
    "its clock, years ahead": Host([[offer(maxTimeoutSeconds=3600)]], world(ahead_s=YEARS_S)),
    "its clock, years behind": Host([[offer()]], world(ahead_s=-YEARS_S)),
    "its clock, for ever": Host([[offer()]], world(ahead_s=1e80)),
    "its header Date": Host([[offer()]], headers=DATE),
    "the time to pay": Host([[offer(maxTimeoutSeconds=2**31 - 1)]]),
    "the offers before": Host([[offer(amount=HUGE), offer(BASE), offer(**NAMED), offer()]]),
    "prices that rise": Host([[offer()], [offer(amount="90000")], [offer(amount=HUGE)]]),
    "what was paid": Host([[offer()], [offer(amount="90000")]], is_greedy=True),
}
"""Hosts that get one payment, within the user's limits."""
Pay = Callable[[str], object]


def auth_pays(auth: Callable[[], httpx.Auth], url: str) -> None:
    with httpx.Client(auth=auth(), trust_env=False, follow_redirects=True) as http:
        for _ in range(2):
            with suppress(PaymentFailed):
                http.get(url)


PAYERS: dict[str, Pay] = {
    "pay": lambda url: run(url, "--key", KEY, "--max", "0.10"),
    "PaymentAuth": partial(
        auth_pays, lambda: PaymentAuth(PAYER, max_amount="0.10", network=BASE_SEPOLIA)
    ),
}


def command_pays(url: str) -> None:
    for options in ((), ("--steps", "1"), ("--session",), ("--wrong", "amount")):
        run(url, "--key", KEY, "--max", "0.10", *options)


@pytest.mark.parametrize("pays", [command_pays, PAYERS["PaymentAuth"]], ids=PAYERS)
@pytest.mark.parametrize("lie", NEVER)
def test_a_host_that_lies_gets_nothing(lie: str, pays: Pay) -> None:
    host = Host(NEVER[lie].accepts, NEVER[lie].who)
    with serving(host) as url:
        pays(url + "/page")
    assert host.unpaid >= 1
    assert host.got == []


@pytest.mark.parametrize("payer", PAYERS)
@pytest.mark.parametrize("lie", WITHIN)
def test_a_host_that_lies_gets_one_payment_within_the_cap(lie: str, payer: str) -> None:
    like = WITHIN[lie]
    host = Host(like.accepts, like.who, like.headers, like.is_greedy)
    with serving(host) as url:
        PAYERS[payer](url + "/page")
    assert host.got
    host.assert_harmless(2 if payer == "PaymentAuth" and not host.is_greedy else 1)


@pytest.mark.parametrize("payer", PAYERS)
def test_a_redirect_to_another_host_is_not_paid(payer: str) -> None:
    host = Host([[offer()]])
    with serving(host) as there, serving(lambda _: Reply(307, b"", {"location": there})) as url:
        PAYERS[payer](url + "/page")
    assert host.got == []


def test_a_deposit_is_what_the_user_says() -> None:
    """A session's 402 asks for more than the deposit, in two steps."""
    paid: list[bytes] = []

    def shop(asked: Asked) -> Reply:
        if asked.path == "/api/pay":
            paid.append(asked.body)
        return in_two_steps(asked.path, maxAmountRequired=HUGE)

    with serving(shop) as url:
        assert run(url + "/page", "--key", KEY, "--session", "--max", "0.10").exit_code == 2
        deposits = SessionAuth(PAYER, deposit="0.10", network=BASE_SEPOLIA)
        auth_pays(lambda: deposits, url + "/page")
    assert paid == []


@pytest.mark.parametrize("number", ["0", "-0", "1", "100000"])
def test_two_steps_and_version_1_are_signed_within_the_same_bounds(number: str) -> None:
    host, paid = Host([]), list[str]()

    def shop(asked: Asked) -> Reply:
        if asked.path.startswith("/_sim/"):
            return Reply(
                200, world(BASE_SEPOLIA, YEARS_S, decimals=18) if "who" in asked.path else []
            )
        if asked.path == "/api/pay":
            paid.append(json.loads(asked.body)["paymentHeader"])
        return in_two_steps(maxAmountRequired=number, maxTimeoutSeconds=2**31 - 1)

    with serving(shop) as url:
        PAYERS["pay"](url + "/page")
    signed = [read_header(text) for text in paid]
    host.got = [(each.authorization, each.signature) for each in signed]
    assert bool(host.got) == number.isdecimal()
    host.assert_harmless()


@pytest.mark.parametrize(("price", "payments"), [("10000", 1), ("3000001", 0), (HUGE, 0)])
def test_a_story_at_a_url_signs_with_the_users_key_within_the_same_bounds(
    price: str, payments: int
) -> None:
    got: list[str] = []

    def shop(asked: Asked) -> Reply:
        if asked.path == "/_sim/who":
            return Reply(200, world(BASE, YEARS_S, decimals=18))
        if asked.path.startswith("/_sim/"):
            said = {"/_sim/balances": ["0"], "/_sim/journal?since=0": HEADER}
            return Reply(200, said.get(asked.path, []))
        if asked.path == "/api/pay":
            got.append(json.loads(asked.body)["paymentHeader"])
            return Reply(500)
        return in_two_steps(asked.path, maxAmountRequired=price)

    async def story(live: LiveWorld) -> None:
        await (await live.payer("alice")).buy()

    with serving(shop) as url:
        played = World(network=BASE_SEPOLIA, on=Deployment(url, payer_key=KEY)).play(story)
    assert ("is left of the `budget`" in played.reason) == (payments == 0), played.reason
    host, signed = Host([]), [read_header(text) for text in got]
    host.got = [(each.authorization, each.signature) for each in signed]
    assert len(host.got) == payments
    host.assert_harmless()


OTHER = "0x3C44CdDdB6a900fa2b585dd299e03d12FA4293BC"
BARE = offer(network=BASE_SEPOLIA.name, amount="1000", resource="/page")
del BARE["extra"]
CHEAP = offer(amount="1000")


@pytest.mark.parametrize(
    "body",
    [
        BARE,
        {name: each for name, each in CHEAP.items() if name != "maxAmountRequired"},
        {"x402Version": 2, "accepts": [CHEAP]},
        {"x402Version": 2, "accepts": [offer(payTo=OTHER)]},
    ],
)
@pytest.mark.parametrize("options", [(), ("--wrong", "resource"), ("--session",)])
def test_what_is_shown_is_what_is_signed(body: dict[str, Any], options: tuple[str, ...]) -> None:
    """The body offers another price, or another payee, than the header, which is paid."""
    host = Host([[offer()]])

    def lies(asked: Asked) -> Reply:
        reply = host(asked)
        return replace(reply, body=body) if reply.status == 402 else reply

    with serving(lies) as url:
        done = run(url + "/page", "--key", KEY, "--max", "0.01", *options)
    if host.got:  # of a session, the newest 402 is shown
        assert (options, body) == (("--session",), BARE)
        assert done.stderr.count("price          10000 = 0.01 USDC") == 1
        return
    assert "contradicts itself" in done.stderr or "nothing was paid" in done.stderr


def test_a_402_that_is_too_deep_to_be_repeated_is_told_and_leaves_nothing(tmp_path: Path) -> None:
    """The 402 has one bracket fewer than is read, and the payment, which repeats it, one more."""
    host = Host([[offer()]])

    def nested(asked: Asked) -> Reply:
        reply = host(asked)
        if reply.status != 402:
            return reply
        said = reply.body | {"x402Version": 2, "extensions": {"z": [[]] * (MAX_BRACKETS - 7)}}
        return replace(reply, headers={"PAYMENT-REQUIRED": x402.to_base64(said)})

    with serving(nested) as url:
        for _ in range(2):
            done = run(url + "/page", "--key", KEY, "--state-dir", str(tmp_path))
            assert "the payment repeats parts of the 402 that cannot be read" in done.stderr
    assert (host.got, [*tmp_path.glob("*.json")]) == ([], [])


SHOWN = ("X-Payment-Id", "X-Session-Id", *x402.PAYMENT_HEADERS.values())


def shows(name: str, url: str) -> None:
    """Send a request with a proof of its own, by each payer."""
    for options in ((), ("--session",), ("--wrong", "amount")):
        done = run(url, "--key", KEY, "-H", f"{name}: mine", *options)
        assert done.exit_code == 2
        assert "itself shows a payment" in done.stderr
    with httpx.Client(trust_env=False) as http:
        auths = [PaymentAuth(PAYER, network=BASE_SEPOLIA), SessionAuth(PAYER, network=BASE_SEPOLIA)]
        for auth in auths:
            with pytest.raises(PaymentFailed, match="itself shows a payment"):
                http.get(url, auth=auth, headers={name: "mine"})


@pytest.mark.parametrize("name", SHOWN)
def test_a_request_that_shows_a_payment_gets_no_other(name: str) -> None:
    """`pay` itself says to send the request with the proof of a payment that may still be made."""
    host, asked_for = Host([[offer()]]), list[Asked]()

    def shop(asked: Asked) -> Reply:
        asked_for.append(asked)
        shown = {each.lower() for each in SHOWN}
        without = {name: text for name, text in asked.headers.items() if name not in shown}
        return host(replace(asked, headers=without))

    with serving(shop) as url:
        shows(name, url + "/page")
    seen = [it.headers.get(name.lower()) for it in asked_for if it.path == "/page"]
    assert set(seen) == {"mine"}
    assert {asked.path for asked in asked_for if asked.method == "POST"} == set()


def test_a_page_at_the_path_of_settlements_is_paid() -> None:
    host = Host([[offer()]])
    with serving(host) as url:
        assert run(url + "/api/pay", "--key", KEY).exit_code == 0
    host.assert_harmless()


def test_a_wrong_payment_that_may_be_made_is_called_so() -> None:
    host = Host([[offer()]], is_greedy=True)
    with serving(host) as url:
        done = run(url + "/page", "--key", KEY, "--wrong", "resource")
        assert "it can be used until" in " ".join(done.stdout.split())
        assert "can be used" not in run(url + "/page", "--key", KEY, "--wrong", "expired").stdout
        done = run(url + "/page", "--key", KEY, "--network", "base", "--wrong", "resource")
        runner.assert_misuse(done, "--wrong is for test networks")


CENTS = Network("cents", 31337, b"\xcd" * 20, "Cents", "CENT", "1", 2)


def test_a_replay_is_signed_for_the_network_of_the_payment_only(tmp_path: Path) -> None:
    """The same amount is ten thousand times as much in a token of two decimals."""
    host, networks = Host([[offer()], [offer(CENTS, "10")]]), tmp_path / "networks.toml"
    networks.write_text(
        MOON.replace("moon", "cents")
        .replace("7", "31337", 1)
        .replace("Cheese", "Cents")
        .replace('"3"', '"1"')
        .replace(checksum(TESTNET.asset), checksum(CENTS.asset))
    )
    with serving(host) as url:
        wrong = ("--wrong", "replay", "--network-file", str(networks))
        done = run(url + "/page", "--key", KEY, *wrong)
    assert "nothing more was signed" in done.stderr, done.output
    assert len(host.got) == 1


@pytest.mark.parametrize("there", ["http:foo", "mailto:x", "http://xn--/", "http://[x"])
def test_a_redirect_to_no_url_is_told_with_the_payment(there: str) -> None:
    def shop(asked: Asked) -> Reply:
        paid = host(asked)
        return Reply(302, {}, {"Location": there}) if host.got else paid

    host = Host([[offer()]])
    with serving(shop) as url:
        done = run(url + "/page", "--key", KEY)
    assert done.exit_code == 1
    assert "it can be used until" in " ".join(done.stderr.split())


def test_an_option_to_repeat_is_one_word_of_a_shell() -> None:
    said = "x';touch y;'"
    shown = pay.proof_in(httpx.Request("GET", "http://shop", headers={"X-Payment-Id": said}))
    assert shlex.split(shown) == ["-H", f"X-Payment-Id: {said}"]


@pytest.mark.parametrize("habit", ["slow_head", "endless_continue", "slow_body"])
def test_no_answer_beside_the_payment_holds_the_command(habit: str) -> None:
    with hostile_peer.serving() as peer, purchase.client() as http:
        for method in ("GET", "POST"):
            request = http.build_request(method, f"{peer.url}/{habit}/200", json={})
            waited_s = stopwatch()
            with pytest.raises(httpx.HTTPError):
                purchase.answer_to(http, request, deadline_s=0.3)
            assert waited_s() < hostile_peer.PATIENCE_S / 2


# --- what the user may say -----------------------------------------------------------------


def test_the_user_names_a_main_network() -> None:
    host = Host([[offer(BASE)]])
    with serving(host) as url:
        refused = run(url + "/page", "--key", KEY)
        assert "the 402 asks for real money, on base; --network base allows that" in refused.stderr
        assert host.got == []
        assert run(url + "/page", "--key", KEY, "--network", "base").exit_code == 0
    assert len(host.got) == 1


def ahead(server: LocalServer, *options: str) -> Result:
    return run(server.url + "/api/perp/market", *options)


def test_the_user_names_a_world_whose_clock_is_ahead() -> None:
    with LocalServer() as server:
        server.advance(3600)
        refused = ahead(server)
        assert refused.exit_code == 1
        assert "3600 s ahead, which a payer does not believe by itself" in refused.stderr
        assert "the two clocks differ. " in refused.stderr, "one full stop"
        assert refused.stderr.rstrip().endswith(f"add --world {server.url}")
        assert server.transfers(server.wallets[0].address)[1:] == []
        assert ahead(server, "--world", server.url).exit_code == 0
        runner.assert_misuse(ahead(server, "--world", server.url + "/api"), "--world")


def test_the_user_names_a_world_with_a_token_of_its_own() -> None:
    own = Network("moon", 7, BASE_SEPOLIA.asset, "Cheese", "CHZ", "3", 2)
    with LocalServer(network=own) as server:
        refused = ahead(server)
        assert refused.exit_code == 2
        assert "its network is 'moon', which a payer does not believe" in refused.stderr
        assert ahead(server, "--world", server.control_url).exit_code == 0


@pytest.mark.parametrize("options", [(), ("--key", KEY)])
@pytest.mark.parametrize("lie", [lie for lie in NEVER if "decimals" in lie])
def test_a_world_does_not_change_the_decimals_of_a_known_token(
    lie: str, options: tuple[str, ...]
) -> None:
    host = Host(NEVER[lie].accepts, NEVER[lie].who)
    with serving(host) as url:
        assert run(url + "/page", *options, "--world", url).exit_code == 2
    assert host.got == []


@pytest.mark.parametrize(
    "lie",
    [
        *({"decimals": each} for each in (4 * 10**8, -5, 37)),
        *({"chainId": each} for each in (2**300, 0, -1)),
        *({"ahead_s": each} for each in (-(10**12), -int(real_now()), 10**27)),
    ],
)
def test_a_number_of_a_world_has_bounds(lie: dict[str, int]) -> None:
    told = json.dumps(world(**lie)).encode()  # type: ignore[arg-type]
    with serving(lambda asked: Reply(200, told if asked.path == "/_sim/who" else [])) as url:
        runner.assert_misuse(run(url + "/page", "--world", url), "--world", "Expected `int`")


def test_a_world_does_not_say_where_the_users_own_key_pays() -> None:
    real = Host([[offer(BASE)]], world(BASE))
    other = replace(BASE, name="mine", asset=b"\xab" * 20, token_name="Euro Coin")
    own = Host([[offer(other, network="mine")]], world(other, decimals=18))
    for host in real, own:
        with serving(host) as url:
            assert run(url + "/page", "--key", KEY, "--world", url).exit_code == 2
        assert host.got == []


def test_a_world_does_not_say_what_time_it_is_where_money_is_real() -> None:
    host = Host([[offer(BASE)]], world(ahead_s=600))
    options = ("--key", KEY, "--network", "base")
    with serving(host) as url:
        done = run(url + "/page", *options, "--world", url)
        assert "--world is believed for test networks only" in done.stderr
        assert host.got == []
        host.who = world()
        assert run(url + "/page", *options, "--world", url).exit_code == 0
