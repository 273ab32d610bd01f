"""What a story signs with the user's own key: `UsersWallet` decides, whatever a service says."""

import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import pytest
from msgspec.structs import replace

from tests.cli import runner
from tests.cli.shops import SHOP, Asked, Reply, serving
from x402sim import BASE_SEPOLIA, TESTNET, LiveWorld, Payer, PaymentAuth, World
from x402sim.clock import real_now
from x402sim.journal import HEADER
from x402sim.payer.core import PaymentFailed
from x402sim.payer.policies import PayerPolicy
from x402sim.policies import AtMost
from x402sim.protocol.crypto import checksum, recover
from x402sim.protocol.eip3009 import Permit, transfer_digest
from x402sim.protocol.header import authorization_of
from x402sim.protocol.messages import PaymentRequirements
from x402sim.protocol.networks import BASE, MAINNET, NETWORKS, Network
from x402sim.protocol.permit2 import PERMIT2, UPTO_PROXY
from x402sim.protocol.x402 import RequiredV2, requirements_v2, to_base64
from x402sim.story.stages import PAYER_KEY
from x402sim.world.world import Deployment

KEY = "0x" + "11" * 32


@dataclass
class Shop:
    """A service that offers everything but funds, and notes what is signed for real chains."""

    network: Network = TESTNET
    amount: str = "10000"
    got: list[str] = field(default_factory=list)
    said: dict[str, Any] = field(default_factory=dict)
    """Other answers of the control API, by path, and other fields of the world."""

    def __call__(self, asked: Asked) -> Reply:
        if asked.path == "/_sim/who":
            return Reply(200, self._who())
        if asked.path.startswith("/_sim/"):
            known = {"/_sim/balances": ["0"], "/_sim/journal?since=0": HEADER} | self.said
            return Reply(200, known.get(asked.path, []))
        if asked.path == "/api/pay":
            self.got.append(json.loads(asked.body)["paymentHeader"])
            said = {"error": "Invalid signature", "final": True}
            return Reply(400, said | {"reason": f"Unsupported network: {MAINNET.name}"})
        wanted = {
            "scheme": "exact",
            "network": self.network.name,
            "payTo": SHOP,
            "asset": checksum(self.network.asset),
            "maxAmountRequired": self.amount,
            "maxTimeoutSeconds": 300,
            "resource": asked.path,
        }
        said = {"error": "pay", "message": "pay", "paymentId": "pay_" + "a" * 32}
        named = {"network": self.network.name, "paymentRequirements": wanted}
        return Reply(402, said | named)

    def _who(self) -> dict[str, Any]:
        on = self.network
        return {
            "payTo": SHOP,
            "asset": checksum(on.asset),
            "tokenOwner": SHOP,
            "chain": "ledger",
            "network": on.name,
            "token": {"chainId": on.chain_id, "name": on.token_name, "symbol": on.token_symbol,
                      "version": on.token_version, "decimals": on.decimals},
            "offers": ["observe chain", "faults", "clock", "virtual time", "control chain"],
            "now": int(real_now() * 1000),
            "journal": 0,
            "service": True,
        } | self.said  # fmt: skip

    def valid(self) -> Iterator[Network]:
        """Yield the network on which each authorization that was sent is valid."""
        for header in self.got:
            auth, signature = authorization_of(header)
            for network in NETWORKS.values():
                with suppress(ValueError):
                    if recover(transfer_digest(auth, network.domain), signature) == auth.from_:
                        yield network


@pytest.mark.parametrize("network", [TESTNET, BASE_SEPOLIA], ids=lambda each: each.name)
def test_foreign_header_signs_for_no_real_money(network: Network) -> None:
    shop = Shop(network)
    with serving(shop) as url:
        on = Deployment(url, payer_key=KEY)
        World(on=on, network=network).play("foreign_header")
    valid = list(shop.valid())
    assert valid
    assert all(each.is_test for each in valid), valid


async def _signs_for_base(world: LiveWorld, alice: Payer) -> None:
    alice.sign(await alice.ask(), network=BASE)


async def _is_ahead(world: LiveWorld, alice: Payer) -> None:
    alice.skew_s = 3600
    alice.sign(await alice.ask())


async def _signs_long(world: LiveWorld, alice: Payer) -> None:
    alice.sign(await alice.ask(), valid_before=int(real_now()) + 3600)


async def _uses_the_wallet(world: LiveWorld, alice: Payer) -> None:
    auth = PaymentAuth(alice.wallet, network=world.network, max_amount="50", max_total="50")
    await alice.http.post("/api/perp/quote", json={}, auth=auth)


async def _owns_a_contract(world: LiveWorld, alice: Payer) -> None:
    alice.wallet.of_contract(SHOP)


async def _signs_by_permit2(world: LiveWorld, alice: Payer) -> None:
    wallet = alice.wallet
    terms = wallet.authorization(
        to=PERMIT2, amount_base=9_000_000, valid_after=0, valid_before=int(real_now()) + 60
    )
    message = wallet.permit2_authorization(UPTO_PROXY, BASE.asset, terms, PERMIT2)
    permit = Permit(wallet.address_bytes, PERMIT2, 9_000_000, 0, int(real_now()) + 60)
    with pytest.raises(PaymentFailed, match="no permit"):
        wallet.sign_permit(permit, BASE.domain)
    wallet.sign_permit2(message, BASE.chain_id)


