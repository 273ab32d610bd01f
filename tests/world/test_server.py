"""LocalServer as a person uses it, rightly and wrongly; the banner; a web page's rights."""

import asyncio
import re
from typing import Any

import httpx
import pytest
from msgspec.structs import replace

from tests.rig import ORDER
from tests.serve.driver import exchange
from x402sim import Fault, LiveWorld, LocalServer, Network, PaymentAuth, Settings, World
from x402sim.commands.serve import quick_start, show
from x402sim.events import AnswerSent
from x402sim.serving.control.client import ControlError
from x402sim.serving.listen import Listen

PAGE = "http://localhost:3000"


def test_it_can_be_started_again_after_it_was_stopped_and_has_urls_while_it_runs() -> None:
    server = LocalServer()
    for _ in range(2):
        with server:
            auth = PaymentAuth(server.wallets[0])
            url = f"{server.url}/api/perp/quote"
            assert httpx.post(url, json=ORDER, auth=auth).status_code == 200
            with pytest.raises(RuntimeError, match="is running already, at http"):
                server.start()
        with pytest.raises(httpx.ConnectError):
            httpx.get(url)
        for name in ("url", "wallets", "facilitator_url", "explorer_url", "rpc_url", "control_url"):
            with pytest.raises(RuntimeError, match="not running: use `with LocalServer"):
                getattr(server, name)


def test_a_test_of_a_payer_changes_its_world_and_asks_it() -> None:
    with LocalServer(seed=1) as server:
        payer, other = server.wallets[:2]
        lost = Fault(victim="facilitator", does="lose answer", path="/settle")
        server.fault(lost)
        auth = PaymentAuth(payer, network=server.network, clock=server.clock)
        order = f"{server.url}/api/perp/quote"
        assert httpx.post(order, json=ORDER, auth=auth).status_code == 200
        assert server.parts.faults.is_empty
        answered = [entry.event for entry in server.journal.of(AnswerSent)]
        assert ("service", "/api/pay", 200) in [(it.actor, it.path, it.status) for it in answered]
        (paid,) = server.transfers(payer.address.lower())
        assert paid.to == server.info.pay_to
        assert server.transfers() == server.transfers(paid.to) == [paid]
        assert server.transfers(other.address) == []
        assert server.balance(payer.address) == 1000_000000 - 10_000

        server.advance(3600)
        assert server.clock.offset_s == 3600
        with pytest.raises(ControlError, match="did you mean '/settle'"):
            server.fault(replace(lost, path="/setle"))
        with pytest.raises(ControlError, match="0xabc"):
            server.transfers("0xabc")

        server.fault(lost)
        server.reset()
        assert (server.transfers(), server.balance(payer.address)) == ([], 1000_000000)
        assert server.parts.faults.is_empty


def test_one_world_is_played_and_served() -> None:
    world = World(seed=3, service=Settings(quote_price="0.05"), network="base-sepolia")

    async def story(it: LiveWorld) -> None:
        alice = await it.payer("alice", balance="1.00")
        assert (await alice.ask()).price_base == 50_000

    assert (
        world.play(story).raise_for_failure().journal.ndjson() == world.play(story).journal.ndjson()
    )
    accounts = []
    for served in (LocalServer(world), LocalServer(world, accounts=2)):
        with served as server:
            assert server.network.name == "base-sepolia"
            required = httpx.get(server.url + "/api/perp/market").json()
            assert required["paymentRequirements"]["maxAmountRequired"] == "50000"
            accounts.append([wallet.address for wallet in server.wallets])
    assert accounts[1] == accounts[0][:2]
    assert world == World(seed=3, service=Settings(quote_price="0.05"), network="base-sepolia")


def test_a_world_without_a_seed_has_known_accounts_and_new_secrets_each_time_it_is_served() -> None:
    world, ids, wallets = World(), set(), set()
    for _ in range(2):
        with LocalServer(world) as server:
            ids.add(httpx.get(server.url + "/api/perp/market").json()["paymentId"])
            wallets.add(server.wallets[0].address)
            assert server.parts is not None
            ids.add(server.parts.service.env.secret)
    assert len(ids) == 4
    assert wallets == {"0xf39Fd6e51aad88F6F4ce6aB8827279cffFb92266"}
    assert len({world.play("replay").sha256, World(seed=0).play("replay").sha256}) == 1


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"on": "tcp"}, "on: a server is a place of its own, and cannot be tcp"),
        ({"latency": {"rpc": 0.1}}, "latency: it is for scenarios, and a server cannot have it"),
        ({"journal": "run.ndjson"}, "journal: it is for scenarios, and a server cannot have it"),
    ],
)
def test_what_a_server_cannot_do_is_refused_when_it_starts(
    options: dict[str, Any], says: str
) -> None:
    with pytest.raises(ValueError, match=f"^{says}$"):
        LocalServer(World(**options)).start()


def test_its_async_twin_has_a_client_whose_methods_are_coroutines() -> None:
    async def main() -> None:
        async with LocalServer(service=Settings(quote_price="0.05")) as server:
            control, wallet = server.control, server.wallets[0]
            async with httpx.AsyncClient(base_url=server.url, auth=PaymentAuth(wallet)) as http:
                assert (await http.post("/api/perp/quote", json=ORDER)).status_code == 200
            assert await control.balance(wallet.address) == 1000_000000 - 50_000
            assert await control.transfers(wallet.address) == server.transfers()
        with pytest.raises(RuntimeError, match="async with LocalServer"):
            _ = server.control

    asyncio.run(main())


OWN = Network("my-net", 4711, b"\xab" * 20, 'My "Dollar"', "MYD", "3", 18)


def test_the_banners_program_can_be_pasted_and_any_chain_is_shown(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with LocalServer(network=OWN) as server:
        show(replace(server.info, chain="a new kind"), None)
        printed = capsys.readouterr().out
        assert re.search("^chain +a new kind *$", printed, re.MULTILINE)
        program = quick_start(server.info)
        for line in program:
            assert f"\n{line}\n" in printed
        exec(compile("\n".join(program), "banner", "exec"), {})
    assert "entryPrice" in capsys.readouterr().out


HEADS = [
    b"",
    b"Host: 127.0.0.1\r\nHost: 127.0.0.1\r\n",
    b"Host: 127.0.0.1\r\nhost: evil.test\r\n",
    b"Host: evil.test\r\nHost: 127.0.0.1\r\n",
]


def test_a_request_without_a_host_or_with_two_is_refused() -> None:
    with LocalServer() as server:
        address = ("127.0.0.1", httpx.URL(server.url).port or 0)
        for target in (b"/_sim/accounts", b"/rpc", b"/api/agents", b"/explorer/api", b"/nowhere"):
            for head in HEADS:
                for version in (b"1.1", b"1.0"):
                    line = b"GET " + target + b" HTTP/" + version + b"\r\n"
                    answer = exchange(address, line + head + b"Connection: close\r\n\r\n")
                    assert answer.startswith(b"HTTP/1.1 400 "), answer
                    assert b'"error":"Invalid Host header"' in answer


def test_a_page_that_is_let_in_may_pay_and_read_the_receipt() -> None:
    server = LocalServer()
    server._listen = Listen(port=0, allow_origins=(PAGE,))
    asks = {
        "Origin": PAGE, "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "x-payment-id, content-type",
    }  # fmt: skip
    with server:
        assert httpx.options(f"{server.url}/api/perp/quote", headers=asks).status_code == 200
        market = httpx.get(f"{server.url}/api/perp/market", headers={"Origin": PAGE})
    readable = market.headers["access-control-expose-headers"].split(", ")
    assert "PAYMENT-REQUIRED" in market.headers
    headers = {"PAYMENT-REQUIRED", "PAYMENT-RESPONSE", "X-PAYMENT-RESPONSE", "X-Payment-Id"}
    assert set(readable) == headers