async def _advances(world: LiveWorld, alice: Payer) -> None:
    await world.advance(86_400)


@pytest.mark.parametrize(
    ("story", "said"),
    [
        (_signs_for_base, "another main network"),
        (_is_ahead, "more than 300 s from now"),
        (_signs_long, "more than 300 s from now"),
        (_uses_the_wallet, "is left of the `budget`"),
        (_owns_a_contract, "signs for no contract"),
        (_signs_by_permit2, "signs no message of Permit2"),
        (_advances, "time is real where the user's own key pays"),
    ],
    ids=lambda each: each.__name__ if callable(each) else "",
)
def test_no_story_widens_what_the_users_key_signs(story: Any, said: str) -> None:
    async def at_alice(world: LiveWorld) -> None:
        await story(world, await world.payer("alice"))

    shop = Shop(amount="3000001" if story is _uses_the_wallet else "10000")
    with serving(shop) as url:
        played = World(on=Deployment(url, payer_key=KEY)).play(at_alice)
    assert (played.outcome, said in played.reason) == ("failed", True), played.reason
    assert shop.got == []


@pytest.mark.parametrize("has_body", [True, False], ids=["in the body", "of another network"])
@pytest.mark.parametrize("steps", [1, 2])
def test_a_budget_counts_the_offer_that_is_signed(has_body: bool, steps: int) -> None:
    """The cheap offer is one that is not signed: 0.01, and 2.50 in the header."""
    wanted = PaymentRequirements(
        scheme="exact", network=TESTNET.name, pay_to=SHOP, asset=checksum(TESTNET.asset),
        max_amount_required="2500000", max_timeout_seconds=300, resource="/x",
    )  # fmt: skip
    dear = requirements_v2(wanted, TESTNET)
    other = requirements_v2(replace(wanted, max_amount_required="10000"), BASE_SEPOLIA)
    shop = Shop()
    signed = list[str]()

    def answer(asked: Asked) -> Reply:
        if payment := asked.headers.get("payment-signature"):
            signed.append(payment)
        reply = shop(asked)
        if reply.status != 402:
            return reply
        offers = [dear] if has_body else [other, dear]
        header = {"PAYMENT-REQUIRED": to_base64(RequiredV2(x402_version=2, accepts=offers))}
        return Reply(402, reply.body if has_body else {}, header)

    async def buys(world: LiveWorld) -> None:
        policy = PayerPolicy(steps=steps, budget=AtMost(total="0.05", each="0.02"))
        alice = await world.payer("alice", policy=policy)
        await alice.fetch()

    with serving(answer) as url:
        run = World(on=Deployment(url, payer_key=KEY)).play(buys)
    assert signed == []
    if steps == 1 or not has_body:
        assert "SpendingCapExceeded" in str(run.reason)


def test_real_money_is_paid_only_if_it_is_allowed() -> None:
    async def buys(world: LiveWorld) -> None:
        with suppress(PaymentFailed):
            await (await world.payer("alice")).buy()

    shop = Shop(BASE)
    with serving(shop) as url:
        with pytest.raises(ValueError, match="real money, on base: allow it with --allow-mainnet"):
            World(on=Deployment(url, payer_key=KEY), network=BASE).play(buys)
        assert shop.got == []
        allowed = Deployment(url, payer_key=KEY, allow_mainnet=True)
        World(on=allowed, network=BASE).play(buys)
    assert set(shop.valid()) == {BASE}


def test_a_command_has_one_budget_and_says_who_pays(monkeypatch: pytest.MonkeyPatch) -> None:
    shop = Shop(amount="900000")
    names = ("foreign_header", "careful_client", "replay")
    with serving(shop) as url:
        monkeypatch.setenv(PAYER_KEY, KEY)
        done = runner.run("run", *names, "--on", url, "--budget", "2.00")
        assert "pays at most 2.00 tokens" in done.stderr
        assert "--budget 2.00" in done.stdout
        base = runner.run("run", "replay", "--on", url, "--network", "base")
    signed = {auth.nonce: auth.value for auth, _ in map(authorization_of, shop.got)}
    assert sum(signed.values()) == 1_800_000, "two authorizations, and no third"
    assert base.exit_code == 2
    assert "--allow-mainnet" in base.stderr


@pytest.mark.parametrize("said", [[], ["x"], ["9" * 5_000], ["1", "2"]], ids=["no", "x", "9", "2"])
def test_an_unreadable_balance_is_a_connection_error(said: list[str]) -> None:
    with serving(Shop(said={"/_sim/balances": said})) as url, pytest.raises(ConnectionError):
        World(on=url).play("replay")


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ({"/_sim/journal?since=0": b"no journal"}, "the world's journal cannot be read"),
        ({"asset": "0x12"}, "does not offer"),
    ],
)
def test_a_run_at_a_world_that_cannot_be_read_is_reported(said: dict[str, Any], reason: str):
    with serving(Shop(said=said)) as url:
        run = World(on=url).play("authorization_flow")
    assert (run.outcome == "passed", reason in run.reason) == (False, True)
